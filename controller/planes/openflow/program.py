"""The contract's entries as OpenFlow flows, groups and meters, and back. Pure: nothing here touches a socket.

    table                    looks at                      leaves in the packet's registers
    ┌──────────────────────┐
    │ 0 interface_         │ port, VLAN                    metadata = vrf_id | router interface; tag popped
    │   classifier         │ … of a fallback link ──► 7    reg1, xreg2 as of a nexthop, reg2[3] = keep the TTL
    │                      │                               miss: drop unknown_interface
    ├──────────────────────┤
    │ 1 l3_admit           │ router interface, MAC         reg2[0] = sent to a group address
    │                      │                               miss: drop not_for_us
    ├──────────────────────┤
    │ 2 punt               │ link scope ──────────► 11 ────────────────────────────┐ reg0 = CONTROL
    │                      │ martian, multicast …          drop; reg2[1] = source  │
    ├──────────┬───────────┤                               is link-local           │
    │ 3 ipv4_  │ 4 ipv6_   │ vrf_id, prefix                LOCAL ► 11, BLACKHOLE ──┤ reg0 = reason
    │   route  │   route   │                               action set = group,     │
    ├──────────┴───────────┤                               or reg0 = reason        │
    │ 5 ttl                │ TTL 0 or 1, reg0, reg2[1] ────────────────────────────┤ reg0 = TTL_EXPIRED …
    │                      │ reg0 = fallback ──► 10                                │
    └──────────┬───────────┘                                                       │
        0x52…… nexthop_group (select) → 0x51…… nexthop (indirect)  glean, failed ──┤ reg0 = GLEAN …
               │                                           reg1 = egress router    │
    ┌──────────┴───────────┐                               interface, xreg2 = MAC  │
    │ 6 router_interface   │ reg1: length against MTU      reg2[2] = too long      │
    ├──────────────────────┤                                                       │
    │ 7 router_interface   │ too long ─────────────────────────────────────────────┤ reg0 = MTU_EXCEEDED
    │   _egress            │ else rewrite, output          (TTL by way of table 9) │
    └──────────────────────┘                               ┌───────────────────────┴──┐
      9 ttl_decrement: unless reg2[3]                      │ 8 packet_in: vrf, reason │
     10 fallback_link: router interface → VLAN, output     │   and class: meter, to   │
                       miss: packet_in, UNREACHABLE        │   the controller         │
     11 punt_class: protocol and ports; reg3 = class ──► 8 └──────────────────────────┘

Nothing of the packet but its tag is rewritten before table 7, so whatever goes up to the guest is as it came: with
its own addresses and with a TTL that the guest's kernel, which forwards it, has still to decrement.

Order of inserts: as drawn in `controller.planes.base`. Ids: groups 0x51…… and 0x52…… carry the entry's 24 bits,
meters 0x1000 and up are issued by the plane (`policers.py`). Flows carry a cookie:

    63      48 47  44 43  42 41 40 39          8 7      0
    │ "SP"    │ kind │ gen. │  0  │ id (32)     │ reason │   a router interface's: WAY_BACK or 0

The generation grows by one with each MODIFY of a router interface or policer: flows of the new generation replace
those they equal in match, with their counters, and whatever is left of the others is then deleted.
"""

from collections.abc import Iterable, Iterator
from enum import IntEnum

from controller.planes import base
from controller.planes.base import (
    DropReason,
    FallbackLink,
    GroupMember,
    Nexthop,
    NexthopGroup,
    NexthopState,
    PuntReason,
    RouteKind,
    RouterInterface,
)
from controller.planes.openflow import codec
from controller.planes.openflow.codec import Bucket, Flow, Group, GroupType, Oxm, flow, oxm


class Table(IntEnum):
    """OpenFlow table numbers."""

    INTERFACE_CLASSIFIER = 0
    L3_ADMIT = 1
    PUNT = 2
    IPV4_ROUTE = 3
    IPV6_ROUTE = 4
    TTL = 5
    ROUTER_INTERFACE = 6
    ROUTER_INTERFACE_EGRESS = 7
    PACKET_IN = 8
    TTL_DECREMENT = 9
    FALLBACK_LINK = 10
    PUNT_CLASS = 11


