"""One round of moving prefixes in and out of hardware.

First what has to leave does (a router in software, a slice over its quota, or the reserve used up). Then candidates
enter while there is room, or in the place of victims that bring clearly less. Finally routers of placement
`hardware` are filled. In a slice that has used up its quota, candidates replace victims of that slice alone.

Candidates are those that were sampled lately, and a slice of the others (`incremental_scan`).

Of thousands of routers, those alone are looked at for which there may be something to do (`RebalanceState.work`).
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from heapq import heappop, heappush, nlargest
from itertools import islice
from math import inf

from controller.model import Placement
from controller.planes.base import FALLBACK
from controller.route_cache.confidence import Confidence
from controller.route_cache.cover import MAX_COVER, MAX_PARTS, UNLIMITED, Room
from controller.route_cache.eviction import HYSTERESIS, Candidate, Eviction, Evictions, Key, Victims
from controller.route_cache.incremental_scan import HARD_SLICE, SEARCH_SLICE, SOFT_SLICE, Slices
from controller.route_cache.popularity import Estimates, Moment, Popularity
from controller.route_cache.router import Router

RECENT_S = 60.0
"""Counts that are older, or farther apart, tell nothing of the present."""
_LISTED_S = 5.0
"""Victims are looked for anew as often, and when entries were counted."""
SHRINK_WRITES = 400
"""Of a round in which victims have to leave: to choose one takes some 15 µs, and a turn of the loop 20 ms at most
(`LONG_SLICE_S`). The rest is for the next round, which follows at once, and so are all exchanges."""


@dataclass(slots=True)
class RebalanceState:
    """What one round leaves for the next, and what has changed between the two."""

    work: dict[int, None] = field(default_factory=dict)  # routers for which there may be something to do
    resized: set[Room] = field(default_factory=set)  # rooms: more of the routers in them may have room now
    fitting: set[Room] = field(default_factory=set)  # rooms that took all routes of all routers in them
    counted_at: float = -inf  # when entries were counted last
    victims: dict[Room, Victims] = field(default_factory=dict)
    together: dict[Key, float] = field(default_factory=dict)  # what victims bring with what they leave with
    confidence: Confidence = field(default_factory=Confidence)
    listed_at: float = -inf  # when the search for victims began
    short: dict[Room, int] = field(default_factory=dict)  # rooms without victims, and the last search begun by then
    unfinished: bool = False  # more is to be looked at, whether or not anything changes
    hard: Slices = field(default_factory=lambda: Slices(HARD_SLICE))
    soft: Slices = field(default_factory=lambda: Slices(SOFT_SLICE))

    def searched(self, room: Room) -> bool:
        """Tell whether all entries were looked at since a room has had no victim: it has none."""
        return self.hard.ended > self.short.get(room, self.hard.ended)

    @property
    def seeking(self) -> bool:
        """Whether a room without victims waits for a search."""
        return not all(map(self.searched, self.short))


class Round:
    """One round: at most ``budget`` writes, of which ``room`` may count some already."""

    def __init__(
        self,
        routers: Mapping[int, Router],
        members: Mapping[Room, Collection[int]],
        rooms: Sequence[Room],
        popularity: Popularity,
        now: Moment,
        budget: int,
        state: RebalanceState,
    ) -> None:
        """``members`` are the routers that are in a room, and in none inside it; of ``rooms`` each comes before what
        is around it, and the plane's is the last.
        """
        self._rebalance, self._now = state, now.at
        self._routers, self._members, self._budget = routers, members, budget
        self._rooms, self._room = rooms, rooms[-1]
        self.touched: dict[int, None] = {}
        """The routers whose hardware tables may have changed."""
        self.forgotten = 0
        """Candidates that are none any more, and are not counted any longer."""
        margin = state.confidence.margin
        self._soft = popularity.estimates(now, margin)
        self._hard = _HardEstimates(routers, popularity, self._soft, now)
        self._evictions = Evictions(routers, self._hard, state.victims, state.together)
        self._looked_at = 0  # entries, for victims
        self._best: list[tuple[float, int, bytes]] = []  # a heap of what is to be tried, by what it brings, negative

    def run(self) -> None:
        """Do the round."""
        for router in self._working():
            self._enter_waiting(router)
            self._tidy(router)
        self._list()
        if not self._shrink():
            self._rebalance.unfinished = True
            return
        self._swap()
        self._fill()

    def _working(self) -> list[Router]:
        return [self._routers[vrf_id] for vrf_id in self._rebalance.work]

    def _inside(self, room: Room) -> Iterator[Router]:
        """Iterate over all routers in a room, those too that are in one inside it."""
        for innermost, members in self._members.items():
            if room in innermost.chain:
                yield from (self._routers[vrf_id] for vrf_id in members)

    def _touch(self, router: Router) -> None:
        self.touched[router.vrf_id] = None

    @property
    def _left(self) -> int:
        return self._budget - self._room.writes

    def _excess(self, router: Router) -> int:
        """Return how many entries are too many for a router to get more, in any room that it is in."""
        return max(room.excess for room in router.table.room.chain)

    def _enter_waiting(self, router: Router) -> None:
        for key in list(router.waiting):
            if self._left <= 0:
                return
            if enter_pinned(router, key):
                router.waiting.discard(key)
                self._touch(router)

    def _tidy(self, router: Router) -> None:
        while router.table.loose and self._left > 0:
            router.table.tidy(router.table.loose.pop())
            self._touch(router)

    def _shrink(self) -> bool:
        """Have leave what has to; False where that is too much for a round."""
        for router in self._working():
            if router.placement is Placement.SOFTWARE:
                for key in list(router.hard):
                    if self._left <= 0:
                        return False
                    if key not in router.pinned and router.table.forwards(key):
                        self._leave(router, router.table.outermost(key))
        most = min(self._budget, self._room.writes + SHRINK_WRITES)
        for room in self._rooms:  # slices before the plane: what leaves for them makes room there too
            while room.excess > 0:
                if self._room.writes >= most:
                    return False
                if not (self._evict_any(room) or self._uncover(room)):
                    break
            if room.used > room.capacity and self._rebalance.searched(room):
                self._shrink_pinned(room)
        short = self._rebalance.short
        for room in [room for room in short if room.excess <= 0 or room not in self._rooms]:  # few ever are short
            del short[room]
        return True

    def _uncover(self, room: Room) -> bool:
        """Let a default entry be FALLBACK that has a cover still: it is no victim, but its cover leaves with it."""
        if not self._rebalance.searched(room):
            return False
        for router in self._inside(room):
            hardware = router.table.hardware
            if router.table.forwards(hardware.default) and FALLBACK in hardware.actions.values():
                self._leave(router, hardware.default)
                return True
        return False

    def _shrink_pinned(self, room: Room) -> None:
        """Let pinned prefixes wait, the last resort: nothing else is left that could leave."""
        for router in self._inside(room):
            for key in sorted(router.pinned):
                if room.used <= room.capacity or self._left <= 0:
                    return
                while room.used > room.capacity and self._left > 0 and router.table.forwards(key):
                    self._leave(router, router.table.outermost(key))
                if router.missing(key):
                    router.waiting.add(key)

    def _fill(self) -> None:
        state, fitting = self._rebalance, self._fitting()
        changed = state.resized | (state.fitting ^ fitting)
        for room, members in self._members.items() if changed else ():
            if not changed.isdisjoint(room.chain):
                for vrf_id in members:
                    self._routers[vrf_id].incomplete |= not state.resized.isdisjoint(room.chain)
                    state.work[vrf_id] = None
        state.resized, state.fitting = set(), fitting
        working = self._working()
        for router in working:
            fits = fitting.issuperset(router.table.room.chain)
            if router.placement is Placement.SOFTWARE or (router.placement is Placement.AUTO and not fits):
                router.backlog.clear()
                router.fitted = False
                continue
            # Searching a large table is expensive: not before enough room is free.
            if len(router.backlog) > 2 * len(router.table.full) or (fits and not router.fitted):
                router.backlog.clear()
                router.incomplete = True
            router.fitted = fits
            ready = router.incomplete and not router.backlog.searching
            if ready and all(
                -room.excess > (0 if room in fitting else room.reserve // 2) for room in router.table.room.chain
            ):
                router.backlog.search(router.table.full.actions)
                router.incomplete = False
        searching = [router for router in working if router.backlog.searching]
        for router in searching:
            router.backlog.look(router.missing, max(1, SEARCH_SLICE // len(searching)))
        missing = self._enter_backlogs(working) or any(one.backlog.searching for one in searching)
        state.unfinished = missing or state.seeking
        state.work = {router.vrf_id: None for router in working if router.waits}

    def _enter_backlogs(self, working: Iterable[Router]) -> bool:
        """Bring in what waits, of `SEARCH_SLICE` that are looked at for that; tell whether there may be more."""
        looks = SEARCH_SLICE
        for router in working:
            backlog = router.backlog
            while (key := backlog.first) is not None and self._left > 0 and looks > 0 and self._excess(router) < 0:
                looks -= 1
                if router.missing(key):
                    if backlog.searching and router.table.uncovered(key) != []:
                        backlog.postpone()
                        continue
                    if not self._enter(router, key) and router.table.uncovered(key) is not None:
                        break
                backlog.pop()
        return looks == 0

    def _fitting(self) -> set[Room]:
        """Return the rooms that take all routes of all routers in them that want any in hardware."""
        fitting = set()
        wanted = {room: room.wanted for room in self._rooms}
        for room in self._rooms:
            if room.around is not None:
                wanted[room.around] += min(wanted[room], room.capacity)
            if wanted[room] + room.reserve <= room.capacity:
                fitting.add(room)
        return fitting

    def _enter(self, router: Router, key: bytes) -> bool:
        """Bring a prefix in if there is room for it and its cover."""
        table = router.table
        cover = table.uncovered(key)
        if cover is None or self._left <= len(cover):
            return False
        need = len(cover) + (key not in table.hardware)
        if not table.has_room(need) or self._excess(router) + need > 0:
            return False
        table.enter(key, cover)
        self._touch(router)
        return True

    def _swap(self) -> None:
        # Who brings most comes first; for whom this round has no writes, the next one has.
        best = self._best = [(-rate, vrf_id, key) for rate, vrf_id, key in nlargest(self._budget, self._candidates())]
        for _, vrf_id, key in best:
            self._routers[vrf_id].recent.add(key)
            self._rebalance.work[vrf_id] = None
        while best and self._left > 0:
            _, vrf_id, key = heappop(best)
            router = self._routers[vrf_id]
            if not eligible(router, key):
                del router.soft[key]
                self.forgotten += 1
                continue
            cover, brings = self._look_at(router, key)
            if best and brings < -best[0][0]:  # its cover is larger than was known, or it would not be first
                heappush(best, (-brings, vrf_id, key))
            elif self._try(vrf_id, router, key, cover, brings):
                router.recent.discard(key)

    def _candidates(self) -> Iterator[tuple[float, int, bytes]]:
        keys: dict[int, Iterable[bytes]] = {}
        for vrf_id, slice_ in self._rebalance.soft.next(
            self._routers, lambda one: self._routers[one].soft if one in self._routers else ()
        ):
            if vrf_id in self._routers:
                keys[vrf_id] = slice_
                soft = self._routers[vrf_id].soft
                for key in slice_:
                    if key in soft:
                        soft[key].entries = 1  # its cover may have become smaller: it is looked at anew
        for vrf_id in {**self._rebalance.work, **keys}:
            router = self._routers[vrf_id]
            soft, recent = router.soft, router.recent
            recent.update(keys.get(vrf_id, ()))
            if router.placement is not Placement.SOFTWARE:
                floor = max(map(self._floor, router.table.room.chain))
                for rate, key in self._soft.above(((key, soft[key]) for key in recent if key in soft), floor):
                    yield rate, vrf_id, key
            recent.clear()

    def _look_at(self, router: Router, key: bytes) -> tuple[list[bytes] | None, float]:
        """Return the cover that a candidate needs, None for too large a one, and what it brings for each entry."""
        meter, table = router.soft[key], router.table
        cover = table.uncovered(key)
        if cover is None:
            meter.entries = MAX_COVER + 2
        else:  # its parts leave when it is there as a whole
            meter.entries = max(1, len(cover) + (key not in table.hardware) - table.parts(key))
        return cover, self._soft.of(meter) / meter.entries

    def _try(self, vrf_id: int, router: Router, key: bytes, cover: list[bytes] | None, brings: float) -> bool:
        """Bring one candidate in, in the place of victims that bring less, if there are; False to try again soon."""
        meter, table = router.soft[key], router.table
        if cover is None:
            return True
        need = len(cover) + (key not in table.hardware)
        if not brings and (need > 1 or not meter.slow):
            return True  # one sample is not worth a cover; or it was that of a part which has entered
        if brings <= max(map(self._floor, table.room.chain)):
            return True
        needs = {room: room.excess + need for room in table.room.chain}
        if self._left < need + (max(needs.values()) > 0):
            return False
        candidate = Candidate((vrf_id, key), brings, self._worth_of_next(vrf_id, key))
        planned = self._evictions.plan(needs, self._left - need, candidate)
        if planned is None:
            return True
        self._take_out(planned)
        if table.room.spare < need:
            for room in table.room.chain:
                room.awaited += need
            return False
        if self._enter(router, key):
            self._begin_trial(vrf_id, router, key)
            home = None if key in table.full else router.soft.get(table.full.above(key) or b"")
            if home is not None:
                home.move(meter)
        return True

    def _worth_of_next(self, vrf_id: int, key: bytes) -> Callable[[int, Set[Key]], float]:
        """Return what tells how much the candidates after one bring in so many entries, in packets per second."""
        following = self._following(vrf_id, key)
        looked_at: list[tuple[Key, int, float]] = []

        def worth(entries: int, without: Set[Key]) -> float:
            left, total = entries, 0.0
            looked_at.extend(islice(following, max(0, entries + len(without) - len(looked_at))))
            for one, need, rate in looked_at:
                if need <= left and one not in without:
                    left -= need
                    total += rate
            return total

        return worth

    def _following(self, vrf_id: int, key: bytes) -> Iterator[tuple[Key, int, float]]:
        """Iterate over the candidates after one: each with the entries that it takes, and the packets per second.

        Of a prefix and its parts one alone counts: the samples of a part are those of its prefix as well.
        """
        seen = {(vrf_id, self._home(vrf_id, key))}
        for _, vrf_id, key in sorted(self._best):
            router, home = self._routers[vrf_id], (vrf_id, self._home(vrf_id, key))
            if home not in seen and eligible(router, key):
                cover, brings = self._look_at(router, key)
                if cover is not None:
                    seen.add(home)
                    yield (vrf_id, key), router.soft[key].entries, brings * router.soft[key].entries

    def _home(self, vrf_id: int, key: bytes) -> bytes | None:
        """Return the prefix that a candidate is a part of, or that it is itself."""
        full = self._routers[vrf_id].table.full
        return key if key in full else full.above(key)

    def _begin_trial(self, vrf_id: int, router: Router, key: bytes) -> None:
        """Put what has entered on trial, where only a short mean spoke for it."""
        meter = router.soft[key]
        needed = max(map(self._least, self._limiting(router))) * HYSTERESIS * meter.entries
        if self._soft.slow(meter) <= needed < self._soft.of(meter):
            self._rebalance.confidence.begin(vrf_id, key, self._now, needed)

    def _limiting(self, router: Router) -> list[Room]:
        """Return the rooms in which a router's entries may have to leave for others."""
        return [room for room in router.table.room.chain if room is self._room or room.capacity < UNLIMITED]

    def _floor(self, room: Room) -> float:
        """Return what a candidate has to bring more than: nothing while there is room."""
        return -1.0 if room.excess < 0 else self._least(room) * HYSTERESIS

    def _least(self, room: Room) -> float:
        """Return what the first victim of a room brings."""
        victim = self._evictions.least(room)
        return inf if victim is None else victim[0]

    def _list(self) -> None:
        """Look for victims in another slice of the entries, where it is time to."""
        state, routers = self._rebalance, self._routers
        if state.hard.at_start:
            due = state.counted_at > state.listed_at or state.seeking or self._now >= state.listed_at + _LISTED_S
            if not due:
                return
            state.listed_at = self._now
            state.together.clear()
            for room in state.victims.keys() - set(self._rooms):
                del state.victims[room]
        for vrf_id, keys in state.hard.next(routers, lambda one: routers[one].hard if one in routers else ()):
            self._looked_at += len(keys)
            if vrf_id in routers:
                self._note(vrf_id, routers[vrf_id], keys)
        if state.hard.at_start:
            for victims in state.victims.values():
                victims.renew()

    def _note(self, vrf_id: int, router: Router, keys: Iterable[bytes]) -> None:
        hard, pinned = router.hard, router.pinned
        heaps = [self._rebalance.victims.setdefault(room, Victims()) for room in self._limiting(router)]
        meters = ((key, hard[key]) for key in keys if key in hard and key[-1] and key not in pinned)
        for rate, key in self._hard[vrf_id].above(meters, -1.0):
            for heap in heaps:
                heap.note(rate, vrf_id, key)

    def _evict_any(self, room: Room) -> bool:
        """Take out a victim; where none is known, also one that came after the last search for them."""
        if self._evict(room):
            return True
        state = self._rebalance
        state.short.setdefault(room, state.hard.begun)
        if self._looked_at > HARD_SLICE // 2 or state.searched(room):
            return False
        self._list()
        return self._evict(room)

    def _evict(self, room: Room) -> bool:
        planned = self._evictions.plan({room: 1}, self._left)
        self._take_out(planned or [])
        return bool(planned)

    def _take_out(self, planned: list[Eviction]) -> None:
        for eviction in planned:
            for key in eviction.keys:
                self._leave(self._routers[eviction.vrf_id], key)

    def _leave(self, router: Router, key: bytes) -> None:
        router.table.leave(key)
        router.incomplete = True
        self._touch(router)
        self._tidy(router)


