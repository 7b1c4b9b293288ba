"""Which routes are in the hardware of a plane with a fallback: moves them by placement, traffic and refusals.

    placements, counts, samples ─► rounds of `rebalance` ─┐
    refusals, read-backs ─────────────────────────────────┴─► `HardwareTables` ─► stages of writes

Pure.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Set

from controller.fallback.adoption import Adoption, action_to
from controller.fallback.hardware_tables import HardwareTables
from controller.fallback.installed_entries import Barred
from controller.fallback.move_progress import MoveProgress
from controller.fallback.occupancy import HardwareUsage
from controller.fallback.pace import parts
from controller.fallback.staged_writes import RouterTable
from controller.model import Placement
from controller.planes.base import ROUTE_TABLE_NAME, Op, Refused, RouteUpdates, WriteBatch

BUDGET = 1000
"""Most writes of one round of moving routes in and out, by family."""

TRAFFIC_BUDGET = 250
"""The same where nothing but the traffic has changed: four rounds a second make 1,000 writes."""


class HardwareRoutes:
    """The routes of all routers on one hardware plane; ``room`` by family as the document gives it, or 0."""

    def __init__(self, room: Mapping[int, int]) -> None:
        self.barred = Barred()
        self.tables = HardwareTables(room)
        self.writes = self.tables.writes
        self.moves = MoveProgress(self.tables)
        self.adoption = Adoption(self.tables, self.moves)
        self.usage = HardwareUsage(self.tables)
        self._sampled = False  # the traffic may have changed since a round moved nothing

    @property
    def routers(self) -> Set[int]:
        """The routers that are served, by vrf_id."""
        return self.tables.routers

    def close(self, vrf_id: int) -> None:
        """Take everything of a router out of hardware, and forget its move."""
        if vrf_id in self.tables.routers:
            self.moves.forget(vrf_id)
        self.tables.close(vrf_id)

    def forget(self, vrf_id: int) -> None:
        """Forget what was said of a router that is gone: another one may get its id. It is still open where both
        planes had lost its policer, and none was deleted."""
        self.moves.forget(vrf_id)
        self.adoption.forget(vrf_id)
        self.tables.close(vrf_id)
        self.tables.forget(vrf_id)

    def place(self, vrf_id: int, placement: Placement, came_from: Placement | None = None) -> None:
        """Say where a router's routes are to be; `rebalance` moves them. ``came_from``: what is stored of a move."""
        before = self.tables.place(vrf_id, placement)
        self.moves.place(vrf_id, placement, before, came_from)

    # Traffic

    def count(self, now: float, vrf_id: int, packets: Mapping[bytes, int]) -> Iterator[None]:
        """Take the packets that met entries of a router in the hardware since the last time, in steps."""
        for fast in self.tables.fast.values():
            if vrf_id in self.tables.routers:
                yield from fast.count(now, vrf_id, packets)

    def sample(self, now: float, table: RouterTable, keys: Iterable[bytes], one_in: float) -> None:
        """Take destinations of packets that the software forwarded, each for ``one_in`` packets; `rebalance` moves
        what they make worth it."""
        vrf_id, family = table
        if vrf_id in self.tables.routers:
            self.tables.fast[family].sample(now, vrf_id, keys, one_in)
            self._sampled = True

    @property
    def hurried(self) -> bool:
        """Whether `rebalance` is to be called again at once: more than the traffic has changed."""
        return self.tables.changed

    def rebalance(self, now: float) -> int:
        """Move what may be better placed; returns how many prefixes move, `BUDGET` of a family at most."""
        tables = self.tables
        tables.grow(now)
        changed = tables.take_changed()
        if not changed and not self._sampled:
            return 0
        budget = BUDGET if changed else TRAFFIC_BUDGET
        most, by_router = 0, Counter[int]()
        tables.aggregate(BUDGET)
        for family, fast in tables.fast.items():
            moved = fast.rebalance(now, budget)
            for vrf_id, changes in moved.items():
                tables.note((vrf_id, family), changes)
                by_router[vrf_id] += len(changes)
            most = max(most, sum(map(len, moved.values())))
        unfinished = any(fast.unfinished for fast in tables.fast.values())
        self.moves.round(by_router.__getitem__, limited=unfinished or most > budget // 2)
        changed |= tables.take_changed()  # by this round
        if (changed and most) or unfinished or not tables.aggregated:
            tables.mark_changed()
        self._sampled = bool(most)
        return most

    # Nexthops and groups

    def barring(self, refused: Iterable[Refused]) -> Iterator[None]:
        """Do without nexthops and groups that the hardware did not take, all at once: every route is looked at, in
        steps. What comes meanwhile is not planned either."""
        actions = set()
        for one in refused:
            ids = self.barred.ids(one.table)
            if isinstance(one.key, int) and one.key not in ids:  # or no route leads to it any more
                ids.add(one.key)
                actions.add(action_to(one.table, one.key))
        for table in list(self.tables.wanted) if actions else ():
            for part in parts(list(self.tables.wanted.get(table, ()))):
                wanted = self.tables.wanted.get(table, {})
                for key in part:
                    if wanted.get(key) in actions:  # and is no cover by now of another that was refused
                        self.tables.refuse(table, key, full=False)
                yield

    def allowing(self, batch: WriteBatch, refused: Iterable[Refused]) -> Iterator[None]:
        """Take in that the hardware has these nexthops and groups now, or they are gone, except those it refused; in
        steps.

        What was left in software for want of them is moved by `rebalance`. That are also routes that it refused since
        it had lost one by itself, which is written anew.
        """
        without = {(one.table, one.key) for one in refused}
        ids = [("nexthop", update.entry.id, update.op) for update in batch.nexthops]
        ids += [("nexthop_group", update.entry.id, update.op) for update in batch.groups]
        allowed = {
            (name, object_id)
            for name, object_id, op in ids
            if (name, object_id) not in without and (op is not Op.DELETE or object_id in self.barred.ids(name))
        }
        for name, object_id in allowed:
            self.barred.ids(name).discard(object_id)
        actions = {action_to(*one) for one in allowed}
        for fast in self.tables.fast.values() if actions else ():
            for vrf_id in fast.refusing():
                for part in parts(fast.refusals(vrf_id) if vrf_id in self.tables.routers else ()):
                    if vrf_id in self.tables.routers and fast.allow(vrf_id, part, actions):
                        self.tables.mark_changed()
                    yield

    def _bar_again(self, table: RouterTable, keys: Collection[bytes]) -> bool:
        """Do without prefixes that lead to what the hardware refused; tell whether there were any."""
        wanted = self.tables.wanted.get(table, {})
        barred = [key for key in keys if (action := wanted.get(key)) is not None and action in self.barred]
        for key in barred:
            self.tables.refuse(table, key, full=False)
        return bool(barred)

    # Writing

    def planning(self) -> Iterator[None]:
        """Look in steps for what of one router and family is written next; nothing where the hardware is right."""
        self.writes.plan_default_entry()
        while (pending := self.writes.next_pending()) is not None:
            if not self._bar_again(*pending):
                self.writes.plan(*pending)
            yield

    def next_stage(self) -> list[RouteUpdates]:
        """Return the next writes, after `planning` or with it."""
        for _ in self.planning():
            pass
        return self.writes.next_stage()

    def confirm(self, stage: list[RouteUpdates], refused: Iterable[Refused]) -> None:
        """The hardware has taken a stage, except what it refused; what depends on that is planned anew."""
        (columns,) = stage
        table = columns.vrf_id, columns.family
        without, leaving = self.writes.confirm(stage, refused)
        self.tables.follow_leaving(leaving)
        if without:
            self.tables.mark_changed()
        for key, one in without.items():
            if one.op is Op.DELETE or columns.vrf_id not in self.tables.routers:
                continue
            try:
                self.tables.refuse(table, key, one.full)
            except ValueError:  # its packets cannot even go to the software: as where there is no room to open it
                vrf_id = columns.vrf_id
                what = "has no room for" if one.full else "refused"
                reason = f"{ROUTE_TABLE_NAME[columns.family]} {what} its default entry: {one.reason}"
                self.tables.fail(Refused("policer", vrf_id, vrf_id, Op.INSERT, reason))
