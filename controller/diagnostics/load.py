"""What passes through planes and routers: counts that only grow, so that two of these views tell the rates."""

import asyncio
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import dataclass
from itertools import islice

from controller.diagnostics.describe import whole_tables
from controller.diagnostics.fallback_views import hardware_tables
from controller.errors import PlaneUnreachable
from controller.planes.base import Capability, Clock, Counters, Plane, PuntClass, PuntPlace
from controller.planes.shares import ShareUse
from controller.shard.loop_share import LoopShare
from controller.shard.router import VirtualRouter
from controller.shard.shard import Shard
from controller.views import LoadView, LostFrames, LostPunts, PlaneLoad, RouterLoad, ShareLoad

ROUTERS_AT_ONCE, LOST_AT_ONCE = 100, 2000
"""Routers, and counters of lost punts, that are looked at before others get their turn on the event loop."""

_What = tuple[PuntPlace, PuntClass, int]
"""Where punts were lost, of which class, and how many."""

_Read = tuple[Counters, Counters | None]
"""Counters of a plane, and of its fallback, which sees what took the link."""


@dataclass(frozen=True, slots=True)
class _Look:
    """What was counted at one moment. It is made into views later: rates are of what passed between two moments."""

    time: float
    read: _Read | None  # None: the plane was away
    routers: dict[int, VirtualRouter]
    changes: dict[int, int]  # routes written to the plane, by vrf_id
    moved: dict[int, int]  # to the hardware of a plane with a fallback
    spent_s: dict[int, float]  # of the event loop

    @property
    def counters(self) -> list[Counters]:
        """What was read of each plane."""
        return [] if self.read is None else [one for one in self.read if one is not None]


async def load_view(shards: Mapping[str, Shard], loop_share: LoopShare, clock: Clock) -> LoadView:
    """Read the counters of all planes; one that is away counts nothing. A plane, or a router, that is removed
    meanwhile is left out."""
    all_of_them = dict(shards)
    looks = await asyncio.gather(*(_look(shard, loop_share, clock) for shard in all_of_them.values()))
    planes, rows = list[PlaneLoad](), list[RouterLoad]()
    for (name, shard), look in zip(all_of_them.items(), looks, strict=True):
        mine = [row async for row in _router_loads(shard, look)]
        if shards.get(name) is shard:
            planes += _plane_loads(shard, look, mine)
            rows += mine
    return LoadView(planes, rows)


async def _look(shard: Shard, loop_share: LoopShare, clock: Clock) -> _Look:
    try:
        pair = shard.pair
        read: _Read | None
        read = (await shard.plane.counters(), None) if pair is None else await pair.counters_of_both()
    except PlaneUnreachable:
        read = None
    moved = {} if shard.pair is None else dict(shard.pair.routes.writes.changes)
    routers, changes = dict(shard.routers), dict(shard.mirror.changes)
    return _Look(clock(), read, routers, changes, moved, loop_share.spent_s(routers))


async def _router_loads(shard: Shard, look: _Look) -> AsyncIterator[RouterLoad]:
    """Iterate over those routers that are still there in their turn."""
    lost = await _lost(look.counters)
    shares = _has_shares(shard, look)
    for number, (vrf_id, router) in enumerate(look.routers.items(), 1):
        if shard.routers.get(vrf_id) is router:
            yield _router_load(router, shard, look, lost, shares)
        if number % ROUTERS_AT_ONCE == 0:
            await asyncio.sleep(0)


