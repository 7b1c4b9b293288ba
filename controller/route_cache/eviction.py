"""Which entries leave hardware so that others have room, and what is lost by that.

An entry with one around it would only become a cover and free nothing: it leaves with that one, the covers of that,
and what else is inside and worth no more than a cover. What leaves is chosen as a whole before anything does, and it
always brings clearly less than what comes: so what hardware brings grows by each exchange, and while traffic is
steady the exchanges come to an end.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Set
from dataclasses import dataclass
from heapq import heappop, heappush, heapreplace
from math import inf

from controller.route_cache.cover import Room
from controller.route_cache.popularity import Estimates
from controller.route_cache.router import Router

HYSTERESIS = 1.25
"""So many times what leaves brings has to come from whoever takes its place: less gain is not worth two writes."""
_MOST_PASSED_OVER = 32
"""Victims that one candidate passes over, as they would be its covers or take more writes than are left."""

Key = tuple[int, bytes]
"""Of a router, a prefix."""
Victim = tuple[float, int, bytes]
"""What it brings for each entry in packets per second, its router, its entry."""


class Victims:
    """Entries by what they bring, least first; what one brings now is looked up, None where it is none any more."""

    def __init__(self) -> None:
        self._heap: list[Victim] = []
        self._next: list[Victim] = []

    def note(self, rate: float, vrf_id: int, key: bytes) -> None:
        """Add an entry to the heap that is being made."""
        heappush(self._next, (rate, vrf_id, key))

    def renew(self) -> None:
        """Use what was noted since the last time instead of what is left of before."""
        self._heap, self._next = self._next, []

    def least(self, rate: Callable[[int, bytes], float | None]) -> Victim | None:
        """Return the entry that brings least, None where there is none."""
        heap = self._heap
        while heap:
            before, vrf_id, key = heap[0]
            now = rate(vrf_id, key)
            if now is None:
                heappop(heap)
            elif now > before:
                heapreplace(heap, (now, vrf_id, key))
            else:
                return heap[0]
        return None

    def pop(self) -> None:
        """Take out what least() returned."""
        heappop(self._heap)

    def put_back(self, victim: Victim) -> None:
        """Have again what was taken out."""
        heappush(self._heap, victim)


@dataclass(slots=True)
class Eviction:
    """Entries of one router that leave together, the outermost first, and with them what only they need as covers."""

    vrf_id: int
    keys: list[bytes]
    entries: int
    """Those that are free afterwards."""
    rate: float
    """Packets per second of all of them."""

    @property
    def writes(self) -> int:
        """How many entries are written: the default entry is, too, and is not free."""
        return self.entries + (not self.keys[0][-1])

    @property
    def per_entry(self) -> float:
        """The packets per second for each entry that is free afterwards."""
        return self.rate / self.entries


@dataclass(frozen=True, slots=True)
class Candidate:
    """For whom others leave."""

    key: Key
    brings: float
    """Packets per second for each entry that it takes."""
    worth: Callable[[int, Set[Key]], float]
    """What those that come after it bring in so many entries, in packets per second, without some of them."""


class Evictions:
    """What may leave in one round, and what it brings. ``together`` keeps what victims bring for each entry of the
    eviction that they last were in.
    """

    def __init__(
        self,
        routers: Mapping[int, Router],
        estimates: Mapping[int, Estimates],
        victims: Mapping[Room, Victims],
        together: dict[Key, float],
    ) -> None:
        self.routers, self.estimates, self.victims, self.together = routers, estimates, victims, together

    def least(self, room: Room) -> Victim | None:
        """Return the first victim of a room, None where there is none."""
        victims = self.victims.get(room)
        return None if victims is None else victims.least(self._brings)

    def plan(self, needs: Mapping[Room, int], most: int, candidate: Candidate | None = None) -> list[Eviction] | None:
        """Choose what leaves so that in each room so many entries more are free, by ``most`` writes; None where not
        enough may leave. Without a candidate all may leave that is not pinned.
        """
        return _Plan(self, most, candidate).make(needs)

    def covered(self, vrf_id: int, key: bytes) -> Key | None:
        """Return the prefix that would need an entry as its cover, were it in hardware; None for a part of one."""
        full = self.routers[vrf_id].table.full
        around = full.above(key) if key in full else None
        return None if around is None else (vrf_id, around)

    def around(self, vrf_id: int, key: bytes) -> Key | None:
        """Return the entry that has a prefix as its cover: without that, the prefix takes an entry more."""
        hardware = self.routers[vrf_id].table.hardware
        entry = hardware.above(key) if key in hardware else None
        return None if entry is None else (vrf_id, entry)

    def dearer_without(self, vrf_id: int, key: bytes) -> Iterator[Key]:
        """Iterate over the prefixes that take one entry more where another has left: that which would have needed it
        as its cover, and its own covers, which are there already.
        """
        table = self.routers[vrf_id].table
        if (covered := self.covered(vrf_id, key)) is not None:
            yield covered
        yield from ((vrf_id, inner) for inner in table.hardware.inside(key) if not table.forwards(inner))

    def _brings(self, vrf_id: int, key: bytes) -> float | None:
        """Return what an entry brings for each that it takes; None where it is no victim (any more)."""
        router = self.routers.get(vrf_id)
        meter = None if router is None or key in router.pinned or not key[-1] else router.hard.get(key)
        if router is None or meter is None or not router.table.forwards(key):
            return None
        own = self.estimates[vrf_id].of(meter) / meter.entries
        return max(own, self.together.get((vrf_id, key), own))


class _Plan:
    """What leaves for one candidate, one eviction after another, before anything does."""

    def __init__(self, evictions: Evictions, most: int, candidate: Candidate | None) -> None:
        self._evictions, self._left, self._candidate = evictions, most, candidate
        self._brings = inf if candidate is None else candidate.brings
        self._around = None if candidate is None else evictions.around(*candidate.key)
        self._planned: list[Eviction] = []
        self._gone: defaultdict[int, set[bytes]] = defaultdict(set)  # by router
        self._passed: list[tuple[Victims, Victim]] = []  # looked at, and no victim of this plan again

    def make(self, needs: Mapping[Room, int]) -> list[Eviction] | None:
        """Find evictions for all rooms; None where there are not enough."""
        try:
            for room, need in needs.items():
                while (short := need - self._freed(room)) > 0:
                    eviction = self._next(room, short)
                    if eviction is None:
                        return None
                    self._planned.append(eviction)
                    self._gone[eviction.vrf_id].update(eviction.keys)
                    self._left -= eviction.writes
        finally:
            for victims, victim in self._passed:
                victims.put_back(victim)
        return self._planned

    def _freed(self, room: Room) -> int:
        routers = self._evictions.routers
        return sum(one.entries for one in self._planned if room in routers[one.vrf_id].table.room.chain)

    def _next(self, room: Room, short: int) -> Eviction | None:
        """Return what leaves next for a room that lacks ``short`` entries."""
        evictions = self._evictions
        while (victim := evictions.least(room)) is not None:
            rate, vrf_id, key = victim
            if not is_less(rate, self._brings) or len(self._passed) > len(self._planned) + _MOST_PASSED_OVER:
                return None
            gone, eviction = self._gone[vrf_id], None
            outermost = evictions.routers[vrf_id].table.outermost(key, gone)
            if key not in gone and not self._would_cover(vrf_id, outermost):
                eviction = self._smallest(vrf_id, outermost, short)
                brings = self._brings if eviction is None else eviction.per_entry
                if eviction is None or brings > rate:  # dearer than it seemed: others may come first
                    evictions.together[vrf_id, key] = brings
                    continue
            fits = eviction is not None and eviction.writes <= self._left
            if eviction is None or not fits or key in eviction.keys:  # or it may be next, what was around it gone
                self._passed.append((evictions.victims[room], victim))
                evictions.victims[room].pop()
            if fits:
                return eviction
        return None

    def _would_cover(self, vrf_id: int, key: bytes) -> bool:
        """Tell whether the candidate would need an entry as its cover: that leaves no room for it."""
        return self._candidate is not None and self._evictions.covered(vrf_id, key) == self._candidate.key

    def _smallest(self, vrf_id: int, outermost: bytes, short: int) -> Eviction | None:
        """Return the smallest eviction that an entry is in and that brings clearly less than what comes for it; None
        where there is none. One of more writes than are left is returned as well.
        """
        router, estimates = self._evictions.routers[vrf_id], self._evictions.estimates[vrf_id]
        meter = router.hard.get(outermost)
        if meter is None:  # it has just come
            return None
        followers, meter.entries = [], 1
        for inner in router.table.hardware.inside(outermost):
            own = router.hard.get(inner)
            if not router.table.forwards(inner):
                meter.entries += 1
            elif own is not None and inner not in router.pinned and inner not in self._gone[vrf_id]:
                rate = estimates.of(own)
                if is_less(rate / own.entries, self._brings):
                    followers.append((rate / own.entries, rate, inner))
        followers.sort(reverse=True)
        # The default entry itself always stays.
        entries = meter.entries - (not outermost[-1]) - ((vrf_id, outermost) == self._around)
        eviction = Eviction(vrf_id, [outermost], entries, estimates.of(meter))
        while not eviction.entries or not self._is_worth(eviction, short):
            if not followers:
                return None
            _, rate, inner = followers.pop()
            eviction.keys.append(inner)
            eviction.entries += router.hard[inner].entries - ((vrf_id, inner) == self._around)
            eviction.rate += rate
            if eviction.writes > self._left:
                break
        return eviction

    def _is_worth(self, eviction: Eviction, short: int) -> bool:
        """Tell whether the candidate, and those after it in what it leaves of the room, bring clearly more."""
        candidate = self._candidate
        if candidate is None:
            return True
        if not is_less(eviction.rate, candidate.brings * eviction.entries):
            return False
        more = eviction.entries - short
        if more <= 0:
            return True
        leaving = ((one.vrf_id, key) for one in (*self._planned, eviction) for key in one.keys)
        dearer = {other for one in leaving for other in self._evictions.dearer_without(*one)}
        return is_less(eviction.rate, candidate.brings * short + candidate.worth(more, dearer))


def is_less(rate: float, brings: float) -> bool:
    """Tell whether a rate is clearly less than what comes for it."""
    return rate * HYSTERESIS < brings
