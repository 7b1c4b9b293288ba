"""What passes through planes and routers: counts that only grow, so that two of these views tell the rates."""

import asyncio
from collections.abc import Iterable, Mapping

from controller.errors import PlaneUnreachable
from controller.planes.base import Clock, Counters
from controller.shard.loop_share import LoopShare
from controller.shard.router import VirtualRouter
from controller.shard.shard import Shard
from controller.views import LoadView, PlaneLoad, RouterLoad, TableView

_Read = tuple[Counters, Counters | None]
"""Counters of a plane, and of its fallback, which sees what took the link."""


async def load_view(
    shards: Mapping[str, Shard],
    tables: Mapping[str, Mapping[str, TableView]],
    loop_share: LoopShare,
    clock: Clock,
) -> LoadView:
    """Read the counters of all planes; one that is away counts nothing, one that is removed meanwhile is left out.

    ``tables`` says how full each plane's route tables are, those of fallbacks included.
    """
    all_of_them = dict(shards)
    reads = await asyncio.gather(*(_read(shard, clock) for shard in all_of_them.values()))
    rows, planes = [], []
    for (name, shard), (time, read) in zip(all_of_them.items(), reads, strict=True):
        if name not in shards:
            continue
        mine = [
            _router_load(router, shard, time, read, loop_share.account(router.config).spent_s)
            for router in shard.routers.values()
        ]
        rows += mine
        written = sum(shard.mirror.changes.values())
        packets, link_packets = _total(row.packets for row in mine), _total(row.link_packets for row in mine)
        if shard.pair is None:
            planes.append(PlaneLoad(name, time, packets, None, dict(tables[name]), written))
        else:
            moved = sum(shard.pair.routes.writes.changes.values())
            planes.append(PlaneLoad(name, time, packets, link_packets, dict(tables[name]), moved))
            behind = shard.pair.software.name
            planes.append(PlaneLoad(behind, time, link_packets, None, dict(tables[behind]), written))
    return LoadView(planes, rows)


async def _read(shard: Shard, clock: Clock) -> tuple[float, _Read | None]:
    try:
        pair = shard.pair
        read = (await shard.plane.counters(), None) if pair is None else await pair.counters_of_both()
    except PlaneUnreachable:
        return clock(), None
    return clock(), read


def _router_load(router: VirtualRouter, shard: Shard, time: float, read: _Read | None, loop_s: float) -> RouterLoad:
    config = router.config
    ids = [interface.id for interface in config.interfaces]
    packets = link_packets = None
    if read is not None:
        packets = _received(read[0], ids)
        link_packets = None if read[1] is None else _received(read[1], ids)
    if shard.pair is None:
        entries, changes = len(router.fib.installed_routes), shard.mirror.changes[config.vrf_id]
    else:
        writes = shard.pair.routes.writes
        entries, changes = writes.count(config.vrf_id), writes.changes[config.vrf_id]
    return RouterLoad(config.full_name, config.plane, time, packets, link_packets, entries, changes, loop_s)


def _received(counters: Counters, ids: Iterable[int]) -> int:
    known = counters.router_interfaces
    return sum(known[one].rx_packets for one in ids if one in known)


def _total(counts: Iterable[int | None]) -> int | None:
    known = [count for count in counts if count is not None]
    return sum(known) if known else None
