"""How fair it was: what routers had of a core or link, beside what they were entitled to. Pure.

The forwarder's own accounting is not asked. What a router has had of the core is what its forwarded packets cost when
it was alone, and what its dropped ones cost, as measured; of a link, its octets.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from bench.fairness_cases import Case
from bench.max_min import Claim, converged, entitled, percentile
from lab.offers import WAIT_S, WAITS, WINDOW_S, WINDOWS, Outcome, between

SECOND = round(1 / WINDOW_S)
"""Windows over which an error is taken."""
CONVERGED, CONVERGED_FOR = 0.05, 10
"""An error that is reached when it was below for so many windows."""
_MODEST = 0.999
"""Of what a router demands it is entitled to so much: it demands no more than its part."""
_TAIL = 0.99


@dataclass(frozen=True, slots=True)
class Costs:
    """What packets cost, as parts of what there is in a second; of a core these are seconds."""

    routers: tuple[float, ...]  # a packet that is forwarded
    drop: float  # one that the forwarder drops early

    def used(self, sent: Sequence[int], received: Sequence[int], dropped: float) -> list[float]:
        """Return what each router has had where so great a part of what was lost was dropped by the forwarder."""
        return [
            came * cost + max(0, gone - came) * dropped * self.drop
            for gone, came, cost in zip(sent, received, self.routers, strict=True)
        ]


@dataclass(frozen=True, slots=True)
class Division:
    """What each router had and was entitled to in some windows, as parts of the whole."""

    shares: list[float]
    entitled: list[float]
    demands: list[float]

    @property
    def error(self) -> float:
        """How far the worst is off."""
        return max(abs(share - right) for share, right in zip(self.shares, self.entitled, strict=True))


class Judge:
    """Judges what came of an offer at a load; from window ``first`` to ``last`` - 1 it was measured."""

    def __init__(self, case: Case, load: float, costs: Costs, outcome: Outcome, first: int, last: int) -> None:
        self._case, self._load, self._costs, self._outcome = case, load, costs, outcome
        self._first, self._last, self._count = first, last, len(case.routers)
        sent, received = self._sums(0, WINDOWS)
        self._sent, missing = sum(sent), sum(sent) - sum(received)
        # What the rings refused cost nothing. Packets are alike to a ring, so it refuses a part of what any router
        # loses.
        self._dropped = max(0.0, 1 - (outcome.refused + outcome.lost) / missing) if missing > 0 else 0.0

    def _sums(self, first: int, last: int) -> tuple[list[int], list[int]]:
        sent, received = self._outcome.sent, self._outcome.received
        return between(sent, first, last, self._count), between(received, first, last, self._count)

    def division(self, first: int, last: int) -> Division:
        """Return how the whole was divided in some windows: all that was used, or, below a load of 1, all that there
        is. So what else the core did meanwhile is no router's error."""
        sent, received = self._sums(first, last)
        used = self._costs.used(sent, received, self._dropped)
        whole = sum(used) if self._load >= 1 else (last - first) * WINDOW_S
        if not whole:
            return Division([0.0] * self._count, [0.0] * self._count, [0.0] * self._count)
        demands = [gone * cost / whole for gone, cost in zip(sent, self._costs.routers, strict=True)]
        claims = [
            Claim(demand, router.share, router.slice)
            for demand, router in zip(demands, self._case.routers, strict=True)
        ]
        return Division([one / whole for one in used], entitled(claims, self._case.slices), demands)

    def error(self) -> float:
        """Return the largest error of any second that was measured."""
        seconds = range(self._first, self._last - SECOND + 1, SECOND)
        return max(self.division(first, first + SECOND).error for first in seconds)

    def converge_ms(self, step: int) -> float | None:
        """Return how long after a window the error came to stay below CONVERGED; None: it never did."""
        errors = [self.division(window, window + 1).error for window in range(step, self._last)]
        window = converged(errors, CONVERGED, CONVERGED_FOR)
        return None if window is None else window * WINDOW_S * 1000

    def victims(self) -> list[int]:
        """Return the routers that demand no more than they are entitled to."""
        division = self.division(self._first, self._last)
        pairs = zip(division.demands, division.entitled, strict=True)
        return [place for place, (demand, right) in enumerate(pairs) if right >= demand * _MODEST]

    def victim_loss(self, victims: Iterable[int]) -> float | None:
        """Return what part of its packets the worst of some routers lost; None of none."""
        sent, received = self._sums(self._first, self._last)
        return max((1 - received[place] / sent[place] for place in victims if sent[place]), default=None)

    def victim_p99_us(self, victims: Iterable[int]) -> float | None:
        """Return how long 99 % of the packets of the worst of some routers were under way at most; None of none, and
        infinite where that is longer than what is counted."""
        found = [percentile(self._outcome.waits_of(place), _TAIL) for place in victims]
        longest = max((place for place in found if place is not None), default=None)
        if longest is None:
            return None
        return (longest + 1) * WAIT_S * 1e6 if longest < WAITS - 1 else float("inf")

    def report(self, step: int | None) -> dict[str, Any]:
        """Return all figures; the load rose in window ``step``, where it did."""
        sent, received = self._sums(self._first, self._last)
        seconds = (self._last - self._first) * WINDOW_S
        division, victims = self.division(self._first, self._last), self.victims()
        rows = zip(sent, received, division.shares, division.entitled, strict=True)
        return {
            "load": sum(gone * cost for gone, cost in zip(sent, self._costs.routers, strict=True)) / seconds,
            "error": self.error(),
            "victim_loss": self.victim_loss(victims),
            "victim_p99_us": self.victim_p99_us(victims),
            "converge_ms": None if step is None else self.converge_ms(step),
            "idle": self._outcome.idle,
            "forwarded": sum(received) / seconds,
            "refused": self._outcome.refused / max(1, self._sent),
            "lost_behind": self._outcome.lost / max(1, self._sent),
            "routers": [
                {"offered": gone / seconds, "forwarded": came / seconds, "cpu_share": share, "entitled": right}
                for gone, came, share, right in rows
            ],
        }