ROUTE_TABLE = {4: Table.IPV4_ROUTE, 6: Table.IPV6_ROUTE}
SMALL_TABLES = tuple(table for table in Table if table not in ROUTE_TABLE.values())
EGRESS_TABLES = (Table.ROUTER_INTERFACE, Table.ROUTER_INTERFACE_EGRESS, Table.FALLBACK_LINK)
INGRESS_TABLES = (Table.L3_ADMIT, Table.INTERFACE_CLASSIFIER)


# -- cookies and ids -------------------------------------------------------------------------------------------------
class Kind(IntEnum):
    """What a flow of ours belongs to."""

    STATIC = 1
    ROUTER_INTERFACE = 2
    POLICER = 3
    ROUTE = 4


OWNER = 0x5350 << 48
OWNER_MASK = 0xFFFF << 48
KIND_MASK = OWNER_MASK | 0xF << 44
GENERATION_SHIFT = 42
GENERATIONS = 4
GENERATION_MASK = 3 << GENERATION_SHIFT
ENTRY_MASK = KIND_MASK | 0xFFFFFFFF << 8


def cookie(kind: Kind, entry_id: int = 0, reason: int = 0, generation: int = 0) -> int:
    """Return the cookie of a flow of ours."""
    return OWNER | kind << 44 | generation << GENERATION_SHIFT | entry_id << 8 | reason


def cookie_is_ours(value: int) -> bool:
    """Whether a flow with this cookie is ours."""
    return value & OWNER_MASK == OWNER


def cookie_kind(value: int) -> int:
    """Return the Kind in a cookie of ours, as a plain number: it may be none we know."""
    return value >> 44 & 0xF


def cookie_id(value: int) -> int:
    """Return the id in a cookie of ours."""
    return value >> 8 & 0xFFFFFFFF


def cookie_reason(value: int) -> int:
    """Return the reason in a cookie of ours."""
    return value & 0xFF


def cookie_generation(value: int) -> int:
    """Return the generation in a cookie of ours."""
    return value >> GENERATION_SHIFT & (GENERATIONS - 1)


def present_generation(cookies: Iterable[int]) -> int:
    """Return the latest generation of an entry's flows, so that the next has none yet: a write that was cut off
    leaves two of them, and after the last one comes 0."""
    found = {cookie_generation(one) for one in cookies}
    return max({one for one in found if (one + 1) % GENERATIONS not in found} or found)


def stale_cookies(kind: Kind, entry_id: int, generation: int) -> Iterator[tuple[int, int]]:
    """Yield cookies and masks that together match every generation of an entry but the given one."""
    for bit in (1, 2):
        yield cookie(kind, entry_id, 0, ~generation & bit), ENTRY_MASK | bit << GENERATION_SHIFT


WAY_BACK = 1
"""In place of a reason: the flow by which packets come back from the fallback plane; it counts no RX."""

NEXTHOP_GROUPS = 0x51 << 24
MEMBER_GROUPS = 0x52 << 24
GROUP_RANGE = 0xFF << 24


# -- registers -------------------------------------------------------------------------------------------------------
GROUP_ADDRESSED, LINK_LOCAL_SOURCE, TOO_LONG, KEEP_TTL = 1, 2, 4, 8  # bits of reg2
_TOO_LONG_BIT = 2
_ETHERNET_HEADER = 14
TO_FALLBACK = 0x40  # in reg0, where it is neither a punt's reason nor a drop's


def to_reason(code: int, table: Table, clear: bool = False) -> bytes:
    """Return the instructions that note a punt or drop reason and go on; ``clear`` forgets the chosen group."""
    noted = codec.apply_actions(codec.set_field(Oxm.REG0, code))
    return noted + (codec.CLEAR_ACTIONS if clear else b"") + codec.goto(table)


