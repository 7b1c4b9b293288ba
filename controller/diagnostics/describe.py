"""Turns running state into the views that people and programs read."""

import asyncio
import heapq
import ipaddress
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, groupby, islice

from controller.diagnostics.verify import PLAIN
from controller.fallback.plane import FallbackPair
from controller.planes.base import (
    NexthopState,
    Plane,
    RouteKind,
    action_kind,
    action_value,
)
from controller.routing.fib import Fib
from controller.routing.rib import Member, SetKind
from controller.routing.table_pass import KeyScan
from controller.shard.router import VirtualRouter
from controller.shard.shard import Shard
from controller.views import FibEntryView, InterfaceView, NeighborView, PlaneView, RouterView, RouteView, TableView
from wire.columns import prefix_text

FIBS_AT_ONCE = 500
"""Routers whose entries are counted before others get their turn on the event loop."""


Place = Callable[[bytes], str]
"""Tells of a prefix which plane routes it: "hardware" or "software"."""

KEYS_AT_ONCE = 4096
"""Prefixes that are sorted before others get their turn: a millisecond or two."""


async def sorted_keys(next_keys: Callable[[KeyScan, int], list[bytes]]) -> Iterator[bytes]:
    """Return prefix keys as people expect them: IPv4 first, by address, shorter first; of those that come or go
    meanwhile some."""
    scan, runs = KeyScan(), {5: list[list[bytes]](), 17: list[list[bytes]]()}  # by the length of keys
    while keys := next_keys(scan, KEYS_AT_ONCE):
        keys.sort()
        for length, of_family in runs.items():
            of_family.append([key for key in keys if len(key) == length])
        await asyncio.sleep(0)
    return chain.from_iterable(_once(heapq.merge(*of_family)) for of_family in runs.values())


def _once(keys: Iterable[bytes]) -> Iterator[bytes]:
    """Leave out those that a scan has met twice, as others moved."""
    return (key for key, _ in groupby(keys))


def router_view(router: VirtualRouter, plane_problem: str | None) -> RouterView:
    """Return a router's state."""
    fib = router.fib
    state, reason = router.state if plane_problem is None else ("no-plane", plane_problem)
    return RouterView(
        router=router.config.full_name,
        plane=router.config.plane,
        state=state,
        reason=reason,
        ipv4_routes=fib.learned_counts[4],
        ipv6_routes=fib.learned_counts[6],
        neighbors=len(fib.neighbors),
        nexthops=fib.nexthop_count,
        groups=fib.group_count,
        pending=fib.unconfirmed,
        refused=len(fib.refused_routes),
        remarks=[router.vrc.remark] if router.vrc is not None and router.vrc.remark else [],
    )


async def plane_view(shard: Shard) -> PlaneView:
    """Return a plane's state; of routers that come or go meanwhile what they had in their turn, or nothing."""
    plane, mirror = shard.plane, shard.mirror
    entries = dict.fromkeys(("router_interface", "nexthop", "nexthop_group"), 0)
    fibs = iter(list(mirror.fibs.values()))
    while part := [fib.installed_counts for fib in islice(fibs, FIBS_AT_ONCE)]:
        for table in entries:
            entries[table] += sum(one[table] for one in part)
        await asyncio.sleep(0)  # others get their turn
    entries |= shard.route_counts
    return PlaneView(
        name=plane.name,
        kind="",
        connected=plane.connected,
        reason="" if plane.connected else mirror.reason,
        routers=len(mirror.fibs),
        ports=_ports(plane),
        entries=entries,
        capabilities=sorted(plane.capabilities),
        tables=whole_tables(shard),
    )


def whole_tables(shard: Shard) -> dict[str, TableView]:
    """Return how full the route tables of a plane are, or those of its fallback, which has all routes of the two."""
    sizes = shard.plane.table_sizes
    return {
        name: TableView(used, sizes.get(name), "reported" if name in sizes else "")
        for name, used in shard.route_counts.items()
    }


def fallback_view(pair: FallbackPair, tables: dict[str, TableView]) -> PlaneView:
    """Return the state of the plane behind another one, which has all routes that the two have as one."""
    plane = pair.software
    problem = pair.link_problem if plane.connected else "not connected"
    reason = f"fallback of {pair.name}" + (f": {problem}" if problem else "")
    return PlaneView(
        name=plane.name,
        kind="",
        connected=plane.connected,
        reason=reason,
        routers=len(pair.routes.routers),
        ports=_ports(plane),
        entries={},
        capabilities=sorted(plane.capabilities),
        tables=tables,
    )


