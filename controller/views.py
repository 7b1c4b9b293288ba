"""What the controller shows of itself: plain values that the API serializes and vrctl prints."""

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class MoveView:
    """A move of a router's routes that is under way, in entries of the hardware's route tables."""

    to: str  # placement: "hardware", "software", "auto"
    before: str  # the placement that an abort takes back; empty where it is not known
    done: int
    total: int  # 0 where it is not known yet


@dataclass(frozen=True, slots=True)
class PlacementView:
    """Where the routes of a router are, on a plane with a fallback."""

    router: str
    placement: str  # as declared
    routes: int  # prefixes installed
    hardware: int  # of these, those that the hardware routes
    reason: str  # one line: why the others are in software
    move: MoveView | None = None  # while they are on their way


@dataclass(frozen=True, slots=True)
class ShareView:
    """What a slice, or a router, gets of each core and link, as declared."""

    weight: int
    guarantee_percent: float | None  # of the whole
    ceiling_percent: float | None


@dataclass(frozen=True, slots=True)
class RouterView:
    """The state of one router."""

    router: str
    plane: str
    state: str  # "up", "resync", "degraded", "disconnected", "no-plane"
    reason: str  # one line; empty when up
    ipv4_routes: int
    ipv6_routes: int
    neighbors: int
    nexthops: int
    groups: int
    pending: int  # routes learned but not yet confirmed by the plane
    refused: int  # entries the plane or a quota refused
    guest: str = ""  # its kind: "netns", "kvm", "kvm (emulated)"
    suite: str = ""  # what makes its routes: "frr", "bird", "ip", "command"
    placement: str = ""  # as declared, on a plane with a fallback
    move: MoveView | None = None  # while its routes are on their way
    remarks: list[str] = field(default_factory=list)  # of its VRC's version, and what of its text no plane forwards
    share: ShareView | None = None  # None where it is that of every other


@dataclass(frozen=True, slots=True)
class RouteView:
    """A route as learned from the guest."""

    prefix: str
    kind: str  # "forward", "connected", "blackhole", "unreachable"
    nexthops: list[str]  # "10.0.0.2 eth0 weight 1"
    stale: bool
    installed: bool


@dataclass(frozen=True, slots=True)
class FibEntryView:
    """One installed entry of ipv4_route or ipv6_route."""

    prefix: str
    action: str  # "nexthop", "group", "local", "glean", "unreachable", "blackhole"
    object_id: int  # nexthop or group id, 0 for the others
    nexthops: list[str]  # "eth0 02:00:00:00:00:01 port 3 vlan 100 weight 1"
    where: str = ""  # "hardware" or "software", on a plane with a fallback


@dataclass(frozen=True, slots=True)
class NeighborView:
    """A neighbor as the guest's kernel knows it."""

    interface: str
    address: str
    mac: str
    state: str  # "resolved" or "failed"


@dataclass(frozen=True, slots=True)
class InterfaceView:
    """One interface and its counters of this moment."""

    router: str
    name: str
    port: str
    vlan: int
    mac: str
    mtu: int
    addresses: list[str]
    up: bool
    port_up: bool


@dataclass(frozen=True, slots=True)
class TableView:
    """How full a route table is."""

    used: int
    capacity: int | None  # None: nobody has said
    source: str  # "given" by the document, "reported" by the plane, "learned" from a refused write


@dataclass(frozen=True, slots=True)
class PlaneView:
    """The state of one plane."""

    name: str
    kind: str
    connected: bool
    reason: str
    routers: int
    ports: list[str]  # "s1-eth1 (1) up"
    entries: dict[str, int]  # by contract table
    capabilities: list[str]
    reached_at: str = ""  # "datapath 0x1", "127.0.0.1:9559 device 1"
    tables: dict[str, TableView] = field(default_factory=dict)  # of a plane with a fallback: what is in hardware


@dataclass(frozen=True, slots=True)
class LostPunts:
    """Packets of one class for a router's guest that were lost at one place so far."""

    interface: str  # by which they came in; empty where the plane does not tell
    punt_class: str  # empty where nobody tells
    place: str  # "policer", "ring", "outbox", "relay", "tap"
    packets: int


@dataclass(frozen=True, slots=True)
class ShareLoad:
    """What a router has had so far of a plane's cores and links."""

    core_ns: int  # of all cores together: what its packets cost, those that were dropped, too
    over_share_core: int  # packets dropped as a core was too small for all
    over_share_link: int  # packets dropped as a link was