class _HardEstimates(dict[int, Estimates]):
    """The estimates of what is in hardware, by router, each made when it is asked for."""

    def __init__(self, routers: Mapping[int, Router], popularity: Popularity, soft: Estimates, now: Moment) -> None:
        super().__init__()
        self._routers, self._popularity, self._soft, self._now = routers, popularity, soft, now
        self._counted: dict[float, Estimates] = {}  # by when that was: most routers are counted together

    def __missing__(self, vrf_id: int) -> Estimates:
        counted = self._routers[vrf_id].counted
        if counted is None or self._now.at - counted.at > RECENT_S:
            found = self._soft
        elif (known := self._counted.get(counted.at)) is not None:
            found = known
        else:
            found = self._popularity.estimates(counted, self._soft.margin, counted=True)
            self._counted[counted.at] = found
        self[vrf_id] = found
        return found


def enter_pinned(router: Router, key: bytes) -> bool:
    """Bring a pinned prefix in, be it from the reserve; True where it is there or nothing is to be done."""
    if not router.missing(key):
        return True
    table = router.table
    cover = table.uncovered(key)
    if cover or cover is None or not table.has_room(key not in table.hardware):
        return False
    table.enter(key, cover)
    return True


def eligible(router: Router, key: bytes) -> bool:
    """Tell whether a prefix, or a part of one, may enter: the full table may have changed since it was chosen."""
    table = router.table
    if key in table.full:
        return router.missing(key)
    home, around = table.full.above(key), table.hardware.above(key)
    return (
        home is not None
        and home not in table.refused
        and table.parts(home) < MAX_PARTS
        and not table.forwards(key)
        and not (around is not None and table.forwards(around))
        and table.full.free(key)
    )
