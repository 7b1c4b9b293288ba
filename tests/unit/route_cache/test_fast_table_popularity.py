"""What meters say of a stream of packets whose rate is known."""

import random

import pytest

from controller.route_cache.popularity import Estimates, Meter, Popularity


def fed(rates: list[tuple[int, float]], event: int, start: float = 0.0, seed: int = 1) -> tuple[Meter, Estimates]:
    """Feed a meter for so many seconds at so many packets a second, one of ``event`` of which it sees."""
    chance, meter, clock, now = random.Random(seed), Meter(), Popularity(), start
    for seconds, rate in rates:
        for _ in range(seconds):
            moment = clock.advance(now, event)
            meter.add(sum(chance.random() < rate / event / 100 for _ in range(100)), clock.weights(now))
            now += 1
    return meter, clock.estimates(moment)


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
    meter = Meter()
    clock.advance(0, 100)
    meter.add(1, clock.weights(0))
    estimates = clock.estimates(clock.advance(1, 100))
    assert estimates.of(meter) == estimates.slow(meter) == 0
    assert list(estimates.above([(b"", meter)], 0.0)) == []
    assert list(estimates.above([(b"", meter)], -1.0)) == [(0.0, b"")]  # but it fills what is free


def test_what_a_sample_stands_for_may_change() -> None:
    chance, meter, clock = random.Random(1), Meter(), Popularity()
    for now in range(600):
        one_in = 10 if now % 120 < 60 else 50
        moment = clock.advance(now, one_in)
        meter.add(sum(chance.random() < 50 / one_in / 100 for _ in range(100)), clock.weights(now))
    assert clock.estimates(moment).of(meter) == pytest.approx(50, rel=0.15)


def test_what_was_counted_in_hardware_is_known_in_software() -> None:
    meter, clock = Meter(), Popularity()
    for now in range(300):
        moment = clock.advance(now, 1000)
        if now == 100:
            meter.enter(clock.more(moment))
        if 100 < now <= 200:
            meter.add(20, clock.weights(now))
        if now == 200:
            assert clock.estimates(moment, counted=True).of(meter) == pytest.approx(20, rel=0.1)
            meter.leave(clock.more(moment))
            assert clock.estimates(moment).of(meter) == pytest.approx(20, rel=0.1)
    assert clock.estimates(moment).of(meter) < 20  # nothing was sampled since
    meter.add(2, clock.weights(299))
    assert clock.estimates(moment).slow(meter) < 30  # two samples do not say much beside that
