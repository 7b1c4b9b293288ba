"""The hot paths of the OpenFlow plane against os-ken, octet by octet, and back."""

import contextlib
import struct

from hypothesis import given, settings
from hypothesis import strategies as st
from os_ken.ofproto import ofproto_v1_3 as of13
from os_ken.ofproto import ofproto_v1_3_parser as parser
from os_ken.ofproto.ofproto_protocol import ProtocolDesc

from controller.planes import base
from controller.planes.base import MAX_OBJECT_ID, Op, PuntReason, RouteKind, RouteUpdates, route_action
from controller.planes.openflow import codec, program
from controller.planes.openflow.codec import Oxm, oxm
from controller.planes.openflow.routes import SHARE_AT, SHARE_MASK, RouteEncoder, RouteReader
from wire.columns import mask, prefix_text

quick = settings(max_examples=40, deadline=None)
PROTOCOL = ProtocolDesc(4)
OURS, OURS_MASK = 0x5350 << 48, 0xFFFF << 48

objects = st.integers(0, MAX_OBJECT_ID)
actions = st.one_of(
    st.sampled_from([base.LOCAL, base.GLEAN, base.UNREACHABLE, base.BLACKHOLE, base.FALLBACK]),
    objects.map(lambda value: route_action(RouteKind.NEXTHOP, value)),
    objects.map(lambda value: route_action(RouteKind.GROUP, value)),
)


def keys(family: int) -> st.SearchStrategy[bytes]:
    size = {4: 4, 6: 16}[family]

    def key(octets: bytes, length: int) -> bytes:
        network = int.from_bytes(octets, "big") & int.from_bytes(mask(family, length), "big")
        return network.to_bytes(size, "big") + bytes((length,))

    return st.builds(key, st.binary(min_size=size, max_size=size), st.integers(0, size * 8))


@st.composite
def route_updates(draw: st.DrawFn) -> RouteUpdates:
    family = draw(st.sampled_from([4, 6]))
    rows = draw(st.lists(st.tuples(st.sampled_from(Op), keys(family), actions), min_size=1, max_size=8))
    ops, prefixes, chosen = (list(column) for column in zip(*rows, strict=True))
    return RouteUpdates(draw(st.integers(1, 0xFFFFFFFF)), family, ops, prefixes, chosen)


def os_ken_instructions(action: int) -> list[object]:
    """The instructions of a route in os-ken's words."""
    if base.action_kind(action) in (RouteKind.NEXTHOP, RouteKind.GROUP):
        owner = 0x51000000 if base.action_kind(action) is RouteKind.NEXTHOP else 0x52000000
        chosen = parser.OFPActionGroup(owner | base.action_value(action))
        write = parser.OFPInstructionActions(of13.OFPIT_WRITE_ACTIONS, [chosen])
        return [write, parser.OFPInstructionGotoTable(5)]
    reason, table = {
        base.LOCAL: (PuntReason.LOCAL, 11),
        base.GLEAN: (PuntReason.GLEAN, 5),
        base.UNREACHABLE: (PuntReason.UNREACHABLE, 5),
        base.FALLBACK: (0x40, 5),
        base.BLACKHOLE: (base.DROP_CODE[base.DropReason.BLACKHOLE], 8),
    }[action]
    noted = parser.OFPActionSetField(reg0=int(reason))
    apply = parser.OFPInstructionActions(of13.OFPIT_APPLY_ACTIONS, [noted])
    return [apply, parser.OFPInstructionGotoTable(table)]


def share(updates: RouteUpdates, position: int) -> int:
    first, second = SHARE_AT[updates.family]
    return (updates.keys[position][first] ^ updates.keys[position][second]) & SHARE_MASK


def os_ken_flow_mod(updates: RouteUpdates, position: int, xid: int) -> parser.OFPFlowMod:
    op, key = updates.ops[position], updates.keys[position]
    command = {Op.INSERT: 0, Op.MODIFY: 2, Op.DELETE: 4}[op]
    address, field = prefix_text(key).split("/")[0], "ipv4_dst" if updates.family == 4 else "ipv6_dst"
    netmask = prefix_text(mask(updates.family, key[-1]) + b"\0").split("/")[0]
    match = parser.OFPMatch(
        metadata=(updates.vrf_id << 32, 0xFFFFFFFF << 32),
        eth_type=0x0800 if updates.family == 4 else 0x86DD,
        **{field: (address, netmask)},
    )
    insert = op is Op.INSERT
    flow_mod = parser.OFPFlowMod(
        PROTOCOL,
        cookie=program.cookie(program.Kind.ROUTE, updates.vrf_id, share(updates, position)) if insert else OURS,
        cookie_mask=0 if insert else OURS_MASK,
        table_id=3 if updates.family == 4 else 4,
        command=command,
        priority=1000 + key[-1],
        out_port=of13.OFPP_ANY,
        out_group=of13.OFPG_ANY,
        match=match,
        instructions=[] if op is Op.DELETE else os_ken_instructions(updates.actions[position]),
    )
    flow_mod.set_xid(xid)
    flow_mod.serialize()
    return flow_mod


def os_ken_bundle_add(flow_mod: parser.OFPFlowMod, xid: int) -> bytes:
    """os-ken's bundle-add; it pads the message for properties there are none of, which the extension leaves out."""
    added = parser.ONFBundleAddMsg(PROTOCOL, 1, 3, flow_mod, [])
    added.set_xid(xid)
    added.serialize()
    return bytes(added.buf)


