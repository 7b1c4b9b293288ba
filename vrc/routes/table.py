"""The VRC's route table: prefix key → binding, and which prefixes the controller has to be told about.

Changes are coalesced: a prefix that changes twice before its turn is sent once, as it is then. So memory is bounded
by the number of prefixes, however far the session lags behind.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import islice

from vrc.errors import MalformedNetlink
from vrc.netlink import _loops
from vrc.netlink.requests import NLM_F_EXCL, NLM_F_REPLACE
from vrc.netlink.route_messages import NLM_F_MULTI, RTM_DELNEXTHOP, RTM_NEWROUTE, Change, decode_shape
from vrc.routes.nexthops import Binding, NexthopScope, NexthopSets
from vrc.routes.system_routes import SystemRoutes, is_chosen_system, is_system, never_mirrored

MAX_ROUTES = 4_000_000
"""Most prefixes kept; more are counted as `full`."""

_STRIDE = {5: 4, 17: 6}
# First octets of the prefixes that are never mirrored, or not all of them.
_ODD = frozenset((127, 169, *range(224, 256)))


@dataclass(slots=True)
class Columns:
    """Up to a message full of changes of one family: prefix keys and set ids (0: withdrawn)."""

    family: int
    keys: list[bytes] = field(default_factory=list)
    ids: list[int] = field(default_factory=list)


@dataclass(slots=True)
class RouteCounters:
    """What was not mirrored, by reason."""

    ignored_prefix: int = 0
    malformed: int = 0
    foreign_table: int = 0
    full: int = 0


class RouteTable:
    """Routes as learned from one source, with the changes that are still to be sent."""

    def __init__(
        self, sets: NexthopSets, usable: Callable[[int], int], is_dark: Callable[[int], bool] = lambda _: False
    ) -> None:
        self.sets = sets
        self.counters = RouteCounters()
        self.problem = ""  # of the last malformed message
        self.ambiguous = False  # the kernel said something only a dump can explain
        self.withdrawn: set[bytes] | None = None  # what `apply` removed since the dump that `adopt` takes in began
        self.system = SystemRoutes(sets, usable, is_dark)  # of the kernel, for the prefixes that zebra left to it
        self._own_scopes: list[NexthopScope] = []
        self._awaited: set[bytes] = set()  # left to the kernel, which has no route for them
        self._usable = usable
        self._routes: dict[bytes, Binding] = {}
        self._others: dict[bytes, dict[int, Binding]] = {}  # of higher metric than the one in _routes
        self._several: set[bytes] = set()  # of which the kernel has several of one metric, and one is kept
        self._dirty: dict[int, dict[bytes, int]] = {5: {}, 17: {}}
        self._resend: list[bytes] = []
        self._repeat = False
        self.limit = MAX_ROUTES

    def __len__(self) -> int:
        return len(self._routes)

    def __contains__(self, key: bytes) -> bool:
        return key in self._routes

    @property
    def scopes(self) -> list[NexthopScope]:
        """All that bindings may be of."""
        return [*self._own_scopes, self.system.scope]

    def find(self, key: bytes) -> int:
        """Return the set id of a prefix, 0 where there is none."""
        binding = self._routes.get(key)
        return binding.set_id if binding is not None else 0

    def open_scope(self, *, inline_first: bool = False) -> NexthopScope:
        """Begin a new life of nexthop ids; routes of earlier ones stay until they are replaced or removed."""
        scope = NexthopScope(self.sets, self._usable, inline_first=inline_first)
        self._own_scopes.append(scope)
        return scope

    def apply(self, changes: list[Change], scope: NexthopScope) -> None:
        """Take in FPM's changes: one route a prefix, the last word counts. What is usual is done in C."""
        dirty4, dirty6 = self._dirty.values()
        table, position = (self._routes, dirty4, dirty6, self.withdrawn, self.limit), 0
        while (position := _loops.bind(changes, position, scope.bindings, *table)) < len(changes):
            self._apply_odd(changes[position], scope)
            position += 1
        self._repoint(scope.settle())
        scope.sweep()

    def _apply_odd(self, change: Change, scope: NexthopScope) -> None:
        kind, key, shape, _ = change
        if kind != RTM_NEWROUTE:
            self._change_nexthop(scope, kind, shape)
        elif not (key[0] in _ODD and self._ignored(key)):
            if is_chosen_system(shape):
                self._leave_to_kernel(key)
                return
            binding = self._bind(scope, shape)
            if binding is not None:
                self._set(key, binding)

    def _leave_to_kernel(self, key: bytes) -> None:
        binding = self.system.find(key)
        if binding is not None:
            self._awaited.discard(key)
            self._set(key, binding)
            return
        self._remove(key)
        if len(self._awaited) < self.limit:
            self._awaited.add(key)

    def follow_system(self) -> None:
        """Let the prefixes that zebra left to the kernel be as they are there now."""
        changed, self.system.changed = self.system.changed, set()
        for key in changed:
            held = self._routes.get(key)
            left_to_it = key in self._awaited if held is None else held.scope is self.system.scope
            if left_to_it and held is not self.system.find(key):
                self._leave_to_kernel(key)

    def _remove(self, key: bytes) -> None:
        old = self._routes.pop(key, None)
        if old is not None:
            old.routes -= 1
            if old.set_id:
                self._dirty[len(key)][key] = 0

    def _bind(self, scope: NexthopScope, shape: bytes) -> Binding | None:
        try:
            return scope.bind(shape)
        except MalformedNetlink as error:
            self._malformed(error)
            return None

    def _change_nexthop(self, scope: NexthopScope, kind: int, body: bytes) -> None:
        try:
            scope.change(kind, body)
        except MalformedNetlink as error:
            self._malformed(error)

    def _malformed(self, error: MalformedNetlink) -> None:
        self.counters.malformed += 1
        self.problem = str(error)

    def _ignored(self, key: bytes) -> bool:
        if never_mirrored(key):
            self.counters.ignored_prefix += 1
            return True
        return False

    def _set(self, key: bytes, binding: Binding) -> None:
        old = self._routes.get(key)
        if old is binding:
            return
        if old is None and len(self._routes) >= self.limit:
            self.counters.full += 1
            return
        self._routes[key] = binding
        binding.routes += 1
        if old is not None:
            old.routes -= 1
        if (old.set_id if old is not None else 0) != binding.set_id:
            self._dirty[len(key)][key] = binding.set_id

    def apply_kernel(self, changes: Iterable[Change], scope: NexthopScope) -> None:
        """Take in the kernel's changes: it keeps several routes of different metrics for a prefix, and the lowest
        metric is in force. `ambiguous` is set where only a new dump can tell what is left."""
        for kind, key, shape, flags in changes:
            if not key:
                if kind == RTM_DELNEXTHOP:
                    self.ambiguous = True  # IPv4 routes of a removed nexthop go without a message
                self._change_nexthop(scope, kind, shape)
            elif not (key[0] in _ODD and self._ignored(key)):
                if kind == RTM_NEWROUTE:
                    binding = self._bind(scope, shape)
                    if binding is not None:
                        self._add_candidate(key, binding, flags)
                else:
                    self._remove_candidate(key, shape, scope)
        self._repoint(scope.settle())
        scope.sweep()

    def _add_candidate(self, key: bytes, binding: Binding, flags: int) -> None:
        best = self._routes.get(key)
        metric = binding.spec.metric
        if best is None or best.scope is not binding.scope:
            self._drop_others(key)
            self._set(key, binding)
        elif metric == best.spec.metric:
            if not self._is_beside(key, best, binding, flags):
                self._set(key, binding)
        elif metric < best.spec.metric:
            best.routes += 1
            self._others.setdefault(key, {})[best.spec.metric] = best
            self._set(key, binding)
        else:
            self._replace_other(key, metric, binding, flags)

    def _replace_other(self, key: bytes, metric: int, binding: Binding, flags: int) -> None:
        others = self._others.setdefault(key, {})
        old = others.get(metric)
        if old is not None:
            if self._is_beside(key, old, binding, flags):
                return
            old.routes -= 1
        binding.routes += 1
        others[metric] = binding

    def _is_beside(self, key: bytes, kept: Binding, added: Binding, flags: int) -> bool:
        """Whether the kernel has another route of equal metric beside the one that is kept. Which of them is in force
        a dump tells, which lists that one first."""
        if added is kept or flags & NLM_F_EXCL or (len(key) == 17 and added.spec.grown_from(kept.spec)):
            return False
        if flags & NLM_F_REPLACE:
            self.ambiguous |= key in self._several  # in the place of the first, or of another
            return False
        self._several.add(key)
        self.ambiguous |= not flags & NLM_F_MULTI
        return True

    def _remove_candidate(self, key: bytes, shape: bytes, scope: NexthopScope) -> None:
        best = self._routes.get(key)
        if best is None:
            return
        known = scope.bindings.get(shape)
        try:
            spec = known.spec if known is not None else decode_shape(shape)
        except MalformedNetlink as error:
            self._malformed(error)
            return
        others = self._others.get(key, {})
        kept = best if spec.metric == best.spec.metric else others.get(spec.metric)
        if kept is None:
            return
        if key in self._several or not (known is kept or kept.spec.same_ways(spec)):
            self.ambiguous = True  # another one is left, or some of its ways, or what is kept came later
        elif kept is not best:
            del others[spec.metric]
            kept.routes -= 1
        elif others:
            heir = others.pop(min(others))
            heir.routes -= 1
            self._set(key, heir)
        else:
            self._remove(key)
        if not others:
            self._others.pop(key, None)

    def _drop_others(self, key: bytes) -> None:
        self._several.discard(key)
        for binding in self._others.pop(key, {}).values():
            binding.routes -= 1

    def adopt(self, changes: Iterable[Change], scope: NexthopScope, current: NexthopScope | None) -> None:
        """Bind routes of a kernel dump to its ``scope`` where they are absent or stale, that is, of another scope
        than the ``current`` one. The dump lists the routes of a prefix by metric, so the first one counts; what it
        lists and zebra has `withdrawn` meanwhile is gone, and so is what is the kernel's own, over links without
        carrier."""
        withdrawn = self.withdrawn or ()
        for kind, key, shape, _ in changes:
            if kind != RTM_NEWROUTE:
                if not key:
                    self._change_nexthop(scope, kind, shape)
            elif key not in withdrawn and not (key[0] in _ODD and never_mirrored(key)):
                old = self._routes.get(key)
                if old is None or old.scope not in (scope, current, self.system.scope):
                    binding = self._bind(scope, shape)
                    if binding is not None and not (is_system(shape) and self.system.is_dark(binding)):
                        self._set(key, binding)

    def keep_only(self, *scopes: NexthopScope | None) -> int:
        """Withdraw the routes of every other scope; return how many."""
        kept = (*scopes, self.system.scope)
        stale = [key for key, binding in self._routes.items() if binding.scope not in kept]
        for key in stale:
            self._drop_others(key)
            self._remove(key)
        for scope in [scope for scope in self._own_scopes if scope not in scopes]:
            scope.sweep(force=True)
            self._own_scopes.remove(scope)
        return len(stale)

    def refresh(self) -> None:
        """Resolve all routes anew, as when a link or the declaration changed."""
        for scope in self.scopes:
            self._repoint(scope.resolve())

    def settle(self) -> None:
        """Let routes follow nexthops that changed by other ways than `apply`."""
        for scope in self.scopes:
            self._repoint(scope.settle())

    def sweep(self) -> None:
        """Release the nexthop sets that no route uses any more, and what is left of scopes that have ended."""
        for scope in self.scopes:
            scope.sweep(force=True)
        self._own_scopes = [scope for scope in self._own_scopes if scope.bindings or not scope.ended]

    def _repoint(self, changed: set[Binding]) -> None:
        if changed:
            dirty = self._dirty
            for key, binding in self._routes.items():
                if binding in changed:
                    dirty[len(key)][key] = binding.set_id

    def gateways(self) -> set[tuple[int, bytes]]:
        """Return (ifindex, gateway) of every gateway in use."""
        return set().union(*(scope.gateways() for scope in self.scopes))

    def elsewhere(self) -> set[int]:
        """Return the ifindexes of links that are no interfaces of the router, and by which routes lead."""
        return set().union(*(scope.elsewhere() for scope in self.scopes))

    def begin_resend(self) -> None:
        """Have `take` return every route once more, as for a new session; withdrawals before it are forgotten."""
        self._dirty = {5: {}, 17: {}}
        self._resend = sorted(self._routes, key=len, reverse=True)  # taken from the end: IPv4 first

    def resend_changed(self) -> bool:
        """Make the routes that have changed until now a part of the resend, which must have ended; what changes from
        now on is not. Returns whether there are any."""
        for stride, dirty in self._dirty.items():
            self._dirty[stride] = {key: 0 for key, set_id in dirty.items() if not set_id}
            self._resend[:0] = [key for key, set_id in dirty.items() if set_id]  # IPv4 first, as it is taken
        return self.resending

    @property
    def pending(self) -> bool:
        """Whether `take` has anything to return."""
        return bool(self._resend or self._dirty[5] or self._dirty[17])

    @property
    def resending(self) -> bool:
        """Whether routes of `begin_resend` or `resend_changed` are still to be taken."""
        return bool(self._resend)

    def take(self, limit: int) -> Columns | None:
        """Return at most ``limit`` changes of one family, None without any."""
        self._repeat = not self._repeat  # by turns: neither may starve the other
        if self._repeat:
            return self._take_resend(limit) or self._take_dirty(limit)
        return self._take_dirty(limit) or self._take_resend(limit)

    def _take_dirty(self, limit: int) -> Columns | None:
        for stride, dirty in self._dirty.items():
            if len(dirty) > limit:
                keys = list(islice(dirty, limit))
                return Columns(_STRIDE[stride], keys, [dirty.pop(key) for key in keys])
            if dirty:
                self._dirty[stride] = {}
                return Columns(_STRIDE[stride], list(dirty), list(dirty.values()))
        return None

    def _take_resend(self, limit: int) -> Columns | None:
        find = self._routes.get
        while self._resend:
            stride = len(self._resend[-1])
            chunk = [key for key in self._resend[-limit:] if len(key) == stride]  # the other family waits
            del self._resend[-len(chunk) :]
            columns = Columns(_STRIDE[stride])
            for key in chunk:
                binding = find(key)
                if binding is not None and binding.set_id:
                    columns.keys.append(key)
                    columns.ids.append(binding.set_id)
            if columns.keys:
                return columns
        return None
