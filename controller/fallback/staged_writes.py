"""What the route tables of a plane hold, and the writes that lead from there to what is wanted.

    prefixes that may differ (pending) ─► stages of some of one router and family (planned) ─► in flight ─► installed

Pure: `next_stage` gives updates that a plane may take in any order, and `confirm` tells what became of them. Between
two stages every address is forwarded as before or as after.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import NamedTuple

from controller.fallback.pace import parts
from controller.planes.base import FALLBACK, ROUTE_TABLE_NAME, Op, Refused, RouteUpdates
from controller.route_cache.pending_writes import PendingWrites
from controller.route_cache.write_order import stages
from wire.columns import ADDRESS_BYTES, family_of

STAGE_ROUTES = 1000
"""Most routes in one write: about 10 ms of Open vSwitch's main thread, which also forwards."""

PLANNED_AT_ONCE = 2000
"""Most prefixes whose stages are planned in one go: 5 ms. A full batch of routes changes less, nearly always, and so
takes no more stages than its nesting asks for."""

RouterTable = tuple[int, int]
"""(vrf_id, family)"""


def default_key(family: int) -> bytes:
    """Return the prefix of all addresses of a family."""
    return bytes(ADDRESS_BYTES[family] + 1)


class Leaving(NamedTuple):
    """Entries of one table that the plane has, or is being given, and that are not wanted any more."""

    table: RouterTable
    entries: int
    fewer: bool  # than there were before


