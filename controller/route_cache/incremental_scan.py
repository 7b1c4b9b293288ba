"""Incremental scan of meters, a bounded slice per round.

The entries in hardware are looked at to find victims. A heap of them is made slice by slice and replaces the one
before when it is complete; what a victim brings is looked up anew before it leaves. The candidates in software are
looked at because what a victim brings may become less: they need not have been sampled for that.
"""

from collections.abc import Callable, Iterable, Iterator

HARD_SLICE = 4_000
SOFT_SLICE = 5_000
"""Meters of a round, of less than 10 ms each."""

SEARCH_SLICE = 8_000
"""Prefixes of all routers that are looked at for what is missing in hardware; of a round, too."""


class Slices:
    """Goes round and round over what many dictionaries hold that may change meanwhile."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._keys: list[tuple[int, list[bytes]]] = []
        self.begun = 0
        """Round trips, with the one under way."""

    @property
    def at_start(self) -> bool:
        """Whether the next slice is the first of a round trip."""
        return not self._keys

    @property
    def ended(self) -> int:
        """Round trips that are over."""
        return self.begun - (not self.at_start)

    def next(self, holders: Callable[[], Iterable[tuple[int, Iterable[bytes]]]]) -> Iterator[tuple[int, list[bytes]]]:
        """Iterate over the next slice; ``holders`` is asked for all keys by router where a trip begins."""
        left = self._size
        if not self._keys:
            self.begun += 1
            self._keys = [(vrf_id, keys) for vrf_id, each in holders() if (keys := list(each))]
        while self._keys and left > 0:
            vrf_id, keys = self._keys[-1]
            taken = keys[-left:]
            del keys[-left:]
            left -= len(taken)
            if not keys:
                self._keys.pop()
            yield vrf_id, taken
