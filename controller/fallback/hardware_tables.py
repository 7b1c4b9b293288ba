"""The route tables of all routers on a hardware plane that has a fallback: what is wanted, and what is installed.

    the FIB's changes ─► aggregate ─► fast table of each family ─► pending prefixes ─► stages of writes ─► installed

What changes in a fast table is noted at once as pending (`StagedWrites`), and what the plane still has of it takes
its room until it has left. Pure.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass
from itertools import islice

from controller.fallback.pace import parts
from controller.fallback.recovery import Withdrawn
from controller.fallback.staged_writes import Leaving, RouterTable, StagedWrites
from controller.model import Placement, Quota
from controller.planes.base import LOCAL, MAX_OBJECT_ID, ROUTE_TABLE_NAME, Op, Refused, RouteUpdates
from controller.route_cache.aggregate import LEAST_BUDGET, LOOKS_PER_WRITE, Aggregate
from controller.route_cache.fast_table import FastTable
from controller.route_cache.write_order import Changes
from wire.columns import family_of

IMPROVED_AT_ONCE = 100
"""Writes of one step of an aggregation that is to end."""

MAX_ROOM = MAX_OBJECT_ID
"""The room of a plane of which nothing is known."""


@dataclass(slots=True)
class Declared:
    """The two figures that are said of a table, 0 where nothing is; the document's goes before the plane's."""

    given: int
    reported: int = 0

    @property
    def capacity(self) -> int:
        """The capacity as far as it is said, 0 where it is not."""
        return self.given or self.reported


def insertions(vrf_id: int, routes: Mapping[bytes, int]) -> list[RouteUpdates]:
    """Return the insertion of these routes."""
    found = {family: RouteUpdates(vrf_id, family) for family in ROUTE_TABLE_NAME}
    for key, action in routes.items():
        columns = found[family_of(key)]
        columns.ops.append(Op.INSERT)
        columns.keys.append(key)
        columns.actions.append(action)
    return list(found.values())


class AggregatedRoutes:
    """The routes of one router and family, as a smaller table that forwards alike and that its fast table follows."""

    def __init__(self, family: int) -> None:
        self.aggregate = Aggregate(family)
        self.pinned: set[bytes] = set()  # own addresses
        self.withdrawn = Withdrawn(family)

    def change(
        self, columns: RouteUpdates, without: Collection[bytes | int], ahead: bool
    ) -> tuple[dict[bytes, int | None], list[bytes]]:
        """Take what the software has confirmed, as `HardwareTables.change` does.

        Returns the changes of the smaller table, and the prefixes that have no route of their own any more.
        """
        pinned: dict[bytes, int | None] = {}
        others: dict[bytes, int | None] = {}
        for op, key, action in zip(columns.ops, columns.keys, columns.actions, strict=True):
            if key not in without:
                wanted = None if op is Op.DELETE else action
                if wanted == LOCAL:
                    self.pinned.add(key)
                    pinned[key] = wanted
                else:
                    self.pinned.discard(key)
                    others[key] = wanted
        writes = self.aggregate.change(pinned, kept=True) | self.aggregate.change(others)
        gone = [key for key, wanted in others.items() if wanted is None]
        stale = self.withdrawn.displaced(writes) | ({} if ahead else self.withdrawn.told(gone))
        return stale | writes, gone


class HardwareTables:
    """The tables of all routers on one plane; ``room`` by family as the document gives it, or 0."""

    def __init__(self, room: Mapping[int, int]) -> None:
        self.routers: set[int] = set()
        self.wanted: dict[RouterTable, Mapping[bytes, int]] = {}  # of open routers
        self.writes = StagedWrites(self.wanted)
        self.declared = {family: Declared(room[family]) for family in ROUTE_TABLE_NAME}
        self.fast = {family: FastTable(family, one.capacity or MAX_ROOM) for family, one in self.declared.items()}
        self.slices: dict[int, str] = {}  # by router
        self._members: defaultdict[str, set[int]] = defaultdict(set)  # routers by slice
        self._gone: set[int] = set()  # routers of these that nothing is said of any more
        self._routes: dict[RouterTable, AggregatedRoutes] = {}  # of open routers
        self._unmerged: dict[RouterTable, None] = {}  # those of them that may not be as small as can be
        self._unopened: dict[int, dict[bytes, int]] = {}  # what the software has of all others
        self._placements: dict[int, Placement] = {}
        self._changed = False
        self._failed: dict[int, Refused] = {}  # what left a router without a default entry, by vrf_id

    def open(self, vrf_id: int) -> None:
        """Begin to serve a router, with the routes that the software has of it: all its packets go there at first.

        ValueError where there is no room even for the entry that sends them there. Of an open one that is written
        again where the plane lacks it.
        """
        if vrf_id in self.routers:
            self.retry_defaults(vrf_id)
            return
        added: dict[int, Changes] = {}
        for family, fast in self.fast.items():
            try:
                added[family] = fast.add(vrf_id, self.slices.get(vrf_id, ""))
            except ValueError as problem:
                for before in added:
                    self.fast[before].remove(vrf_id)
                reason = f"{ROUTE_TABLE_NAME[family]} has no room for its default entry: {problem}"
                raise ValueError(reason) from problem
        self.routers.add(vrf_id)
        for family, changes in added.items():
            self.wanted[vrf_id, family] = self.fast[family].entries(vrf_id)
            self.note((vrf_id, family), changes)
            self._routes[vrf_id, family] = AggregatedRoutes(family)
        for columns in insertions(vrf_id, self._unopened.pop(vrf_id, {})):
            self.change(columns)
        self.follow_placement(vrf_id)  # `rebalance` moves them, a budget at a time

    def close(self, vrf_id: int) -> None:
        """Take everything of a router out of hardware."""
        self.writes.unfreeze(vrf_id)
        if vrf_id in self.routers:
            self.routers.discard(vrf_id)
            for family in self.fast:
                del self.wanted[vrf_id, family]
            for family, fast in self.fast.items():
                table = vrf_id, family
                self.note(table, fast.remove(vrf_id))
                del self._routes[table]
                self._unmerged.pop(table, None)

    def retry_defaults(self, vrf_id: int) -> int:
        """Write the default entries of an open router again that the plane lacks; returns how many."""
        lacking = self.writes.defaults_lacking(vrf_id) if vrf_id in self.routers else []
        for table, default in lacking:
            self.note(table, [default])
        return len(lacking)

    def drop(self, vrf_id: int) -> None:
        """Forget an open router: what the plane has of it is read anew."""
        self.routers.discard(vrf_id)
        for family, fast in self.fast.items():
            del self.wanted[vrf_id, family], self._routes[vrf_id, family]
            self._unmerged.pop((vrf_id, family), None)
            fast.drop(vrf_id)

    # Room and placement

    def share(self, vrf_id: int, slice_name: str, quota: Quota) -> None:
        """Say whose slice a router belongs to, and what all routers of that may have here. One that is declared just
        as the plane has been read may be open by then, in a slice of nobody's."""
        before = self.slices.get(vrf_id, "")
        self._leave_slice(vrf_id)
        self.slices[vrf_id] = slice_name
        self._members[slice_name].add(vrf_id)
        self._gone.discard(vrf_id)
        self._changed = True
        for family, fast in self.fast.items():
            fast.join(vrf_id, slice_name, before)
            fast.limit(slice_name, quota.hardware_routes(family))

    def declares(self, vrf_id: int) -> bool:
        """Tell whether a router is declared: whose slice it belongs to was said, and it is not gone."""
        return vrf_id in self.slices and vrf_id not in self._gone

    def forget(self, vrf_id: int) -> None:
        """Forget what was said of a closed router; its slice with the last one of it, once nothing of it leaves."""
        self._placements.pop(vrf_id, None)
        self._unopened.pop(vrf_id, None)
        self._failed.pop(vrf_id, None)
        self._gone.add(vrf_id)
        self._forget_slice(vrf_id)

    def _forget_slice(self, vrf_id: int) -> None:
        if any(fast.is_leaving(vrf_id) for fast in self.fast.values()):
            return
        self._gone.discard(vrf_id)
        slice_name = self._leave_slice(vrf_id)
        if slice_name is not None and not self.members(slice_name):
            for fast in self.fast.values():
                fast.forget_slice(slice_name)
            self._changed = True

    def _leave_slice(self, vrf_id: int) -> str | None:
        slice_name = self.slices.pop(vrf_id, None)
        if slice_name is not None:
            self._members[slice_name].discard(vrf_id)
            if not self._members[slice_name]:
                del self._members[slice_name]
        return slice_name

    def members(self, slice_name: str) -> Set[int]:
        """Return the routers of a slice, those too of which something still leaves."""
        return self._members.get(slice_name, frozenset())

    def reported(self, sizes: Mapping[str, int]) -> None:
        """Take what the plane says of its tables; what was learned of a table holds until it says something else."""
        for family, declared in self.declared.items():
            size = sizes.get(ROUTE_TABLE_NAME[family], 0)
            if size != declared.reported:
                declared.reported = size
                if not declared.given:
                    self.fast[family].resize(size or MAX_ROOM)
                    self._changed = True

    def forget_learned(self) -> None:
        """Use the capacities that are declared again, as before writes were refused."""
        for family, declared in self.declared.items():
            self.fast[family].resize(declared.capacity or MAX_ROOM)
        self._changed = True

    def grow(self, now: float) -> None:
        """Ask the plane for room for more than was learned of it, where it is time to."""
        for fast in self.fast.values():
            self._changed |= fast.grow(now)

    def placement(self, vrf_id: int) -> Placement:
        """Return where a router's routes are to be."""
        return self._placements.get(vrf_id, Placement.AUTO)

    def place(self, vrf_id: int, placement: Placement) -> Placement | None:
        """Say where a router's routes are to be; returns where they were to be before, None for a new router."""
        before = self._placements.get(vrf_id)
        self._placements[vrf_id] = placement
        self._changed = True
        if vrf_id in self.routers:
            self.follow_placement(vrf_id)
        return before

    def follow_placement(self, vrf_id: int) -> None:
        """Let routes of an open router enter as its placement says; of one that is frozen, none yet."""
        for fast in self.fast.values():
            fast.set_placement(vrf_id, self._placement_now(vrf_id))

    def _placement_now(self, vrf_id: int) -> Placement:
        return Placement.SOFTWARE if vrf_id in self.writes.frozen else self.placement(vrf_id)

    def goal(self, vrf_id: int) -> int:
        """Return the entries that a router is to have in hardware."""
        if vrf_id not in self.routers:
            return self.writes.count(vrf_id)
        if self.placement(vrf_id) is Placement.SOFTWARE:
            return sum(1 + len(self._routes[vrf_id, family].pinned) for family in self.fast)
        return sum(fast.goal(vrf_id) for fast in self.fast.values())

    # Routes

    def change(self, columns: RouteUpdates, without: Collection[bytes | int] = (), ahead: bool = False) -> None:
        """Take what the software has confirmed, except prefixes that it refused; ``ahead``: what it was not told."""
        if columns.vrf_id not in self.routers:
            self._keep_for_opening(columns, without)
            return
        table = columns.vrf_id, columns.family
        routes = self._routes[table]
        writes, gone = routes.change(columns, without, ahead)
        if routes.aggregate.queued:
            self._unmerged[table] = None
        self._choose(table, writes)
        if ahead:
            self._keep_unreachable(table, gone)
        self._changed = True

    def _keep_for_opening(self, columns: RouteUpdates, without: Collection[bytes | int]) -> None:
        routes = self._unopened.setdefault(columns.vrf_id, {})
        for op, key, action in zip(columns.ops, columns.keys, columns.actions, strict=True):
            if key in without:
                continue
            if op is Op.DELETE:
                routes.pop(key, None)
            else:
                routes[key] = action
        if not routes:
            del self._unopened[columns.vrf_id]

    def set_unopened(self, software: Mapping[int, Mapping[bytes, int]]) -> None:
        """Take what the software was read to have of routers that are not open, by vrf_id."""
        self._unopened = {i: dict(routes) for i, routes in software.items() if i not in self.routers}

    def _keep_unreachable(self, table: RouterTable, gone: Iterable[bytes]) -> None:
        """Let the hardware itself say of prefixes that they have no route any more, where they have none at all."""
        vrf_id, family = table
        fast = self.fast[family]
        for key in sorted(gone, key=lambda key: key[-1]):
            if fast.vacant(vrf_id, key):
                self.note(table, fast.change(vrf_id, self._routes[table].withdrawn.add([key]), pinned=True))

    def told(self, software: Mapping[int, Collection[bytes]]) -> None:
        """The software is back and has these prefixes, by vrf_id: what it lacks needs no entry to be unreachable."""
        for (vrf_id, family), routes in self._routes.items():
            self._choose((vrf_id, family), routes.withdrawn.kept(software.get(vrf_id, ())))

    def _choose(self, table: RouterTable, writes: Mapping[bytes, int | None]) -> None:
        """Hand changes of an aggregated table to the fast table."""
        vrf_id, family = table
        own, fast = self._routes[table].pinned, self.fast[family]
        kept = {key: action for key, action in writes.items() if key in own and action is not None}
        if kept:
            self.note(table, fast.change(vrf_id, kept, pinned=True))
        if len(kept) < len(writes):
            rest = {key: action for key, action in writes.items() if key not in kept}
            self.note(table, fast.change(vrf_id, rest))

    def aggregate(self, budget: int) -> None:
        """Go on with the aggregation of tables that are not as small as can be, by so many writes of all together.

        Each costs `LEAST_BUDGET` at least. One that is not done with what was left is the last of the next time.
        """
        for table in list(islice(self._unmerged, budget)):
            if budget <= 0:
                return
            del self._unmerged[table]
            aggregate = self._routes[table].aggregate
            places = aggregate.queued
            writes = aggregate.improve(max(budget, LEAST_BUDGET))
            self._choose(table, writes)
            budget -= max(len(writes), places // LOOKS_PER_WRITE, LEAST_BUDGET)
            if aggregate.queued:
                self._unmerged[table] = None

    @property
    def aggregated(self) -> bool:
        """Whether all tables are as small as can be."""
        return not self._unmerged

    def keep(self, vrf_id: int, here: set[bytes], there: Collection[bytes]) -> Iterator[None]:
        """Let prefixes of ``here`` have their place in hardware, in steps; ``there`` is what it has of the router."""
        for table in [table for table in self._routes if table[0] == vrf_id]:
            _, family = table
            while table in self._routes and self._routes[table].aggregate.queued:
                self._choose(table, self._routes[table].aggregate.improve(IMPROVED_AT_ONCE))
                yield
            self._unmerged.pop(table, None)
            in_software = self.placement(vrf_id) is Placement.SOFTWARE and table in self._routes
            stay = here & self._routes[table].pinned if in_software else here
            by_length: defaultdict[int, list[bytes]] = defaultdict(list)
            for part in parts(stay):
                for key in part:
                    if family_of(key) == family:
                        by_length[key[-1]].append(key)
                yield
            for part in parts(key for length in sorted(by_length, reverse=True) for key in by_length[length]):
                if table in self._routes:
                    self.note(table, self.fast[family].keep(vrf_id, part, there))
                yield

    def refuse(self, table: RouterTable, key: bytes, full: bool) -> None:
        """Do without an entry that the hardware refused. ValueError for the default entry of a router."""
        vrf_id, family = table
        self.note(table, self.fast[family].refused(vrf_id, key, full))

    def retry(self, vrf_id: int) -> None:
        """Try all routes of a router again that the hardware refused; `rebalance` moves them."""
        for fast in self.fast.values() if vrf_id in self.routers else ():
            fast.retry(vrf_id)
        self._changed = True

    # What becomes of them

    def note(self, table: RouterTable, changes: Collection[bytes]) -> None:
        """Remember prefixes that have changed in a fast table."""
        leaving = self.writes.note(table, changes)
        if leaving is not None:
            self.follow_leaving(leaving)

    def follow_leaving(self, leaving: Leaving) -> None:
        """Take in how many entries of a table still leave the plane: their room is not free before."""
        vrf_id, family = leaving.table
        self._changed |= leaving.fewer  # what waits for that room may enter
        self.fast[family].leaving(vrf_id, self.slices.get(vrf_id, ""), leaving.entries)
        if vrf_id in self._gone:
            self._forget_slice(vrf_id)

    def forget_installed(self) -> None:
        """Forget what the plane holds, which is read anew."""
        for leaving in self.writes.forget_installed():
            self.follow_leaving(leaving)

    def set_installed(self, read: Mapping[int, Mapping[bytes, int]]) -> Iterator[None]:
        """Take what the plane was read to hold, by vrf_id, in steps."""
        for vrf_id, routes in read.items():
            for part in parts(routes.items()):
                for leaving in self.writes.take_installed(vrf_id, part):
                    self.follow_leaving(leaving)
                yield

    def repair(self, vrf_id: int, found: Mapping[bytes, int | None]) -> int:
        """Take what the plane was found to hold of a router otherwise than it was known to, None for nothing.

        Returns how many entries are to be written again for it.
        """
        repaired = 0
        for family in ROUTE_TABLE_NAME if found else ():
            part = {key: action for key, action in found.items() if family_of(key) == family}
            differing, leaving = self.writes.repair((vrf_id, family), part)
            repaired += differing
            if leaving is not None:
                self.follow_leaving(leaving)
        return repaired

    @property
    def changed(self) -> bool:
        """Whether anything but the traffic has changed since `take_changed`."""
        return self._changed

    def mark_changed(self) -> None:
        """Note that more may be to move."""
        self._changed = True

    def take_changed(self) -> bool:
        """Return whether anything but the traffic has changed since the last call."""
        changed, self._changed = self._changed, False
        return changed

    def fail(self, one: Refused) -> None:
        """Note what leaves a router without its default entry in hardware."""
        self._failed[one.vrf_id] = one

    def failed(self) -> list[Refused]:
        """Return what was noted since the last call, and still leaves routers without their default entries."""
        found, self._failed = self._failed, {}
        return [one for i, one in found.items() if i in self.routers and self.writes.defaults_lacking(i)]
