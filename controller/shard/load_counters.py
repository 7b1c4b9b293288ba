"""What passes through planes and routers: counts that only grow, so that two of these views tell the rates."""

import asyncio
from collections.abc import Iterable, Mapping

from controller.diagnostics.describe import plane_view
from controller.errors import PlaneUnreachable
from controller.fallback.plane import FallbackPair
from controller.planes.base import Clock, Counters
from controller.shard.fallback_pairs import Pairs
from controller.shard.mirror import PlaneMirror
from controller.shard.router import VirtualRouter
from controller.views import LoadView, PlaneLoad, RouterLoad

_Read = tuple[Counters, Counters | None]
"""Counters of a plane, and of its fallback, which sees what took the link."""


async def load_view(
    mirrors: Mapping[str, PlaneMirror], pairs: Pairs, routers: Iterable[VirtualRouter], clock: Clock
) -> LoadView:
    """Read the counters of all planes; one that is away counts nothing, one that is removed meanwhile is left out."""
    names = list(mirrors)
    reads = await asyncio.gather(*(_read(mirrors[name], pairs.find(name), clock) for name in names))
    by_plane = {name: read for name, read in zip(names, reads, strict=True) if name in mirrors}
    rows = [
        _router_load(router, mirrors[router.config.plane], pairs.find(router.config.plane), found)
        for router in routers
        if (found := by_plane.get(router.config.plane)) is not None
    ]
    tables = {view.name: view.tables for view in pairs.plane_views(map(plane_view, mirrors.values()))}
    planes = []
    for name, (time, _) in by_plane.items():
        pair, mine = pairs.find(name), [row for row in rows if row.plane == name]
        written = sum(mirrors[name].changes.values())
        packets, link_packets = _total(row.packets for row in mine), _total(row.link_packets for row in mine)
        if pair is None:
            planes.append(PlaneLoad(name, time, packets, None, tables[name], written))
        else:
            moved = sum(pair.routes.writes.changes.values())
            planes.append(PlaneLoad(name, time, packets, link_packets, tables[name], moved))
            behind = pair.software.name
            planes.append(PlaneLoad(behind, time, link_packets, None, tables[behind], written))
    return LoadView(planes, rows)


async def _read(mirror: PlaneMirror, pair: FallbackPair | None, clock: Clock) -> tuple[float, _Read | None]:
    try:
        read = (await mirror.plane.counters(), None) if pair is None else await pair.counters_of_both()
    except PlaneUnreachable:
        return clock(), None
    return clock(), read


def _router_load(
    router: VirtualRouter, mirror: PlaneMirror, pair: FallbackPair | None, found: tuple[float, _Read | None]
) -> RouterLoad:
    config, (time, read) = router.config, found
    ids = [interface.id for interface in config.interfaces]
    packets = link_packets = None
    if read is not None:
        packets = _received(read[0], ids)
        link_packets = None if read[1] is None else _received(read[1], ids)
    if pair is None:
        entries, changes = len(router.fib.prefixes.installed), mirror.changes[config.vrf_id]
    else:
        writes = pair.routes.writes
        entries, changes = writes.count(config.vrf_id), writes.changes[config.vrf_id]
    return RouterLoad(config.full_name, config.plane, time, packets, link_packets, entries, changes)


def _received(counters: Counters, ids: Iterable[int]) -> int:
    known = counters.router_interfaces
    return sum(known[one].rx_packets for one in ids if one in known)


def _total(counts: Iterable[int | None]) -> int | None:
    known = [count for count in counts if count is not None]
    return sum(known) if known else None
