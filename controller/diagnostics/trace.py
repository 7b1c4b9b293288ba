"""Follows one packet through a plane's tables as read back: which table, which entry, out of which port."""

import ipaddress

from controller.diagnostics.verify import Describer, longest_match
from controller.errors import NoSuch
from controller.model import InterfaceConfig
from controller.planes.base import (
    FALLBACK,
    Installed,
    Nexthop,
    NexthopState,
    PuntReason,
    RouteKind,
    action_kind,
    action_value,
)
from controller.planes.reference_pipeline import by_destination
from controller.routing.fib import Fib
from controller.views import TraceStep
from wire.columns import prefix_text


def check(fib: Fib, destination: str, ingress: str | None) -> None:
    """Raise NoSuch for an address or interface that is none."""
    _address(destination)
    if ingress is not None:
        _interface(fib, ingress)


def trace(fib: Fib, read: Installed, destination: str, ingress: str | None = None) -> list[TraceStep]:
    """Return the tables a packet to ``destination`` meets, which `check` takes, as ``ingress``."""
    address = _address(destination)
    steps = _ingress(fib, read, ingress)
    if steps and steps[-1].action.startswith("drop"):
        return steps
    decided = by_destination(address.packed)
    if decided is not None:
        verb = "punt" if isinstance(decided, PuntReason) else "drop"
        return [*steps, TraceStep("punt", destination, "by address", f"{verb} {decided.name.lower()}")]
    if steps:
        steps.append(TraceStep("punt", "unicast", "miss", "go on"))
    table = f"ipv{address.version}_route"
    routes = read.routes.get(fib.config.vrf_id, {})
    if read.hardware is not None:
        first = read.hardware.routes.get(fib.config.vrf_id, {})
        key = longest_match(first, address.version, int(address))
        if key is not None and first[key] == FALLBACK:
            steps.append(TraceStep(table, destination, prefix_text(key), "fallback"))
            steps.append(TraceStep("ttl", "TTL > 1", "default", "leave it"))
            steps.append(TraceStep("fallback_link", *_link(fib, read, ingress)))
        else:
            routes = first
    key = longest_match(routes, address.version, int(address))
    if key is None:
        steps.append(TraceStep(table, destination, "miss", "punt unreachable"))
        return steps
    action = routes[key]
    describer = Describer(fib, read)
    steps.append(TraceStep(table, destination, prefix_text(key), _route_action(action, describer)))
    kind = action_kind(action)
    if kind in (RouteKind.NEXTHOP, RouteKind.GROUP):
        steps.append(TraceStep("ttl", "TTL > 1", "default", "decrement"))
    if kind is RouteKind.GROUP:
        return steps + _group(fib, read, action_value(action))
    if kind is RouteKind.NEXTHOP:
        return steps + _nexthop(fib, read, action_value(action))
    return steps


def _address(destination: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    try:
        return ipaddress.ip_address(destination)
    except ValueError:
        raise NoSuch("address", destination, "give an IPv4 or IPv6 address") from None


def _interface(fib: Fib, name: str) -> InterfaceConfig:
    for interface in fib.interfaces.values():
        if interface.config.name == name:
            return interface.config
    raise NoSuch("interface", name, f"router {fib.config.full_name} has other ones: vrctl get interfaces")


def _ingress(fib: Fib, read: Installed, name: str | None) -> list[TraceStep]:
    if name is None:
        return []
    config = _interface(fib, name)
    key = f"port {config.port} vlan {config.vlan or 'untagged'}"
    entry = read.router_interfaces.get(config.id)
    if entry is None or not entry.enabled:
        return [TraceStep("interface_classifier", key, "miss", "drop unknown_interface")]
    return [
        TraceStep("interface_classifier", key, f"router interface {config.id}", f"vrf {fib.config.vrf_id}"),
        TraceStep("l3_admit", entry.mac.hex(":"), "own MAC", "admit"),
    ]


def _link(fib: Fib, read: Installed, name: str | None) -> tuple[str, str, str]:
    """Return key, entry and action of the way to the fallback plane."""
    config = next((one.config for one in fib.interfaces.values() if one.config.name == name), None)
    if config is None:
        return "ingress interface", "its VLAN", "to the fallback plane"
    link = None if read.hardware is None else read.hardware.links.get(config.id)
    if link is None:
        return f"router interface {config.id}", "miss", "punt unreachable"
    return f"router interface {config.id}", "found", f"port {link.port} vlan {link.vlan}, to the fallback plane"


def _route_action(action: int, describer: Describer) -> str:
    kind = action_kind(action)
    if kind is RouteKind.NEXTHOP:
        return f"nexthop {action_value(action)}"
    if kind is RouteKind.GROUP:
        return f"nexthop group {action_value(action)}"
    text = describer.action(action)
    return f"drop {text}" if text == "blackhole" else f"punt {text}"


def _group(fib: Fib, read: Installed, group_id: int) -> list[TraceStep]:
    group = read.groups.get(group_id)
    if group is None:
        return [TraceStep("nexthop_group", str(group_id), "miss", "drop")]
    total = sum(member.weight for member in group.members)
    steps = []
    for member in group.members:
        share = f"hash, {member.weight} of {total}"
        steps.append(TraceStep("nexthop_group", str(group_id), share, f"nexthop {member.nexthop_id}"))
        steps += _nexthop(fib, read, member.nexthop_id)
    return steps


def _nexthop(fib: Fib, read: Installed, nexthop_id: int) -> list[TraceStep]:
    nexthop = read.nexthops.get(nexthop_id)
    if nexthop is None:
        return [TraceStep("nexthop", str(nexthop_id), "miss", "drop")]
    if nexthop.state is not NexthopState.FORWARD:
        action = "punt glean" if nexthop.state is NexthopState.GLEAN else "drop neighbor_failed"
        return [TraceStep("nexthop", str(nexthop_id), "found", action)]
    step = TraceStep("nexthop", str(nexthop_id), "found", f"neighbor {nexthop.mac.hex(':')}")
    return [step, _egress(fib, read, nexthop)]


def _egress(fib: Fib, read: Installed, nexthop: Nexthop) -> TraceStep:
    entry = read.router_interfaces.get(nexthop.router_interface_id)
    if entry is None:
        return TraceStep("router_interface", str(nexthop.router_interface_id), "miss", "drop")
    interface = fib.interfaces.get(entry.id)
    name = "" if interface is None else f"{interface.config.name}: "
    vlan = f" vlan {entry.vlan}" if entry.vlan else ""
    port = "" if interface is None else f" ({interface.config.port})"
    return TraceStep(
        "router_interface",
        str(entry.id),
        f"{name}MTU {entry.mtu}",
        f"source {entry.mac.hex(':')}, port {entry.port}{port}{vlan}",
    )