def _plane_loads(shard: Shard, look: _Look, mine: list[RouterLoad]) -> list[PlaneLoad]:
    """Return what has passed through a plane, and through its fallback."""
    pair, time, tables, written = shard.pair, look.time, whole_tables(shard), sum(look.changes.values())
    packets, link_packets = _total(row.packets for row in mine), _total(row.link_packets for row in mine)
    own, others = (None, None) if look.read is None else look.read
    if pair is None:
        told = _tells(shard.plane), _lost_frames(shard.plane, own)
        return [PlaneLoad(shard.plane.name, time, packets, None, tables, written, *told)]
    in_hardware, moved = hardware_tables(pair), sum(look.moved.values())
    told = _tells(pair.hardware), _lost_frames(pair.hardware, own)
    behind = _tells(pair.software), _lost_frames(pair.software, others)
    return [
        PlaneLoad(pair.name, time, packets, link_packets, in_hardware, moved, *told),
        PlaneLoad(pair.software.name, time, link_packets, None, tables, written, *behind),
    ]


async def _lost(read: Iterable[Counters]) -> "_Lost":
    lost = _Lost()
    for counters in read:
        for known, into in (
            (counters.lost_punts, lost.of_interface),
            (counters.lost_of_routers, lost.of_router),
        ):
            await _sort(known, into)
    return lost


async def _sort(known: Mapping[tuple[int, PuntClass, PuntPlace], int], into: dict[int, list[_What]]) -> None:
    items = iter(known.items())
    while part := list(islice(items, LOST_AT_ONCE)):
        for (whose, punt_class, place), packets in part:
            into[whose].append((place, punt_class, packets))
        await asyncio.sleep(0)


class _Lost:
    """Punts that planes lost, by whose they were: a router looks at none of another's."""

    def __init__(self) -> None:
        self.of_interface: dict[int, list[_What]] = defaultdict(list)
        self.of_router: dict[int, list[_What]] = defaultdict(list)

    def of(self, router: VirtualRouter) -> list[LostPunts]:
        """Return what was lost on the way to a router's guest, the relay's own included."""
        names = {interface.id: interface.name for interface in router.config.interfaces}
        lost: Counter[tuple[str, PuntPlace, PuntClass | None]] = Counter()
        for (interface_id, punt_class), packets in router.punts.lost.items():
            lost[names.get(interface_id, ""), PuntPlace.RELAY, punt_class] += packets
        for interface_id, packets in router.punts.lost_at_tap.items():
            lost[names.get(interface_id, ""), PuntPlace.TAP, None] += packets
        told = [
            (name, one) for interface_id, name in names.items() for one in self.of_interface.get(interface_id, ())
        ]
        told += [("", one) for one in self.of_router.get(router.config.vrf_id, ())]
        for name, (place, punt_class, packets) in told:
            lost[name, place, punt_class] += packets
        return [
            LostPunts(name, "" if punt_class is None else punt_class.name.lower(), place, packets)
            for (name, place, punt_class), packets in sorted(lost.items())  # those without a class differ by name
        ]


def _router_load(router: VirtualRouter, shard: Shard, look: _Look, lost: _Lost, shares: bool) -> RouterLoad:
    config, read = router.config, look.read
    vrf_id, ids = config.vrf_id, [interface.id for interface in config.interfaces]
    packets = link_packets = None
    if read is not None:
        packets = _received(read[0], ids)
        link_packets = None if read[1] is None else _received(read[1], ids)
    if shard.pair is None:
        entries, changes = len(router.fib.installed_routes), look.changes.get(vrf_id, 0)
    else:
        entries, changes = shard.pair.routes.writes.count(vrf_id), look.moved.get(vrf_id, 0)
    counts = packets, link_packets, entries, changes, look.spent_s[vrf_id]
    return RouterLoad(
        *(config.full_name, config.plane, look.time, *counts, lost.of(router)),
        _share_load(look.counters, vrf_id) if shares else None,
    )


def _has_shares(shard: Shard, look: _Look) -> bool:
    """Whether it is told what routers have had of their shares."""
    planes = (shard.plane,) if shard.pair is None else (shard.pair.hardware, shard.pair.software)
    return look.read is not None and any(Capability.SHARES in plane.capabilities for plane in planes)


def _share_load(read: Iterable[Counters], vrf_id: int) -> ShareLoad:
    uses = (use for counters in read if (use := counters.share_use.get(vrf_id)) is not None)
    use = sum(uses, ShareUse())
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
