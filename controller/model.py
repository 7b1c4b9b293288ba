"""What the operator declared, checked and with every id issued: planes, tenants, slices, routers, interfaces, links.

Everything here is immutable; a change is a new object. Ids are issued by the store and never guessed: `vrf_id` names
a router on every plane, `InterfaceConfig.id` a router interface.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

UNTAGGED = 0
MAX_ROUTERS = 8000
"""Bound by the tables of planes: 8,192 routers (p4src/common/ids.p4), some of which are the controller's own."""


class PlaneKind(StrEnum):
    """Which back end drives a plane."""

    OPENFLOW = "openflow"
    P4RUNTIME = "p4runtime"
    FAKE = "fake"


@dataclass(frozen=True, slots=True)
class PlanePort:
    """A port of a P4Runtime device, which cannot list its ports itself."""

    name: str
    number: int
    device: str = ""  # host interface whose carrier is the port's state; without one the port counts as up


@dataclass(frozen=True, slots=True)
class FallbackConfig:
    """The plane that routes what a hardware plane has no room for, and the ports of the link between the two."""

    plane: str
    port: str  # of the hardware plane
    peer_port: str  # of the other one


@dataclass(frozen=True, slots=True)
class Capacity:
    """How many routes a plane has room for, of all routers together; 0: as many as the plane says."""

    ipv4_route: int = 0
    ipv6_route: int = 0


@dataclass(frozen=True, slots=True)
class PlaneConfig:
    """A programmable forwarder the controller may use."""

    name: str
    kind: PlaneKind
    datapath_id: int = 0  # OpenFlow
    address: str = ""  # P4Runtime: "HOST:PORT" or "unix:PATH"
    device_id: int = 0
    ports: tuple[PlanePort, ...] = ()
    fallback: FallbackConfig | None = None
    capacity: Capacity = Capacity()
    shared_meters: tuple[tuple[str, ...], ...] = ()  # OpenFlow: punt classes (`PuntRates`) that share one


MAX_MEMORY = 1 << 40
"""Octets: more than any controller has, where no budget divides what it has."""


class PuntRates(NamedTuple):
    """Packets per second that each router of a slice may punt, by punt class (`PuntClass`, in its order).

    FRR lives with the defaults: BGP takes a full table, OSPF and IS-IS an exchange of databases, BFD a hundred
    sessions at 50 ms. What any host can send has less: each packet costs the guest's and the controller's time.
    """

    bfd: int = 2000
    routing: int = 2000
    bgp: int = 4000
    arp: int = 1000
    icmp: int = 500
    local: int = 1000
    glean: int = 200
    ttl: int = 200
    mtu: int = 200
    unreachable: int = 200
    options: int = 200


USUAL_PUNTS = PuntRates()


@dataclass(frozen=True, slots=True)
class Quota:
    """Hard limits of one slice, shared by the tenant's routers on that plane; punts are per router and class."""

    ipv4_routes: int = 1_000_000
    ipv6_routes: int = 500_000
    neighbors: int = 1024
    nexthops: int = 4096
    groups: int = 1024
    punts_per_s: PuntRates = USUAL_PUNTS
    hardware_ipv4_routes: int | None = None  # entries in the hardware of a plane with a fallback; None: no bound
    hardware_ipv6_routes: int | None = None
    sets: int = 65_536  # nexthop sets that VRCs name
    members: int = 524_288  # of these sets
    interfaces: int = 16_384
    memory: int = MAX_MEMORY  # octets of the controller

    def hardware_routes(self, family: int) -> int | None:
        """Return the bound on entries in hardware of one family, None where there is none."""
        return self.hardware_ipv4_routes if family == 4 else self.hardware_ipv6_routes


SHARED_QUOTAS = ("ipv4_routes", "ipv6_routes", "nexthops", "groups", "interfaces", "memory")
"""The quotas that are reserved from something all slices share, and of which one gets a part that says none."""


SHARE_WHOLE = 1_000_000
"""A whole core, or link, in the unit of guarantees and ceilings."""


def show_part(part: int) -> str:
    """Return a part of the whole as the document writes it: "10 %"."""
    return f"{part * 100 / SHARE_WHOLE:g} %"


