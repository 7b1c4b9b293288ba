"""Prefixes with their actions, and what is around, inside and beside each of them.

Keys sort as (address, length), so a prefix comes right before all that is inside it. They are kept sorted in buckets
of some hundreds: a million prefixes cost a list of pointers and not a million nodes.
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator, Mapping

from wire.columns import ADDRESS_BYTES

_BUCKET = 512
"""Keys of a bucket when it is made; it is halved at twice as many."""


class PrefixTree:
    """The prefixes of one family: ``actions`` is the table itself, to be read only."""

    __slots__ = ("_bits", "_buckets", "_firsts", "_lengths", "_longest_first", "_size", "actions", "default")

    def __init__(self, family: int) -> None:
        self._size = ADDRESS_BYTES[family]
        self._bits = 8 * self._size
        self.actions: dict[bytes, int] = {}
        self.default = bytes(self._size + 1)
        """The prefix of length 0."""
        self._buckets: list[list[bytes]] = []
        self._firsts: list[bytes] = []  # of each bucket
        self._lengths = [0] * (self._bits + 1)  # how many prefixes of each length
        self._longest_first: tuple[int, ...] = ()

    def __len__(self) -> int:
        return len(self.actions)

    def __contains__(self, key: bytes) -> bool:
        return key in self.actions

    def update(self, changes: Mapping[bytes, int | None]) -> None:
        """Set the action of each prefix, or take it out (None)."""
        present = self.actions
        new = [key for key, action in changes.items() if action is not None and key not in present]
        if len(new) > max(_BUCKET, len(present) // 8):  # a table that loads: sort it once
            present.update(dict.fromkeys(new, 0))
            for key in new:
                self._count(key[-1], 1)
            self._arrange(sorted(present))
        for key, action in changes.items():
            if action is not None:
                self.set(key, action)
            elif key in present:
                self.remove(key)

    def set(self, key: bytes, action: int) -> None:
        """Set the action of one prefix."""
        if key not in self.actions:
            self._count(key[-1], 1)
            self._add(key)
        self.actions[key] = action

    def remove(self, key: bytes) -> None:
        """Take one prefix out; KeyError where it is not in."""
        del self.actions[key]
        self._count(key[-1], -1)
        at = bisect_right(self._firsts, key) - 1
        bucket = self._buckets[at]
        del bucket[bisect_left(bucket, key)]
        if not bucket:
            del self._buckets[at], self._firsts[at]
        else:
            self._firsts[at] = bucket[0]

    def above(self, key: bytes) -> bytes | None:
        """Return the nearest prefix around ``key``; None where there is none."""
        own = key[-1]
        address, bits, size, actions = int.from_bytes(key[:-1], "big"), self._bits, self._size, self.actions
        for length in self._longest_first:
            if length < own:
                host = bits - length
                around = (address >> host << host).to_bytes(size, "big") + bytes((length,))
                if around in actions:
                    return around
        return None

    def inside(self, key: bytes) -> Iterator[bytes]:
        """Iterate over the outermost prefixes inside ``key``. The tree may not change meanwhile."""
        last, after = self._last(key), key
        while (found := self._next(after)) is not None and found <= last:
            yield found
            after = self._last(found)

    def free(self, key: bytes) -> bool:
        """Tell whether no prefix is inside ``key``."""
        found = self._next(key)
        return found is None or found > self._last(key)

    def holds(self, key: bytes, other: bytes) -> bool:
        """Tell whether ``other`` is ``key`` or inside it, be they in the tree or not."""
        return key <= other <= self._last(key)

    def part(self, host: bytes) -> tuple[bytes, bytes] | None:
        """Return the largest part free of longer prefixes of the prefix that an address matches, and that prefix.

        The two are the same where it has no longer ones inside. ``host`` is the address's key of full length. None
        where no prefix matches.
        """
        if host in self.actions:
            return host, host
        before, after = self._neighbors(host)
        if before is None:
            return None
        next_around = self.holds(before, host)
        home = before if next_around else self.above(host)
        if home is None:
            return None
        # The part ends at the first bit in which its address differs from the next prefix on either side.
        address, length = int.from_bytes(host[:-1], "big"), home[-1]
        if not next_around:
            length = max(length, self._shared(address, before) + 1)
        if after is not None:
            length = max(length, self._shared(address, after) + 1)
        away = self._bits - length
        return (address >> away << away).to_bytes(self._size, "big") + bytes((length,)), home

    def _shared(self, address: int, key: bytes) -> int:
        return self._bits - (address ^ int.from_bytes(key[:-1], "big")).bit_length()

    def _last(self, key: bytes) -> bytes:
        """Return what sorts behind all that is inside ``key``, and before all that follows it."""
        hosts = (1 << (self._bits - key[-1])) - 1
        return (int.from_bytes(key[:-1], "big") | hosts).to_bytes(self._size, "big") + b"\xff"

    def _next(self, key: bytes) -> bytes | None:
        at = bisect_right(self._firsts, key) - 1
        if at >= 0:
            bucket = self._buckets[at]
            place = bisect_right(bucket, key)
            if place < len(bucket):
                return bucket[place]
        return self._firsts[at + 1] if at + 1 < len(self._firsts) else None

    def _neighbors(self, key: bytes) -> tuple[bytes | None, bytes | None]:
        at = bisect_right(self._firsts, key) - 1
        if at < 0:
            return None, self._firsts[0] if self._firsts else None
        bucket = self._buckets[at]
        place = bisect_right(bucket, key)
        if place < len(bucket):
            return bucket[place - 1], bucket[place]
        return bucket[-1], self._firsts[at + 1] if at + 1 < len(self._firsts) else None

    def _add(self, key: bytes) -> None:
        if not self._buckets:
            self._arrange([key])
            return
        at = max(0, bisect_right(self._firsts, key) - 1)
        bucket = self._buckets[at]
        insort(bucket, key)
        self._firsts[at] = bucket[0]
        if len(bucket) > 2 * _BUCKET:
            self._buckets[at : at + 1] = [bucket[:_BUCKET], bucket[_BUCKET:]]
            self._firsts.insert(at + 1, bucket[_BUCKET])

    def _arrange(self, keys: list[bytes]) -> None:
        self._buckets = [keys[start : start + _BUCKET] for start in range(0, len(keys), _BUCKET)]
        self._firsts = [bucket[0] for bucket in self._buckets]

    def _count(self, length: int, change: int) -> None:
        before = self._lengths[length]
        self._lengths[length] = before + change
        if not before or not before + change:
            self._longest_first = tuple(at for at in range(self._bits, -1, -1) if self._lengths[at])
