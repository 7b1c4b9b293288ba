"""Contract entries as flows, groups and meters, and back; what is not exactly ours is not taken for ours."""

from hypothesis import given, settings
from hypothesis import strategies as st
from os_ken.ofproto import ofproto_v1_3 as of13
from os_ken.ofproto import ofproto_v1_3_parser as parser
from os_ken.ofproto.ofproto_protocol import ProtocolDesc

from controller.planes.base import (
    FallbackLink,
    Nexthop,
    NexthopGroup,
    Policer,
    PuntClass,
    RouterInterface,
    burst,
)
from controller.planes.openflow import codec, program
from controller.planes.openflow.codec import Flow
from controller.planes.openflow.policers import MeterLayout, find_policer, meter_rate, policer_flows
from controller.planes.openflow.program import Kind
from tests.property import entry_strategies
from tests.property.entry_strategies import macs

quick = settings(max_examples=40, deadline=None)
PROTOCOL = ProtocolDesc(4)

numbers = st.integers(1, 0xFFFFFFFF)
links = st.none() | st.builds(FallbackLink, st.integers(1, 0xFFFFFF00), st.integers(1, 4094))
interfaces = st.builds(
    RouterInterface,
    id=numbers,
    vrf_id=numbers,
    port=st.integers(1, 0xFFFFFF00),
    vlan=st.integers(0, 4094),
    mac=macs,
    mtu=st.integers(68, 9216),
    virtual_macs=st.lists(macs, max_size=3, unique=True).map(tuple),
    enabled=st.booleans(),
    fallback=links,
).filter(lambda each: each.mac not in each.virtual_macs and each.fallback != FallbackLink(each.port, each.vlan))
nexthops = entry_strategies.nexthops(numbers)
groups = entry_strategies.groups(st.integers(1, 0xFFFFFF00))
policers = entry_strategies.policers(numbers)
classes = st.permutations(list(PuntClass))
layouts = st.tuples(classes, st.integers(0, 6), st.integers(0, 5)).map(
    lambda drawn: MeterLayout((frozenset(drawn[0][: drawn[1]]), frozenset(drawn[0][6 : 6 + drawn[2]])))
)
"""Two sets of classes, with a class or none that share nothing."""


def flows_of(interface: RouterInterface, generation: int) -> list[Flow]:
    makers = program.egress_flows, program.way_back_flows, program.ingress_flows
    return [flow for make in makers for flow in make(interface, generation)]


@quick
@given(interfaces, st.integers(0, 3))
def test_router_interfaces_are_read_back(interface: RouterInterface, generation: int) -> None:
    assert program.find_router_interface(interface.id, flows_of(interface, generation)) == interface


@quick
@given(interfaces, st.data())
def test_a_missing_or_changed_flow_is_noticed(interface: RouterInterface, data: st.DataObject) -> None:
    flows = flows_of(interface, 0)
    at = data.draw(st.integers(0, len(flows) - 1))
    if data.draw(st.booleans()):
        found = program.find_router_interface(interface.id, flows[:at] + flows[at + 1 :])
    else:
        instructions = bytearray(flows[at].instructions)
        instructions[data.draw(st.integers(0, len(instructions) - 1))] ^= data.draw(st.integers(1, 255))
        old = flows[at]
        changed = Flow(old.table, old.priority, old.cookie, old.match, bytes(instructions))
        found = program.find_router_interface(interface.id, [*flows[:at], changed, *flows[at + 1 :]])
    assert found != interface


@quick
@given(nexthops, st.data())
def test_nexthops_are_read_back(nexthop: Nexthop, data: st.DataObject) -> None:
    entry = program.nexthop_group_entry(nexthop)
    assert program.find_nexthop(entry) == nexthop
    actions = bytearray(entry.buckets[0].actions)
    actions[data.draw(st.integers(0, len(actions) - 1))] ^= data.draw(st.integers(1, 255))
    assert program.find_nexthop(codec.Group(entry.id, entry.type, (codec.Bucket(bytes(actions)),))) != nexthop
    assert program.find_nexthop(codec.Group(entry.id, entry.type, ())) is None


