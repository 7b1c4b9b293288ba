"""The room that one hardware plane has for routes of one family, and which routes get it: those with the traffic.

    counts of entries ────┐               ┌─► candidates: prefixes, and parts of prefixes, by packets/s for each entry
                          ├─► popularity ─┤                            ⇅ with hysteresis, within a budget
    samples in software ──┘               └─► victims: the entries in hardware that bring least

A prefix is worth what it and its cover bring together, divided by the entries they take (the dependent sets and cover
sets of CacheFlow, Katta et al., SOSR 2016); a part of a prefix that is free of longer ones takes one entry alone.
controller/route_cache/cover.py says why the hardware table is right at every moment, whatever is chosen here: with
FALLBACK read as "ask the full table" it gives every address what the full table gives.

The order of writes is not made here. A call returns what it changed, prefix → (before, after), and
controller/route_cache/write_order.py puts that into stages. What is deleted by one call leaves room for the next,
except what leaving() says that the plane still has; so the plane holds no more than its capacity in any stage either.
A plane that refused a write has another table than this one: the rest of the stages is dropped, refused() is told,
and new stages lead from its table to this one.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from itertools import islice

from controller.model import Placement
from controller.planes.base import FALLBACK
from controller.route_cache.capacity import Capacity
from controller.route_cache.cover import MAX_COVER, UNLIMITED, CoveredTable, Room
from controller.route_cache.incremental_scan import SOFT_SLICE, Slices
from controller.route_cache.popularity import Meter, Moment, Popularity
from controller.route_cache.rebalance import RECENT_S, RebalanceState, Round, eligible, enter_pinned
from controller.route_cache.router import Router
from controller.route_cache.write_order import Changes
from wire.columns import ADDRESS_BYTES

_TRACKED = 250_000
"""Prefixes in software whose packets are counted; of more, the less popular half is forgotten."""

COUNTED_AT_ONCE = 1000
"""Entries whose packets are taken in one step: a millisecond."""


class PrefixLocation(StrEnum):
    """Where a prefix of the full table is."""

    HARDWARE = "hardware"
    PARTS = "parts"  # some of its addresses are in hardware, all others in software
    SOFTWARE = "software"


@dataclass(frozen=True, slots=True)
class TableCounts:
    """How one router's routes lie, in numbers of prefixes and of hardware entries."""

    routes: int
    hardware: int  # prefixes that are in hardware as a whole
    parts: int  # entries for a part of a prefix
    covers: int  # FALLBACK entries, the default entry included
    refused: int  # prefixes that are in software because the plane refused them


