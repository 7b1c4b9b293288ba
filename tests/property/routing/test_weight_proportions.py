"""Whatever weights the members of a group have, what is fitted is bounded and keeps their proportions."""

from fractions import Fraction
from math import gcd

from hypothesis import given, settings
from hypothesis import strategies as st

from controller.planes.base import MAX_GROUP_WEIGHT
from controller.routing.weights import fit_weights

quick = settings(max_examples=60, deadline=None)
weights = st.lists(st.integers(1, 1 << 16), min_size=1, max_size=MAX_GROUP_WEIGHT + 20)


def shares_of(given: list[int]) -> list[int]:
    return [weight for _, weight in fit_weights(list(enumerate(given)), MAX_GROUP_WEIGHT)]


@quick
@given(weights)
def test_what_fits_is_bounded_reduced_and_final(given: list[int]) -> None:
    shares = shares_of(given)
    assert len(shares) == min(len(given), MAX_GROUP_WEIGHT)
    assert min(shares) >= 1
    assert sum(shares) <= MAX_GROUP_WEIGHT
    assert gcd(*shares) == 1
    assert shares_of(shares) == shares


@quick
@given(st.lists(st.integers(1, 64), min_size=2, max_size=8))
def test_shares_are_off_by_less_than_a_slot_unless_one_is_the_least(given: list[int]) -> None:
    shares = shares_of(given)
    total, sum_of_shares = sum(given), sum(shares)
    for weight, share in zip(given, shares, strict=True):
        assert abs(Fraction(weight, total) - Fraction(share, sum_of_shares)) < Fraction(1, MAX_GROUP_WEIGHT)


@quick
@given(weights)
def test_a_heavier_member_never_gets_less(given: list[int]) -> None:
    kept = fit_weights(list(enumerate(given)))
    pairs = sorted((given[position], share) for position, share in kept)
    assert [share for _, share in pairs] == sorted(share for _, share in pairs)
