"""Weights of a group: the proportions stay as far as a bounded sum lets them."""

from controller.planes.base import MAX_GROUP_WEIGHT
from controller.routing.weights import fit_weights


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
    assert fitted([40, 50, 1, 1, 1], bound=10) == [3, 4, 1, 1, 1]  # what the least get beyond theirs, all others pay


def test_of_too_many_members_the_heaviest_stay_in_their_order() -> None:
    members = [("a", 1), ("b", 3), ("c", 1), ("d", 2)]
    assert fit_weights(members, 3) == (("a", 1), ("b", 1), ("d", 1))
