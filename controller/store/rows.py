"""Rows of the store to objects of the model and back."""

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from controller.model import (
    Capacity,
    FallbackConfig,
    GuestConfig,
    GuestKind,
    InterfaceConfig,
    Placement,
    PlaneConfig,
    PlaneKind,
    PlanePort,
    PuntRates,
    Quota,
    RouterConfig,
    RouteSource,
    Routing,
    Share,
    SliceConfig,
    Suite,
)
from controller.spec.state import LinkConfig, LinkEnd

Row = tuple[Any, ...]


def plane_row(plane: PlaneConfig, attached: bool, sizes: Mapping[str, int]) -> Row:
    """Return the row of a plane; its ids are text because SQLite's integers are signed."""
    ports = json.dumps([[port.name, port.number, port.device] for port in plane.ports])
    ids = f"{plane.datapath_id:#x}", f"{plane.device_id:#x}"
    fallback = json.dumps(None if plane.fallback is None else asdict(plane.fallback))
    capacity = json.dumps(asdict(plane.capacity))
    where = plane.address, ids[1], ports
    tables = capacity, json.dumps(dict(sizes)), json.dumps(plane.shared_meters)
    return plane.name, plane.kind.value, ids[0], int(attached), *where, fallback, *tables


def plane_of(row: Row) -> tuple[PlaneConfig, bool, dict[str, int]]:
    """Return a plane, whether it is attached, and what it said of the sizes of its tables."""
    name, kind, datapath_id, attached, address, device_id, ports, fallback, capacity, sizes, shared = row
    found = json.loads(fallback)
    plane = PlaneConfig(
        name,
        PlaneKind(kind),
        int(datapath_id, 16),
        address,
        int(device_id, 16),
        tuple(PlanePort(*port) for port in json.loads(ports)),
        None if found is None else FallbackConfig(**found),
        Capacity(**json.loads(capacity)),
        tuple(tuple(classes) for classes in json.loads(shared)),
    )
    return plane, bool(attached), json.loads(sizes)


def slice_row(tenant: str, part: SliceConfig) -> Row:
    """Return the row of a slice."""
    ports = json.dumps([[port, sorted(vlans)] for port, vlans in part.ports])
    return (
        tenant,
        part.plane,
        ports,
        json.dumps(asdict(part.quota)),
        json.dumps(sorted(part.said)),
        int(part.overcommit),
        part.id,
        json.dumps(asdict(part.share)),
    )


def slice_of(row: Row) -> tuple[str, SliceConfig]:
    """Return a slice and its tenant."""
    tenant, plane, ports, quota, said, overcommit, issued, share = row
    limits = json.loads(quota)
    limits["punts_per_s"] = PuntRates(*limits["punts_per_s"])
    held = tuple((port, frozenset(vlans)) for port, vlans in json.loads(ports))
    given = frozenset(json.loads(said))
    part = SliceConfig(plane, held, Quota(**limits), given, bool(overcommit), issued, Share(**json.loads(share)))
    return tenant, part


def router_row(router: RouterConfig) -> Row:
    """Return the row of a router without its interfaces."""
    source = router.source.value
    return (
        router.vrf_id,
        router.tenant,
        router.name,
        router.plane,
        router.hold_time_s,
        source,
        router.guest.kind.value,
        router.routing.text,
        router.guest.memory_mib,
        router.guest.vcpus,
        router.guest.image,
        router.routing.suite.value,
        router.placement.value,
        "" if router.came_from is None else router.came_from.value,
        json.dumps(asdict(router.share)),
    )


def router_of(row: Row, part: SliceConfig | None, interfaces: tuple[InterfaceConfig, ...]) -> RouterConfig:
    """Return a router from its row, its slice, if there still is one, and its interfaces."""
    (vrf_id, tenant, name, plane, hold_time_s, source, kind, text) = row[:8]
    (memory_mib, vcpus, image, suite, placed, came_from, share) = row[8:]
    part = part or SliceConfig(plane, ())
    guest = GuestConfig(GuestKind(kind), memory_mib, vcpus, image)
    routing = Routing(Suite(suite), text)
    return RouterConfig(
        *(vrf_id, tenant, name, plane, part.quota, interfaces, hold_time_s, RouteSource(source), guest, routing),
        Placement(placed),
        Placement(came_from) if came_from else None,
        Share(**json.loads(share)),
        part.id,
        part.share,
    )


def interface_row(router: RouterConfig, position: int, interface: InterfaceConfig) -> Row:
    """Return the row of an interface."""
    return (
        interface.id,
        router.vrf_id,
        position,
        router.plane,
        interface.name,
        interface.port,
        interface.vlan,
        interface.mac,
        interface.mtu,
        " ".join(interface.addresses),
        b"".join(interface.virtual_macs),
        int(interface.admin_up),
    )


def interface_of(row: Row) -> tuple[int, InterfaceConfig]:
    """Return an interface and its router's id."""
    issued, vrf_id, _, _, name, port, vlan, mac, mtu, addresses, virtual, admin_up = row
    macs = (virtual[at : at + 6] for at in range(0, len(virtual), 6))
    each = tuple(dict.fromkeys(macs))  # a plane has one entry for each, and `check` refuses one that is there twice
    return vrf_id, InterfaceConfig(issued, name, port, vlan, mac, mtu, tuple(addresses.split()), each, bool(admin_up))


def link_row(link: LinkConfig) -> Row:
    """Return the row of a link."""
    one, other = link.ends
    return link.tenant, one.router, one.interface, one.port, other.router, other.interface, other.port


def link_of(row: Row) -> LinkConfig:
    """Return a link."""
    return LinkConfig(row[0], (LinkEnd(*row[1:4]), LinkEnd(*row[4:7])))
