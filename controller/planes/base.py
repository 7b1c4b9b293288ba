"""The port of a plane: the entries of the pipeline contract, batches of updates, and what a plane reports back.

The pipeline, in SAI's terms (the same names in P4, OpenFlow and the forwarder):

    interface_classifier → l3_admit → punt → ipv4_route | ipv6_route → ttl
        → nexthop_group → nexthop → router_interface

A `RouterInterface` is one row here and several on the plane: its classifier entry, its l3_admit entries (own MAC
and virtual MACs) and its egress entry; with a `FallbackLink` also a fallback_link entry, the way out to the fallback
plane, and a classifier entry of the link, the way back in. Ids (`vrf_id`, router interface, nexthop and group ids)
are issued by the controller; an id is not used again while the controller lives, so a late packet never meets a new
owner.

Order of one `WriteBatch`, which every back end keeps, with a confirmation between the lines:

    inserts and modifies: policers, router interfaces (egress and fallback_link), router interfaces (the way back in),
                          nexthops, groups, routes, router interfaces (l3_admit, then interface_classifier)
    deletes:              router interfaces (interface_classifier and the way back in, then l3_admit), routes, groups,
                          nexthops, router interfaces (egress and fallback_link), policers

So a FALLBACK route never meets an interface of its batch without a way out, nor a packet that comes back one without
an egress entry. A MODIFY that takes the link away takes the way out after the routes. Packets in flight to the
fallback plane and back are not awaited: rewrite the routes and let the link drain before removing it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from typing import Generic, Protocol, TypeVar

from controller.planes.encoding_time import EncodingTime
from controller.planes.shares import ShareUse, Sharing


class Op(IntEnum):
    """What an update does to its entry (P4Runtime's terms)."""

    INSERT = 1
    MODIFY = 2
    DELETE = 3


class PuntReason(IntEnum):
    """Why a packet goes to the guest; travels with every packet-in."""

    CONTROL = 1
    LOCAL = 2
    GLEAN = 3
    TTL_EXPIRED = 4
    MTU_EXCEEDED = 5
    UNREACHABLE = 6
    IP_OPTIONS = 7
    HOP_BY_HOP = 8


class PuntClass(IntEnum):
    """What a punt is policed as, one policer per router and class; the most urgent first, in which order they wait.

    `controller.planes.punt_class` tells which a packet has.
    """

    BFD = 0
    ROUTING = 1  # OSPF, IS-IS, RIP, Babel, EIGRP, VRRP
    BGP = 2
    ARP = 3  # ARP and neighbor discovery
    ICMP = 4
    LOCAL = 5  # whatever else is for the router itself
    GLEAN = 6
    TTL = 7
    MTU = 8
    UNREACHABLE = 9
    OPTIONS = 10


class PuntPlace(StrEnum):
    """Where punts are lost on their way to the guest."""

    POLICER = "policer"  # of the plane: over the rate of their router and class
    RING = "ring"  # between vr-forwarder's program in the kernel and its process
    OUTBOX = "outbox"  # vr-forwarder's process, for the controller
    RELAY = "relay"  # the controller, for the guest
    TAP = "tap"  # the guest, by its VRC's word


class DropReason(StrEnum):
    """Why a packet ends here; every drop is counted under one of these."""

    UNKNOWN_INTERFACE = "unknown_interface"
    NOT_FOR_US = "not_for_us"
    BLACKHOLE = "blackhole"
    NEIGHBOR_FAILED = "neighbor_failed"
    MULTICAST = "multicast"
    L2_MULTICAST = "l2_multicast"
    MARTIAN = "martian"
    ETHERTYPE = "ethertype"
    MALFORMED = "malformed"
    OVER_SHARE = "over_share"  # more than the router's share of a core or link that is too small for all


PUNT_OF_CODE = {int(reason): reason for reason in PuntReason}
DROP_CODE = {reason: 0x80 + position for position, reason in enumerate(DropReason)}
DROP_OF_CODE = {code: reason for reason, code in DROP_CODE.items()}
"""Reasons as numbers on a plane, in one octet: a punt's is its own, drops come behind (p4src/common/ids.p4)."""

ROUTE_TABLE_NAME = {4: "ipv4_route", 6: "ipv6_route"}

SIZED_TABLES = (*ROUTE_TABLE_NAME.values(), "nexthop", "nexthop_group", "interface_classifier")
"""The tables of which slices reserve entries."""


class Capability(StrEnum):
    """What a plane can do beyond the tables; a plane lists what it has."""

    IPV4_CHECKSUM = "ipv4_checksum"
    IP_OPTIONS = "ip_options"
    HOP_BY_HOP = "hop_by_hop"
    MTU = "mtu"
    RESILIENT_HASH = "resilient_hash"
    EXACT_WEIGHTS = "exact_weights"
    LOCAL_FAILOVER = "local_failover"
    ROUTE_COUNTERS = "route_counters"
    SAMPLED_ROUTE_COUNTERS = "sampled_route_counters"
    SAMPLES = "samples"
    PUNT_SHARES = "punt_shares"
    LOST_PUNTS = "lost_punts"
    HASH_BY_ROUTER = "hash_by_router"
    SHARES = "shares"


# A route's action is one integer, because a table of a million routes is a dict of them: a kind in the top four of
# 32 bits and, for nexthops and groups, their id in the lower 24.
class RouteKind(IntEnum):
    """The top four bits of a route action."""

    UNKNOWN = 0
    PUNT = 1
    DROP = 2
    NEXTHOP = 3
    GROUP = 4
    FALLBACK = 5


_KIND_SHIFT = 28
MAX_OBJECT_ID = (1 << 24) - 1

UNKNOWN_ACTION = 0
"""Read back from a plane, but not something we would write: differs from every desired action."""


def route_action(kind: RouteKind, value: int = 0) -> int:
    """Return the action of ``kind``; ``value`` is a nexthop or group id, or a PuntReason."""
    if not 0 <= value <= MAX_OBJECT_ID:
        raise ValueError(f"{value} does not fit 24 bits")
    return kind << _KIND_SHIFT | value


def action_kind(action: int) -> RouteKind:
    """Return the kind of a route action."""
    return RouteKind(action >> _KIND_SHIFT)


def action_value(action: int) -> int:
    """Return the id or reason inside a route action."""
    return action & MAX_OBJECT_ID


LOCAL = route_action(RouteKind.PUNT, PuntReason.LOCAL)
GLEAN = route_action(RouteKind.PUNT, PuntReason.GLEAN)
UNREACHABLE = route_action(RouteKind.PUNT, PuntReason.UNREACHABLE)
BLACKHOLE = route_action(RouteKind.DROP)
FALLBACK = route_action(RouteKind.FALLBACK)


@dataclass(frozen=True, slots=True)
class FallbackLink:
    """One router interface's share of the link to the plane that holds all routes.

    A FALLBACK route sends what came in by the interface out of the port, tagged with the VLAN; what comes in by the
    port with that tag leaves by the interface. No other interface may have the same port and VLAN.
    """

    port: int
    vlan: int  # 1 to 4094


@dataclass(frozen=True, slots=True)
class RouterInterface:
    """A port and VLAN as seen by layer 3."""

    id: int
    vrf_id: int
    port: int
    vlan: int  # 0: untagged
    mac: bytes
    mtu: int  # L3, octets
    virtual_macs: tuple[bytes, ...] = ()
    enabled: bool = True  # administratively up: only then it receives
    fallback: FallbackLink | None = None  # None: a FALLBACK route punts `unreachable`


class NexthopState(IntEnum):
    """What a nexthop does with a packet."""

    FORWARD = 0
    GLEAN = 1  # neighbor unresolved: punt
    DROP = 2  # resolution failed lately: drop `neighbor_failed`


@dataclass(frozen=True, slots=True)
class Nexthop:
    """An egress router interface and the neighbor's MAC."""

    id: int
    router_interface_id: int
    mac: bytes  # 6 octets; zeros unless state is FORWARD
    state: NexthopState = NexthopState.FORWARD


MAX_GROUP_WEIGHT = 256
"""Largest sum of the weights of a group."""


@dataclass(frozen=True, slots=True)
class GroupMember:
    """One way out of a nexthop group."""

    nexthop_id: int
    weight: int  # 1 to MAX_GROUP_WEIGHT
    watch_port: int  # plane port whose loss takes this member out


@dataclass(frozen=True, slots=True)
class NexthopGroup:
    """Nexthops that share a prefix by weight. Never empty: a group without members is a GLEAN nexthop. The weights
    add up to MAX_GROUP_WEIGHT at most: BMv2 and others expand them into copies of the member."""

    id: int
    members: tuple[GroupMember, ...]


@dataclass(frozen=True, slots=True)
class Policer:
    """The punt limits of one router, by PuntClass, in packets per second; with 0 a class is not punted at all.

    With PUNT_SHARES each router interface that receives has an equal share of each rate for itself, and what others
    leave of theirs (docs/planes.md, Punts).
    """

    vrf_id: int
    rates: tuple[int, ...]


def same_rate(rate: int) -> tuple[int, ...]:
    """Return the rates of a policer that has the same for every class."""
    return (rate,) * len(PuntClass)


SharedMeters = tuple[frozenset[PuntClass], ...]
"""Punt classes that a plane polices together, by one meter; those of no set have one each."""


def shared_rates(rates: tuple[int, ...], shared: SharedMeters) -> tuple[int, ...]:
    """Return the rates of a policer whose classes share meters: the largest of those that share one, so that none has
    less than it was given."""
    largest = list(rates)
    for classes in shared:
        for each in classes:
            largest[each] = max(rates[other] for other in classes)
    return tuple(largest)


def burst(rate: int) -> int:
    """Return the burst of a policer's rate, in packets: a tenth of a second, ten at least."""
    return max(10, rate // 10)


E = TypeVar("E", RouterInterface, Nexthop, NexthopGroup, Policer)


@dataclass(frozen=True, slots=True)
class Update(Generic[E]):
    """One change of one entry. A DELETE carries the entry as it was installed; of what is not there it is done."""

    op: Op
    entry: E


@dataclass(slots=True)
class RouteUpdates:
    """Route changes of one VRF and family as parallel columns; a DELETE's action is ignored."""

    vrf_id: int
    family: int  # 4 or 6
    ops: list[Op] = field(default_factory=list)
    keys: list[bytes] = field(default_factory=list)
    actions: list[int] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.keys)


@dataclass(slots=True)
class WriteBatch:
    """Updates that one `Plane.write` sends and confirms, in the order drawn above."""

    policers: list[Update[Policer]] = field(default_factory=list)
    router_interfaces: list[Update[RouterInterface]] = field(default_factory=list)
    nexthops: list[Update[Nexthop]] = field(default_factory=list)
    groups: list[Update[NexthopGroup]] = field(default_factory=list)
    routes: list[RouteUpdates] = field(default_factory=list)
    encoding: EncodingTime = field(default_factory=EncodingTime, compare=False, repr=False)

    def __bool__(self) -> bool:
        return bool(self.policers or self.router_interfaces or self.nexthops or self.groups or self.routes)


@dataclass(frozen=True, slots=True)
class Refused:
    """One update the plane did not take. Everything else in its batch is in force."""

    table: str  # a contract table's name, or "policer"
    vrf_id: int  # 0 where the entry belongs to no single router
    key: bytes | int  # a route's prefix key, or the entry's id (vrf_id for a policer)
    op: Op
    reason: str  # the plane's own words, one line
    full: bool = False  # refused for want of room


@dataclass(slots=True)
class Installed:
    """What a plane holds that is ours, read back. `damaged` names entries that are partly missing or were changed
    into something the contract does not know: they are to be written again (MODIFY) or, if not desired, deleted."""

    policers: dict[int, Policer] = field(default_factory=dict)
    router_interfaces: dict[int, RouterInterface] = field(default_factory=dict)
    nexthops: dict[int, Nexthop] = field(default_factory=dict)
    groups: dict[int, NexthopGroup] = field(default_factory=dict)
    routes: dict[int, dict[bytes, int]] = field(default_factory=dict)  # vrf_id → key → action
    damaged: set[tuple[str, int]] = field(default_factory=set)  # (table, id)
    foreign: int = 0  # entries of others inside our tables: reported, never touched
    hardware: "HardwareShare | None" = None  # of a plane with a fallback, whose tables the others are


class RoutesOfOne(dict[int, dict[bytes, int]]):
    """Routes by vrf_id that keep those of one router: what is read of the others takes no memory."""

    def __init__(self, vrf_id: int) -> None:
        super().__init__()
        self._vrf_id, self._others = vrf_id, DroppedRoutes()

    def setdefault(self, vrf_id: int, default: dict[bytes, int]) -> dict[bytes, int]:
        """Return the routes of a router, those that are not kept as a dict that stays empty."""
        return super().setdefault(vrf_id, default) if vrf_id == self._vrf_id else self._others


class DroppedRoutes(dict[bytes, int]):
    """Takes routes, and keeps none."""

    def __setitem__(self, _key: bytes, _action: int) -> None:
        """Drop it."""


RoutesInto = dict[int, dict[bytes, int]]
"""Takes routes as they are read, by vrf_id (with `setdefault`) and key."""


def routes_to_read(only: int | None, into: RoutesInto | None = None) -> RoutesInto:
    """Return where a reader puts the routes: ``into``, or a dict for those of all routers or of one."""
    if into is not None:
        return into
    return {} if only is None else RoutesOfOne(only)


@dataclass(frozen=True, slots=True)
class HardwareShare:
    """What the hardware holds itself, read back from a plane with a fallback."""

    routes: dict[int, dict[bytes, int]]  # vrf_id → key → action, FALLBACK among them
    links: dict[int, FallbackLink]  # by router interface id


@dataclass(frozen=True, slots=True)
class PortState:
    """A port of a plane."""

    number: int
    name: str
    up: bool
    present: bool = True  # False: the port was removed


@dataclass(slots=True)
class InterfaceCounters:
    """What went through one router interface."""

    rx_packets: int = 0
    rx_bytes: int = 0
    tx_packets: int = 0
    tx_bytes: int = 0


LostPunts = dict[tuple[int, PuntClass, PuntPlace], int]
"""Packets by the id of a router interface, or of a router, and by class and place."""

LostFrames = dict[tuple[int, str, str], int]
"""Frames by the number of a port, by place ("egress": not sent; "device": by the network device's own word), and by
what that calls the loss."""


@dataclass(slots=True)
class Counters:
    """Counters of a whole plane, as (packets, bytes)."""

    router_interfaces: dict[int, InterfaceCounters] = field(default_factory=dict)
    punts: dict[tuple[int, PuntReason], tuple[int, int]] = field(default_factory=dict)  # by vrf_id
    drops: dict[tuple[int, DropReason], tuple[int, int]] = field(default_factory=dict)
    # vrf_id 0 holds drops before a router is known or of tables shared by all routers
    lost_punts: LostPunts = field(default_factory=dict)  # by the router interface that they came in by
    lost_of_routers: LostPunts = field(default_factory=dict)  # by vrf_id, of planes that do not tell the interface
    share_use: dict[int, ShareUse] = field(default_factory=dict)  # by vrf_id, of planes with SHARES
    lost_frames: LostFrames = field(default_factory=dict)  # outside of the pipeline, of planes that tell


@dataclass(slots=True)
class RouteCounts:
    """Packets that met each route since it was installed, by vrf_id and prefix key; FALLBACK routes apart."""

    routes: dict[int, dict[bytes, int]] = field(default_factory=dict)
    covers: dict[int, dict[bytes, int]] = field(default_factory=dict)


RouteTraffic = dict[bytes, tuple[int, int]]
"""Packets and octets that met each route of a router, by prefix key; FALLBACK routes left out."""

Sample = tuple[int, bytes]
"""Of one packet that was routed: the router interface that it came in by, and its destination as a key of full length
(4 octets and 32, or 16 and 128)."""

Sampler = Callable[[Sequence[Sample]], None]
"""Takes the samples that a plane delivers together; at least one."""


class PlaneListener(Protocol):
    """Whom a plane tells what happens. Called from the event loop; none of these may block or raise."""

    def plane_connected(self, plane: "Plane") -> None:
        """The control channel is up and the pipeline's own entries are in place; nothing was adopted yet."""

    def plane_disconnected(self, plane: "Plane", reason: str) -> None:
        """The channel is down; the plane goes on forwarding from what is installed."""

    def port_changed(self, plane: "Plane", port: PortState) -> None:
        """A port appeared, vanished or changed state (also told once for each port after a connect)."""

    def packet_in(self, plane: "Plane", router_interface_id: int, reason: PuntReason, frame: bytes) -> None:
        """A punted frame, untagged, with the router interface it came in by."""

    def noticed(self, plane: "Plane", severity: str, kind: str, text: str) -> None:
        """Something that an operator should know, as an event."""


class Plane(Sharing, Protocol):
    """One programmable forwarder."""

    name: str
    connected: bool
    shared_meters: SharedMeters  # as its document says

    @property
    def capabilities(self) -> frozenset[Capability]:
        """What it can do beyond the tables, as far as it has said so; known once it is connected."""

    @property
    def table_sizes(self) -> dict[str, int]:
        """How many entries `SIZED_TABLES` have room for, as far as it says; known once it is connected."""

    @property
    def ports(self) -> dict[int, PortState]:
        """Its ports by number; empty while disconnected."""

    def sample_to(self, sampler: Sampler | None) -> None:
        """Give samples of what is routed to ``sampler``, from the next connect or read on; None: take none, as at
        first."""

    async def start(self, listener: PlaneListener) -> None:
        """Begin to connect (or to accept) and keep at it; returns at once."""

    async def close(self) -> None:
        """Close the channel and leave everything installed as it is."""

    async def read(self, only: int | None = None, into: RoutesInto | None = None) -> Installed:
        """Read back what is installed, of the routes ``only`` those of one router where that is not None. They are
        put ``into`` that one by one, where the plane does not have to know all of them itself.

        PlaneUnreachable where the channel is down or goes down; ``connected`` is then False already.
        """

    async def write(self, batch: WriteBatch) -> list[Refused]:
        """Send a batch and wait until the plane has confirmed it.

        Writes may overlap: a back end starts sending a batch when write is called and keeps the order of calls.
        PlaneUnreachable where the channel goes down first: what arrived is then unknown, and a read tells.
        """

    async def counters(self) -> Counters:
        """Read all counters. PlaneUnreachable as for read."""

    async def route_counts(self) -> RouteCounts:
        """Read what each route has met; nothing without ROUTE_COUNTERS. PlaneUnreachable as for read."""

    async def route_traffic(self, vrf_id: int) -> RouteTraffic:
        """The same of one router, with octets; an estimate with SAMPLED_ROUTE_COUNTERS. PlaneUnreachable as above."""

    async def sent(self) -> dict[int, int]:
        """Read how many packets each router interface has sent, by its id. PlaneUnreachable as for read."""

    def packet_out(self, interface: RouterInterface, frame: bytes) -> bool:
        """Send an untagged frame out of a router interface; False (and counted) where too many of its router wait.

        One router that sends more than the channel takes leaves room for the others, and they take turns.
        """


Clock = Callable[[], float]