# -- routes ----------------------------------------------------------------------------------------------------------
ROUTE_PRIORITY = 1000  # plus the prefix length
_TO_TTL = codec.goto(Table.TTL)

_PLAIN_ACTIONS = {
    base.LOCAL: to_reason(PuntReason.LOCAL, Table.PUNT_CLASS),
    base.GLEAN: to_reason(PuntReason.GLEAN, Table.TTL),
    base.UNREACHABLE: to_reason(PuntReason.UNREACHABLE, Table.TTL),
    base.FALLBACK: to_reason(TO_FALLBACK, Table.TTL),
    base.BLACKHOLE: to_reason(base.DROP_CODE[DropReason.BLACKHOLE], Table.PACKET_IN),
}
_PLAIN_INSTRUCTIONS = {instructions: action for action, instructions in _PLAIN_ACTIONS.items()}
_GROUP_OF_KIND = {RouteKind.NEXTHOP: NEXTHOP_GROUPS, RouteKind.GROUP: MEMBER_GROUPS}


def route_instructions(action: int) -> bytes | None:
    """Return a route's instructions, None where this plane does not know the action."""
    plain = _PLAIN_ACTIONS.get(action)
    if plain is not None:
        return plain
    owner = _GROUP_OF_KIND.get(base.action_kind(action))
    if owner is None:
        return None
    return codec.write_actions(codec.group(owner | base.action_value(action))) + _TO_TTL


def find_route_action(instructions: bytes) -> int:
    """Return the action of a route's instructions, UNKNOWN_ACTION where we would not write them."""
    plain = _PLAIN_INSTRUCTIONS.get(instructions)
    if plain is not None:
        return plain
    group_id = int.from_bytes(instructions[12:16], "big")
    for kind, owner in _GROUP_OF_KIND.items():
        action = base.route_action(kind, group_id & base.MAX_OBJECT_ID)
        if group_id & GROUP_RANGE == owner and route_instructions(action) == instructions:
            return action
    return base.UNKNOWN_ACTION


# -- router interfaces -----------------------------------------------------------------------------------------------
_MAC_PRIORITY = 1000  # own address; one less for each virtual one, which keeps their order
_EGRESS_PRIORITY = 100
_MAX_VIRTUAL_MACS = 255


def ingress_flows(interface: RouterInterface, generation: int) -> list[Flow]:
    """Return the flows by which packets come in, in the order of their insertion."""
    mark = cookie(Kind.ROUTER_INTERFACE, interface.id, 0, generation)
    metadata = interface.vrf_id << 32 | interface.id
    macs = (interface.mac, *interface.virtual_macs)
    flows = [
        flow(
            Table.L3_ADMIT,
            _MAC_PRIORITY - position,
            mark,
            (oxm(Oxm.METADATA, metadata), oxm(Oxm.ETH_DST, mac)),
            codec.goto(Table.PUNT),
        )
        for position, mac in enumerate(macs)
    ]
    if interface.enabled:
        pop = codec.apply_actions(codec.POP_VLAN) if interface.vlan else b""
        instructions = pop + codec.write_metadata(metadata) + codec.goto(Table.L3_ADMIT)
        flows.append(_classifier_flow(interface, mark, instructions))
    return flows


def _classifier_flow(way_in: RouterInterface | FallbackLink, mark: int, instructions: bytes) -> Flow:
    vlan = 0x1000 | way_in.vlan if way_in.vlan else 0
    match = (oxm(Oxm.IN_PORT, way_in.port), oxm(Oxm.VLAN_VID, vlan))
    return flow(Table.INTERFACE_CLASSIFIER, _EGRESS_PRIORITY, mark, match, instructions)


