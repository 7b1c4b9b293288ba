"""The simulated world of bench/cache: destinations and their popularity, the routes and their churn, the switch.

All of it is plain on purpose: the switch and the routes find the longest prefix by trying one length after another,
and share nothing with the controller.
"""

import random
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping
from heapq import nlargest
from itertools import accumulate
from math import sqrt

from controller.planes.base import FALLBACK, Op, RouteKind, RouteUpdates, route_action
from lab.prefixes import announcements

_NEXTHOPS = 32
_MASKS = [-1 << (32 - length) for length in range(33)]
_SHIFTED = 0.1
"""Of each rank of popularity, the chance that another destination has it after a shift."""


def key_of(address: int, length: int) -> bytes:
    """Return a prefix's key."""
    return address.to_bytes(4, "big") + bytes((length,))


class LongestPrefix:
    """IPv4 prefixes with actions, searched from the longest length to the shortest."""

    def __init__(self) -> None:
        self.actions: dict[tuple[int, int], int] = {}
        self._lengths: Counter[int] = Counter()
        self._steps: list[tuple[int, int]] = []

    def set(self, address: int, length: int, action: int | None) -> int | None:
        """Set an action, or take the prefix out (None); return what was there."""
        old = self.actions.pop((address, length), None)
        if action is not None:
            self.actions[address, length] = action
        change = (old is None) - (action is None)
        if change:
            self._lengths[length] += change
            lengths = sorted((one for one, count in self._lengths.items() if count), reverse=True)
            if len(lengths) != len(self._steps):
                self._steps = [(one, -1 << (32 - one)) for one in lengths]
        return old

    def match(self, address: int, below: int = 33) -> tuple[int, int] | None:
        """Return (address, length) of the longest prefix, shorter than ``below``, that an address matches."""
        actions = self.actions
        for length, mask in self._steps:
            if length < below and (found := (address & mask, length)) in actions:
                return found
        return None

    def action(self, address: int) -> int | None:
        """Return the action that an address gets."""
        found = self.match(address)
        return None if found is None else self.actions[found]


class Destinations:
    """As many hosts as there are routes, each in a random route, with a share of the packets by Zipf's law."""

    def __init__(self, routes: Iterable[tuple[int, int]], exponent: float, chance: random.Random) -> None:
        self._chance = chance
        prefixes = list(routes)
        chosen = (chance.choice(prefixes) for _ in prefixes)
        self.hosts = sorted({address | chance.getrandbits(32 - length) for address, length in chosen})
        weights = [(rank + 1) ** -exponent for rank in range(len(self.hosts))]
        total = sum(weights)
        self._share_of_rank = [weight / total for weight in weights]
        self._cumulated = list(accumulate(self._share_of_rank))
        self._by_rank = list(range(len(self.hosts)))
        chance.shuffle(self._by_rank)
        self.shares = [0.0] * len(self.hosts)
        """Of all packets, by destination."""
        for rank, one in enumerate(self._by_rank):
            self.shares[one] = self._share_of_rank[rank]

    def draw(self, count: int) -> list[int]:
        """Return the destinations of so many packets, as places in ``hosts``."""
        return self._chance.choices(self._by_rank, cum_weights=self._cumulated, k=count)

    def shift(self) -> None:
        """Give a tenth of the ranks to other destinations."""
        ranks, chance = self._by_rank, self._chance
        moved = set()
        for rank in range(len(ranks)):
            if chance.random() < _SHIFTED:
                other = chance.randrange(len(ranks))
                ranks[rank], ranks[other] = ranks[other], ranks[rank]
                moved |= {rank, other}
        for rank in moved:
            self.shares[ranks[rank]] = self._share_of_rank[rank]

    def best_share(self, routes: LongestPrefix, entries: int) -> float:
        """Return a share of packets that no static choice of so many entries can be above.

        An entry forwards packets of one route only, so the most popular routes' packets are the bound. Covers, and
        packets of a route that one entry for a part of it leaves out, are not counted: what can be had may be less.
        """
        by_route: dict[tuple[int, int], float] = {}
        for host, share in zip(self.hosts, self.shares, strict=True):
            route = routes.match(host)
            if route is not None:
                by_route[route] = by_route.get(route, 0.0) + share
        return sum(nlargest(entries, by_route.values()))


