"""Adaptive confidence for short-window rate estimates.

A prefix that enters hardware because of a short mean alone is on trial: once its entry has counted for some seconds,
it is known whether the entry reaches the rate that it needs. Where fewer than half of the trials succeed, the margin
grows: the popular set is steady, and most short peaks are chance. Where more succeed, it falls: the set is changing.
"""

from collections.abc import Mapping
from dataclasses import dataclass

LEAST_MARGIN, MOST_MARGIN = 0.0, 3.0
"""Subtracted from a short mean, in standard errors: three are hardly ever chance."""
TRIAL_S = 5.0
"""A read of the counters, at least."""
_STEP = 1.0
_WITNESSES = 10
"""Trials of one read that count for as much as the state before: few say little."""


@dataclass(slots=True)
class Trial:
    """One entry on trial: it has to bring ``needed`` packets a second."""

    since: float
    needed: float
    packets: int = 0


class Confidence:
    """The margin of short means, and the entries on trial by router, which adapt it."""

    def __init__(self) -> None:
        self.margin = 1.0
        self._trials: dict[int, dict[bytes, Trial]] = {}

    def begin(self, vrf_id: int, key: bytes, now: float, needed: float) -> None:
        """Put an entry on trial that has just come."""
        self._trials.setdefault(vrf_id, {})[key] = Trial(now, needed)

    def drop(self, vrf_id: int, key: bytes | None = None) -> None:
        """End the trial of an entry that has left, or of all of a router, undecided."""
        if key is None:
            self._trials.pop(vrf_id, None)
        elif vrf_id in self._trials:
            self._trials[vrf_id].pop(key, None)

    def count(self, now: float, vrf_id: int, packets: Mapping[bytes, int]) -> None:
        """Take what entries counted since the last time."""
        trials = self._trials.get(vrf_id, {})
        decided, right = [], 0
        for key, trial in trials.items():
            trial.packets += packets.get(key, 0)
            passed = now - trial.since
            if passed >= TRIAL_S:
                decided.append(key)
                right += trial.packets >= trial.needed * passed
        for key in decided:
            del trials[key]
        wrong = len(decided) - right
        self.margin += _STEP * (wrong - right) / (len(decided) + _WITNESSES)
        self.margin = min(MOST_MARGIN, max(LEAST_MARGIN, self.margin))
