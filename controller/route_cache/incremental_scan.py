"""Incremental scan of meters, a bounded slice per round.

The entries in hardware are looked at to find victims. A heap of them is made slice by slice and replaces the one
before when it is complete; what a victim brings is looked up anew before it leaves. The candidates in software are
looked at because what a victim brings may become less: they need not have been sampled for that.
"""

from collections.abc import Callable, Iterable, Iterator
from heapq import heappop, heappush, heapreplace

HARD_SLICE = 4_000
SOFT_SLICE = 5_000
"""Meters of a round, of less than 10 ms each."""


class Slices:
    """Goes round and round over what many dictionaries hold that may change meanwhile."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._keys: list[tuple[int, list[bytes]]] = []

    @property
    def at_start(self) -> bool:
        """Whether the next slice is the first of a round trip."""
        return not self._keys

    def next(self, holders: Callable[[], Iterable[tuple[int, Iterable[bytes]]]]) -> Iterator[tuple[int, list[bytes]]]:
        """Iterate over the next slice; ``holders`` is asked for all keys by router where a trip begins."""
        left = self._size
        if not self._keys:
            self._keys = [(vrf_id, keys) for vrf_id, each in holders() if (keys := list(each))]
        while self._keys and left > 0:
            vrf_id, keys = self._keys[-1]
            taken = keys[-left:]
            del keys[-left:]
            left -= len(taken)
            if not keys:
                self._keys.pop()
            yield vrf_id, taken


class Victims:
    """Entries by what they bring, least first; what one brings now is looked up, None where it is none any more."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, bytes]] = []
        self._next: list[tuple[float, int, bytes]] = []

    def note(self, rate: float, vrf_id: int, key: bytes) -> None:
        """Add an entry to the heap that is being made."""
        heappush(self._next, (rate, vrf_id, key))

    def renew(self) -> None:
        """Use what was noted since the last time instead of what is left of before."""
        self._heap, self._next = self._next, []

    def least(self, rate: Callable[[int, bytes], float | None]) -> tuple[float, int, bytes] | None:
        """Return the entry that brings least, None where there is none."""
        heap = self._heap
        while heap:
            before, vrf_id, key = heap[0]
            now = rate(vrf_id, key)
            if now is None:
                heappop(heap)
            elif now > before:
                heapreplace(heap, (now, vrf_id, key))
            else:
                return heap[0]
        return None

    def pop(self) -> None:
        """Take out what least() returned."""
        heappop(self._heap)
