"""How many packets a second go by each prefix, from counts of entries and from samples.

Two means of every prefix decay beside each other: a slow one, which tells apart what is nearly alike, and a fast one,
which notices that something began or ended. The estimate is the slow mean, kept within what the fast one leaves
possible by the number of events it saw (a Poisson count n is known to about its root):

    estimate = min(max(slow, fast - Z·√(fast·u)), fast + Z·√(fast·u) + Z²·u)       u: the rate of one event

An event is a packet where an entry counts, and ``one_in`` packets where one of so many is sampled. Decay is forward
(Cormode et al., "Forward decay", ICDE 2009): what is new weighs more, and nothing has to be touched as time passes.
"""

from collections.abc import Iterable, Iterator
from math import log, sqrt

SLOW_HALF_LIFE_S = 240.0
FAST_HALF_LIFE_S = 8.0
RECENT_S = 60.0
"""Counts of entries are taken for no older than that."""
_Z = 1.5
_LANDMARK_S = 400 * FAST_HALF_LIFE_S
"""Weights double every FAST_HALF_LIFE_S; they are taken back before they leave a float."""


class Meter:
    """The counts of one prefix. ``entries`` is what it takes in hardware, with the cover that is only its own."""

    __slots__ = ("entries", "fast", "slow")

    def __init__(self) -> None:
        self.slow = 0.0
        self.fast = 0.0
        self.entries = 1

    def move(self, other: "Meter") -> None:
        """Take what another has counted out of this one."""
        self.slow = max(0.0, self.slow - other.slow)
        self.fast = max(0.0, self.fast - other.fast)


class Estimates:
    """What meters say at one moment, in packets per second; ``event`` packets were counted as one event."""

    __slots__ = ("_error", "_event_error", "_fast", "_slow")

    def __init__(self, slow: float, fast: float, event: float) -> None:
        self._slow, self._fast = slow, fast
        one = event * log(2) / FAST_HALF_LIFE_S  # the rate that one event makes in the fast mean
        self._error, self._event_error = _Z * sqrt(one), _Z * _Z * one

    def of(self, meter: Meter) -> float:
        """Return the estimate of one meter."""
        slow, fast = meter.slow * self._slow, meter.fast * self._fast
        error = self._error * sqrt(fast)
        return min(max(slow, fast - error), fast + error + self._event_error)

    def above(self, meters: Iterable[tuple[bytes, Meter]], floor: float) -> Iterator[tuple[float, bytes]]:
        """Iterate over the meters whose estimate for each entry is above ``floor``, as (that, key)."""
        by_slow, by_fast, by_error, most = self._slow, self._fast, self._error, self._event_error
        for key, meter in meters:
            slow, fast = meter.slow * by_slow, meter.fast * by_fast
            if slow > floor or fast > floor:  # an estimate is never above both
                error = by_error * sqrt(fast)
                rate = min(max(slow, fast - error), fast + error + most) / meter.entries
                if rate > floor:
                    yield rate, key


class Popularity:
    """The clock that all meters share, in seconds of any monotonic clock."""

    def __init__(self) -> None:
        self._landmark: float | None = None

    def advance(self, now: float, meters: Iterable[Meter]) -> None:
        """Let time pass; ``meters`` are all that there are."""
        if self._landmark is None:
            self._landmark = now
        elif now - self._landmark > _LANDMARK_S:
            slow, fast = self._decay(now)
            for meter in meters:
                meter.slow *= slow
                meter.fast *= fast
            self._landmark = now

    def weights(self, at: float) -> tuple[float, float]:
        """Return what a packet that passed ``at`` adds to the two means of its meter."""
        slow, fast = self._decay(at)
        return 1 / slow, 1 / fast

    def estimates(self, at: float, event: float) -> Estimates:
        """Return the estimates at one moment, of meters that count one of ``event`` packets."""
        slow, fast = self._decay(at)
        return Estimates(slow * log(2) / SLOW_HALF_LIFE_S, fast * log(2) / FAST_HALF_LIFE_S, event)

    def _decay(self, at: float) -> tuple[float, float]:
        if self._landmark is None:
            self._landmark = at  # a clock may begin anywhere
        passed = at - self._landmark
        return 2 ** (-passed / SLOW_HALF_LIFE_S), 2 ** (-passed / FAST_HALF_LIFE_S)
