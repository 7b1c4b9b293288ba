"""Entries for a plane as an `Installed`, and the batches that bring them there and take them away."""

from collections.abc import Iterable

from controller.planes.base import (
    Installed,
    Nexthop,
    NexthopGroup,
    Op,
    Policer,
    RouterInterface,
    RouteUpdates,
    Update,
    WriteBatch,
)
from wire.columns import family_of, prefix_key

Entry = Policer | RouterInterface | Nexthop | NexthopGroup


def installed(entries: Iterable[Entry], routes: dict[int, dict[str, int]]) -> Installed:
    """Return entries, and routes given as text by vrf_id, as a plane holds them."""
    held = Installed()
    for entry in entries:
        if isinstance(entry, Policer):
            held.policers[entry.vrf_id] = entry
        elif isinstance(entry, RouterInterface):
            held.router_interfaces[entry.id] = entry
        elif isinstance(entry, Nexthop):
            held.nexthops[entry.id] = entry
        else:
            held.groups[entry.id] = entry
    for vrf_id, prefixes in routes.items():
        held.routes[vrf_id] = {prefix_key(text): action for text, action in prefixes.items()}
    return held


def without(held: Installed, others: Installed) -> Installed:
    """Return the entries whose id, and the routes whose router, is none of the others'."""
    rest = Installed()
    rest.policers = {key: each for key, each in held.policers.items() if key not in others.policers}
    rest.router_interfaces = {
        key: each for key, each in held.router_interfaces.items() if key not in others.router_interfaces
    }
    rest.nexthops = {key: each for key, each in held.nexthops.items() if key not in others.nexthops}
    rest.groups = {key: each for key, each in held.groups.items() if key not in others.groups}
    rest.routes = {key: each for key, each in held.routes.items() if key not in others.routes}
    return rest


def batch(entries: Installed, op: Op) -> WriteBatch:
    """Return one update for each entry."""
    return WriteBatch(
        [Update(op, each) for each in entries.policers.values()],
        [Update(op, each) for each in entries.router_interfaces.values()],
        [Update(op, each) for each in entries.nexthops.values()],
        [Update(op, each) for each in entries.groups.values()],
        [column for vrf_id, held in entries.routes.items() for column in route_columns(vrf_id, held, op)],
    )


def route_columns(vrf_id: int, routes: dict[bytes, int], op: Op) -> list[RouteUpdates]:
    """Return routes as columns, one for each family that has some."""
    columns = {4: RouteUpdates(vrf_id, 4), 6: RouteUpdates(vrf_id, 6)}
    for key, action in routes.items():
        column = columns[family_of(key)]
        column.ops.append(op)
        column.keys.append(key)
        column.actions.append(action)
    return [column for column in columns.values() if column.keys]
