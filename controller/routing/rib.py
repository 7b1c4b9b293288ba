"""The RIB of one virtual router: what its VRC learned, with the marks of a resync.

Routes point at interned `NexthopSet` objects, so a million routes share a few sets and a set's resolution reaches
them all at once. Ids of sets are the VRC's; they hold for one Control stream.
"""

from array import array
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum

from controller.errors import SessionRefused
from controller.model import Quota
from controller.routing import _routes
from controller.routing.repeated_keys import RepeatedKeys
from controller.routing.usage import SliceUsage
from wire.columns import family_of

MAX_SETS = 65_536
"""Most nexthop sets one VRC may name at a time."""

MAX_MEMBERS = 256
"""Most members of one set: FRR's multipath limit."""

MAX_KEPT_SETS, MAX_KEPT_MEMBERS = 2 * MAX_SETS, 8 * MAX_SETS
"""Most sets, and most members of all of them, that are kept; those that the VRC has let go stay until `collect`."""

COLLECT_AT_ONCE = 4096
"""Members, and so many sets at most, that one `collect` passes over: some milliseconds."""

_FORGET_COST = 4
"""What it costs to forget a name, or a key that was repeated, in tenths of a microsecond."""


class SetKind(IntEnum):
    """What the routes of a set do (the numbers of wire's NexthopSet.Kind)."""

    FORWARD = 0
    CONNECTED = 1
    BLACKHOLE = 2
    UNREACHABLE = 3


@dataclass(frozen=True, slots=True, order=True)
class Member:
    """One way out: a router interface, the gateway on it (empty: on link) and its weight."""

    interface_id: int
    gateway: bytes
    weight: int = 1


class NexthopSet:
    """The nexthops that routes share, and how the FIB resolved them.

    `action` is the route action of contract terms; 0 while the set's routes are not to be installed.
    `names` counts the VRC's ids for it. `shares` is set once routes of this set were left on an older object that
    forwards equally.
    """

    __slots__ = ("action", "content", "kind", "members", "names", "routes", "shares")

    def __init__(self, kind: SetKind, members: tuple[Member, ...]) -> None:
        self.kind = kind
        self.members = members
        self.routes = 0
        self.names = 0
        self.action = 0
        self.content: tuple[object, ...] = ()
        self.shares = False


