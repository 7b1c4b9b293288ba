"""The search for the highest rate without loss (RFC 2544, section 26.1)."""

from collections.abc import Callable

PRECISION = 1.03
"""The lowest rate that failed is at most so many times the rate that is returned."""


def lossless(first: float, least: float, most: float, holds: Callable[[float], bool]) -> float:
    """Return the highest rate found that ``holds``, from ``least`` to ``most``; 0.0 where not even ``least`` does.

    Begins at ``first`` and doubles or halves until one rate holds and one does not. Under overload some forward less
    than they can, so what they forwarded then says little about where to end.
    """
    low, high = 0.0, 0.0
    rate = min(max(first, least), most)
    while not (low and high):
        if holds(rate):
            low = rate
            if rate == most:
                return most
            rate = min(rate * 2, most)
        else:
            high = rate
            if rate == least:
                return 0.0
            rate = max(rate / 2, least)
    while high > low * PRECISION:
        middle: float = (low * high) ** 0.5
        if holds(middle):
            low = middle
        else:
            high = middle
    return low