@dataclass(frozen=True, slots=True)
class Share:
    """What a slice, or a router, gets of each core and of each link that are too small for all (docs/planes.md)."""

    weight: int = 1  # 1 to 1000
    guarantee: int = 0  # of SHARE_WHOLE; 0: none
    ceiling: int = 0  # of SHARE_WHOLE; 0: none

    def __str__(self) -> str:
        """The share as `vrctl` shows it."""
        guarantee = f", guarantee {show_part(self.guarantee)}" if self.guarantee else ""
        ceiling = f", ceiling {show_part(self.ceiling)}" if self.ceiling else ""
        return f"weight {self.weight}{guarantee}{ceiling}"


USUAL_SHARE = Share()
"""As much as every other one has."""


@dataclass(frozen=True, slots=True)
class SliceConfig:
    """A tenant's part of one plane: ports with their VLANs (0: untagged), quotas, and its share."""

    plane: str
    ports: tuple[tuple[str, frozenset[int]], ...]
    quota: Quota = field(default_factory=Quota)
    said: frozenset[str] = frozenset()  # the quotas that the operator gave; of the others a slice gets a part
    overcommit: bool = False  # its quotas are limits, nothing of them is reserved
    id: int = 0  # by which planes that have shares know it; 0: none
    share: Share = USUAL_SHARE

    def holds(self, port: str, vlan: int) -> bool:
        """Tell whether the tenant may attach an interface to this port and VLAN."""
        return any(name == port and vlan in vlans for name, vlans in self.ports)


@dataclass(frozen=True, slots=True)
class InterfaceConfig:
    """One interface of a router: in the guest a TAP, on the plane a port and VLAN."""

    id: int
    name: str
    port: str  # the plane port's name
    vlan: int
    mac: bytes
    mtu: int = 1500
    addresses: tuple[str, ...] = ()
    virtual_macs: tuple[bytes, ...] = ()
    admin_up: bool = True


class RouteSource(StrEnum):
    """Where a VRC learns routes."""

    FPM = "fpm"
    NETLINK = "netlink"


class Suite(StrEnum):
    """What makes a router's routes in its guest."""

    FRR = "frr"
    BIRD = "bird"
    IP = "ip"  # nothing but static routes
    COMMAND = "command"  # any programs that write to the kernel


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Routing:
    """A router's suite and its text, as given; that of `command` as JSON."""

    suite: Suite = Suite.FRR
    text: str = ""


class GuestKind(StrEnum):
    """Which driver runs a guest."""

    NETNS = "netns"
    KVM = "kvm"


@dataclass(frozen=True, slots=True)
class GuestConfig:
    """Where a router's daemons run; processors and the image are of machines alone."""

    kind: GuestKind = GuestKind.NETNS
    memory_mib: int = 0  # of a namespace: what its driver gives where none is said
    vcpus: int = 0
    image: str = ""  # directory of the image; the controller's own where left out

    def __str__(self) -> str:
        """The guest as `vrctl diff` shows it."""
        if self.kind is GuestKind.NETNS:
            return f"{self.kind} {self.memory_mib}M" if self.memory_mib else self.kind.value
        image = f" {self.image}" if self.image else ""
        return f"{self.kind} {self.memory_mib}M {self.vcpus} vCPU{image}"


NAMESPACE = GuestConfig()
"""The light guest that a router has where nothing else is said."""


class Placement(StrEnum):
    """Where a router's routes are, on a plane that has a fallback."""

    AUTO = "auto"  # in hardware where all have room, otherwise some
    HARDWARE = "hardware"  # all of them, while there is room
    SOFTWARE = "software"  # none


@dataclass(frozen=True, slots=True)
class RouterConfig:
    """One virtual router."""

    vrf_id: int
    tenant: str
    name: str
    plane: str
    quota: Quota  # of its slice
    interfaces: tuple[InterfaceConfig, ...]
    hold_time_s: int = 120
    source: RouteSource = RouteSource.FPM
    guest: GuestConfig = NAMESPACE
    routing: Routing = Routing()
    placement: Placement = Placement.AUTO
    came_from: Placement | None = None  # where its routes rested before the move that is under way
    share: Share = USUAL_SHARE  # of what its slice gets
    slice_id: int = 0
    slice_share: Share = USUAL_SHARE  # of its slice

    @property
    def full_name(self) -> str:
        """The name that is unique: tenant/router."""
        return f"{self.tenant}/{self.name}"


@dataclass(frozen=True, slots=True)
class TenantConfig:
    """A tenant and its slices, one for each plane it uses."""

    name: str
    slices: tuple[SliceConfig, ...] = ()


def names_of(routers: Iterable[RouterConfig]) -> str:
    """Return router names for a message, the first few."""
    names = sorted(router.full_name for router in routers)
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + more