class Switch:
    """The hardware: entries that count, and the share of all packets that each of them forwards."""

    def __init__(self, destinations: Destinations, chance: random.Random) -> None:
        self.table = LongestPrefix()
        self.writes = 0
        self.share = 0.0
        """Of all packets, those that are forwarded here."""
        self._destinations, self._chance = destinations, chance
        self._owner = [-1] * len(destinations.hosts)  # length of the entry that each destination matches
        self._shares: dict[tuple[int, int], float] = {}  # of packets, by entry
        self._since: dict[tuple[int, int], float] = {}  # when the entry's count was 0

    def apply(self, updates: RouteUpdates, now: float) -> None:
        """Take the writes of one stage."""
        self.writes += len(updates)
        for op, key, action in zip(updates.ops, updates.keys, updates.actions, strict=True):
            entry = int.from_bytes(key[:4], "big"), key[4]
            if (op is Op.INSERT) == (entry in self.table.actions):
                raise RuntimeError(f"{op.name} of {key.hex()}: the table is not as it was thought to be")
            if op is Op.INSERT:
                self.table.set(*entry, action)
                self._insert(entry, now)
            elif op is Op.DELETE:
                self._delete(entry)
                self.table.set(*entry, None)
            else:
                self._forward(entry, -self._shares[entry])
                self.table.set(*entry, action)
                self._forward(entry, self._shares[entry])

    def in_software(self, packets: Iterable[int]) -> list[int]:
        """Return those packets, by destination, that go to the fallback plane."""
        owner, hosts, actions, masks = self._owner, self._destinations.hosts, self.table.actions, _MASKS
        return [one for one in packets if actions[hosts[one] & masks[owner[one]], owner[one]] == FALLBACK]

    def counts(self, now: float, packets_per_s: float) -> dict[bytes, int]:
        """Return the packets that each entry counted since the last call, and begin anew."""
        chance, found = self._chance, {}
        for entry, share in self._shares.items():
            if self.table.actions[entry] != FALLBACK:
                mean = max(0.0, share) * packets_per_s * (now - self._since[entry])
                found[key_of(*entry)] = _poisson(mean, chance)
            self._since[entry] = now
        return found

    def recount(self) -> None:
        """Take note that destinations have other shares, and of what rounding left."""
        shares = dict.fromkeys(self._shares, 0.0)
        for host, share, length in zip(self._destinations.hosts, self._destinations.shares, self._owner, strict=True):
            if length >= 0:
                shares[host & (-1 << (32 - length)), length] += share
        self._shares = shares
        self.share = sum(share for entry, share in shares.items() if self.table.actions[entry] != FALLBACK)

    def _insert(self, entry: tuple[int, int], now: float) -> None:
        address, length = entry
        owner, shares, moved = self._owner, self._destinations.shares, 0.0
        for one in self._inside(entry):
            if owner[one] < length:
                owner[one] = length
                moved += shares[one]
        self._since[entry] = now
        around = self.table.match(address, length)
        if around is not None:
            self._shares[around] -= moved
            self._forward(around, -moved)
        self._shares[entry] = moved
        self._forward(entry, moved)

    def _delete(self, entry: tuple[int, int]) -> None:
        address, length = entry
        around = self.table.match(address, length)
        other, owner = -1 if around is None else around[1], self._owner
        for one in self._inside(entry):
            if owner[one] == length:
                owner[one] = other
        moved = self._shares.pop(entry)
        del self._since[entry]
        self._forward(entry, -moved)
        if around is not None:
            self._shares[around] += moved
            self._forward(around, moved)

    def _forward(self, entry: tuple[int, int], share: float) -> None:
        if self.table.actions[entry] != FALLBACK:
            self.share += share

    def _inside(self, entry: tuple[int, int]) -> range:
        address, length = entry
        hosts = self._destinations.hosts
        return range(bisect_left(hosts, address), bisect_left(hosts, address + (1 << (32 - length))))


def _poisson(mean: float, chance: random.Random) -> int:
    """Return how many of many rare things happened."""
    if mean > 50:
        return max(0, round(chance.gauss(mean, sqrt(mean))))
    count, passed = 0, chance.expovariate(1)
    while passed < mean:
        count += 1
        passed += chance.expovariate(1)
    return count


class Churn:
    """The routes of a neighbor as they change: half are pointed elsewhere, the others go and come back."""

    def __init__(self, count: int, seed: int, chance: random.Random) -> None:
        self._chance = chance
        self.routes = LongestPrefix()
        found = announcements(count, seed)
        for one in found:
            self.routes.set(one.network, one.length, self._action())
        self._present = [(one.network, one.length) for one in found]
        self._absent: list[tuple[int, int]] = []

    def table(self) -> Mapping[bytes, int]:
        """Return all routes, by key."""
        return {key_of(*route): action for route, action in self.routes.actions.items()}

    def change(self, count: int) -> dict[tuple[int, int], int | None]:
        """Change so many routes; return what the changed ones were."""
        old: dict[tuple[int, int], int | None] = {}
        for _ in range(count):
            kind = self._chance.random()
            if kind < 0.25 and self._absent:
                route = self._take(self._absent)
                self._present.append(route)
                action: int | None = self._action()
            else:
                route = self._take(self._present)
                action = self._action() if kind > 0.5 else None
                (self._absent if action is None else self._present).append(route)
            before = self.routes.set(*route, action)
            old.setdefault(route, before)
        return old

    def _take(self, routes: list[tuple[int, int]]) -> tuple[int, int]:
        at = self._chance.randrange(len(routes))
        routes[at], routes[-1] = routes[-1], routes[at]
        return routes.pop()

    def _action(self) -> int:
        return route_action(RouteKind.NEXTHOP, self._chance.randrange(1, _NEXTHOPS + 1))