def way_back_flows(interface: RouterInterface, generation: int) -> list[Flow]:
    """Return the flow by which packets that the fallback plane has routed come back, none without a link."""
    link = interface.fallback
    if link is None:
        return []
    actions = [
        codec.POP_VLAN,
        codec.set_field(Oxm.REG1, interface.id),
        codec.set_field(Oxm.REG2, KEEP_TTL),
        codec.move(Oxm.NXM_ETH_DST, Oxm.XREG2, 48),
    ]
    mark = cookie(Kind.ROUTER_INTERFACE, interface.id, WAY_BACK, generation)
    instructions = codec.apply_actions(*actions) + codec.goto(Table.ROUTER_INTERFACE_EGRESS)
    return [_classifier_flow(link, mark, instructions)]


def egress_flows(interface: RouterInterface, generation: int) -> list[Flow]:
    """Return the flows by which packets leave: by the interface, and from it to the fallback plane."""
    mark = cookie(Kind.ROUTER_INTERFACE, interface.id, 0, generation)
    match = (oxm(Oxm.REG1, interface.id),)
    largest = min(interface.mtu + _ETHERNET_HEADER, 0xFFFF)
    measure = codec.apply_actions(codec.check_packet_larger(largest, Oxm.REG2, _TOO_LONG_BIT))
    actions = [
        codec.resubmit(Table.TTL_DECREMENT),
        codec.set_field(Oxm.ETH_SRC, interface.mac),
        codec.move(Oxm.XREG2, Oxm.NXM_ETH_DST, 48),
        *frame_out(interface),
    ]
    flows = [
        flow(
            Table.ROUTER_INTERFACE,
            _EGRESS_PRIORITY,
            mark,
            match,
            measure + codec.goto(Table.ROUTER_INTERFACE_EGRESS),
        ),
        flow(Table.ROUTER_INTERFACE_EGRESS, _EGRESS_PRIORITY, mark, match, codec.apply_actions(*actions)),
    ]
    if interface.fallback is not None:
        ingress = (oxm(Oxm.METADATA, interface.vrf_id << 32 | interface.id),)
        to_link = codec.apply_actions(*frame_out(interface.fallback))
        flows.append(flow(Table.FALLBACK_LINK, _EGRESS_PRIORITY, mark, ingress, to_link))
    return flows


def frame_out(way_out: RouterInterface | FallbackLink) -> list[bytes]:
    """Return the actions that send an untagged frame out of a port, with a VLAN's tag where there is one."""
    actions = [codec.CLEAR_IN_PORT, codec.output(way_out.port)]
    if way_out.vlan:
        actions[:0] = [codec.PUSH_VLAN, codec.set_field(Oxm.VLAN_VID, 0x1000 | way_out.vlan)]
    return actions


_TAGGED_OUT = 64  # octets of what `frame_out` returns for a VLAN


def _find_frame_out(actions: bytes) -> tuple[int, int]:
    """Return port and VLAN of actions that end as `frame_out` would have them, or anything of others."""
    tagged = actions[-_TAGGED_OUT:].startswith(codec.PUSH_VLAN)
    vlan = int.from_bytes(actions[-_TAGGED_OUT + 16 : -_TAGGED_OUT + 18], "big") & 0xFFF if tagged else 0
    return int.from_bytes(actions[-12:-8], "big"), vlan


def find_router_interface(interface_id: int, flows: Iterable[Flow]) -> RouterInterface | None:
    """Return the router interface whose flows these are, None where they are not exactly its flows."""
    flows = list(flows)
    guess = _guess_router_interface(interface_id, flows)
    if guess is None:
        return None
    wanted = [*egress_flows(guess, 0), *way_back_flows(guess, 0), *ingress_flows(guess, 0)]
    return guess if contents(wanted) == contents(flows) else None


def contents(flows: Iterable[Flow]) -> set[tuple[object, ...]]:
    """Return what flows do, whatever their generation, to compare."""
    return {(*each.key, each.cookie & ~GENERATION_MASK, each.instructions) for each in flows}


