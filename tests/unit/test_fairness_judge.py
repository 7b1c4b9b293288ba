"""How bench/fairness judges: from what was sent and received alone."""

from collections.abc import Callable

import pytest

from bench.fairness_cases import Case, Router
from bench.fairness_judge import SECOND, Costs, Judge
from lab.offers import ROUTERS, WAIT_S, WAITS, WINDOWS, Outcome

_COSTS = Costs((1e-6, 1e-6), 0.2e-6)
_CASE = Case("two", (Router(0.4, weight=2), Router(0.6, weight=1)))
_FIRST, _LAST = SECOND, 3 * SECOND
_Packets = tuple[int, int]


def _outcome(
    sent: _Packets,
    received: Callable[[int], _Packets],
    refused: int = 0,
    waits: dict[int, dict[int, int]] | None = None,
) -> Outcome:
    """So many packets of each router in each window, as many windows as the measurement has."""
    counts = [0] * (WINDOWS * ROUTERS), [0] * (WINDOWS * ROUTERS)
    for window in range(_LAST):
        for found, packets in zip(counts, (sent, received(window)), strict=True):
            found[window * ROUTERS + 1 : window * ROUTERS + 3] = packets
    histogram = [0] * (ROUTERS * WAITS)
    for router, places in (waits or {}).items():
        for place, count in places.items():
            histogram[(router + 1) * WAITS + place] = count
    return Outcome(*counts, histogram, refused, 0, 1.0, 0.0)


def test_who_has_what_it_is_entitled_to_is_no_error() -> None:
    # A window is 10 ms: 10,000 us of the core. 0.8 and 1.2 of it arrive; drops cost 0.2 each.
    outcome = _outcome((8000, 12000), lambda _: (6333, 1166))
    judge = Judge(_CASE, 2.0, _COSTS, outcome, _FIRST, _LAST)
    division = judge.division(_FIRST, _LAST)
    assert division.shares == pytest.approx([2 / 3, 1 / 3], abs=1e-4)
    assert division.entitled == pytest.approx([2 / 3, 1 / 3])
    assert judge.error() < 1e-3
    assert judge.victims() == []
    assert judge.victim_loss([]) is None


def test_what_the_ring_refuses_costs_nothing() -> None:
    # Without shares: each gets what arrives of it, and drops are the ring's.
    missing = (8000 - 4000 + 12000 - 6000) * _LAST
    judge = Judge(_CASE, 2.0, _COSTS, _outcome((8000, 12000), lambda _: (4000, 6000), missing), _FIRST, _LAST)
    assert judge.division(_FIRST, _LAST).shares == pytest.approx([0.4, 0.6])
    assert judge.error() == pytest.approx(2 / 3 - 0.4)


def test_a_modest_router_is_a_victim_of_what_it_loses() -> None:
    case = Case("two", (Router(0.1), Router(0.9)))
    judge = Judge(case, 2.0, _COSTS, _outcome((2000, 18000), lambda _: (1900, 5000)), _FIRST, _LAST)
    assert judge.victims() == [0]
    assert judge.victim_loss([0]) == pytest.approx(0.05)


def test_below_one_the_whole_is_all_there_is() -> None:
    judge = Judge(_CASE, 0.5, _COSTS, _outcome((2000, 3000), lambda _: (2000, 3000)), _FIRST, _LAST)
    division = judge.division(_FIRST, _LAST)
    assert division.shares == pytest.approx([0.2, 0.3])
    assert judge.error() == pytest.approx(0.0)
    assert judge.victims() == [0, 1]


def test_the_worst_second_counts() -> None:
    def received(window: int) -> _Packets:
        return (6333, 1166) if window < 2 * SECOND else (4000, 6000)

    judge = Judge(_CASE, 2.0, _COSTS, _outcome((8000, 12000), received), _FIRST, _LAST)
    assert judge.error() > 0.2
    assert judge.division(_FIRST, 2 * SECOND).error < 1e-3


def test_converged_when_the_error_stays_small() -> None:
    def received(window: int) -> _Packets:
        return (6333, 1166) if window >= SECOND + 7 else (4000, 6000)

    judge = Judge(_CASE, 2.0, _COSTS, _outcome((8000, 12000), received), 2 * SECOND, _LAST)
    assert judge.converge_ms(SECOND) == pytest.approx(70.0)
    never = Judge(_CASE, 2.0, _COSTS, _outcome((8000, 12000), lambda _: (4000, 6000)), 2 * SECOND, _LAST)
    assert never.converge_ms(SECOND) is None


def test_waits_of_the_worst_victim() -> None:
    waits = {0: {10: 98, 300: 2}, 1: {5: 100}}
    judge = Judge(_CASE, 0.5, _COSTS, _outcome((2000, 3000), lambda _: (2000, 3000), waits=waits), _FIRST, _LAST)
    assert judge.victim_p99_us([0, 1]) == pytest.approx(301 * WAIT_S * 1e6)
    assert judge.victim_p99_us([1]) == pytest.approx(6 * WAIT_S * 1e6)
    assert judge.victim_p99_us([]) is None


def test_a_wait_longer_than_what_is_counted_has_no_number() -> None:
    waits = {0: {WAITS - 1: 100}}
    judge = Judge(_CASE, 0.5, _COSTS, _outcome((2000, 3000), lambda _: (2000, 3000), waits=waits), _FIRST, _LAST)
    assert judge.victim_p99_us([0]) == float("inf")


def test_the_report_has_what_is_promised() -> None:
    found = Judge(_CASE, 2.0, _COSTS, _outcome((8000, 12000), lambda _: (6333, 1166)), _FIRST, _LAST).report(0)
    assert {"load", "error", "victim_loss", "victim_p99_us", "converge_ms", "routers"} <= found.keys()
    assert found["load"] == pytest.approx(2.0)
    assert found["routers"][0].keys() == {"offered", "forwarded", "cpu_share", "entitled"}
    assert found["routers"][0]["offered"] == pytest.approx(800_000)
