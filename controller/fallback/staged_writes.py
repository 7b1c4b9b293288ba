"""What the route tables of a plane hold, and the writes that lead from there to what is wanted.

    prefixes that may differ (due) ─► stages of one router and family (plan) ─► being written (flying) ─► held

Pure: `next_stage` gives updates that a plane may take in any order, and `confirm` tells what became of them. Between
two stages every address is forwarded as before or as after.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping

from controller.planes.base import FALLBACK, ROUTE_TABLE_NAME, Op, Refused, RouteUpdates
from controller.route_cache.write_order import changes_between, stages
from wire.columns import ADDRESS_BYTES, family_of

STAGE_ROUTES = 1000
"""Most routes in one write: about 10 ms of Open vSwitch's main thread, which also forwards."""

Place = tuple[int, int]
"""(vrf_id, family)"""


class TableWrites:
    """Follows the tables of all routers.

    ``wanted`` gives what one place is to hold now. ``revise`` is shown prefixes of a place before they are planned,
    and tells whether it wants something else of them now. ``left`` hears how many entries of a place the plane has,
    or is being given, that are not wanted any more, and whether these have become fewer.
    """

    def __init__(
        self,
        wanted: Callable[[int, int], Mapping[bytes, int]],
        revise: Callable[[Place, Collection[bytes]], bool],
        left: Callable[[Place, int, bool], None],
    ) -> None:
        self.held: dict[Place, dict[bytes, int]] = {}
        self.generation = 0  # counts what was sent
        self.changes: Counter[int] = Counter()  # routes written, by vrf_id
        self.frozen: set[int] = set()  # routers whose entries stay as they are
        self._wanted, self._revise, self._left = wanted, revise, left
        self._leaving: dict[Place, set[bytes]] = {}  # what it has, or is being given, and is not wanted any more
        self._flying: dict[Place, frozenset[bytes]] = {}  # what is being written
        self._due: dict[Place, set[bytes]] = {}  # prefixes that may differ
        self._plan: list[RouteUpdates] = []  # what of them comes next, in the order of stages

    @property
    def idle(self) -> bool:
        """Whether the plane holds what is wanted, as far as is known, and nothing is under way to it."""
        return not self._plan and not any(vrf_id not in self.frozen for vrf_id, _ in self._due)

    def waits(self, vrf_id: int) -> bool:
        """Tell whether anything of a router is still to be written."""
        return any(one == vrf_id for one, _ in self._due) or bool(self._plan and self._plan[0].vrf_id == vrf_id)

    def count(self, vrf_id: int) -> int:
        """Return how many entries the plane holds of a router."""
        return sum(len(self.held.get((vrf_id, family), ())) for family in ROUTE_TABLE_NAME)

    def believe(self, read: Mapping[int, Mapping[bytes, int]]) -> None:
        """Take what the plane was read to hold, by vrf_id; nothing is known to differ yet."""
        self.held, self._due, self._plan, self._flying = {}, {}, [], {}
        for vrf_id, routes in read.items():
            for key, action in routes.items():
                self.held.setdefault((vrf_id, family_of(key)), {})[key] = action
        places, self._leaving = self._leaving.keys() | self.held.keys(), {}
        for place in places:
            self._follow_leaving(place, self.held.get(place, ()))

    def compare(self, routers: Iterable[int]) -> int:
        """Look for what differs from what is wanted: that is due. Returns how many entries that are."""
        found = 0
        for vrf_id in routers:
            for family in ROUTE_TABLE_NAME:
                differing = changes_between(self.held.get((vrf_id, family), {}), self._wanted(vrf_id, family))
                if differing:
                    self._due[vrf_id, family] = set(differing)
                    found += 0 if vrf_id in self.frozen else len(differing)
        return found

    def thaw(self, vrf_id: int) -> None:
        """Write what is wanted of a router from now on, if it was frozen."""
        if vrf_id in self.frozen:
            self.frozen.discard(vrf_id)
            self.compare([vrf_id])

    def note(self, place: Place, changes: Collection[bytes]) -> None:
        """Remember prefixes whose place has changed; what was planned of the same router is planned anew."""
        if not changes:
            return
        due = self._due.setdefault(place, set())
        due.update(changes)
        if self._plan and (self._plan[0].vrf_id, self._plan[0].family) == place:
            for later in self._plan:
                due.update(later.keys)
            self._plan = []
        self._follow_leaving(place, changes)

    def next_stage(self) -> list[RouteUpdates]:
        """Return the next writes, of one router and family; nothing where the plane holds what it should."""
        if not self._plan:
            self._plan = self._default_entry()
        while not self._plan and (place := self._next_place()) is not None:
            keys = self._due[place]
            if self._revise(place, keys):
                continue
            del self._due[place]
            held, wanted = self.held.setdefault(place, {}), self._wanted(*place)
            changes = {key: (held.get(key), wanted.get(key)) for key in keys}
            self._plan = [part for stage in stages(*place, changes) for part in _parts(stage, STAGE_ROUTES)]
        if not self._plan:
            return []
        self.generation += 1
        columns = self._plan[0]
        self._flying = {(columns.vrf_id, columns.family): frozenset(columns.keys)}
        return [columns]

    def _next_place(self) -> Place | None:
        return next((place for place in self._due if place[0] not in self.frozen), None)

    def _default_entry(self) -> list[RouteUpdates]:
        """Return the default entry of a router that has none: what is not in hardware yet finds the software by it.

        It may come before all that nests in it, because FALLBACK is right for every address.
        """
        for (vrf_id, family), keys in self._due.items():
            default, held = bytes(ADDRESS_BYTES[family] + 1), self.held.get((vrf_id, family), {})
            if (
                vrf_id not in self.frozen
                and default in keys
                and default not in held
                and default in self._wanted(vrf_id, family)
            ):
                keys.discard(default)
                return [RouteUpdates(vrf_id, family, [Op.INSERT], [default], [FALLBACK])]
        return []

    def confirm(self, stage: list[RouteUpdates], refused: Iterable[Refused]) -> dict[bytes, Refused]:
        """The plane has taken a stage, but for what it refused and is returned; what hangs on that is due again."""
        (columns,) = stage
        place = columns.vrf_id, columns.family
        without = {one.key: one for one in refused if isinstance(one.key, bytes)}
        held, wanted = self.held.setdefault(place, {}), self._wanted(*place)
        otherwise = set()  # not as it is wanted any more: it may have been adopted anew meanwhile
        self.changes[columns.vrf_id] += len(columns) - len(without)
        for op, key, action in zip(columns.ops, columns.keys, columns.actions, strict=True):
            if key in without:
                continue
            if op is Op.DELETE:
                held.pop(key, None)
            else:
                held[key] = action
            if held.get(key) != wanted.get(key):
                otherwise.add(key)
        rest, self._plan = self._plan[1:], []
        if not without:
            self._plan = rest
        else:
            otherwise.update(key for later in rest for key in later.keys)
        if otherwise:
            self._due.setdefault(place, set()).update(otherwise)
        self._flying.pop(place, None)
        self._follow_leaving(place, columns.keys)
        return without

    def _follow_leaving(self, place: Place, keys: Iterable[bytes]) -> None:
        """See which of these the plane has, or may be given just now, though they are not wanted any more."""
        held, wanted, flying = self.held.get(place, {}), self._wanted(*place), self._flying.get(place, ())
        leaving = self._leaving.pop(place, set())
        before = len(leaving)
        for key in keys:
            if key not in wanted and (key in held or key in flying):
                leaving.add(key)
            else:
                leaving.discard(key)
        if leaving:
            self._leaving[place] = leaving
        self._left(place, len(leaving), len(leaving) < before)


def _parts(stage: RouteUpdates, size: int) -> Iterable[RouteUpdates]:
    for start in range(0, len(stage), size):
        part = slice(start, start + size)
        yield RouteUpdates(stage.vrf_id, stage.family, stage.ops[part], stage.keys[part], stage.actions[part])
