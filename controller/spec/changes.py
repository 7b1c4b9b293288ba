"""The difference of two states in the operator's words: what `vrctl diff` prints and apply reports."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import TypeVar

from controller.model import (
    SHARED_QUOTAS,
    FallbackConfig,
    InterfaceConfig,
    PlaneConfig,
    PlanePort,
    RouterConfig,
    SliceConfig,
    Suite,
)
from controller.spec.state import State

_TEXTS = {
    Suite.FRR: "FRR configuration",
    Suite.BIRD: "BIRD configuration",
    Suite.IP: "static routes",
    Suite.COMMAND: "command",
}

_NOT_ITS_OWN = ("quota", "interfaces", "routing", "vrf_id", "came_from", "slice_id", "slice_share")
"""Fields of a router that say what its slice says, or that are told otherwise."""

EQUAL_PART = "an equal part"
"""What a slice has of a quota that it does not say."""

T = TypeVar("T")
Details = Callable[[T, T], list[str]]


class Verb(StrEnum):
    """What happens to an object."""

    CREATE = "create"
    CHANGE = "change"
    DELETE = "delete"


@dataclass(frozen=True, slots=True)
class Change:
    """One object that apply creates, changes or deletes."""

    verb: Verb
    kind: str  # "plane", "tenant", "slice", "router", "link"
    name: str
    details: list[str] = field(default_factory=list)  # "mtu 1500 → 9000"


def changes(before: State, after: State) -> list[Change]:
    """Return what differs, planes first."""
    return [
        *_compare("plane", before.planes, after.planes, _plane_details),
        *_detachments(before, after),
        *_compare("tenant", _names(before.tenants), _names(after.tenants), lambda _, __: []),
        *_compare("slice", slices_of(before), slices_of(after), _slice_details),
        *_routers(before, after),
        *(Change(Verb.DELETE, "link", link.name) for link in sorted(before.links - after.links)),
        *(Change(Verb.CREATE, "link", link.name) for link in sorted(after.links - before.links)),
    ]


def _compare(kind: str, before: Mapping[str, T], after: Mapping[str, T], details: Details[T]) -> Iterator[Change]:
    for name in sorted(before.keys() | after.keys()):
        if name not in after:
            yield Change(Verb.DELETE, kind, name)
        elif name not in before:
            yield Change(Verb.CREATE, kind, name)
        elif before[name] != after[name]:
            yield Change(Verb.CHANGE, kind, name, details(before[name], after[name]))


def _names(objects: Mapping[str, object]) -> dict[str, str]:
    return dict.fromkeys(objects, "")


def _detachments(before: State, after: State) -> Iterator[Change]:
    for name in sorted((before.detached ^ after.detached) & before.planes.keys() & after.planes.keys()):
        yield Change(Verb.CHANGE, "plane", name, ["detached" if name in after.detached else "attached"])


def slices_of(state: State) -> dict[str, SliceConfig]:
    """Return all slices by the name that people read: tenant@plane."""
    return {f"{tenant.name}@{part.plane}": part for tenant in state.tenants.values() for part in tenant.slices}


def _plane_details(before: PlaneConfig, after: PlaneConfig) -> list[str]:
    found = []
    if before.kind != after.kind:
        found.append(f"kind {before.kind} → {after.kind}")
    if before.datapath_id != after.datapath_id:
        found.append(f"datapath_id {before.datapath_id:#x} → {after.datapath_id:#x}")
    found += _fields(before, after, "name", "kind", "datapath_id", "ports", "fallback", "capacity", "shared_meters")
    if before.fallback != after.fallback:
        found.append(f"fallback {_show_fallback(before.fallback)} → {_show_fallback(after.fallback)}")
    found += [f"capacity {line}" for line in _fields(before.capacity, after.capacity)]
    if before.shared_meters != after.shared_meters:
        found.append(f"shared_meters {_show_shared(before)} → {_show_shared(after)}")
    old = {port.name: _show_port(port) for port in before.ports}
    new = {port.name: _show_port(port) for port in after.ports}
    for name in sorted(old.keys() | new.keys()):
        if old.get(name) != new.get(name):
            found.append(f"port {name}: {old.get(name, 'none')} → {new.get(name, 'none')}")
    return found


def _show_fallback(fallback: FallbackConfig | None) -> str:
    return "none" if fallback is None else f"{fallback.plane} by {fallback.port} and {fallback.peer_port}"


def _show_shared(plane: PlaneConfig) -> str:
    return ", ".join("+".join(classes) for classes in plane.shared_meters) or "none"


def _show_port(port: PlanePort) -> str:
    return f"{port.number} device {port.device}" if port.device else str(port.number)


def show_vlans(vlans: frozenset[int]) -> str:
    """Return VLANs as the document writes them: "untagged 100 200-210"."""
    runs: list[list[int]] = []
    for vlan in sorted(vlans):
        if runs and runs[-1][1] == vlan - 1 and runs[-1][0]:
            runs[-1][1] = vlan
        else:
            runs.append([vlan, vlan])
    return " ".join("untagged" if not low else str(low) if low == high else f"{low}-{high}" for low, high in runs)


def _slice_details(before: SliceConfig, after: SliceConfig) -> list[str]:
    found = []
    old, new = dict(before.ports), dict(after.ports)
    for port in sorted(old.keys() | new.keys()):
        was, becomes = show_vlans(old.get(port, frozenset())), show_vlans(new.get(port, frozenset()))
        if was != becomes:
            found.append(f"port {port}: {was or 'none'} → {becomes or 'none'}")
    if before.overcommit != after.overcommit:
        found.append("overcommits" if after.overcommit else "no longer overcommits")
    if before.share != after.share:
        found.append(f"share {before.share} → {after.share}")
    for each in fields(before.quota):
        was, becomes = _show_quota(before, each.name), _show_quota(after, each.name)
        if was != becomes:
            found.append(f"quota {each.name} {was} → {becomes}")
    return found


def _show_quota(part: SliceConfig, name: str) -> str:
    value = getattr(part.quota, name)
    return EQUAL_PART if name in SHARED_QUOTAS and name not in part.said else _show(value)


def _fields(before: object, after: object, *skip: str) -> list[str]:
    found = []
    for each in fields(before):  # type: ignore[arg-type]  # dataclasses both
        old, new = getattr(before, each.name), getattr(after, each.name)
        if each.name not in skip and old != new:
            found.append(f"{each.name} {_show(old)} → {_show(new)}")
    return found


def _show(value: object) -> str:
    if isinstance(value, bytes):
        return value.hex(":")
    if isinstance(value, tuple):
        return "[" + ", ".join(map(_show, value)) + "]"
    return "none" if value is None else str(value) or "none"


def _routers(before: State, after: State) -> Iterator[Change]:
    for change in _compare("router", before.routers, after.routers, _router_details):
        if change.verb is Verb.CHANGE and not change.details:
            continue  # its slice has changed, which the slice says
        yield change


def _router_details(before: RouterConfig, after: RouterConfig) -> list[str]:
    if before.vrf_id != after.vrf_id:
        where = f"plane {before.plane} → {after.plane}" if before.plane != after.plane else ""
        kind = f"guest {before.guest} → {after.guest}" if before.guest.kind != after.guest.kind else ""
        return [", ".join(filter(None, (where, kind))) + ": made anew there"]
    found = _fields(before, after, *_NOT_ITS_OWN)
    old = {interface.name: interface for interface in before.interfaces}
    new = {interface.name: interface for interface in after.interfaces}
    for change in _compare("interface", old, new, _interface_details):
        lines = change.details or [""]
        found += [f"interface {change.name} {change.verb}d {line}".rstrip() for line in lines]
    if before.routing.suite != after.routing.suite:
        found.append(f"{before.routing.suite} → {after.routing.suite}: its guest starts anew")
    elif before.routing != after.routing:
        found.append(f"{_TEXTS[after.routing.suite]} changed")
    return found


def _interface_details(before: InterfaceConfig, after: InterfaceConfig) -> list[str]:
    return ["(" + ", ".join(_fields(before, after, "id")) + ")"]
