"""A token bucket: how often something may happen that an outsider causes."""

import time
from collections.abc import Callable


class TokenBucket:
    """Lets ``per_s`` things a second through, and ``burst`` at once."""

    __slots__ = ("_burst", "_clock", "_per_s", "_refilled", "_tokens")

    def __init__(self, per_s: float, burst: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_s, self._burst, self._clock = per_s, float(burst), clock
        self._tokens, self._refilled = self._burst, clock()

    def take(self) -> bool:
        """Tell whether one more may pass now, and count it where it may."""
        self._refill()
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True

    def charge(self) -> None:
        """Count one that passes in any case: those that ask later wait for it."""
        self._refill()
        self._tokens -= 1

    @property
    def ready_s(self) -> float:
        """For how long nothing passes, in seconds."""
        return self._until(1.0)

    @property
    def full_s(self) -> float:
        """After how many seconds in which nothing passes the whole burst is there again."""
        return self._until(self._burst)

    def _until(self, tokens: float) -> float:
        self._refill()
        return max(0.0, tokens - self._tokens) / self._per_s

    def _refill(self) -> None:
        now = self._clock()
        self._tokens = min(self._burst, self._tokens + (now - self._refilled) * self._per_s)
        self._refilled = now