def _ports(plane: Plane) -> list[str]:
    ports = sorted(plane.ports.values(), key=lambda port: port.number)
    return [f"{port.name} ({port.number}) {'up' if port.up else 'down'}" for port in ports]


def interface_views(router: VirtualRouter) -> list[InterfaceView]:
    """Return a router's interfaces."""
    return [
        InterfaceView(
            router=router.config.full_name,
            name=known.config.name,
            port=known.config.port,
            vlan=known.config.vlan,
            mac=known.config.mac.hex(":"),
            mtu=known.config.mtu,
            addresses=sorted(str(ipaddress.ip_address(address)) for address in known.addresses),
            up=bool(known.guest_up) and known.up,
            port_up=known.port_up,
        )
        for known in router.fib.interfaces.values()
    ]


def route_views(fib: Fib, keys: Iterable[bytes]) -> Iterator[RouteView]:
    """Iterate over those of some prefixes that are in the RIB in their turn."""
    for key in keys:
        one = fib.learned.get(key)
        if one is not None:
            action = fib.installed_routes.get(key)
            yield RouteView(
                prefix=prefix_text(key),
                kind=SetKind(one.kind).name.lower(),
                nexthops=[_learned_member(fib, member) for member in one.members],
                stale=fib.is_stale(key),
                installed=action is not None and fib.desired(key) == action,
            )


def fib_entries(fib: Fib, keys: Iterable[bytes], place: Place | None) -> Iterator[FibEntryView]:
    """Iterate over those of some prefixes that are installed in their turn; ``place`` tells where, on a plane with a
    fallback."""
    for key in keys:
        action = fib.installed_routes.get(key)
        if action is None:
            continue
        kind = action_kind(action)
        where = "" if place is None else place(key)
        if kind in (RouteKind.NEXTHOP, RouteKind.GROUP):
            name = kind.name.lower()
            yield FibEntryView(prefix_text(key), name, action_value(action), _installed_members(fib, action), where)
        else:
            yield FibEntryView(prefix_text(key), PLAIN.get(action, "unknown"), 0, [], where)


def neighbor_views(fib: Fib) -> Iterator[NeighborView]:
    """Iterate over a router's neighbors, those that are there in their turn."""
    for interface_id, address in sorted(fib.neighbors):
        neighbor, interface = fib.neighbors.get((interface_id, address)), fib.interfaces.get(interface_id)
        if neighbor is not None:
            yield NeighborView(
                interface="" if interface is None else interface.config.name,
                address=str(ipaddress.ip_address(address)),
                mac=neighbor.mac.hex(":"),
                state="resolved" if neighbor.mac else "failed",
            )


def _learned_member(fib: Fib, member: Member) -> str:
    interface = fib.interfaces.get(member.interface_id)
    name = f"interface {member.interface_id}" if interface is None else interface.config.name
    gateway = str(ipaddress.ip_address(member.gateway)) if member.gateway else "on link"
    return f"{gateway} {name} weight {member.weight}"


def _installed_members(fib: Fib, action: int) -> list[str]:
    if action_kind(action) is RouteKind.NEXTHOP:
        pairs = [(action_value(action), 1)]
    else:
        group = fib.installed_group(action_value(action))
        pairs = [] if group is None else [(member.nexthop_id, member.weight) for member in group.members]
    return [_installed_member(fib, nexthop_id, weight) for nexthop_id, weight in pairs]


def _installed_member(fib: Fib, nexthop_id: int, weight: int) -> str:
    nexthop = fib.installed_nexthop(nexthop_id)
    if nexthop is None:
        return f"nexthop {nexthop_id}"
    interface = fib.interfaces.get(nexthop.router_interface_id)
    if interface is None:
        return f"nexthop {nexthop_id} on a removed interface"
    config = interface.config
    what = nexthop.mac.hex(":") if nexthop.state is NexthopState.FORWARD else nexthop.state.name.lower()
    vlan = f" vlan {config.vlan}" if config.vlan else ""
    return f"{config.name} {what} port {config.port}{vlan} weight {weight}"