@dataclass(frozen=True, slots=True)
class RouterLoad:
    """What has passed through one router so far, to be compared with a later look."""

    router: str
    plane: str
    time: float  # seconds, of a clock that only this view uses
    packets: int | None  # received by its interfaces; None where the plane is away
    link_packets: int | None  # of these, what the fallback plane received; None where there is none
    entries: int  # of its routes on the plane, with a fallback: in hardware
    changes: int  # of these entries, since the controller started
    loop_s: float  # of the controller's event loop that it has taken: messages, what is written, punts
    lost_punts: list[LostPunts] = field(default_factory=list)
    shares: ShareLoad | None = None  # None where the plane has none, or is away


@dataclass(frozen=True, slots=True)
class LostFrames:
    """Frames that a port of a plane lost outside of the pipeline so far."""

    port: str  # its name, or its number where it is not declared
    place: str  # "egress": not sent; "device": what the network device says itself
    loss: str  # what that calls it
    frames: int


@dataclass(frozen=True, slots=True)
class PlaneLoad:
    """What has passed through one plane so far; of a plane behind another one, what came by the link."""

    name: str
    time: float
    packets: int | None
    link_packets: int | None
    tables: dict[str, TableView]
    changes: int
    tells_lost_punts: bool = True  # False: what its policers drop is in no router's `lost_punts`
    lost_frames: list[LostFrames] = field(default_factory=list)  # of planes that tell


@dataclass(frozen=True, slots=True)
class LoadView:
    """What has passed through everything."""

    planes: list[PlaneLoad]
    routers: list[RouterLoad]


@dataclass(frozen=True, slots=True)
class CounterView:
    """Counters of one router: (packets, octets) everywhere."""

    router: str
    interfaces: dict[str, dict[str, int]]  # name → rx_packets, rx_bytes, tx_packets, tx_bytes
    punts: dict[str, int]  # by punt reason, on the plane: packets
    relayed: dict[str, int]  # packets handed to the guest, taken from it, and dropped by reason
    drops: dict[str, int]  # by drop reason


@dataclass(frozen=True, slots=True)
class RouteCounterView:
    """What a route of a router has met on a plane since it was installed there."""

    prefix: str
    plane: str
    packets: int
    octets: int
    counted: str  # "exact", or "sampled": an estimate


@dataclass(frozen=True, slots=True)
class TraceStep:
    """One table a packet meets."""

    table: str
    key: str
    entry: str  # what matched, or "miss"
    action: str


@dataclass(frozen=True, slots=True)
class Difference:
    """One range of addresses that two of learned, desired and installed forward differently."""

    first: str
    last: str
    learned: str
    desired: str
    installed: str


@dataclass(frozen=True, slots=True)
class VerifyView:
    """The result of verify for one router."""

    router: str
    equal: bool
    routes: int  # prefixes compared
    differences: list[Difference] = field(default_factory=list)
    total_differences: int = 0
    damaged: list[str] = field(default_factory=list)  # small entries missing or changed
    repaired: int = 0
    foreign: int = 0  # entries of others in our tables
    refused: int = 0  # learned prefixes that a quota or the plane refused: left out of the comparison


@dataclass(frozen=True, slots=True)
class Event:
    """Something the operator may want to know."""

    sequence: int
    time: float  # seconds since the epoch
    level: str  # "info", "warning", "error"
    kind: str  # short, stable: "session-refused", "plane-connected", …
    subject: str  # router, plane or tenant
    text: str


@dataclass(frozen=True, slots=True)
class CapturedFrame:
    """A punted or injected frame."""

    time: float
    inbound: bool  # True: packet-in
    frame: bytes


@dataclass(frozen=True, slots=True)
class AuditView:
    """What an operator's change did, or was to do, to one object."""

    id: str  # the same for all objects of one change
    time: float  # seconds since the epoch, before it was made
    uid: int
    user: str  # its name
    login: str  # as whom the process' session logged in; empty where that is not known
    pid: int
    origin: str  # "unix:/run/splitplane/api.sock"
    action: str  # "apply", "delete", "move", "exec", …
    subject: str  # the document's name, or that of the object
    verb: str  # "create", "change", "delete"; empty where it is about no declared object
    kind: str  # "plane", "tenant", "slice", "router", "link"
    name: str
    tenant: str
    old: dict[str, Any] | None  # what differs; tenants' texts only as digests
    new: dict[str, Any] | None
    outcome: str  # "done", "failed", "refused", "unchanged", "unfinished"
    reason: str
