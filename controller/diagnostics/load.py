"""What passes through planes and routers: counts that only grow, so that two of these views tell the rates."""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping

from controller.errors import PlaneUnreachable
from controller.planes.base import Capability, Clock, Counters, Plane, PuntClass, PuntPlace
from controller.planes.shares import ShareUse, used_of
from controller.shard.loop_share import LoopShare
from controller.shard.router import VirtualRouter
from controller.shard.shard import Shard
from controller.views import LoadView, LostFrames, LostPunts, PlaneLoad, RouterLoad, ShareLoad, TableView

_What = tuple[PuntPlace, PuntClass, int]
"""Where punts were lost, of which class, and how many."""

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
        lost = _Lost([] if read is None else [one for one in read if one is not None])
        use = _share_use(shard, read)
        mine = [
            _router_load(router, shard, time, read, lost, use, loop_share.account(router.config).spent_s)
            for router in shard.routers.values()
        ]
        rows += mine
        written = sum(shard.mirror.changes.values())
        packets, link_packets = _total(row.packets for row in mine), _total(row.link_packets for row in mine)
        own, others = (None, None) if read is None else read
        if shard.pair is None:
            told = _tells(shard.plane), _lost_frames(shard.plane, own)
            planes.append(PlaneLoad(name, time, packets, None, dict(tables[name]), written, *told))
        else:
            moved = sum(shard.pair.routes.writes.changes.values())
            hardware, software = shard.pair.hardware, shard.pair.software
            told = _tells(hardware), _lost_frames(hardware, own)
            planes.append(PlaneLoad(name, time, packets, link_packets, dict(tables[name]), moved, *told))
            behind, told = software.name, (_tells(software), _lost_frames(software, others))
            planes.append(PlaneLoad(behind, time, link_packets, None, dict(tables[behind]), written, *told))
    return LoadView(planes, rows)


async def _read(shard: Shard, clock: Clock) -> tuple[float, _Read | None]:
    try:
        pair = shard.pair
        read = (await shard.plane.counters(), None) if pair is None else await pair.counters_of_both()
    except PlaneUnreachable:
        return clock(), None
    return clock(), read


class _Lost:
    """Punts that planes lost, by whose they were: a router looks at none of another's."""

    def __init__(self, read: Iterable[Counters]) -> None:
        self._of_interface: dict[int, list[_What]] = defaultdict(list)
        self._of_router: dict[int, list[_What]] = defaultdict(list)
        for counters in read:
            for (interface_id, punt_class, place), packets in counters.lost_punts.items():
                self._of_interface[interface_id].append((place, punt_class, packets))
            for (vrf_id, punt_class, place), packets in counters.lost_of_routers.items():
                self._of_router[vrf_id].append((place, punt_class, packets))

    def of(self, router: VirtualRouter) -> list[LostPunts]:
        """Return what was lost on the way to a router's guest, the relay's own included."""
        names = {interface.id: interface.name for interface in router.config.interfaces}
        lost: Counter[tuple[str, PuntPlace, PuntClass | None]] = Counter()
        for (interface_id, punt_class), packets in router.punts.lost.items():
            lost[names.get(interface_id, ""), PuntPlace.RELAY, punt_class] += packets
        for interface_id, packets in router.punts.lost_at_tap.items():
            lost[names.get(interface_id, ""), PuntPlace.TAP, None] += packets
        told = [
            (name, one) for interface_id, name in names.items() for one in self._of_interface.get(interface_id, ())
        ]
        told += [("", one) for one in self._of_router.get(router.config.vrf_id, ())]
        for name, (place, punt_class, packets) in told:
            lost[name, place, punt_class] += packets
        return [
            LostPunts(name, "" if punt_class is None else punt_class.name.lower(), place, packets)
            for (name, place, punt_class), packets in sorted(lost.items())  # those without a class differ by name
        ]


def _router_load(
    router: VirtualRouter,
    shard: Shard,
    time: float,
    read: _Read | None,
    lost: _Lost,
    use: Mapping[int, ShareUse] | None,
    loop_s: float,
) -> RouterLoad:
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
    return RouterLoad(
        *(config.full_name, config.plane, time, packets, link_packets, entries, changes, loop_s, lost.of(router)),
        None if use is None else _share_load(use.get(config.vrf_id, ShareUse())),
    )


def _share_use(shard: Shard, read: _Read | None) -> dict[int, ShareUse] | None:
    """Return what routers have had of their shares, None where that is not told."""
    planes = (shard.plane,) if shard.pair is None else (shard.pair.hardware, shard.pair.software)
    if read is None or not any(Capability.SHARES in plane.capabilities for plane in planes):
        return None
    return used_of(*(counters.share_use for counters in read if counters is not None))


def _share_load(use: ShareUse) -> ShareLoad:
    return ShareLoad(use.core_ns, use.over_share_core, use.over_share_link)


def _tells(plane: Plane) -> bool:
    return Capability.LOST_PUNTS in plane.capabilities


def _lost_frames(plane: Plane, counters: Counters | None) -> list[LostFrames]:
    lost = {} if counters is None else counters.lost_frames
    names = {number: port.name for number, port in plane.ports.items()}
    return [
        LostFrames(names.get(port, str(port)), place, loss, frames)
        for (port, place, loss), frames in sorted(lost.items())
    ]


def _received(counters: Counters, ids: Iterable[int]) -> int:
    known = counters.router_interfaces
    return sum(known[one].rx_packets for one in ids if one in known)


def _total(counts: Iterable[int | None]) -> int | None:
    known = [count for count in counts if count is not None]
    return sum(known) if known else None
