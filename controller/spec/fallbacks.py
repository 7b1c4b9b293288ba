"""Checks of planes that are each other's fallback, and what other checks of planes share with them."""

from collections.abc import Iterator

from controller.model import Placement, PlaneConfig, PlaneKind, SliceConfig
from controller.spec.state import State

Problem = tuple[tuple[str, ...], str]
"""Whose line to name, and what is wrong."""


def problems(state: State) -> Iterator[Problem]:
    """Walk over what is wrong with fallbacks."""
    yield from _planes(state)
    yield from _slices(state)
    yield from _interfaces(state)
    yield from _placements(state)


def unknown_plane(state: State, plane: str) -> str:
    """Return what to say of a plane that is not declared."""
    known = ", ".join(sorted(state.planes)) or "none"
    return f"plane {plane} is not declared (known: {known}); add it under planes:, or with vrctl plane attach"


def may_have(plane: PlaneConfig, port: str) -> bool:
    """Tell whether a plane has a port or may get it: those of P4Runtime devices are declared."""
    return plane.kind is not PlaneKind.P4RUNTIME or any(declared.name == port for declared in plane.ports)


def _planes(state: State) -> Iterator[Problem]:
    behind: dict[str, str] = {}
    for plane in state.planes.values():
        fallback, key = plane.fallback, ("plane", plane.name)
        if fallback is None:
            continue
        other = state.planes.get(fallback.plane)
        if other is None:
            yield key, f"fallback of plane {plane.name}: {unknown_plane(state, fallback.plane)}"
            continue
        first = behind.setdefault(other.name, plane.name)
        if other.fallback is not None:
            yield key, f"plane {other.name} cannot be the fallback of {plane.name}: it has one itself"
        elif first != plane.name:
            yield key, f"plane {other.name} is the fallback of {first} and of {plane.name}; give one of them another"
        elif other.name in state.detached and plane.name not in state.detached:
            yield key, f"plane {other.name} is the fallback of {plane.name}; detach {plane.name} instead"
        for end, port in ((plane, fallback.port), (other, fallback.peer_port)):
            if not may_have(end, port):
                yield key, f"fallback link of plane {plane.name}: plane {end.name} has no port {port}; add it there"


def _slices(state: State) -> Iterator[Problem]:
    behind = {one.fallback.plane: one.name for one in state.planes.values() if one.fallback is not None}
    for tenant in state.tenants.values():
        for part in tenant.slices:
            key = ("slice", tenant.name, part.plane)
            if part.plane in behind:
                yield key, f"plane {part.plane} is the fallback of {behind[part.plane]}; give a slice of that plane"
            link = _link_port(state, part.plane)
            if any(port == link for port, _ in part.ports):
                yield key, f"port {link} of plane {part.plane} is its fallback link; leave it out of slices"
            if link is None:
                yield from _hardware_quotas(key, tenant.name, part)


def _hardware_quotas(key: tuple[str, ...], tenant: str, part: SliceConfig) -> Iterator[Problem]:
    for family in (4, 6):
        if part.quota.hardware_routes(family) is not None:
            what = f"tenant {tenant} has a quota hardware_ipv{family}_routes, but plane {part.plane} has no fallback"
            yield key, f"{what} for what is over it; leave it out, or add one"


def _interfaces(state: State) -> Iterator[Problem]:
    for attachment, router, interface in state.attachments():
        if attachment.port == _link_port(state, router.plane):
            key = ("interface", router.full_name, interface.name)
            yield key, f"port {attachment.port} of plane {router.plane} is its fallback link; use another"


def _placements(state: State) -> Iterator[Problem]:
    for router in state.routers.values():
        plane = state.planes.get(router.plane)
        if plane is not None and plane.fallback is None and router.placement is Placement.SOFTWARE:
            what = f"router {router.full_name} is placed in software, but plane {plane.name} has no fallback"
            yield ("router", router.full_name), f"{what}; add one, or leave placement out"


def _link_port(state: State, plane: str) -> str | None:
    known = state.planes.get(plane)
    return None if known is None or known.fallback is None else known.fallback.port
