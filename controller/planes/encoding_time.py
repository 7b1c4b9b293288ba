"""What encoding a batch costs the controller, by router."""

import time
from collections.abc import Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")

SHARED = 0
"""Instead of a vrf_id: entries of several routers, encoded together."""


class EncodingTime:
    """The CPU time that a back end takes to encode updates, in seconds, by vrf_id or `SHARED`."""

    def __init__(self) -> None:
        self.spent_s: dict[int, float] = {}
        self._vrf_id, self._began_s = SHARED, 0.0

    def of(self, vrf_id: int) -> "EncodingTime":
        """Return what measures, as a context in which nothing is awaited, the time for a router."""
        self._vrf_id = vrf_id
        return self

    def making(self, things: Iterable[T]) -> Iterator[T]:
        """Iterate, and measure what making each thing takes as that of several routers."""
        left = iter(things)
        while True:
            with self.of(SHARED):
                one = next(left, None)
            if one is None:
                return
            yield one

    def __enter__(self) -> None:
        self._began_s = time.thread_time()

    def __exit__(self, *_: object) -> None:
        took_s = time.thread_time() - self._began_s
        self.spent_s[self._vrf_id] = self.spent_s.get(self._vrf_id, 0.0) + took_s