class Rib:
    """Learned routes by prefix key, and the sets they use; what they take is counted in the slice's usage.

    A set that a quota has no room for is named all the same, so that the VRC's session goes on: it means
    `unkept_set`, and routes that use it are learned and not installed.
    """

    def __init__(self, usage: SliceUsage | None = None) -> None:
        self._usage = usage or SliceUsage(Quota())
        self.routes: dict[bytes, NexthopSet] = {}
        self.counts = {4: 0, 6: 0}
        self.connected: dict[bytes, NexthopSet] = {}  # of these, those to what is on a link
        self.connected_moved = False  # whether any of these came, went or changed; whoever follows them unsets it
        self._connected_lengths = {4: Counter[int](), 6: Counter[int]()}
        self.moved = 0  # keys put in and taken out so far, or more
        self.names: dict[int, NexthopSet] = {}  # by the VRC's id
        self.unkept = {4: 0, 6: 0}  # routes that there was no room for since the resync began
        self._interned: dict[tuple[SetKind, tuple[Member, ...]], NexthopSet] = {}
        self._members = 0  # of all sets
        self.unkept_set = NexthopSet(SetKind.UNREACHABLE, ())  # never resolved
        self.unkept_set.names = 1  # never collected
        self.unkept_sets: dict[int, str] = {}  # the quota that had no room, by the VRC's id
        self._named_then = 0  # sets, when the latest had no room
        self._quota_then = self._usage.quota
        self._loose: dict[NexthopSet, None] = {}  # that lost a route or a name: all that `collect` looks at
        self._repeated: RepeatedKeys | None = None  # in the resync under way; all other routes are stale
        self._named = [0, 0]  # sets that have a name, and their members
        self._left: list[RepeatedKeys | dict[int, NexthopSet]] = []  # of earlier resyncs and sessions

    @property
    def crowded(self) -> bool:
        """Whether there may be no room for another set before the next `collect`."""
        return len(self._interned) >= MAX_KEPT_SETS or self._members > MAX_KEPT_MEMBERS - MAX_MEMBERS

    @property
    def sets(self) -> Iterable[NexthopSet]:
        """All sets that a route or the VRC's session refers to."""
        return self._interned.values()

    @property
    def loose(self) -> bool:
        """Whether there is anything for `collect` to look at."""
        return bool(self._loose)

    def begin_resync(self) -> None:
        """Make every route stale that is not repeated from now on. Ids of sets start afresh."""
        self.end_resync()
        if self.routes:
            self._repeated = RepeatedKeys(len(self.routes))
        self._left.append(self.names)
        self.names, self.unkept_sets = {}, {}
        self._usage.sets -= self._named[0]
        self._usage.members -= self._named[1]
        self._named = [0, 0]
        self.unkept = {4: 0, 6: 0}

    def end_resync(self) -> None:
        """Make no route stale any more."""
        if self._repeated is not None:
            self._left.append(self._repeated)
            self._repeated = None

    def is_stale(self, key: bytes) -> bool:
        """Tell whether a route was not repeated yet in the resync under way."""
        return self._repeated is not None and key in self.routes and key not in self._repeated

    @property
    def has_left(self) -> bool:
        """Whether there is anything for `forget_left`."""
        return bool(self._left)

    def forget_left(self, cost: int) -> int:
        """Forget some of what is left of earlier sessions; returns the cost that is not used up."""
        while self._left and cost > 0:
            last = self._left[-1]
            if isinstance(last, RepeatedKeys):
                forgotten = last.shrink()
            else:
                forgotten = min(len(last), cost // _FORGET_COST + 1)
                self._unname(last.popitem()[1] for _ in range(forgotten))
            cost -= forgotten * _FORGET_COST
            if not forgotten:
                self._left.pop()
        return cost

    def _unname(self, sets: Iterable[NexthopSet]) -> None:
        for one in sets:
            if one is not self.unkept_set:
                one.names -= 1
                self._loose[one] = None

    def define(self, set_id: int, kind: SetKind, members: Iterable[Member]) -> NexthopSet | None:
        """Name a set; returns it where its content is new, so that it can be resolved.

        SessionRefused for id 0, an id that means something else already, or more than there may be.
        """
        if set_id == 0:
            raise SessionRefused("nexthop set 0 is reserved for withdrawal")
        content = (kind, tuple(sorted(members)))
        known = self._interned.get(content)
        named = self.names.get(set_id)
        if set_id in self.unkept_sets:
            return None
        if named is not None and named is not known:
            raise SessionRefused(f"nexthop set {set_id} was defined before with other members")
        if named is None and len(self.names) >= MAX_SETS:
            raise SessionRefused(f"more than {MAX_SETS} nexthop sets")
        if named is None and (reason := self._usage.refuses_set(len(content[1]), known is None)):
            self.names[set_id], self.unkept_sets[set_id] = self.unkept_set, reason
            self._named_then, self._quota_then = len(self.names) - len(self.unkept_sets), self._usage.quota
            return None
        if known is not None:
            self._name(set_id, known)
            return None
        if self.crowded:
            raise SessionRefused(f"more than {MAX_KEPT_SETS} nexthop sets or {MAX_KEPT_MEMBERS} members of them")
        self._members += len(content[1])
        self._usage.kept_sets += 1
        self._usage.kept_members += len(content[1])
        fresh = self._interned[content] = NexthopSet(*content)
        self._name(set_id, fresh)
        return fresh

    def _name(self, set_id: int, one: NexthopSet) -> None:
        if set_id not in self.names:
            self.names[set_id] = one
            one.names += 1
            self._count_named(1, len(one.members))

    def _count_named(self, sets: int, members: int) -> None:
        self._named[0] += sets
        self._named[1] += members
        self._usage.sets += sets
        self._usage.members += members

    @property
    def room_for_sets(self) -> bool:
        """Whether what kept sets out may be over: a larger quota, or as many of its own that went."""
        quota, then = self._usage.quota, self._quota_then
        larger = any(getattr(quota, name) > getattr(then, name) for name in ("sets", "members", "memory"))
        return bool(self.unkept_sets) and (larger or len(self.names) <= self._named_then)

    def release(self, set_ids: Iterable[int]) -> None:
        """Forget names; a set goes with its last route."""
        for set_id in set_ids:
            one = self.names.pop(set_id, None)
            if self.unkept_sets.pop(set_id, None) is None and one is not None:
                self._count_named(-1, -len(one.members))
                self._unname((one,))

    def admit(self, family: int, keys: list[bytes], set_ids: "array[int]", most: int) -> list[int]:
        """Return the positions of a Routes message that there is room for, with at most ``most`` routes of a family.

        Withdrawals and changes always have room. What has none is counted in `unkept`. SessionRefused as `replace`.
        """
        if unknown := set(set_ids) - self.names.keys() - {0}:
            raise SessionRefused(_undefined(min(unknown)))
        room, routes, admitted = most - self.counts[family], self.routes, []
        for position, (key, set_id) in enumerate(zip(keys, set_ids, strict=True)):
            if set_id and key not in routes:
                if room <= 0:
                    self.unkept[family] += 1
                    continue
                room -= 1
            admitted.append(position)
        return admitted

    def replace(self, family: int, keys: list[bytes], set_ids: "array[int]") -> list[bytes]:
        """Apply one Routes message, ids being 32-bit numbers; returns the keys whose set changed.

        SessionRefused where a set id is not defined: nothing of the message is applied.
        """
        try:
            changed, more, left = _routes.replace(keys, set_ids, self.names, self.routes)
        except KeyError as unknown:
            raise SessionRefused(_undefined(unknown.args[0])) from None
        self.counts[family] += more
        self._usage.learned += more
        for one in left:
            if not one.routes:
                self._loose[one] = None
        self.moved += len(changed)
        if _any_connected(left) or _any_connected(self.names[one] for one in set(set_ids) if one):
            self._note_connected(changed)
        if self._repeated is not None:
            self._repeated.add(keys)
        return changed

    def withdraw(self, keys: Iterable[bytes]) -> list[bytes]:
        """Withdraw those of these routes that are stale; returns their keys."""
        gone = [key for key in keys if self.is_stale(key)]
        for key in gone:
            one = self.routes.pop(key)
            one.routes -= 1
            if not one.routes:
                self._loose[one] = None
            self.counts[4 if len(key) == 5 else 6] -= 1
        self._usage.learned -= len(gone)
        self.moved += len(gone)
        if not self.connected.keys().isdisjoint(gone):
            self._note_connected(gone)
        return gone

    def _note_connected(self, changed: Iterable[bytes]) -> None:
        for key in changed:
            before, one = self.connected.pop(key, None), self.routes.get(key)
            now = one if one is not None and one.kind is SetKind.CONNECTED else None
            if now is not None:
                self.connected[key] = now
            if before is not now:
                self.connected_moved = True
                self._connected_lengths[family_of(key)][key[-1]] += (now is not None) - (before is not None)

    def shortest_connected(self, family: int) -> int | None:
        """Return the least length of a route to what is on a link, None without one."""
        return min((bits for bits, count in self._connected_lengths[family].items() if count), default=None)

    def connected_to(self, address: bytes) -> NexthopSet | None:
        """Return the set of the longest route to an address, where the address is on a link by it."""
        size = 8 * len(address)
        shortest = self.shortest_connected(4 if size == 32 else 6)
        if shortest is None:
            return None
        number = int.from_bytes(address, "big")
        for bits in range(size, shortest - 1, -1):
            network = number >> (size - bits) << (size - bits)
            one = self.routes.get(network.to_bytes(len(address), "big") + bytes((bits,)))
            if one is not None:
                return one if one.kind is SetKind.CONNECTED else None
        return None

    def collect(self) -> list[NexthopSet]:
        """Drop sets that neither a route nor a name uses any more, and return them.

        It looks at those alone that have lost one since it last did, and at `COLLECT_AT_ONCE`: each of them was paid
        for by the message that took it away, and the rest waits for the next call (`loose`).
        """
        unused, passed = [], 0
        while self._loose and passed < COLLECT_AT_ONCE:
            one, _ = self._loose.popitem()
            passed += 1
            if not one.routes and not one.names:
                passed += len(one.members)
                del self._interned[one.kind, one.members]
                self._members -= len(one.members)
                self._usage.kept_sets -= 1
                self._usage.kept_members -= len(one.members)
                unused.append(one)
        return unused


def _any_connected(sets: Iterable[NexthopSet]) -> bool:
    return any(one.kind is SetKind.CONNECTED for one in sets)


def _undefined(set_id: int) -> str:
    return f"routes use nexthop set {set_id}, which is not defined"
