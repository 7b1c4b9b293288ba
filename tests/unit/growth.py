"""Processor time of work of two sizes: a bound on the ratio holds on a slow machine as well as on a quick one."""

import gc
import time
from collections.abc import Iterator
from contextlib import contextmanager

TIMES = 6
"""How many times the larger work is the smaller one."""

MUCH = 2.5 * TIMES
"""How many times longer work takes that is not in proportion to its size; where each is compared with each it is
`TIMES` times `TIMES`."""


class Growth:
    """What works of growing size have taken, the least of those of one size."""

    def __init__(self) -> None:
        self._spent_s: dict[int, float] = {}

    @contextmanager
    def of(self, size: int) -> Iterator[None]:
        """Measure work of a size."""
        gc.collect()
        begun_s = time.process_time()
        yield
        spent_s = time.process_time() - begun_s
        self._spent_s[size] = min(spent_s, self._spent_s.get(size, spent_s))

    @property
    def times(self) -> float:
        """How many times as long as the smallest one the largest one took."""
        return self._spent_s[max(self._spent_s)] / self._spent_s[min(self._spent_s)]
