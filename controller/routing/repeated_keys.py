"""The keys that a VRC repeated in a resync; what it has not repeated is stale."""

from collections.abc import Iterable

_PART_BITS = 17  # 131,072 keys: such a set grows, and is freed, in some milliseconds


class RepeatedKeys:
    """The keys that a VRC repeated in a resync, in sets so small that none takes long to grow or to free."""

    def __init__(self, expected: int) -> None:
        parts = 1 << (expected >> _PART_BITS).bit_length()
        self._parts: list[set[bytes]] = [set() for _ in range(parts)]
        self._mask = parts - 1

    def add(self, keys: Iterable[bytes]) -> None:
        """Take keys in."""
        parts, mask = self._parts, self._mask
        if not mask:
            parts[0].update(keys)
            return
        for key in keys:
            parts[hash(key) & mask].add(key)

    def __contains__(self, key: bytes) -> bool:
        return key in self._parts[hash(key) & self._mask]

    def shrink(self) -> int:
        """Forget some of the keys, and return how many; 0 where none is left."""
        while self._parts:
            if forgotten := len(self._parts.pop()):
                return forgotten
        return 0
