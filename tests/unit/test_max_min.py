"""Weighted max-min as bench/fairness judges by it, and what it reads off its windows."""

import random

import pytest

from bench.max_min import Claim, Share, converged, entitled, percentile

_GREEDY = 10.0  # more than there is


def _weights(*weights: float, demand: float = _GREEDY) -> list[Claim]:
    return [Claim(demand, Share(weight)) for weight in weights]


def test_who_wants_more_than_there_is_gets_its_weight() -> None:
    assert entitled(_weights(2, 1)) == pytest.approx([2 / 3, 1 / 3])
    assert entitled(_weights(1, 2, 3, 4), whole=0.5) == pytest.approx([0.05, 0.1, 0.15, 0.2])


def test_who_wants_less_gets_it_and_leaves_the_rest() -> None:
    modest, greedy = Claim(0.1, Share(5)), Claim(_GREEDY)
    assert entitled([modest, greedy, greedy]) == pytest.approx([0.1, 0.45, 0.45])
    assert entitled(_weights(1, 7, demand=0.2)) == [0.2, 0.2]


def test_the_papers_case_at_twice_what_there_is() -> None:
    # 40 % of what arrives is for the one of weight 2: it demands 0.8, and is entitled to 0.667.
    assert entitled([Claim(0.8, Share(2)), Claim(1.2, Share(1))]) == pytest.approx([2 / 3, 1 / 3])
    assert entitled([Claim(0.4, Share(2)), Claim(0.6, Share(1))]) == pytest.approx([0.4, 0.6])


def test_a_guarantee_is_a_floor_and_a_ceiling_a_roof() -> None:
    assert entitled([Claim(_GREEDY, Share(1, guarantee=0.5)), *_weights(1, 1)]) == pytest.approx([0.5, 0.25, 0.25])
    assert entitled([Claim(_GREEDY, Share(1, ceiling=0.2)), *_weights(1, 1)]) == pytest.approx([0.2, 0.4, 0.4])
    assert entitled([Claim(_GREEDY, Share(9, ceiling=0.2))]) == [0.2]  # though nobody wants the rest
    assert entitled([Claim(0.1, Share(1, guarantee=0.5)), Claim(_GREEDY)]) == pytest.approx([0.1, 0.9])


def test_slices_share_the_whole_and_routers_their_slice() -> None:
    three = [Claim(_GREEDY, slice=1)] * 3
    assert entitled([*three, Claim(_GREEDY, slice=2)]) == pytest.approx([1 / 6, 1 / 6, 1 / 6, 1 / 2])
    assert entitled([*three, Claim(_GREEDY)]) == pytest.approx([1 / 6, 1 / 6, 1 / 6, 1 / 2])  # of no slice
    assert entitled([*three, Claim(_GREEDY, slice=2)], {1: Share(3)}) == pytest.approx([0.25] * 4)
    capped = {1: Share(1, ceiling=0.1)}
    assert entitled([Claim(_GREEDY, slice=1), Claim(_GREEDY)], capped) == pytest.approx([0.1, 0.9])


def test_what_a_slice_does_not_want_is_for_others() -> None:
    claims = [Claim(0.1, slice=1), Claim(0.05, slice=1), Claim(_GREEDY, Share(2), 2), Claim(_GREEDY, slice=2)]
    assert entitled(claims) == pytest.approx([0.1, 0.05, 0.85 * 2 / 3, 0.85 / 3])
    claims = [Claim(_GREEDY, Share(ceiling=0.1), 1), Claim(_GREEDY, slice=2)]
    assert entitled(claims) == pytest.approx([0.1, 0.9])


def test_nobody_gets_more_by_anybody_elses_want_and_nothing_is_left() -> None:
    chance = random.Random(1)
    for _ in range(200):
        claims = [Claim(chance.random(), Share(chance.choice((1, 2, 5))), chance.choice((0, 1, 2))) for _ in range(8)]
        found = entitled(claims)
        assert sum(found) == pytest.approx(min(1.0, sum(claim.demand for claim in claims)))
        assert all(taken <= claim.demand for taken, claim in zip(found, claims, strict=True))
        for slice_ in (1, 2):  # in a slice, who is not given what it wants has as much for its weight as any other
            short = [
                (taken / claim.share.weight, claim)
                for taken, claim in zip(found, claims, strict=True)
                if claim.slice == slice_ and taken < claim.demand - 1e-9
            ]
            levels = [level for level, _ in short]
            assert levels == pytest.approx([levels[0]] * len(levels)) if levels else True
            for taken, claim in zip(found, claims, strict=True):
                if claim.slice == slice_ and levels:
                    assert taken / claim.share.weight <= levels[0] + 1e-9


def test_nobody_wants_anything() -> None:
    assert entitled([]) == []
    assert entitled([Claim(0.0), Claim(0.0, slice=1)]) == [0.0, 0.0]


def test_converged_where_errors_stay_below() -> None:
    assert converged([0.3, 0.04, 0.3, 0.04, 0.03, 0.01], 0.05, 3) == 3
    assert converged([0.01, 0.01], 0.05, 2) == 0
    assert converged([0.01, 0.06, 0.01], 0.05, 2) is None


def test_a_percentile_of_a_histogram() -> None:
    assert percentile([0, 99, 0, 1], 0.99) == 1
    assert percentile([0, 98, 0, 2], 0.99) == 3
    assert percentile([0, 0], 0.99) is None
