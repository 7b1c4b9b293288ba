"""Weights of a nexthop group as every plane can hold them: whole numbers of a bounded sum. Pure."""

from collections.abc import Sequence
from math import gcd
from typing import TypeVar

from controller.planes.base import MAX_GROUP_WEIGHT

K = TypeVar("K")


def fit_weights(members: Sequence[tuple[K, int]], bound: int = MAX_GROUP_WEIGHT) -> tuple[tuple[K, int], ...]:
    """Return members with weights in the same proportions whose sum is ``bound`` at most.

    Weights, 1 or more each, are divided by their greatest common divisor. Where they still add up to more than the
    bound, they are scaled to it and rounded by largest remainder, to 1 at least. Of more than ``bound`` members the
    heaviest stay, of equal ones the first; the order stays as it is. What comes of it is not changed again.
    """
    if len(members) > bound:
        heaviest = sorted(range(len(members)), key=lambda position: -members[position][1])[:bound]
        members = [members[position] for position in sorted(heaviest)]
    weights = _reduce([weight for _, weight in members])
    if sum(weights) > bound:
        weights = _reduce(_scale(weights, bound))
    return tuple((key, weight) for (key, _), weight in zip(members, weights, strict=True))


def _reduce(weights: list[int]) -> list[int]:
    divisor = gcd(*weights)
    return [weight // divisor for weight in weights]


def _scale(weights: Sequence[int], bound: int) -> list[int]:
    """Return weights of the sum ``bound``, at least 1 each, by largest remainder."""
    total = sum(weights)
    scaled = [max(1, weight * bound // total) for weight in weights]
    remainders = [weight * bound - share * total for weight, share in zip(weights, scaled, strict=True)]
    while (missing := bound - sum(scaled)) != 0:
        step = 1 if missing > 0 else -1
        open_to = [position for position, share in enumerate(scaled) if step > 0 or share > 1]
        position = max(open_to, key=lambda one: step * remainders[one])
        scaled[position] += step
        remainders[position] -= step * total
    return scaled