def _guess_router_interface(interface_id: int, flows: list[Flow]) -> RouterInterface | None:
    egress = next((f.instructions for f in flows if f.table == Table.ROUTER_INTERFACE_EGRESS), b"")
    measure = next((f.instructions for f in flows if f.table == Table.ROUTER_INTERFACE), b"")
    to_link = next((f.instructions for f in flows if f.table == Table.FALLBACK_LINK), None)
    admitted = sorted((f for f in flows if f.table == Table.L3_ADMIT), key=lambda f: -f.priority)
    if len(egress) < 96 or len(measure) < 32 or not admitted:
        return None
    fields = [codec.oxm_fields(f.match) for f in admitted]
    if any(Oxm.ETH_DST not in f or Oxm.METADATA not in f for f in fields):
        return None
    macs = [f[Oxm.ETH_DST][0] for f in fields]
    port, vlan = _find_frame_out(egress)
    return RouterInterface(
        id=interface_id,
        vrf_id=int.from_bytes(fields[0][Oxm.METADATA][0][:4], "big"),
        port=port,
        vlan=vlan,
        mac=macs[0],
        mtu=int.from_bytes(measure[18:20], "big") - _ETHERNET_HEADER,
        virtual_macs=tuple(macs[1:]),
        enabled=any(f.table == Table.INTERFACE_CLASSIFIER and cookie_reason(f.cookie) != WAY_BACK for f in flows),
        fallback=None if to_link is None else FallbackLink(*_find_frame_out(to_link)),
    )


# -- nexthops and groups ---------------------------------------------------------------------------------------------
def nexthop_group_entry(nexthop: Nexthop) -> Group:
    """Return the indirect group of a nexthop."""
    if nexthop.state is NexthopState.FORWARD:
        actions = (
            codec.set_field(Oxm.XREG2, nexthop.mac.rjust(8, b"\0"))
            + codec.set_field(Oxm.REG1, nexthop.router_interface_id)
            + codec.resubmit(Table.ROUTER_INTERFACE)
        )
    else:
        glean = nexthop.state is NexthopState.GLEAN
        code = PuntReason.GLEAN if glean else base.DROP_CODE[DropReason.NEIGHBOR_FAILED]
        actions = (
            codec.set_field(Oxm.REG1, nexthop.router_interface_id)
            + codec.set_field(Oxm.REG0, code)
            + codec.resubmit(Table.PACKET_IN)
        )
    return Group(NEXTHOP_GROUPS | nexthop.id, GroupType.INDIRECT, (Bucket(actions),))


def find_nexthop(entry: Group) -> Nexthop | None:
    """Return the nexthop of an indirect group of ours, None where it is not what we would write."""
    if len(entry.buckets) != 1:
        return None
    nexthop_id, actions = entry.id & base.MAX_OBJECT_ID, entry.buckets[0].actions
    candidates = [
        Nexthop(nexthop_id, int.from_bytes(actions[8:12], "big"), bytes(6), state)
        for state in (NexthopState.GLEAN, NexthopState.DROP)
    ]
    candidates.append(Nexthop(nexthop_id, int.from_bytes(actions[24:28], "big"), actions[10:16]))
    matching = (each for each in candidates if len(each.mac) == 6 and nexthop_group_entry(each) == entry)
    return next(matching, None)


def member_group_entry(group: NexthopGroup) -> Group:
    """Return the select group of a nexthop group."""
    buckets = (
        Bucket(codec.group(NEXTHOP_GROUPS | member.nexthop_id), member.weight, member.watch_port)
        for member in group.members
    )
    return Group(MEMBER_GROUPS | group.id, GroupType.SELECT, tuple(buckets))


def find_nexthop_group(entry: Group) -> NexthopGroup | None:
    """Return the nexthop group of a select group of ours, None where it is not what we would write."""
    members = tuple(
        GroupMember(int.from_bytes(bucket.actions[4:8], "big") & base.MAX_OBJECT_ID, bucket.weight, bucket.watch_port)
        for bucket in entry.buckets
    )
    group = NexthopGroup(entry.id & base.MAX_OBJECT_ID, members)
    return group if members and member_group_entry(group) == entry else None