@quick
@given(groups)
def test_groups_are_read_back(group: NexthopGroup) -> None:
    entry = program.member_group_entry(group)
    assert program.find_nexthop_group(entry) == group
    assert program.find_nexthop_group(codec.Group(entry.id, entry.type, (*entry.buckets, codec.Bucket(b"")))) is None


@quick
@given(groups, st.sampled_from(codec.GroupCommand), st.integers(1, 0xFFFFFFFF))
def test_group_mods_equal_those_of_os_ken(group: NexthopGroup, command: codec.GroupCommand, xid: int) -> None:
    buckets = [
        parser.OFPBucket(
            member.weight, member.watch_port, of13.OFPG_ANY, [parser.OFPActionGroup(0x51000000 | member.nexthop_id)]
        )
        for member in group.members
    ]
    delete = command is codec.GroupCommand.DELETE
    wanted = parser.OFPGroupMod(
        PROTOCOL, command, of13.OFPGT_SELECT, 0x52000000 | group.id, [] if delete else buckets
    )
    wanted.set_xid(xid)
    wanted.serialize()
    assert codec.group_mod(command, program.member_group_entry(group), xid) == bytes(wanted.buf)


@quick
@given(policers, layouts, st.integers(0, MeterLayout().slots - 1), st.integers(0, 3))
def test_policers_are_read_back(policer: Policer, layout: MeterLayout, slot: int, generation: int) -> None:
    flows = policer_flows(policer, slot, generation, layout)
    rates = {number: meter_rate(policer, classes) for number, classes in layout.meters(slot).items()}
    meters = {number: (rate, burst(rate)) for number, rate in rates.items() if rate}
    found, seen = find_policer(policer.vrf_id, flows, meters, layout)
    held = tuple(rates[layout.meter(slot, each)] if policer.rates[each] else 0 for each in PuntClass)
    assert (found, seen) == (Policer(policer.vrf_id, held), slot if meters else -1)
    for meter_id in meters:
        damaged = {**meters, meter_id: (-1, -1)}
        assert find_policer(policer.vrf_id, flows, damaged, layout)[0] is None
    spare = {number: (1, 10) for number, rate in rates.items() if not rate}
    assert not spare or not meters or find_policer(policer.vrf_id, flows, meters | spare, layout)[0] is None


@quick
@given(policers, layouts, layouts, st.integers(0, 100))
def test_policers_of_another_layout_are_damaged(
    policer: Policer, layout: MeterLayout, before: MeterLayout, slot: int
) -> None:
    """Not taken for another rate: what was read is what is written again where it is, or does what it says."""
    flows = policer_flows(policer, slot, 0, before)
    rates = {number: meter_rate(policer, classes) for number, classes in before.meters(slot).items()}
    meters = {number: (rate, burst(rate)) for number, rate in rates.items() if rate}
    found, seen = find_policer(policer.vrf_id, flows, meters, layout)
    assert found is None or _does(policer_flows(found, seen, 0, layout)) == _does(flows)


def _does(flows: list[codec.Flow]) -> set[tuple[object, ...]]:
    return {(each.key, each.instructions) for each in flows}


@quick
@given(st.integers(0, 3), numbers)
def test_stale_cookies_match_all_generations_but_one(generation: int, entry_id: int) -> None:
    for other in range(4):
        mark = program.cookie(Kind.ROUTER_INTERFACE, entry_id, 9, other)
        stale = program.stale_cookies(Kind.ROUTER_INTERFACE, entry_id, generation)
        assert any(mark & mask == cookie for cookie, mask in stale) is (other != generation)
    alien = program.cookie(Kind.ROUTER_INTERFACE, entry_id ^ 1, 0, ~generation & 3)
    assert not any(
        alien & mask == cookie for cookie, mask in program.stale_cookies(Kind.ROUTER_INTERFACE, entry_id, generation)
    )
