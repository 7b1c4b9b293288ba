"""The whole declared state as one immutable value, and the ids issued so far."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from controller.errors import Conflict
from controller.model import (
    MAX_ROUTERS,
    InterfaceConfig,
    PlaneConfig,
    RouterConfig,
    SliceConfig,
    TenantConfig,
)

MAX_INTERFACE_ID = (1 << 24) - 1


@dataclass(frozen=True, slots=True, order=True)
class LinkEnd:
    """One end of a link inside a plane: the router's interface and the patch port it sits on."""

    router: str  # within the tenant
    interface: str
    port: str


@dataclass(frozen=True, slots=True, order=True)
class LinkConfig:
    """A link between two routers of one tenant and plane; its ends are sorted."""

    tenant: str
    ends: tuple[LinkEnd, LinkEnd]

    @property
    def name(self) -> str:
        """The link as people read it."""
        one, other = self.ends
        return f"{self.tenant}/{one.router}:{one.interface}–{other.router}:{other.interface}"


@dataclass(frozen=True)
class State:
    """Everything declared: planes, tenants with their slices, routers by full name, links.

    It is never changed, only replaced, so that what is asked of all of it again and again is looked for once.
    """

    planes: Mapping[str, PlaneConfig] = field(default_factory=dict)
    tenants: Mapping[str, TenantConfig] = field(default_factory=dict)
    routers: Mapping[str, RouterConfig] = field(default_factory=dict)
    links: frozenset[LinkConfig] = frozenset()
    detached: frozenset[str] = frozenset()  # planes declared but not used for now
    sizes: Mapping[str, Mapping[str, int]] = field(default_factory=dict, compare=False)
    """What planes said of the sizes of their tables, by plane and table, when they were connected last."""

    @cached_property
    def slices(self) -> Mapping[str, Mapping[str, SliceConfig]]:
        """All slices, by plane and tenant."""
        found: dict[str, dict[str, SliceConfig]] = {}
        for tenant in self.tenants.values():
            for part in tenant.slices:
                found.setdefault(part.plane, {}).setdefault(tenant.name, part)
        return found

    @cached_property
    def behind(self) -> frozenset[str]:
        """The planes that are the fallback of another one."""
        return frozenset(plane.fallback.plane for plane in self.planes.values() if plane.fallback is not None)

    @cached_property
    def interfaces(self) -> Mapping[str, Mapping[str, int]]:
        """How many interfaces are declared, by plane and tenant."""
        counts: dict[str, dict[str, int]] = {}
        for router in self.routers.values():
            on_plane = counts.setdefault(router.plane, {})
            on_plane[router.tenant] = on_plane.get(router.tenant, 0) + len(router.interfaces)
        return counts

    def slice_of(self, tenant: str, plane: str) -> SliceConfig | None:
        """Return the tenant's slice of a plane, if it has one."""
        return self.slices.get(plane, {}).get(tenant)

    def attachments(self) -> Iterator[tuple["Attachment", RouterConfig, InterfaceConfig]]:
        """Walk over every port and VLAN in use, with its router and interface."""
        for router in self.routers.values():
            for interface in router.interfaces:
                yield Attachment(router.plane, interface.port, interface.vlan), router, interface

    def by_vrf(self, vrf_id: int) -> RouterConfig | None:
        """Return the router with this id, if there is one."""
        return next((router for router in self.routers.values() if router.vrf_id == vrf_id), None)


@dataclass(frozen=True, slots=True, order=True)
class Attachment:
    """A port and VLAN of a plane: at most one interface of all tenants uses it."""

    plane: str
    port: str
    vlan: int

    def __str__(self) -> str:
        vlan = f"VLAN {self.vlan}" if self.vlan else "untagged"
        return f"port {self.port} {vlan} of plane {self.plane}"


@dataclass(slots=True)
class Ids:
    """Issues ids of routers, interfaces and slices; a copy can be tried out and thrown away."""

    next_vrf: int = 1
    next_interface: int = 1
    taken: frozenset[int] = frozenset()  # vrf_ids in use, deleted routers that are not yet clean included
    identity: int = 0
    next_slice: int = 1

    def copy(self) -> "Ids":
        """Return an issuer that starts where this one stands."""
        return replace(self)

    def vrf(self) -> int:
        """Issue a router id: the next never used one, or after the last of 8000 the lowest free one."""
        issued = self.next_vrf
        if issued > MAX_ROUTERS:
            issued = next((free for free in range(1, MAX_ROUTERS + 1) if free not in self.taken), 0)
            if not issued:
                most = f"a controller has {MAX_ROUTERS} routers at most, with deleted ones that are not gone yet"
                raise Conflict(f"{most}; declare fewer, or delete some first")
        else:
            self.next_vrf += 1
        self.taken |= {issued}
        return issued

    def interface(self) -> int:
        """Issue a router interface id, never used before."""
        if self.next_interface > MAX_INTERFACE_ID:
            raise Conflict("all router interface ids were used; restore this state into a new controller")
        self.next_interface += 1
        return self.next_interface - 1

    def slice(self) -> int:
        """Issue a slice id, never used before: planes have 32 bits for it."""
        self.next_slice += 1
        return self.next_slice - 1

    def mac(self, interface_id: int) -> bytes:
        """Return the MAC of an interface that declares none: locally administered, 02:53, then identity and id."""
        return bytes((0x02, 0x53, self.identity & 0xFF)) + interface_id.to_bytes(3, "big")


@dataclass(frozen=True, slots=True)
class Hold:
    """A port and VLAN that its last interface gave up, until the plane has confirmed that it is gone from there."""

    attachment: Attachment
    interface_id: int
    vrf_id: int


@dataclass(frozen=True, slots=True)
class Tombstone:
    """A deleted router, until its plane and its guest are confirmed clean."""

    router: RouterConfig
    plane_clean: bool = False
    guest_clean: bool = False
