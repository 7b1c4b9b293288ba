"""Checks of the whole resulting state, before anything of it is stored or done.

Each complaint names the object, and the line where the document declares it; a complaint about something that the
document does not name is put on the tenant or plane that made it wrong.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator
from itertools import islice

from controller.errors import SpecError
from controller.model import InterfaceConfig, PlaneKind, RouterConfig, Suite
from controller.spec import addresses, fallbacks, shares
from controller.spec.fallbacks import Problem, may_have, unknown_plane
from controller.spec.merge import Where
from controller.spec.state import Attachment, LinkConfig, State
from controller.spec.static_routes import LineError, parse_routes

_MACVLAN_LETTERS = 11
"""Of the name of an interface, with which those of its macvlans begin: IFNAMSIZ leaves room for two digits."""


def check(state: State, where: Where) -> None:
    """Raise SpecError for the first thing in ``state`` that cannot be."""
    for found in (
        _planes(state),
        fallbacks.problems(state),
        _routers(state),
        _links(state),
        _slices(state),
        _attachments(state),
        addresses.problems(state),
        _static_routes(state),
        shares.problems(state),
    ):
        for key, problem in found:
            raise SpecError(where.source, line_of(key, where), problem)


def line_of(key: tuple[str, ...], where: Where) -> int | None:
    """Return the line of an object, or of the nearest thing around it that the document names."""
    around = [key]
    if key[0] == "interface":
        around.append(("router", key[1]))
    if key[0] in ("interface", "router", "slice", "link"):
        around.append(("tenant", key[1].split("/")[0]))
    return next((where.lines[candidate] for candidate in around if candidate in where.lines), None)


def _planes(state: State) -> Iterator[Problem]:
    by_identity: dict[tuple[str, int | str, int], str] = {}
    for plane in state.planes.values():
        if not (plane.datapath_id or plane.address):
            continue
        p4 = plane.kind is PlaneKind.P4RUNTIME
        identity = (plane.address, plane.device_id) if p4 else (plane.datapath_id, 0)
        first = by_identity.setdefault((plane.kind, *identity), plane.name)
        if first != plane.name:
            same = "address and device_id" if p4 else "datapath_id"
            yield ("plane", plane.name), f"planes {first} and {plane.name} have the same {same}"
    for tenant in state.tenants.values():
        for part in tenant.slices:
            if part.plane not in state.planes:
                yield ("slice", tenant.name, part.plane), unknown_plane(state, part.plane)


def _routers(state: State) -> Iterator[Problem]:
    for router in state.routers.values():
        key = ("router", router.full_name)
        if router.plane not in state.planes:
            yield key, unknown_plane(state, router.plane)
        elif state.slice_of(router.tenant, router.plane) is None:
            yield key, f"tenant {router.tenant} has no slice of plane {router.plane}; add one under slices:"
        for interface in router.interfaces:
            where, name = ("interface", router.full_name, interface.name), f"interface {interface.name}"
            if interface.mac in interface.virtual_macs:
                yield where, f"{name} of {router.full_name} names its own MAC as a virtual one"
            if len(set(interface.virtual_macs)) < len(interface.virtual_macs):
                yield where, f"{name} of {router.full_name} names a virtual MAC twice; keep one"


def _link_ports(state: State) -> Iterator[tuple[LinkConfig, RouterConfig, InterfaceConfig]]:
    for link in sorted(state.links):
        for end in link.ends:
            router = state.routers[f"{link.tenant}/{end.router}"]
            yield link, router, next(i for i in router.interfaces if i.name == end.interface)


def _links(state: State) -> Iterator[Problem]:
    found = list(_link_ports(state))
    for (link, one, first), (_, other, second) in zip(found[::2], found[1::2], strict=True):
        key = ("link", link.name)
        if one.full_name == other.full_name:
            yield key, f"link {link.name} has both ends on one router"
        elif one.plane != other.plane:
            yield key, f"link {link.name} has its ends on planes {one.plane} and {other.plane}; both must be on one"
        elif (first.port == second.port) or first.vlan != second.vlan:
            yield key, f"link {link.name} needs two ports and the same VLAN on both"
        elif first.mac == second.mac:
            yield key, f"both ends of link {link.name} have the same MAC"


def _slices(state: State) -> Iterator[Problem]:
    """Two tenants may not hold the same port and VLAN; the ports of links belong to their tenant's slice."""
    claims: dict[tuple[str, str], list[tuple[str, frozenset[int], tuple[str, ...]]]] = {}
    for tenant in state.tenants.values():
        for part in tenant.slices:
            for port, vlans in part.ports:
                claims.setdefault((part.plane, port), []).append(
                    (tenant.name, vlans, ("slice", tenant.name, part.plane))
                )
    for link, router, interface in _link_ports(state):
        claims.setdefault((router.plane, interface.port), []).append(
            (link.tenant, frozenset((interface.vlan,)), ("link", link.name))
        )
    for (plane, port), holders in claims.items():
        owners: dict[int, str] = {}
        for other, vlans, key in holders:
            for vlan in sorted(owners.keys() & vlans):
                if (one := owners[vlan]) != other:
                    attachment = Attachment(plane, port, vlan)
                    yield key, f"{attachment} is in the slices of tenants {one} and {other}; take it out of one"
            owners |= dict.fromkeys(vlans, other)