@quick
@given(route_updates(), st.integers(1, 0xFFFF0000))
def test_flow_mods_equal_those_of_os_ken(updates: RouteUpdates, first: int) -> None:
    octets, unknown = RouteEncoder(updates.vrf_id, updates.family).encode(updates, range(len(updates)), first, False)
    wanted = [bytes(os_ken_flow_mod(updates, n, first + n).buf) for n in range(len(updates))]
    assert octets == b"".join(wanted)
    assert unknown == []


@quick
@given(route_updates(), st.integers(1, 0xFFFF0000))
def test_bundled_flow_mods_equal_those_of_os_ken(updates: RouteUpdates, first: int) -> None:
    octets, _ = RouteEncoder(updates.vrf_id, updates.family).encode(updates, range(len(updates)), first, True)
    wanted = [os_ken_bundle_add(os_ken_flow_mod(updates, n, first + n), first + n) for n in range(len(updates))]
    assert octets == b"".join(wanted)


def test_an_unknown_action_is_left_out_and_keeps_its_transaction_id() -> None:
    prefixes = [bytes((10, n, 0, 0, 16)) for n in range(3)]
    updates = RouteUpdates(1, 4, [Op.INSERT] * 3, prefixes, [base.LOCAL, base.UNKNOWN_ACTION, base.LOCAL])
    octets, unknown = RouteEncoder(1, 4).encode(updates, range(3), 100, False)
    assert unknown == [1]
    assert octets == b"".join(bytes(os_ken_flow_mod(updates, n, 100 + n).buf) for n in (0, 2))


# -- flow statistics ------------------------------------------------------------------------------------------
def stats_entry(updates: RouteUpdates, position: int, *, metadata_last: bool, exact: bool, **changes: int) -> bytes:
    """Return one flow statistics entry of a route, its match in the order of Open vSwitch or of os-ken, and a full
    mask written or left out."""
    family, key = updates.family, updates.keys[position]
    full = len(key[:-1]) * 8 == key[-1]
    destination = Oxm.IPV4_DST if family == 4 else Oxm.IPV6_DST
    metadata = oxm(Oxm.METADATA, updates.vrf_id << 32, codec.METADATA_VRF)
    prefix = oxm(Oxm.ETH_TYPE, 0x0800 if family == 4 else 0x86DD)
    if key[-1]:
        prefix += oxm(destination, key[:-1], None if full and exact else mask(family, key[-1]))
    tlvs = prefix + metadata if metadata_last else metadata + prefix
    match = struct.pack("!HH", 1, 4 + len(tlvs)) + tlvs
    match = match.ljust((len(match) + 7) & ~7, b"\0")
    cookie = changes.get("cookie", program.cookie(program.Kind.ROUTE, updates.vrf_id))
    priority = changes.get("priority", 1000 + key[-1])
    instructions = program.route_instructions(updates.actions[position]) or b""
    fixed = struct.pack("!BxIIHHHH4xQQQ", 3 if family == 4 else 4, position, 7, priority, 0, 0, 0, cookie, 3, 4)
    return struct.pack("!H", 2 + len(fixed + match + instructions)) + fixed + match + instructions


def read(updates: RouteUpdates, body: bytes) -> tuple[dict[int, dict[bytes, int]], int]:
    routes: dict[int, dict[bytes, int]] = {}
    reader = RouteReader(updates.family, routes)
    reader.add(body)
    return routes, reader.foreign


@quick
@given(route_updates(), st.booleans(), st.booleans())
def test_routes_are_read_back(updates: RouteUpdates, metadata_last: bool, exact: bool) -> None:
    rows = range(len(updates))
    entries = [stats_entry(updates, n, metadata_last=metadata_last, exact=exact) for n in rows]
    wanted = dict(zip(updates.keys, updates.actions, strict=True))
    assert read(updates, b"".join(entries)) == ({updates.vrf_id: wanted}, 0)
    for entry, key in zip(entries, updates.keys, strict=True):
        seen = parser.OFPFlowStats.parser(entry, 0)
        assert (seen.cookie, seen.priority) == (program.cookie(program.Kind.ROUTE, updates.vrf_id), 1000 + key[-1])
        assert codec.decode_flow(entry).packets == seen.packet_count == 3


@quick
@given(route_updates(), st.sampled_from([{"cookie": 0x77}, {"priority": 999}]))
def test_what_is_no_route_of_ours_is_foreign(updates: RouteUpdates, change: dict[str, int]) -> None:
    entry = stats_entry(updates, 0, metadata_last=True, exact=True, **change)
    assert read(updates, entry * 2) == ({}, 2)


@quick
@given(route_updates())
def test_a_route_with_strange_instructions_is_unknown(updates: RouteUpdates) -> None:
    entry = bytearray(stats_entry(updates, 0, metadata_last=True, exact=True))
    entry[-4] ^= 0x40  # another table to go to
    assert read(updates, bytes(entry))[0] == {updates.vrf_id: {updates.keys[0]: base.UNKNOWN_ACTION}}


@quick
@given(route_updates(), st.data())
def test_damaged_statistics_are_malformed_or_read(updates: RouteUpdates, data: st.DataObject) -> None:
    body = bytearray(stats_entry(updates, 0, metadata_last=True, exact=True))
    for _ in range(data.draw(st.integers(1, 4))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    del body[data.draw(st.integers(0, len(body))) :]
    with contextlib.suppress(codec.MalformedMessage):
        read(updates, bytes(body))
