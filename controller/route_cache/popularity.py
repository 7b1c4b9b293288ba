"""How many packets a second go by each prefix, from counts of entries and from samples.

Of every prefix the events are counted that were seen of it: packets where its entry counts, one of so many where its
packets are sampled. Beside them it is known how long it was looked at, in seconds of full counting: a second in which
one of 100 packets is sampled is a hundredth. So what was seen in hardware and in software adds up, each weighs by
what it says, and a prefix that moves takes along what is known of it. One mean, of events by exposure:

    (events - 1) / exposure

Of most prefixes that one sample came from, none comes again soon: where popularity follows Zipf's law with exponent
s, so many prefixes are above a rate r as r^(-1/s), and what n events tell (Gamma's mean, empirical Bayes) is
(n - 1/s) / exposure. 1 is the cautious end of that.

Three such means decay beside each other. The slow one tells apart what is nearly alike. The shorter ones notice what
began: the estimate is the largest of the three, with ``margin`` standard errors subtracted from the shorter ones,
because the largest of several is biased upwards; `confidence` adapts the margin. And they notice what ended: a
shorter mean bounds a longer one from above, by what it says and a standard error and one event more.

Decay is forward (Cormode et al., "Forward decay", ICDE 2009): what is new weighs more, by its distance from a
landmark, and nothing has to be touched as time passes. Now and then there is a new landmark, which a meter follows
when it is used next.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from math import inf, log, sqrt
from typing import NamedTuple

HALF_LIVES_S = (240.0, 30.0, 8.0)
"""Where a million prefixes share the traffic, one that is worth an entry is sampled once in a minute or two: too
seldom for 8 s, and 240 s are too long where the popular set changes by the minute."""
_PRIOR = 1.0
"""Events that prove nothing."""
_LANDMARK_S = 400 * HALF_LIVES_S[-1]
"""Weights double every half-life: there is a new landmark before they leave a float."""
_BEFORE_S = 1.0
"""So long nothing was seen before the clock began: one packet in its first moment is no endless rate."""

Means = tuple[float, float, float]
"""Of the three means: of the slow, the middle, and the fast one."""


class Weighted(NamedTuple):
    """What to add to each of the three means, or subtract, by the landmark that it was weighted by."""

    slow: float
    middle: float
    fast: float
    landmark: float


@dataclass(frozen=True, slots=True)
class Moment:
    """A point in time, and the seconds until then by what they still weigh: ``full`` in hardware, where every packet
    counts, ``sampled`` in software.
    """

    at: float
    full: Means
    sampled: Means


class Meter:
    """What was counted of one prefix, weighted: events, and what it was looked at longer than by samples alone.
    ``entries`` is what it takes in hardware, with the cover that is only its own; all else is by ``landmark``.
    """

    __slots__ = ("entries", "fast", "landmark", "looked_fast", "looked_middle", "looked_slow", "middle", "slow")

    def __init__(self) -> None:
        self.slow = self.middle = self.fast = 0.0
        self.looked_slow = self.looked_middle = self.looked_fast = 0.0
        self.entries = 1
        self.landmark = -inf

    def follow(self, landmark: float) -> None:
        """Have everything weigh by another landmark, or by the one before, of packets that are still being taken."""
        if self.landmark != landmark:
            slow, middle, fast = _decayed(landmark - self.landmark)
            self.slow *= slow
            self.middle *= middle
            self.fast *= fast
            self.looked_slow *= slow
            self.looked_middle *= middle
            self.looked_fast *= fast
            self.landmark = landmark

    def add(self, events: float, weights: Weighted) -> None:
        """Count events of one moment."""
        slow, middle, fast, landmark = weights
        if self.landmark != landmark:
            self.follow(landmark)
        self.slow += events * slow
        self.middle += events * middle
        self.fast += events * fast

    def move(self, other: "Meter") -> None:
        """Take what another has counted out of this one."""
        landmark = max(self.landmark, other.landmark)
        self.follow(landmark)
        other.follow(landmark)
        self.slow = max(0.0, self.slow - other.slow)
        self.middle = max(0.0, self.middle - other.middle)
        self.fast = max(0.0, self.fast - other.fast)

    def enter(self, more: Weighted) -> None:
        """Be counted from a moment on; ``more`` is what full counting until then was more than samples."""
        slow, middle, fast, landmark = more
        if self.landmark != landmark:
            self.follow(landmark)
        self.looked_slow -= slow
        self.looked_middle -= middle
        self.looked_fast -= fast

    def leave(self, more: Weighted) -> None:
        """Be counted no longer than until a moment; ``more`` as that of enter()."""
        slow, middle, fast, landmark = more
        if self.landmark != landmark:
            self.follow(landmark)
        self.looked_slow = max(0.0, self.looked_slow + slow)
        self.looked_middle = max(0.0, self.looked_middle + middle)
        self.looked_fast = max(0.0, self.looked_fast + fast)


@dataclass(frozen=True, slots=True)
class Estimates:
    """What meters say at one moment, in packets per second."""

    weights: Weighted
    sampled: Means
    more: Weighted
    """Of meters that are counted: what that was more than samples."""
    margin: float
    """In the shorter means, in standard errors."""

    def of(self, meter: Meter) -> float:
        """Return the estimate of one meter.

        Each shorter mean, less its margin, may raise what the longer ones say, and, with its error, lower it. Without
        max() and min(), with which it takes three times as long: a round asks for thousands.
        """
        w_slow, w_middle, w_fast, landmark = self.weights
        s_slow, s_middle, s_fast = self.sampled
        m_slow, m_middle, m_fast, _ = self.more
        if meter.landmark != landmark:
            meter.follow(landmark)
        looked = meter.looked_slow + m_slow
        rate = (meter.slow - _PRIOR * w_slow) / (s_slow + looked if looked > 0.0 else s_slow)
        if rate < 0.0:
            rate = 0.0

        mean, looked = meter.middle, meter.looked_middle + m_middle
        exposure, error = s_middle + looked if looked > 0.0 else s_middle, sqrt(mean * w_middle)
        least, most = mean - _PRIOR * w_middle - self.margin * error, mean + error + w_middle
        if (bound := least / exposure) > rate:
            rate = bound
        if (bound := most / exposure) < rate:
            rate = bound

        mean, looked = meter.fast, meter.looked_fast + m_fast
        exposure, error = s_fast + looked if looked > 0.0 else s_fast, sqrt(mean * w_fast)
        least, most = mean - _PRIOR * w_fast - self.margin * error, mean + error + w_fast
        if (bound := least / exposure) > rate:
            rate = bound
        return bound if (bound := most / exposure) < rate else rate

    def slow(self, meter: Meter) -> float:
        """Return what the slow mean alone says."""
        meter.follow(self.weights.landmark)
        exposure = self.sampled[0] + max(0.0, meter.looked_slow + self.more[0])
        return max(0.0, meter.slow - _PRIOR * self.weights[0]) / exposure

    def above(self, meters: Iterable[tuple[bytes, Meter]], floor: float) -> Iterator[tuple[float, bytes]]:
        """Iterate over the meters whose estimate for each entry is above ``floor``, as (that, key)."""
        nothing = _PRIOR * self.weights[0] if floor >= 0 else -inf  # one event or less, so in the shorter means too
        of = self.of
        for key, meter in meters:
            if meter.slow > nothing and (rate := of(meter) / meter.entries) > floor:
                yield rate, key


class Popularity:
    """The clock that all meters share, in seconds of any monotonic clock."""

    def __init__(self) -> None:
        self._landmark: float | None = None
        self.moment: Moment | None = None
        """The latest; None before the clock began."""

    @property
    def landmark(self) -> float:
        """What weights are by; before everything where the clock has not begun."""
        return -inf if self._landmark is None else self._landmark

    def advance(self, now: float, one_in: float) -> Moment:
        """Let time pass in which one of ``one_in`` packets was sampled; return the moment that it is.

        What was read at one moment is taken in steps, and rounds come in between: one that is told late is no other
        time, and lets none pass twice.
        """
        if self._landmark is None or now - self._landmark > _LANDMARK_S:
            self._landmark = now  # a clock may begin anywhere
        before = self.moment or Moment(now - _BEFORE_S, _NOTHING, _NOTHING)
        if now < before.at:
            return replace(before, at=now)
        self.moment = _after(before, now, one_in)
        return self.moment

    def weights(self, at: float) -> Weighted:
        """Return what an event ``at`` a moment adds to the means of its meter."""
        passed = at - (at if self._landmark is None else self._landmark)
        slow, middle, fast = HALF_LIVES_S
        return Weighted(2 ** (passed / slow), 2 ** (passed / middle), 2 ** (passed / fast), self.landmark)

    def more(self, moment: Moment | None) -> Weighted:
        """Return what full counting until a moment was more than samples; None for never."""
        if moment is None:
            return Weighted(*_NOTHING, self.landmark)
        weights = self.weights(moment.at)
        more = _each(lambda at: (moment.full[at] - moment.sampled[at]) * weights[at])
        return Weighted(*more, self.landmark)

    def estimates(self, moment: Moment, margin: float = 0.0, *, counted: bool = False) -> Estimates:
        """Return the estimates at one moment, of meters that were counted until then, or of others."""
        weights = self.weights(moment.at)
        sampled = _each(lambda at: moment.sampled[at] * weights[at])
        return Estimates(weights, sampled, self.more(moment if counted else None), margin)


_NOTHING: Means = (0.0, 0.0, 0.0)


def _after(before: Moment, now: float, one_in: float) -> Moment:
    passed = now - before.at
    left = _decayed(passed)
    new = _each(lambda at: (1 - left[at]) * HALF_LIVES_S[at] / log(2))
    return Moment(
        now,
        _each(lambda at: before.full[at] * left[at] + new[at]),
        _each(lambda at: before.sampled[at] * left[at] + new[at] / one_in),
    )


def _decayed(passed: float) -> Means:
    """Return what is left of weights after so many seconds, 0 after hours."""
    return _each(lambda at: 2 ** (-passed / HALF_LIVES_S[at]))


def _each(of: Callable[[int], float]) -> Means:
    return of(0), of(1), of(2)
