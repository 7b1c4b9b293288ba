"""What meters say of a stream of packets whose rate is known."""

import random

import pytest

from controller.placement.popularity import Estimates, Meter, Popularity


def fed(rates: list[tuple[int, float]], event: int, start: float = 0.0, seed: int = 1) -> tuple[Meter, Estimates]:
    """Feed a meter for so many seconds at so many packets a second, one of ``event`` of which it sees."""
    chance, meter, clock, now = random.Random(seed), Meter(), Popularity(), start
    for seconds, rate in rates:
        for _ in range(seconds):
            clock.advance(now, [meter])
            slow, fast = clock.weights(now)
            seen = sum(chance.random() < rate / event / 100 for _ in range(100))
            meter.slow += seen * event * slow
            meter.fast += seen * event * fast
            now += 1
    return meter, clock.estimates(now, event)


@pytest.mark.parametrize("start", [0.0, 1e6])
@pytest.mark.parametrize(("rate", "event"), [(10, 1), (50, 10)])
def test_a_steady_rate(rate: float, event: int, start: float) -> None:
    meter, estimates = fed([(4000, rate)], event, start)  # longer than weights fit a float
    assert estimates.of(meter) == pytest.approx(rate, rel=0.15)


def test_a_beginning_and_an_end_are_seen_within_seconds() -> None:
    begun, estimates = fed([(1000, 1), (20, 40)], 1)
    assert estimates.of(begun) > 20
    ended, estimates = fed([(1000, 40), (40, 0)], 1)
    assert estimates.of(ended) < 5


def test_one_packet_is_no_beginning() -> None:
    clock = Popularity()
    clock.advance(0, [])
    meter, (slow, fast) = Meter(), clock.weights(0)
    meter.slow, meter.fast = 100 * slow, 100 * fast
    assert clock.estimates(1, 100).of(meter) < 0.5
    assert list(clock.estimates(1, 100).above([(b"", meter)], 0.5)) == []
    assert list(clock.estimates(1, 100).above([(b"", meter)], 0.1)) == [
        (pytest.approx(clock.estimates(1, 100).of(meter)), b"")
    ]
