"""The search for the highest rate without loss finds it from wherever it begins."""

import pytest

from bench.peer_search import PRECISION, lossless


@pytest.mark.parametrize("first", [1.0, 900.0, 50_000.0, 1e9])
@pytest.mark.parametrize("capacity", [600.0, 70_123.0, 4_999_999.0])
def test_finds_the_capacity(first: float, capacity: float) -> None:
    tried: list[float] = []

    def holds(rate: float) -> bool:
        tried.append(rate)
        return rate <= capacity

    found = lossless(first, 500, 16e6, holds)
    assert capacity / PRECISION <= found <= capacity
    assert len(tried) < 30


def test_stops_at_the_bounds() -> None:
    assert lossless(5.0, 500, 16e6, lambda rate: True) == 16e6
    assert lossless(1e6, 500, 16e6, lambda rate: False) == 0.0
