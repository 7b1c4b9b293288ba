"""Incremental scan of meters, a bounded slice per round.

The entries in hardware are looked at to find victims. A heap of them is made slice by slice and replaces the one
before when it is complete; what a victim brings is looked up anew before it leaves. The candidates in software are
looked at because what a victim brings may become less: they need not have been sampled for that.
"""

from collections.abc import Callable, Iterable, Iterator

HARD_SLICE = 4_000
SOFT_SLICE = 5_000
"""Meters of a round, of less than 10 ms each."""

PER_ROUTER = 4
"""Meters that it takes as long to look at as to go on to another router."""

SEARCH_SLICE = 8_000
"""Prefixes of all routers that are looked at for what is missing in hardware; of a round, too."""


class Slices:
    """Goes round and round over the keys of many routers, which may change meanwhile."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._routers: list[int] = []  # that come later
        self._vrf_id, self._keys = 0, list[bytes]()  # of whose keys these come next
        self.begun = 0
        """Round trips, with the one under way."""

    @property
    def at_start(self) -> bool:
        """Whether the next slice is the first of a round trip."""
        return not self._keys and not self._routers

    @property
    def ended(self) -> int:
        """Round trips that are over."""
        return self.begun - (not self.at_start)

    def next(
        self, routers: Iterable[int], keys_of: Callable[[int], Iterable[bytes]]
    ) -> Iterator[tuple[int, list[bytes]]]:
        """Iterate over the next slice. ``routers`` are those of a trip that begins. Each is asked for its keys when
        its turn comes, and may be gone by then.
        """
        left = self._size
        if self.at_start:
            self.begun += 1
            self._routers = list(routers)
        while True:
            while self._routers and not self._keys:
                self._vrf_id = self._routers.pop()
                self._keys = list(keys_of(self._vrf_id))
            if not self._keys or left <= 0:
                return
            taken = self._keys[-left:]
            del self._keys[-left:]
            left -= len(taken) + PER_ROUTER
            yield self._vrf_id, taken