class FastTable:
    """The routes of all routers of one family in one hardware plane; at most ``capacity`` entries."""

    def __init__(self, family: int, capacity: int, reserve: int | None = None) -> None:
        """``reserve`` entries are kept free for what changes of routes need at once, and for what is under way."""
        self._family = family
        self._capacity = Capacity(capacity)
        self._room = Room(capacity, reserve)
        self._unreserved = Room(UNLIMITED, around=self._room)  # what slices have together that have no quota
        self._slices: dict[str, Room] = {}
        self._leaving: dict[int, int] = {}  # by router, those that are gone too
        self._popularity = Popularity()
        self._routers: dict[int, Router] = {}
        self._members: defaultdict[Room, set[int]] = defaultdict(set)  # routers by slice
        self._rebalance = RebalanceState()
        self._forgetting = Slices(SOFT_SLICE)
        self._one_in = 100.0  # until a sample tells
        self._tracked = 0
        self.untracked = 0
        """Samples that were not counted because too many prefixes were."""

    @property
    def capacity(self) -> int:
        """The entries that the plane has room for, as far as is known."""
        return self._room.capacity

    @property
    def used(self) -> int:
        """The entries in use, covers included."""
        return self._room.used

    @property
    def unfinished(self) -> bool:
        """Whether the next rebalance() has more to look for, though nothing changes."""
        return self._rebalance.unfinished

    def add(self, vrf_id: int, slice_name: str) -> Changes:
        """Add a router of a slice. ValueError where the plane has not even room for its default entry."""
        room = self._slice(slice_name)
        room.begin()
        if self._room.spare < 1:
            raise ValueError(f"all {self.capacity} entries are in use: nothing is left for router {vrf_id}")
        router = self._routers[vrf_id] = Router(vrf_id, CoveredTable(self._family, room))
        self._members[room].add(vrf_id)
        return self._settle(vrf_id, router)

    def remove(self, vrf_id: int) -> Changes:
        """Take a router out, all its entries included."""
        router = self._routers[vrf_id]
        router.table.room.begin()
        router.table.clear()
        changes = self._settle(vrf_id, router)
        self._forget_router(router)
        return changes

    def drop(self, vrf_id: int) -> None:
        """Forget a router with all its entries, which the plane may have or not: that is not followed any more."""
        router = self._routers[vrf_id]
        router.table.room.add(-len(router.table.hardware.actions), 0)
        self._forget_router(router)

    def _forget_router(self, router: Router) -> None:
        vrf_id = router.vrf_id
        del self._routers[vrf_id]
        router.table.room.wanted -= router.wanted
        self._leave_members(router)
        self._tracked -= len(router.soft)
        self._rebalance.confidence.drop(vrf_id)
        self._rebalance.work.pop(vrf_id, None)

    def _leave_members(self, router: Router) -> None:
        room = router.table.room
        self._members[room].discard(router.vrf_id)
        if not self._members[room]:
            del self._members[room]

    def limit(self, slice_name: str, quota: int | None) -> None:
        """Reserve ``quota`` entries for all routers of a slice together, None for what is left of the plane.

        rebalance() takes out what is too much. The default entries of routers count, but have room in any case.
        """
        room, capacity = self._slice(slice_name), UNLIMITED if quota is None else quota
        if room.capacity == capacity:
            return  # as each of its routers says
        room.capacity = capacity
        room.move(self._unreserved if quota is None else self._room)
        self._rebalance.resized.add(room)
        self._follow_reserved()

    def join(self, vrf_id: int, slice_name: str, before: str) -> None:
        """Count for a slice what the plane has of a router and was counted for the one ``before``."""
        former, room = self._slices.get(before), self._slice(slice_name)
        router, leaving = self._routers.get(vrf_id), self._leaving.get(vrf_id, 0)
        if former is None or former is room:
            return
        former.leave(-leaving)
        room.leave(leaving)
        if router is not None:
            entries = len(router.table.hardware.actions)
            former.add(-entries, 0)
            room.add(entries, 0)
            former.wanted -= router.wanted
            room.wanted += router.wanted
            self._leave_members(router)
            router.table.room = room
            self._members[room].add(vrf_id)
            self._rebalance.resized |= {former, room}

    def resize(self, capacity: int) -> None:
        """Change the capacity, whatever was learned of it; rebalance() takes out what is too much."""
        self._capacity.say(capacity)
        self._follow_capacity()

    def grow(self, now: float) -> bool:
        """Have room for some entries more than was learned, where it is time to ask the plane for them; tell whether
        there is. rebalance() moves them in.
        """
        left = self._room.capacity - self._room.used - self._room.reserve
        grown = self._capacity.grow(now, left <= max(1 + MAX_COVER, self._room.reserve))
        if grown:
            self._follow_capacity()
        return grown

    def _follow_capacity(self, more: bool = True) -> None:
        """Use what is known of the capacity now; ``more`` may have room by that."""
        self._room.capacity = self._capacity.known
        if more:
            self._rebalance.resized.add(self._room)
        self._follow_reserved()

    def leaving(self, vrf_id: int, slice_name: str, entries: int) -> None:
        """Say how many entries of a router the plane still has though they have left: their room is not free yet."""
        self._slice(slice_name).leave(entries - self._leaving.pop(vrf_id, 0))
        if entries:
            self._leaving[vrf_id] = entries

    def is_leaving(self, vrf_id: int) -> bool:
        """Tell whether the plane still has entries of a router though they have left."""
        return vrf_id in self._leaving

    def forget_slice(self, slice_name: str) -> None:
        """Leave to others what is reserved for a slice, of which no router is left."""
        self._slices.pop(slice_name, None)
        self._follow_reserved()

    def used_by(self, slice_name: str) -> int:
        """Return the entries that a slice has in use, covers included; none where no router of it is here."""
        room = self._slices.get(slice_name)
        return 0 if room is None else room.used

    def set_placement(self, vrf_id: int, placement: Placement) -> None:
        """Say what of a router goes into hardware; rebalance() moves it."""
        router = self._routers[vrf_id]
        router.placement, router.incomplete, router.fitted = placement, True, False
        router.want()
        self._rebalance.work[vrf_id] = None

    def change(self, vrf_id: int, changes: Mapping[bytes, int | None], pinned: bool = False) -> Changes:
        """Change the full table: prefix → action, None for one that is gone.

        At most MAX_WRITES hardware writes for each of them come of it. ``pinned`` ones enter at once if they have
        room, the reserve included, and before others otherwise, and leave only when they are gone.
        """
        router = self._routers[vrf_id]
        router.table.room.begin()
        for key, action in changes.items():
            if action is None or not pinned:
                router.pinned.discard(key)
                router.waiting.discard(key)
            else:
                router.pinned.add(key)
                router.waiting.add(key)
        router.table.change(changes)
        router.backlog.add(changes)
        if pinned:
            router.waiting.difference_update([key for key in changes if enter_pinned(router, key)])
        elif router.placement is Placement.HARDWARE or (router.fitted and len(changes) <= router.table.room.free):
            for key in sorted(changes, key=_length, reverse=True):
                if router.table.room.free <= 0:
                    break
                if router.missing(key) and router.table.uncovered(key) == []:
                    router.table.enter(key, [])
        return self._settle(vrf_id, router)

    def keep(self, vrf_id: int, keys: Iterable[bytes], there: Collection[bytes]) -> Changes:
        """Bring prefixes or parts of them in, as far as the full table and the room allow.

        ``there`` are the entries that the plane has of the router. One that is to stay takes no room but its own;
        any other, as a cover that is new, has to find some beside all that the plane has.
        """
        router = self._routers[vrf_id]
        table = router.table
        room = table.room
        room.begin()
        for key in sorted(keys, key=_length, reverse=True):
            cover = table.uncovered(key) if eligible(router, key) else None
            if cover is None:
                continue
            entries = [one for one in (key, *cover) if one not in table.hardware]
            new = sum(one not in there for one in entries)
            if (not new or table.has_room(new)) and len(entries) + max(one.excess for one in room.chain) <= 0:
                table.enter(key, cover)
                room.add(0, new - len(entries))
        return self._settle(vrf_id, router)

    def refused(self, vrf_id: int, key: bytes, full: bool) -> Changes:
        """Do without an entry whose write the plane refused, and return what becomes of the table by that.

        ``full``: for want of room, so the capacity is what the plane has without it; that much or less, as what was
        not written yet counts as well, and the next refusal tells. grow() asks for more later. Otherwise the prefix
        stays in software until its action changes, or is allowed, or it is tried again. ValueError for the default
        entry of a router.
        """
        router = self._routers[vrf_id]
        router.table.room.begin()
        router.table.refuse(key, full)
        router.incomplete = True
        if full:
            self._capacity.refuse(self._room.held)
            self._follow_capacity(more=False)
        if key in router.pinned and full:
            router.waiting.add(key)
        return self._settle(vrf_id, router)

    def refusals(self, vrf_id: int) -> list[bytes]:
        """Return the prefixes of a router that are in software because the plane refused them."""
        return list(self._routers[vrf_id].table.refused)

    def refusing(self) -> list[int]:
        """Return the routers of which the plane refused prefixes."""
        return [vrf_id for vrf_id, router in self._routers.items() if router.table.refused]

    def allow(self, vrf_id: int, keys: Iterable[bytes], actions: Collection[int]) -> bool:
        """Try those of these prefixes again that lead to one of ``actions``; rebalance() moves them. Tell whether
        there are any.
        """
        router = self._routers[vrf_id]
        table = router.table
        again = [key for key in keys if table.full.actions.get(key) in actions]
        found = not table.refused.isdisjoint(again)
        if found:
            table.refused.difference_update(again)
            router.incomplete = True
            self._rebalance.work[vrf_id] = None
        return found

    def retry(self, vrf_id: int) -> None:
        """Try all prefixes of a router again that the plane refused; rebalance() moves them."""
        router = self._routers[vrf_id]
        if router.table.refused:
            router.waiting |= router.pinned & router.table.refused
            router.table.refused.clear()
            router.incomplete = True
            self._rebalance.work[vrf_id] = None

    def count(self, now: float, vrf_id: int, packets: Mapping[bytes, int]) -> Iterator[None]:
        """Take the packets that matched each entry since the last call, in steps; those of covers, and of entries of
        another family, are passed over. What enters or leaves meanwhile is counted from now, or until now.
        """
        router = self._routers[vrf_id]
        moment = self._advance(now)
        self._rebalance.counted_at = now
        before, router.counted = router.counted, moment
        if before is None or now - before.at > RECENT_S:  # since when these packets came is not known
            until, since = self._popularity.more(before), self._popularity.more(router.counted)
            keys = iter(list(router.hard))
            for _ in range(0, len(router.hard), COUNTED_AT_ONCE):
                for key in islice(keys, COUNTED_AT_ONCE):
                    meter = router.hard.get(key)
                    if meter is not None:
                        meter.leave(until)
                        meter.enter(since)
                yield
            return
        weights = self._popularity.weights((before.at + now) / 2)
        items = iter(packets.items())
        for _ in range(0, len(packets), COUNTED_AT_ONCE):
            for key, count in islice(items, COUNTED_AT_ONCE):
                counting = router.hard.get(key) if count else None
                if counting is not None:
                    counting.add(count, weights)
            yield
        self._rebalance.confidence.count(now, vrf_id, packets)

    def sample(self, now: float, vrf_id: int, packets: Iterable[bytes], one_in: float) -> None:
        """Take a sample of one of ``one_in`` packets that the fallback plane forwarded for a router.

        Each is given by its destination, as a key of full length; or, where only that is known, by the prefix that it
        matched, which can then enter as a whole only.
        """
        router = self._routers[vrf_id]
        self._one_in = one_in
        self._advance(now)
        self._rebalance.work[vrf_id] = None
        weights = self._popularity.weights(now)
        full_length = 8 * ADDRESS_BYTES[self._family]
        part_of = router.table.full.part
        for key in packets:
            found = part_of(key) if key[-1] == full_length else (key, key)
            if found is None or found[0] in router.hard:
                continue  # no route any more, or not in software any more
            router.recent.update(found)
            for one in set(found):
                meter = self._meter(router, one)
                if meter is not None:
                    meter.add(1, weights)

    def rebalance(self, now: float, budget: int) -> dict[int, Changes]:
        """Move what is popular in and what is not out, by at most ``budget`` writes; what comes of it, by router."""
        moment = self._advance(now)
        self._room.begin()
        for room in self._slices.values():
            room.begin()
        if self._tracked > _TRACKED:
            self._forget()
        rooms = [*self._slices.values(), self._unreserved, self._room]
        one = Round(self._routers, self._members, rooms, self._popularity, moment, budget, self._rebalance)
        one.run()
        self._tracked -= one.forgotten
        settled = {vrf_id: self._settle(vrf_id, self._routers[vrf_id]) for vrf_id in one.touched}
        return {vrf_id: changes for vrf_id, changes in settled.items() if changes}

    def entries(self, vrf_id: int) -> Mapping[bytes, int]:
        """Return the hardware table of a router, covers included; to be read only."""
        return self._routers[vrf_id].table.hardware.actions

    def where(self, vrf_id: int, key: bytes) -> PrefixLocation:
        """Tell where a prefix of the full table is."""
        table = self._routers[vrf_id].table
        if table.forwards(key):
            return PrefixLocation.HARDWARE
        return PrefixLocation.PARTS if table.parts(key) else PrefixLocation.SOFTWARE

    def counts(self, vrf_id: int) -> TableCounts:
        """Return how a router's routes lie."""
        router = self._routers[vrf_id]
        table, parts = router.table, router.table.all_parts()
        return TableCounts(
            len(table.full),
            len(router.hard) - parts,
            parts,
            len(table.hardware) - len(router.hard),
            len(table.refused),
        )

    def goal(self, vrf_id: int) -> int:
        """Return how many entries a router has where everything is in hardware that has room."""
        table = self._routers[vrf_id].table
        return min(_whole(table), *(_left_to(table, room) for room in table.room.chain))

    def vacant(self, vrf_id: int, key: bytes) -> bool:
        """Tell whether no prefix of the full table is at, around or inside one."""
        full = self._routers[vrf_id].table.full
        return key not in full and full.free(key) and full.above(key) is None

    def whole(self, vrf_id: int) -> bool:
        """Tell whether all prefixes of a router are in hardware."""
        router = self._routers[vrf_id]
        return len(router.hard) - router.table.all_parts() == len(router.table.full)

    def short_of(self, vrf_id: int) -> str:
        """Return what keeps prefixes of a router out of hardware: "room", "quota", "refused", or nothing."""
        table = self._routers[vrf_id].table
        quota, *outer = (_left_to(table, room) for room in table.room.chain)
        room = min(outer)
        if _whole(table) > min(room, quota):
            return "quota" if quota <= room else "room"
        return "refused" if table.refused else ""

    def _slice(self, name: str) -> Room:
        return self._slices.setdefault(name, Room(UNLIMITED, around=self._unreserved))

    def _follow_reserved(self) -> None:
        """Leave to the slices without a quota what is not reserved for others."""
        quotas = [room.capacity for room in self._slices.values() if room.capacity < UNLIMITED]
        left = max(0, self._room.capacity - sum(quotas)) if quotas else UNLIMITED
        if left != self._unreserved.capacity:
            self._unreserved.capacity = left
            self._rebalance.resized.add(self._unreserved)

    def _settle(self, vrf_id: int, router: Router) -> Changes:
        """Take the writes of a call, and let meters follow their prefixes."""
        changes = router.table.take_writes()
        router.want()
        self._rebalance.work[vrf_id] = None
        self._tracked -= len(router.soft)
        popularity = self._popularity
        now, counted = popularity.more(popularity.moment), popularity.more(router.counted)
        for key, (old, new) in changes.items():
            before, after = _forwards(old), _forwards(new)
            if after and not before:
                meter = router.hard[key] = router.soft.pop(key, Meter())
                meter.entries = 1
                meter.enter(now)
            elif before and not after:
                meter = router.hard.pop(key)
                meter.entries = 1
                meter.leave(counted)
                self._rebalance.confidence.drop(vrf_id, key)
                if meter.slow:
                    router.soft[key] = meter
        for key, (old, new) in changes.items():
            if new == FALLBACK and old is None:
                around = router.hard.get(router.table.hardware.above(key) or b"")
                if around is not None:
                    around.entries += 1
        self._tracked += len(router.soft)
        return changes

    def _advance(self, now: float) -> Moment:
        return self._popularity.advance(now, self._one_in)

    def _meter(self, router: Router, key: bytes) -> Meter | None:
        meter = router.soft.get(key)
        if meter is None:
            if self._tracked >= 2 * _TRACKED:
                self.untracked += 1
                return None
            meter = router.soft[key] = Meter()
            self._tracked += 1
        return meter

    def _forget(self) -> None:
        """Forget the less popular half of a slice of what is counted in software."""
        landmark, routers = self._popularity.landmark, self._routers
        slices = self._forgetting.next(routers, lambda one: routers[one].soft if one in routers else ())
        for soft, keys in [(routers[one].soft, keys) for one, keys in slices if one in routers]:
            known = [key for key in keys if key in soft]
            for key in known:
                soft[key].follow(landmark)
            events = sorted(soft[key].slow for key in known)
            for key in known:
                if soft[key].slow <= events[len(events) // 2]:
                    del soft[key]
                    self._tracked -= 1


def _whole(table: CoveredTable) -> int:
    """Return the entries that all prefixes of a router take."""
    return len(table.full) + (table.full.default not in table.full)


def _left_to(table: CoveredTable, room: Room) -> int:
    """Return the entries that others leave to a router."""
    return max(1, room.capacity - room.reserve - (room.used - len(table.hardware)))


def _forwards(action: int | None) -> bool:
    return action is not None and action != FALLBACK


def _length(key: bytes) -> int:
    return key[-1]
