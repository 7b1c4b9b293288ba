"""The route tables of a hardware plane that has a fallback: what is to be there, what is there, what comes next.

    the FIB's changes ─► aggregate ─┐
    counts, refusals ───────────────┼─► fast table of each family ─► due prefixes ─► stages of writes ─► held
    read-backs ─────────────────────┘

Pure; `TableWrites` has the last two, and says in which order they go.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping

from controller.fallback.installed_entries import Barred
from controller.fallback.move_progress import Moves
from controller.fallback.occupancy import Declared, Occupancy
from controller.fallback.recovery import has_lost_routes
from controller.fallback.staged_writes import Place, TableWrites
from controller.fallback.withdrawn import Withdrawn
from controller.model import Placement, Quota
from controller.planes.base import (
    FALLBACK,
    LOCAL,
    MAX_OBJECT_ID,
    ROUTE_TABLE_NAME,
    Op,
    Refused,
    RouteKind,
    RouteUpdates,
    WriteBatch,
    route_action,
)
from controller.route_cache.aggregate import Aggregate
from controller.route_cache.fast_table import FastTable
from controller.route_cache.rebalance import Mode
from controller.views import MoveView
from wire.columns import family_of

BUDGET = 1000
"""Most writes of one round of moving routes in and out, by family."""

MAX_ROOM = MAX_OBJECT_ID
"""The room of a plane of which nothing is known."""

TRAFFIC_BUDGET = 250
"""The same where nothing but the traffic has changed: four rounds a second make 1,000 writes."""

_MODES = {Placement.AUTO: Mode.AUTO, Placement.HARDWARE: Mode.HARDWARE, Placement.SOFTWARE: Mode.SOFTWARE}


class HardwareRoutes:
    """The route tables of all routers on one hardware plane; ``room`` by family as the document gives it, or 0."""

    def __init__(self, room: Mapping[int, int]) -> None:
        self.routers: set[int] = set()
        self.barred = Barred()
        self.writes = TableWrites(self._wanted, self._bar_again, self._left)
        self._declared = {family: Declared(room[family]) for family in ROUTE_TABLE_NAME}
        self._tables = {family: FastTable(family, one.capacity or MAX_ROOM) for family, one in self._declared.items()}
        self._placements: dict[int, Placement] = {}
        self._came_from: dict[int, Placement | None] = {}
        self._slices: dict[int, str] = {}  # by router
        self._aggregates: dict[Place, Aggregate] = {}
        self._pinned: dict[Place, set[bytes]] = {}  # own addresses
        self._withdrawn: dict[Place, Withdrawn] = {}
        self._restless = False  # something has changed since a round moved nothing
        self._sampled = False  # nothing but the traffic has
        self._failed: list[Refused] = []  # what leaves routers without their default entries
        self._moves = self._fresh_moves()

    # What is wanted

    def open(self, vrf_id: int) -> None:
        """Begin to serve a router: all its packets go to the software at first.

        ValueError where there is no room even for the entry that sends them there.
        """
        if vrf_id in self.routers:
            return
        for family, table in self._tables.items():
            self._note(vrf_id, family, table.add(vrf_id, self._slices.get(vrf_id, "")))
            self._aggregates[vrf_id, family] = Aggregate(family)
            self._pinned[vrf_id, family] = set()
            self._withdrawn[vrf_id, family] = Withdrawn(family)
            table.set_mode(vrf_id, self._mode(vrf_id))
        self.routers.add(vrf_id)

    def close(self, vrf_id: int) -> None:
        """Take everything of a router out of hardware."""
        self.writes.thaw(vrf_id)
        if vrf_id in self.routers:
            self.routers.discard(vrf_id)
            self._moves.forget(vrf_id)
            for family, table in self._tables.items():
                self._note(vrf_id, family, table.remove(vrf_id))
                del self._aggregates[vrf_id, family], self._pinned[vrf_id, family], self._withdrawn[vrf_id, family]

    def place(self, vrf_id: int, placement: Placement, came_from: Placement | None = None) -> None:
        """Say where a router's routes are to be; `rebalance` moves them. ``came_from``: what is stored of a move."""
        self._came_from[vrf_id] = came_from
        before = self._placements.get(vrf_id)
        self._placements[vrf_id] = placement
        if before not in (None, placement):
            self._moves.begin(vrf_id, placement, before)
        self._restless = True
        if vrf_id in self.routers:
            for table in self._tables.values():
                table.set_mode(vrf_id, self._mode(vrf_id))

    def share(self, vrf_id: int, slice_name: str, quota: Quota) -> None:
        """Say whose slice a router belongs to, before it is opened, and what all routers of that may have here."""
        self._slices[vrf_id] = slice_name
        self._restless = True
        for family, table in self._tables.items():
            table.limit(slice_name, quota.hardware_routes(family))

    def reported(self, sizes: Mapping[str, int]) -> None:
        """Take what the plane says of its tables; what was learned of a table holds until it says something else."""
        for family, declared in self._declared.items():
            size = sizes.get(ROUTE_TABLE_NAME[family], 0)
            if size != declared.reported:
                declared.reported = size
                if not declared.given:
                    self._tables[family].resize(size or MAX_ROOM)
                    self._restless = True

    def forget_learned(self) -> None:
        """Believe again what is said of the tables, as before writes were refused."""
        for family, declared in self._declared.items():
            self._tables[family].resize(declared.capacity or MAX_ROOM)
        self._restless = True

    def change(self, columns: RouteUpdates, without: Collection[bytes | int] = (), ahead: bool = False) -> None:
        """Take what the software has confirmed, but for prefixes that it refused; ``ahead``: what it was not told."""
        place = columns.vrf_id, columns.family
        own, others = self._pinned[place], {}
        pinned: dict[bytes, int | None] = {}
        for op, key, action in zip(columns.ops, columns.keys, columns.actions, strict=True):
            if key not in without:
                wanted = None if op is Op.DELETE else action
                if wanted == LOCAL:
                    own.add(key)
                    pinned[key] = wanted
                else:
                    own.discard(key)
                    others[key] = wanted
        aggregate = self._aggregates[place]
        writes = aggregate.change(pinned, kept=True) | aggregate.change(others)
        withdrawn, gone = self._withdrawn[place], [key for key, wanted in others.items() if wanted is None]
        stale = withdrawn.displaced(writes) | ({} if ahead else withdrawn.told(gone))
        self._choose(place, stale | writes)
        if ahead:
            self._keep_unreachable(place, gone)
        self._restless = True

    def _keep_unreachable(self, place: Place, gone: Iterable[bytes]) -> None:
        """Let the hardware itself say of prefixes that they have no route any more, where they have none at all."""
        vrf_id, family = place
        table = self._tables[family]
        for key in sorted(gone, key=lambda key: key[-1]):
            if table.vacant(vrf_id, key):
                self._note(vrf_id, family, table.change(vrf_id, self._withdrawn[place].add([key]), pinned=True))

    def told(self, software: Mapping[int, Collection[bytes]]) -> None:
        """The software is back and has these prefixes, by vrf_id: what it lacks needs no entry to be unreachable."""
        for (vrf_id, family), withdrawn in self._withdrawn.items():
            self._choose((vrf_id, family), withdrawn.kept(software.get(vrf_id, ())))

    def _choose(self, place: Place, writes: Mapping[bytes, int | None]) -> None:
        """Hand changes of an aggregated table to the fast table."""
        vrf_id, family = place
        own, table = self._pinned[place], self._tables[family]
        kept = {key: action for key, action in writes.items() if key in own and action is not None}
        if kept:
            self._note(vrf_id, family, table.change(vrf_id, kept, pinned=True))
        if len(kept) < len(writes):
            rest = {key: action for key, action in writes.items() if key not in kept}
            self._note(vrf_id, family, table.change(vrf_id, rest))

    def count(self, now: float, packets: Mapping[int, Mapping[bytes, int]]) -> None:
        """Take the packets that met entries of the hardware since the last time, by vrf_id and prefix key."""
        for vrf_id in self.routers & packets.keys():
            for table in self._tables.values():
                table.count(now, vrf_id, packets[vrf_id])

    def sample(self, now: float, place: Place, keys: Iterable[bytes], one_in: float) -> None:
        """Take destinations of packets that the software forwarded, each for ``one_in`` packets; `rebalance` moves
        what they make worth it."""
        vrf_id, family = place
        if vrf_id in self.routers:
            self._tables[family].sample(now, vrf_id, keys, one_in)
            self._sampled = True

    @property
    def hurried(self) -> bool:
        """Whether `rebalance` is to be called again at once: more than the traffic has changed."""
        return self._restless

    def rebalance(self, now: float) -> int:
        """Move what may be better placed; returns how many prefixes move, `BUDGET` of a family at most."""
        if not self._restless and not self._sampled:
            return 0
        budget = BUDGET if self._restless else TRAFFIC_BUDGET
        most, by_router = 0, Counter[int]()
        for place, aggregate in self._aggregates.items():
            if aggregate.queued:
                self._choose(place, aggregate.improve(BUDGET))
        for family, table in self._tables.items():
            moved = table.rebalance(now, budget)
            for vrf_id, changes in moved.items():
                self._note(vrf_id, family, changes)
                by_router[vrf_id] += len(changes)
            most = max(most, sum(map(len, moved.values())))
        self._moves.round(by_router.__getitem__, limited=most > budget // 2)
        queued = any(aggregate.queued for aggregate in self._aggregates.values())
        self._restless = queued or (self._restless and bool(most))
        self._sampled = bool(most)
        return most

    # What the plane says

    def bar(self, one: Refused) -> None:
        """Do without a nexthop or group that the hardware did not take."""
        if one.op is Op.DELETE or not isinstance(one.key, int):
            return
        self.barred.ids(one.table).add(one.key)
        action = _action_to(one.table, one.key)
        for (vrf_id, family), held in list(self.writes.held.items()):
            if vrf_id in self.routers:
                table = self._tables[family]
                for key in [key for key, has in held.items() if has == action]:
                    self._note(vrf_id, family, table.refused(vrf_id, key, full=False))

    def allow(self, batch: WriteBatch, refused: Iterable[Refused]) -> None:
        """Take in that the hardware has these nexthops and groups now, or they are gone, but for those it refused.

        What was left in software for want of them is moved by `rebalance`.
        """
        without = {(one.table, one.key) for one in refused}
        ids = [("nexthop", update.entry.id) for update in batch.nexthops]
        ids += [("nexthop_group", update.entry.id) for update in batch.groups]
        allowed = {one for one in ids if one not in without and one[1] in self.barred.ids(one[0])}
        if not allowed:
            return
        for name, object_id in allowed:
            self.barred.ids(name).discard(object_id)
        actions = {_action_to(*one) for one in allowed}
        for table in self._tables.values():
            table.allow(actions)
        self._restless = True

    def adopt(
        self,
        hardware: Mapping[int, Mapping[bytes, int]],
        software: Mapping[int, Mapping[bytes, int]],
        routers: Iterable[int],
    ) -> None:
        """Begin with what both planes were read to hold for these routers.

        What the hardware holds of them, or was to hold before it lost it, stays where it may stay; the rest is due.
        Where the software has lost routes, nothing is due before `complete`.
        """
        moves, self._moves = self._moves, self._fresh_moves()
        frozen = self.writes.frozen & self.routers
        frozen |= {i for i, held in hardware.items() if has_lost_routes(held, software.get(i, {}))}
        before = {vrf_id: self._forwarding(vrf_id) for vrf_id in self.routers}
        for vrf_id in list(self.routers):
            self.close(vrf_id)
        self._moves = moves
        self.writes.believe({})
        for vrf_id in routers:
            try:
                self.open(vrf_id)
            except ValueError as problem:
                self._failed.append(Refused("policer", vrf_id, vrf_id, Op.INSERT, str(problem), full=True))
        self.writes.believe(hardware)  # what does not stay is in the way of what is not there
        here: dict[int, set[bytes]] = {}
        self.writes.frozen.clear()
        self.writes.frozen.update(frozen)
        for vrf_id in self.routers & frozen:
            self._load(vrf_id, software.get(vrf_id, {}), set(), {})
        for vrf_id in self.routers - frozen:
            there = hardware.get(vrf_id, {})
            held = {key for key, action in there.items() if action != FALLBACK}
            here[vrf_id] = held or before.get(vrf_id, held)
            self._load(vrf_id, software.get(vrf_id, {}), here[vrf_id], there)
        for vrf_id in self.routers:
            self._load_missing(vrf_id, software.get(vrf_id, {}), here.get(vrf_id, ()))
        self.audit(hardware)
        for vrf_id in self.routers - frozen:
            self._moves.resume(vrf_id, self.placement(vrf_id), self._came_from.get(vrf_id))
        self._restless = True

    def _load(self, vrf_id: int, routes: Mapping[bytes, int], here: set[bytes], there: Collection[bytes]) -> None:
        """Take a router's routes, and let those of ``here`` have their place in hardware before all others.

        ``there`` are the entries that the hardware has of it now, covers included.
        """
        for table in self._tables.values():
            table.set_mode(vrf_id, Mode.SOFTWARE)
        for columns in _columns(vrf_id, {key: one for key, one in routes.items() if one != LOCAL or key in here}):
            self.change(columns)
        self._keep(vrf_id, here, there)

    def _keep(self, vrf_id: int, here: set[bytes], there: Collection[bytes]) -> None:
        for family, table in self._tables.items():
            place = vrf_id, family
            self._choose(place, self._aggregates[place].improve())
            stay = here & self._pinned[place] if self.placement(vrf_id) is Placement.SOFTWARE else here
            self._note(vrf_id, family, table.keep(vrf_id, [key for key in stay if family_of(key) == family], there))

    def _load_missing(self, vrf_id: int, routes: Mapping[bytes, int], here: Collection[bytes]) -> None:
        """Bring in own addresses that are not in hardware, and from now on what the placement says."""
        for columns in _columns(
            vrf_id, {key: one for key, one in routes.items() if one == LOCAL and key not in here}
        ):
            self.change(columns)
        for table in self._tables.values():
            table.set_mode(vrf_id, self._mode(vrf_id))

    def complete(self, vrf_id: int) -> None:
        """The software has all routes of a router again: from now on the hardware follows it, if it did not."""
        if vrf_id not in self.writes.frozen:
            return
        if vrf_id in self.routers:
            there = self.held(vrf_id)
            self._keep(vrf_id, {key for key, action in there.items() if action != FALLBACK}, there)
        self.writes.thaw(vrf_id)
        if vrf_id in self.routers:
            for table in self._tables.values():
                table.set_mode(vrf_id, self._mode(vrf_id))
            self._moves.resume(vrf_id, self.placement(vrf_id), self._came_from.get(vrf_id))
        self._restless = True

    def parting(self, batch: WriteBatch) -> None:
        """Nexthops and groups go: no router keeps routes to them that it is not to have any more."""
        actions = {_action_to("nexthop", one.entry.id) for one in batch.nexthops if one.op is Op.DELETE}
        actions |= {_action_to("nexthop_group", one.entry.id) for one in batch.groups if one.op is Op.DELETE}
        for vrf_id in list(self.writes.frozen) if actions else ():
            if not actions.isdisjoint(self.held(vrf_id).values()):
                self.complete(vrf_id)

    def _forwarding(self, vrf_id: int) -> set[bytes]:
        return {
            key
            for family in self._tables
            for key, action in self._wanted(vrf_id, family).items()
            if action != FALLBACK
        }

    def audit(self, hardware: Mapping[int, Mapping[bytes, int]]) -> int:
        """Believe a read-back; what differs from what is wanted is due. Returns how many entries that are."""
        self.writes.believe(hardware)
        return self.writes.compare(self.routers | hardware.keys())

    # Writing

    def next_stage(self) -> list[RouteUpdates]:
        """Return the next writes, of one router and family; nothing where the hardware holds what it should."""
        return self.writes.next_stage()

    def confirm(self, stage: list[RouteUpdates], refused: Iterable[Refused]) -> None:
        """The hardware has taken a stage, but for what it refused; what hangs on that is planned anew."""
        (columns,) = stage
        vrf_id, family = columns.vrf_id, columns.family
        without = self.writes.confirm(stage, refused)
        self._restless |= bool(without)
        for key, one in without.items():
            if one.op is Op.DELETE or vrf_id not in self.routers:
                continue
            try:
                self._note(vrf_id, family, self._tables[family].refused(vrf_id, key, one.full))
            except ValueError:  # its packets cannot even go to the software
                self._failed.append(one)

    def _bar_again(self, place: Place, keys: Collection[bytes]) -> bool:
        """Do without prefixes that lead to what the hardware refused; tell whether there were any."""
        vrf_id, family = place
        wanted = self._wanted(vrf_id, family)
        barred = [key for key in keys if (action := wanted.get(key)) is not None and action in self.barred]
        for key in barred:
            self._note(vrf_id, family, self._tables[family].refused(vrf_id, key, full=False))
        return bool(barred)

    def _left(self, place: Place, entries: int, fewer: bool) -> None:
        vrf_id, family = place
        self._restless |= fewer  # what waits for that room may enter
        self._tables[family].leaving(vrf_id, self._slices.get(vrf_id, ""), entries)

    def failed(self) -> list[Refused]:
        """Return what leaves a router without its default entry in hardware, since the last call."""
        found, self._failed = self._failed, []
        return found

    # For people

    def held(self, vrf_id: int) -> dict[bytes, int]:
        """Return what the hardware holds of a router, FALLBACK entries included."""
        held = (self.writes.held.get((vrf_id, family), {}) for family in self._tables)
        return {key: action for entries in held for key, action in entries.items()}

    def used_by(self, slice_name: str) -> dict[int, int]:
        """Return the entries that the hardware holds of a slice, by family."""
        return {
            family: sum(
                len(held)
                for (vrf_id, of), held in self.writes.held.items()
                if of == family and self._slices.get(vrf_id) == slice_name
            )
            for family in self._tables
        }

    def placement(self, vrf_id: int) -> Placement:
        """Return where a router's routes are to be."""
        return self._placements.get(vrf_id, Placement.AUTO)

    def unknown_move(self, vrf_id: int) -> MoveView:
        """Return what is stored of a router of which it is not known how far it is."""
        return MoveView(self.placement(vrf_id).value, self._came_from.get(vrf_id) or "", 0, 0)

    def move(self, vrf_id: int) -> MoveView | None:
        """Return how far a router is that was placed elsewhere, None where it is there."""
        return self._moves.view(vrf_id)

    def whole(self, vrf_id: int) -> bool:
        """Tell whether all routes of a router are in hardware."""
        return vrf_id not in self.routers or all(table.whole(vrf_id) for table in self._tables.values())

    def short_of(self, vrf_id: int) -> str:
        """Return what keeps routes of a router out of hardware: "room", "quota", "refused", or nothing."""
        if vrf_id not in self.routers:
            return ""
        found = {table.short_of(vrf_id) for table in self._tables.values()}
        return next((one for one in ("room", "quota", "refused") if one in found), "")

    def counts(self) -> dict[str, int]:
        """Return the entries in hardware by table."""
        return {
            f"hardware {name}": sum(len(held) for (_, of), held in self.writes.held.items() if of == family)
            for family, name in ROUTE_TABLE_NAME.items()
        }

    def occupancy(self) -> dict[str, Occupancy]:
        """Return what is used of the hardware's route tables."""
        counts = self.counts()
        return {
            name: self._declared[family].occupancy(
                counts[f"hardware {name}"], self._tables[family].capacity, MAX_ROOM
            )
            for family, name in ROUTE_TABLE_NAME.items()
        }

    # Inside

    def _mode(self, vrf_id: int) -> Mode:
        """Return what of a router is to enter; of one that is frozen, nothing yet."""
        return Mode.SOFTWARE if vrf_id in self.writes.frozen else _MODES[self.placement(vrf_id)]

    def _fresh_moves(self) -> Moves:
        return Moves(self.writes.count, self._goal, lambda vrf_id: not self.writes.waits(vrf_id))

    def _goal(self, vrf_id: int) -> int:
        """Return the entries that a router is to have in hardware."""
        if vrf_id not in self.routers:
            return self.writes.count(vrf_id)
        if self.placement(vrf_id) is Placement.SOFTWARE:
            return sum(1 + len(self._pinned[vrf_id, family]) for family in self._tables)
        return sum(table.goal(vrf_id) for table in self._tables.values())

    def _wanted(self, vrf_id: int, family: int) -> Mapping[bytes, int]:
        return self._tables[family].entries(vrf_id) if vrf_id in self.routers else {}

    def _note(self, vrf_id: int, family: int, changes: Collection[bytes]) -> None:
        """Remember prefixes whose place has changed."""
        self.writes.note((vrf_id, family), changes)


def _action_to(table: str, object_id: int) -> int:
    return route_action(RouteKind.NEXTHOP if table == "nexthop" else RouteKind.GROUP, object_id)


def _columns(vrf_id: int, routes: Mapping[bytes, int]) -> list[RouteUpdates]:
    found = {family: RouteUpdates(vrf_id, family) for family in ROUTE_TABLE_NAME}
    for key, action in routes.items():
        columns = found[family_of(key)]
        columns.ops.append(Op.INSERT)
        columns.keys.append(key)
        columns.actions.append(action)
    return list(found.values())