class StagedWrites:
    """Follows the tables of all routers; ``wanted`` is what each table is to hold now, kept up to date by its owner.

    Methods that change how many entries leave return that.
    """

    def __init__(self, wanted: Mapping[RouterTable, Mapping[bytes, int]]) -> None:
        self.installed: dict[RouterTable, dict[bytes, int]] = {}
        self.generation = 0  # counts what was sent
        self.changes: Counter[int] = Counter()  # routes written, by vrf_id
        self.frozen: set[int] = set()  # routers whose entries stay as they are
        self._wanted = wanted
        self._leaving: dict[RouterTable, set[bytes]] = {}  # what it has, or is being given, though not wanted
        self._in_flight: dict[RouterTable, frozenset[bytes]] = {}  # what is being written
        self._pending: dict[RouterTable, PendingWrites] = {}  # what may differ
        self._lacking: dict[RouterTable, None] = {}  # those whose default entries are pending, and not there
        self._planned: list[RouteUpdates] = []  # what of them comes next, in the order of stages
        self._audited: defaultdict[int, set[bytes]] | None = None  # what is written during an audit, by vrf_id

    @property
    def idle(self) -> bool:
        """Whether the plane holds what is wanted, as far as is known, and nothing is in flight to it."""
        return not self._planned and not any(vrf_id not in self.frozen for vrf_id, _ in self._pending)

    def waits(self, vrf_id: int) -> bool:
        """Tell whether anything of a router is still to be written."""
        return any((vrf_id, family) in self._pending for family in ROUTE_TABLE_NAME) or bool(
            self._planned and self._planned[0].vrf_id == vrf_id
        )

    def count(self, vrf_id: int) -> int:
        """Return how many entries the plane holds of a router."""
        return sum(len(self.installed.get((vrf_id, family), ())) for family in ROUTE_TABLE_NAME)

    def defaults_lacking(self, vrf_id: int) -> list[tuple[RouterTable, bytes]]:
        """Return the default entries of an open router that the plane does not have, or still as a route that is
        gone; none of one that is frozen."""
        found = []
        for table in ((vrf_id, family) for family in ROUTE_TABLE_NAME if vrf_id not in self.frozen):
            default = default_key(table[1])
            have, wanted = self.installed.get(table, {}).get(default), self._wanted[table][default]
            if have != wanted and (have is None or wanted == FALLBACK):
                found.append((table, default))
        return found

    def forget_installed(self) -> list[Leaving]:
        """Forget what the plane holds: that is read anew. What is wanted from now on is to be noted."""
        self.installed, self._pending, self._lacking, self._planned, self._in_flight = {}, {}, {}, [], {}
        tables, self._leaving = self._leaving.keys(), {}
        return [Leaving(table, 0, True) for table in tables]

    def take_installed(self, vrf_id: int, routes: Collection[tuple[bytes, int]]) -> list[Leaving]:
        """Take some of what the plane was read to hold of a router; `find_differing` comes when that is all."""
        keys: dict[RouterTable, list[bytes]] = {}
        for key, action in routes:
            table = vrf_id, family_of(key)
            self.installed.setdefault(table, {})[key] = action
            keys.setdefault(table, []).append(key)
        for table, taken in keys.items():
            if default_key(table[1]) in taken:
                self._lacking.pop(table, None)
        return [self._follow_leaving(table, taken) for table, taken in keys.items()]

    def find_differing(self) -> Iterator[None]:
        """Look for what differs from what is wanted, in steps: of what was noted, that alone is pending then."""
        for table in self.installed.keys() | self._pending.keys():
            for keys in parts([*self._pending.get(table, ()), *self.installed.get(table, ())]):
                self._compare(table, keys)
                yield

    def _compare(self, table: RouterTable, keys: Iterable[bytes], every: bool = False) -> None:
        """Have those of these prefixes pending that the plane has otherwise than is wanted, or ``every`` one: what is
        wanted of it may not be for the plane."""
        installed, wanted = self.installed.get(table, {}), self._wanted.get(table, {})
        pending, default = self._pending.get(table) or PendingWrites(), default_key(table[1])
        for key in keys:
            have, want = installed.get(key), wanted.get(key)
            if every or have != want:
                pending.note(key, have, want)
            else:
                pending.discard(key)
            if key == default and want is not None and have is None:
                self._lacking[table] = None
            elif key == default:
                self._lacking.pop(table, None)
        if pending:
            self._pending[table] = pending
        else:
            self._pending.pop(table, None)

    # Audits

    def begin_audit(self) -> Mapping[int, set[bytes]]:
        """Return which keys are written from now on, by vrf_id, until `end_audit`; those in flight are."""
        self._audited = defaultdict(set)
        for (vrf_id, _), keys in self._in_flight.items():
            self._audited[vrf_id].update(keys)
        return self._audited

    def end_audit(self) -> None:
        """Note no more what is written."""
        self._audited = None

    def repair(self, table: RouterTable, found: Mapping[bytes, int | None]) -> tuple[int, Leaving | None]:
        """Take what the plane was found to hold; returns how much of it is not as wanted, and is written again."""
        installed, wanted = self.installed.setdefault(table, {}), self._wanted.get(table, {})
        for key, action in found.items():
            if action is None:
                installed.pop(key, None)
            else:
                installed[key] = action
        self._forget_gone(table)
        differing = 0 if table[0] in self.frozen else sum(installed.get(key) != wanted.get(key) for key in found)
        return differing, self.note(table, found)

    def freeze(self, routers: Collection[int]) -> None:
        """Write nothing of these routers until they are unfrozen; of all others, what is wanted."""
        self.frozen.clear()
        self.frozen.update(routers)

    def unfreeze(self, vrf_id: int) -> None:
        """Write what is wanted of a router from now on, if it was frozen."""
        self.frozen.discard(vrf_id)

    def note(self, table: RouterTable, changes: Collection[bytes]) -> Leaving | None:
        """Remember prefixes for which something else is wanted; what was planned of this table is planned anew."""
        if not changes:
            return None
        self._compare(table, changes, every=True)
        if self._planned and (self._planned[0].vrf_id, self._planned[0].family) == table:
            for later in self._planned:
                self._compare(table, later.keys)
            self._planned = []
        return self._follow_leaving(table, changes)

    def retry_deletions(self) -> None:
        """Have what the plane has and is not to have deleted, though it refused that before."""
        for table, keys in list(self._leaving.items()):
            self.note(table, list(keys))

    # Planning

    def plan_default_entry(self) -> None:
        """Plan the default entry of a router that has none: what is not in hardware yet finds the software by it.

        It may come before all that nests in it, because FALLBACK is right for every address.
        """
        table = None if self._planned else next((one for one in self._lacking if one[0] not in self.frozen), None)
        if table is not None:
            default = default_key(table[1])
            self.plan(table, [default])
            self._planned = [RouteUpdates(*table, [Op.INSERT], [default], [FALLBACK])]

    def next_pending(self) -> tuple[RouterTable, Collection[bytes]] | None:
        """Return the table to plan next, and which of its pending prefixes; None where a stage is planned or nothing
        is."""
        if self._planned:
            return None
        table = next((one for one in self._pending if one[0] not in self.frozen), None)
        return None if table is None else (table, self._pending[table].first(PLANNED_AT_ONCE))

    def plan(self, table: RouterTable, keys: Collection[bytes]) -> None:
        """Plan the writes of what `next_pending` has returned."""
        installed, wanted = self.installed.get(table, {}), self._wanted.get(table, {})
        changes = {key: (installed.get(key), wanted.get(key)) for key in keys}
        pending = self._pending[table]
        for key in keys:
            pending.discard(key)
        if not pending:
            del self._pending[table]
        if default_key(table[1]) in changes:
            self._lacking.pop(table, None)
        self._planned = [part for stage in stages(*table, changes) for part in _parts(stage, STAGE_ROUTES)]

    def next_stage(self) -> list[RouteUpdates]:
        """Return the next writes that are planned, of one router and family, which are in flight then; or nothing."""
        if not self._planned:
            return []
        self.generation += 1
        columns = self._planned[0]
        self._in_flight = {(columns.vrf_id, columns.family): frozenset(columns.keys)}
        if self._audited is not None:
            self._audited[columns.vrf_id].update(columns.keys)
        return [columns]

    def confirm(self, stage: list[RouteUpdates], refused: Iterable[Refused]) -> tuple[dict[bytes, Refused], Leaving]:
        """The plane has taken a stage, except what it refused and is returned; what depends on that is pending."""
        (columns,) = stage
        table = columns.vrf_id, columns.family
        without = {one.key: one for one in refused if isinstance(one.key, bytes)}
        self.changes[columns.vrf_id] += len(columns) - len(without)
        self._install(columns, without)
        rest, self._planned = self._planned[1:], []
        if not without:
            self._planned = rest
        for later in rest if without else ():
            self._compare(table, later.keys)
        self._in_flight.pop(table, None)
        return without, self._follow_leaving(table, columns.keys)

    def _install(self, columns: RouteUpdates, without: Collection[bytes]) -> None:
        """Note what the plane has taken, and what of it is not as it is wanted any more.

        There may be such prefixes because the plane may have been adopted anew meanwhile.
        """
        table = columns.vrf_id, columns.family
        installed, taken = self.installed.setdefault(table, {}), []
        for op, key, action in zip(columns.ops, columns.keys, columns.actions, strict=True):
            if key in without:
                continue
            taken.append(key)
            if op is Op.DELETE:
                installed.pop(key, None)
            else:
                installed[key] = action
        self._compare(table, taken)
        self._forget_gone(table)

    def _forget_gone(self, table: RouterTable) -> None:
        """Forget a table of which nothing is wanted, and nothing there."""
        if table not in self._wanted and not self.installed.get(table):
            self.installed.pop(table, None)

    def _follow_leaving(self, table: RouterTable, keys: Iterable[bytes]) -> Leaving:
        """See which of these the plane has, or may be given just now, though they are not wanted any more."""
        installed, wanted = self.installed.get(table, {}), self._wanted.get(table, {})
        in_flight, leaving = self._in_flight.get(table, ()), self._leaving.pop(table, set())
        before = len(leaving)
        for key in keys:
            if key not in wanted and (key in installed or key in in_flight):
                leaving.add(key)
            else:
                leaving.discard(key)
        if leaving:
            self._leaving[table] = leaving
        return Leaving(table, len(leaving), len(leaving) < before)


def _parts(stage: RouteUpdates, size: int) -> Iterator[RouteUpdates]:
    for start in range(0, len(stage), size):
        part = slice(start, start + size)
        yield RouteUpdates(stage.vrf_id, stage.family, stage.ops[part], stage.keys[part], stage.actions[part])
