"""Weights of a group: the proportions stay as far as a bounded sum lets them."""

from fractions import Fraction
from math import gcd

from hypothesis import given, settings
from hypothesis import strategies as st

from controller.planes.base import MAX_GROUP_WEIGHT
from controller.weights import fit_weights

quick = settings(max_examples=60, deadline=None)
weights = st.lists(st.integers(1, 1 << 16), min_size=1, max_size=MAX_GROUP_WEIGHT + 20)


def fitted(given: list[int], bound: int = MAX_GROUP_WEIGHT) -> list[int]:
    return [weight for _, weight in fit_weights(list(enumerate(given)), bound)]


def test_small_weights_are_only_reduced() -> None:
    assert fitted([2, 4]) == [1, 2]
    assert fitted([3, 5]) == [3, 5]
    assert fitted([256]) == [1]
    assert fitted([255, 1]) == [255, 1]


def test_large_weights_go_by_largest_remainder() -> None:
    assert fitted([1000, 1, 1]) == [254, 1, 1]
    assert fitted([5, 4, 2], bound=8) == [4, 3, 1]
    assert fitted([256, 1]) == [255, 1]


def test_of_too_many_members_the_heaviest_stay_in_their_order() -> None:
    members = [("a", 1), ("b", 3), ("c", 1), ("d", 2)]
    assert fit_weights(members, 3) == (("a", 1), ("b", 1), ("d", 1))


@quick
@given(weights)
def test_what_fits_is_bounded_reduced_and_final(given: list[int]) -> None:
    shares = fitted(given)
    assert len(shares) == min(len(given), MAX_GROUP_WEIGHT)
    assert min(shares) >= 1
    assert sum(shares) <= MAX_GROUP_WEIGHT
    assert gcd(*shares) == 1
    assert fitted(shares) == shares


@quick
@given(st.lists(st.integers(1, 64), min_size=2, max_size=8))
def test_shares_are_off_by_less_than_a_slot_unless_one_is_the_least(given: list[int]) -> None:
    shares = fitted(given)
    total, sum_of_shares = sum(given), sum(shares)
    for weight, share in zip(given, shares, strict=True):
        assert abs(Fraction(weight, total) - Fraction(share, sum_of_shares)) < Fraction(1, MAX_GROUP_WEIGHT)


@quick
@given(weights)
def test_a_heavier_member_never_gets_less(given: list[int]) -> None:
    kept = fit_weights(list(enumerate(given)))
    pairs = sorted((given[position], share) for position, share in kept)
    assert [share for _, share in pairs] == sorted(share for _, share in pairs)