def _attachments(state: State) -> Iterator[Problem]:
    linked = {(router.vrf_id, interface.id) for _, router, interface in _link_ports(state)}
    users: dict[Attachment, str] = {}
    for attachment, router, interface in state.attachments():
        name, key = (
            f"interface {interface.name} of {router.full_name}",
            ("interface", router.full_name, interface.name),
        )
        plane = state.planes.get(router.plane)
        if plane is not None and not may_have(plane, interface.port):
            known = ", ".join(port.name for port in plane.ports)
            remedy = f"(known: {known}); add it under its ports:"
            yield key, f"{name}: plane {plane.name} has no port {interface.port} {remedy}"
        first = users.setdefault(attachment, name)
        if first != name:
            yield key, f"{attachment} is used by {first} and by {name}; give one of them another port or VLAN"
        part = state.slice_of(router.tenant, router.plane)
        if part is None or (router.vrf_id, interface.id) in linked:
            continue
        if not part.holds(interface.port, interface.vlan):
            yield key, f"{name}: {attachment} is not in the slice of tenant {router.tenant}; add it there"


def _static_routes(state: State) -> Iterator[Problem]:
    for router in state.routers.values():
        if router.routing.suite is not Suite.IP:
            continue
        key, name = ("router", router.full_name), f"router {router.full_name}"
        known = _links_of(router)
        try:
            routes = parse_routes(router.routing.text)
        except LineError as problem:
            yield key, f"{name}: {problem}"
            continue
        for route in routes:
            for device in route.devices:
                if device != "lo" and device not in known:
                    words = ", ".join(known) or "none"
                    yield key, f"{name}: ip line {route.line}: it has no interface {device} (known: {words})"


def _links_of(router: RouterConfig) -> Collection[str]:
    """Return what a router's interfaces are in the guest: TAPs, and for each virtual MAC a macvlan of the first name
    that is free, as the VRC names it; none where there is no name."""
    names = dict.fromkeys(interface.name for interface in router.interfaces)
    numbers: defaultdict[str, Iterator[int]] = defaultdict(lambda: iter(range(1, 100)))  # left for first letters
    for interface in router.interfaces:
        begin = interface.name[:_MACVLAN_LETTERS]
        for _ in interface.virtual_macs:
            free = (name for number in numbers[begin] if (name := f"{begin}-v{number}") not in names)
            names |= dict.fromkeys(islice(free, 1))
    return names
