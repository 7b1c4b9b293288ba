"""What a fallback has lost, or still has, unlike the hardware in front of it: one of the two was away.

The software's tables are the truth, unless it has lost them: its host was restarted, and nobody knows all routes
until the guests have repeated theirs. What the hardware forwards by is right as it is until then.

And the other way round: what it still has because it could not be told (`Withdrawn`).
"""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping
from itertools import count
from typing import TypeVar

from controller.fallback.pace import STEP_ROUTES, parts
from controller.planes.base import (
    FALLBACK,
    UNREACHABLE,
    Installed,
    Nexthop,
    NexthopGroup,
    Op,
    Policer,
    Refused,
    RouterInterface,
    Update,
    WriteBatch,
)
from controller.route_cache.prefix_tree import PrefixTree
from wire.columns import ADDRESS_BYTES, family_of

E = TypeVar("E", RouterInterface, Nexthop, NexthopGroup, Policer)


def has_lost_routes(hardware: Mapping[bytes, int], software: Collection[bytes]) -> Generator[None, None, bool]:
    """Tell, in steps, whether the hardware forwards addresses of a router that the software has no route for."""
    aggregated = []
    for part in parts(hardware.items()):
        aggregated += [key for key, action in part if key not in software and action not in (FALLBACK, UNREACHABLE)]
        yield
    for family in ADDRESS_BYTES if aggregated else ():
        cover = _Cover(family)
        yield from cover.add(software)
        for key in aggregated:
            if family_of(key) == family and not (yield from cover.whole(key)):
                return True
            yield
    return False


class _Cover:
    """Tells what the routes of one family leave uncovered."""

    def __init__(self, family: int) -> None:
        self._size = ADDRESS_BYTES[family]
        self._bits = 8 * self._size
        self._known: Collection[bytes] = ()
        self._keys: list[bytes] = []  # sorted
        self._lengths: list[int] = []

    def add(self, routes: Collection[bytes]) -> Iterator[None]:
        """Take all routes, of any family, in steps."""
        sorting: defaultdict[bytes, list[bytes]] = defaultdict(list)  # by the first octets
        for part in parts(routes):
            for key in part:
                if len(key) == self._size + 1:
                    sorting[key[:2]].append(key)
            yield
        lengths = set[int]()
        for _, keys in sorted(sorting.items()):
            lengths.update(key[-1] for key in keys)
            self._keys += sorted(keys)
            yield
        self._known, self._lengths = routes, sorted(lengths)

    def whole(self, key: bytes) -> Generator[None, None, bool]:
        """Tell, in steps, whether each address of a prefix has a route."""
        return key in self._known or self._around(key) or (yield from self._inside(key))

    def _around(self, key: bytes) -> bool:
        address = int.from_bytes(key[:-1], "big")
        for length in self._lengths:
            host = self._bits - length
            if length >= key[-1]:
                return False
            if (address >> host << host).to_bytes(self._size, "big") + bytes((length,)) in self._known:
                return True
        return False

    def _inside(self, key: bytes) -> Generator[None, None, bool]:
        end, keys = self._last(key), self._keys
        covered = key[:-1]  # the first address that is not known to be covered
        at = bisect_left(keys, key)
        for looked_at in count(1):
            if at == len(keys) or keys[at][:-1] != covered:
                break
            behind = self._last(keys[at])
            if behind == end:
                return True
            if looked_at % STEP_ROUTES == 0:
                yield
            covered = (int.from_bytes(behind[:-1], "big") + 1).to_bytes(self._size, "big")
            at = bisect_right(keys, behind)
        return False

    def _last(self, key: bytes) -> bytes:
        """Return what sorts behind all that is inside a prefix, and before all that follows it."""
        hosts = (1 << (self._bits - key[-1])) - 1
        return (int.from_bytes(key[:-1], "big") | hosts).to_bytes(self._size, "big") + b"\xff"


def lost_entries(
    hard: Installed, soft: Installed, there: Callable[[RouterInterface], RouterInterface | None]
) -> WriteBatch:
    """Return what of the hardware's small tables the software does not have at all.

    ``there`` tells how the software is to have a router interface of the hardware, None where that is not known.
    """
    interfaces = {i: found for i, one in hard.router_interfaces.items() if (found := there(one)) is not None}
    return WriteBatch(
        _missing(hard.policers, soft.policers),
        _missing(interfaces, soft.router_interfaces),
        _missing(hard.nexthops, soft.nexthops),
        _missing(hard.groups, soft.groups),
    )


def _missing(hard: Mapping[int, E], soft: Mapping[int, E]) -> list[Update[E]]:
    return [Update(Op.INSERT, one) for i, one in hard.items() if i not in soft]


def take_in(soft: Installed, batch: WriteBatch, refused: Collection[Refused]) -> None:
    """Note that the software has a batch of `lost_entries` now, except what it refused."""
    without = {(one.table, one.key) for one in refused}
    _take("policer", soft.policers, {update.entry.vrf_id: update.entry for update in batch.policers}, without)
    interfaces = {update.entry.id: update.entry for update in batch.router_interfaces}
    _take("router_interface", soft.router_interfaces, interfaces, without)
    _take("nexthop", soft.nexthops, {update.entry.id: update.entry for update in batch.nexthops}, without)
    _take("nexthop_group", soft.groups, {update.entry.id: update.entry for update in batch.groups}, without)


def _take(
    table: str, installed: dict[int, E], written: Mapping[int, E], without: Collection[tuple[str, int | bytes]]
) -> None:
    installed.update({i: one for i, one in written.items() if (table, i) not in without})


class Withdrawn:
    """Prefixes of one router and family that were withdrawn while the fallback could not be told, and that nothing
    else has a route for. None is inside another.

    The hardware would send their packets to the fallback, which still has them. So they stay in hardware, as
    unreachable, until the fallback has lost them too, or there is a route at or around them again.
    """

    def __init__(self, family: int) -> None:
        self._prefixes = PrefixTree(family)

    def add(self, keys: Iterable[bytes]) -> dict[bytes, int | None]:
        """Remember prefixes; returns the changes to make of the table that hardware follows."""
        changes: dict[bytes, int | None] = dict.fromkeys(keys, UNREACHABLE)
        self._prefixes.update(changes)
        return changes

    def displaced(self, changes: Mapping[bytes, int | None]) -> dict[bytes, int | None]:
        """Forget those that routes come at or around; returns the changes to make."""
        if not self._prefixes.actions:
            return {}
        found = [
            inner for key, action in changes.items() if action is not None for inner in self._prefixes.inside(key)
        ]
        found += [key for key, action in changes.items() if action is not None and key in self._prefixes]
        return self._forget(found)

    def told(self, keys: Iterable[bytes]) -> dict[bytes, int | None]:
        """Forget those that the fallback has lost; returns the changes to make."""
        return self._forget([key for key in keys if key in self._prefixes])

    def kept(self, software: Collection[bytes]) -> dict[bytes, int | None]:
        """Forget those that the fallback was found not to have; returns the changes to make."""
        return self._forget([key for key in self._prefixes.actions if key not in software])

    def _forget(self, keys: Collection[bytes]) -> dict[bytes, int | None]:
        changes: dict[bytes, int | None] = dict.fromkeys(keys)
        self._prefixes.update(changes)
        return changes
