"""The numbers of the estimates: what each mean says, which of them decides, and how time weighs."""

from math import log

import pytest

from controller.route_cache.popularity import HALF_LIVES_S, Estimates, Meter, Moment, Popularity, Weighted

KEY = b"\x0a\0\0\0\x08"
NOTHING = (0.0, 0.0, 0.0)
LANDMARK = 1000.0


def a_meter(slow: float, middle: float, fast: float, entries: int = 1) -> Meter:
    meter = Meter()
    meter.slow, meter.middle, meter.fast, meter.entries = slow, middle, fast, entries
    meter.looked_slow, meter.looked_middle, meter.looked_fast = 3.0, -5.0, 0.5
    meter.landmark = LANDMARK
    return meter


ESTIMATES = Estimates(Weighted(1.0, 2.0, 4.0, LANDMARK), (10.0, 5.0, 2.0), Weighted(2.0, 1.0, 0.5, LANDMARK), 2.0)
"""An event weighs 1, 2 and 4. With what the meters above were looked at, exposures are 10 + 3 + 2 = 15, 5 (not less,
though 1 - 5 is), and 2 + 0.5 + 0.5 = 3."""


@pytest.mark.parametrize(
    ("slow", "middle", "fast", "rate"),
    [
        (31.0, 18.0, 9.0, (31 - 1) / 15),  # the slow mean, less one event
        (31.0, 50.0, 16.0, (50 - 2 - 2 * 10) / 5),  # the middle one, less an event and two standard errors, is more
        (31.0, 0.5, 9.0, (0.5 + 1 + 2) / 5),  # … and bounds it, with one standard error and an event more
        (31.0, 18.0, 100.0, (100 - 4 - 2 * 20) / 3),  # the fast one is more
        (31.0, 18.0, 0.25, (0.25 + 1 + 4) / 3),  # … and bounds it
        (31.0, 0.5, 100.0, (100 - 4 - 2 * 20) / 3),  # what began again
    ],
)
def test_which_of_the_means_decides(slow: float, middle: float, fast: float, rate: float) -> None:
    meter = a_meter(slow, middle, fast)
    assert list(ESTIMATES.above([(KEY, meter)], 0.0)) == [(pytest.approx(rate), KEY)]
    assert list(ESTIMATES.above([(KEY, meter)], ESTIMATES.of(meter))) == []
    assert ESTIMATES.of(meter) == pytest.approx(rate)
    meter.entries = 4
    assert list(ESTIMATES.above([(KEY, meter)], 0.0)) == [(pytest.approx(rate / 4), KEY)]
    assert ESTIMATES.of(meter) == pytest.approx(rate)


def test_one_event_or_less_says_nothing() -> None:
    meters = [(KEY, a_meter(1.0, 2.0, 4.0))]
    assert list(ESTIMATES.above(meters, 0.0)) == []
    assert list(ESTIMATES.above(meters, -1.0)) == [(0.0, KEY)]
    assert ESTIMATES.of(meters[0][1]) == 0.0
    assert ESTIMATES.slow(meters[0][1]) == 0.0


def test_the_slow_mean_alone() -> None:
    assert ESTIMATES.slow(a_meter(31.0, 0.0, 0.0)) == pytest.approx(30 / 15)
    less = a_meter(31.0, 0.0, 0.0)
    less.looked_slow = -9.0
    assert ESTIMATES.slow(less) == pytest.approx(30 / 10)


def test_what_is_added_moved_looked_at_and_taken_back() -> None:
    meter, other = Meter(), Meter()
    meter.landmark = other.landmark = LANDMARK
    meter.add(3, Weighted(1.0, 2.0, 4.0, LANDMARK))
    meter.add(1, Weighted(1.0, 2.0, 4.0, LANDMARK))
    assert (meter.slow, meter.middle, meter.fast) == (4.0, 8.0, 16.0)
    other.slow, other.middle, other.fast = 1.0, 9.0, 6.0
    meter.move(other)
    assert (meter.slow, meter.middle, meter.fast) == (3.0, 0.0, 10.0)
    meter.enter(Weighted(1.0, 2.0, 3.0, LANDMARK))
    assert (meter.looked_slow, meter.looked_middle, meter.looked_fast) == (-1.0, -2.0, -3.0)
    meter.leave(Weighted(5.0, 1.0, 9.0, LANDMARK))
    assert (meter.looked_slow, meter.looked_middle, meter.looked_fast) == (4.0, 0.0, 6.0)
    meter.middle = meter.looked_middle = 8.0
    meter.follow(LANDMARK + 24.0)  # a tenth of the slow half-life
    left = [2 ** (-24 / one) for one in HALF_LIVES_S]
    assert [meter.slow, meter.middle, meter.fast] == pytest.approx([3 * left[0], 8 * left[1], 10 * left[2]])
    assert [meter.looked_slow, meter.looked_middle, meter.looked_fast] == pytest.approx(
        [4 * left[0], 8 * left[1], 6 * left[2]]
    )


@pytest.mark.parametrize("used", ["add", "enter", "leave", "move", "moved", "of", "slow"])
def test_a_meter_follows_a_new_landmark_wherever_it_is_used(used: str) -> None:
    """Two that count the same; one of them is brought along at once."""
    meters = old, followed = [a_meter(31.0, 18.0, 9.0) for _ in range(2)]
    landmark = LANDMARK + 24.0
    followed.follow(landmark)
    weights = Weighted(1.0, 2.0, 4.0, landmark)
    estimates = Estimates(weights, (10.0, 5.0, 2.0), weights, 2.0)
    for meter in meters:
        other = a_meter(1.0, 2.0, 3.0)
        if used == "add":
            meter.add(3, weights)
        elif used in ("enter", "leave"):
            getattr(meter, used)(weights)
        elif used == "move":
            other.follow(landmark)
            meter.move(other)
        elif used == "moved":
            other.follow(landmark)
            other.move(meter)
            assert (other.slow, other.middle) == (0.0, 0.0)
        else:
            assert getattr(estimates, used)(meter) == pytest.approx(getattr(estimates, used)(followed))
    for name in Meter.__slots__:
        assert getattr(old, name) == pytest.approx(getattr(followed, name)), name


def looked_at(half_life_s: float, seconds: float) -> float:
    """What so many seconds of looking weigh at their end."""
    return half_life_s / log(2) * (1 - 2 ** (-seconds / half_life_s))


def test_an_event_weighs_twice_as_much_a_half_life_later() -> None:
    clock = Popularity()
    assert clock.weights(500.0)[:3] == (1.0, 1.0, 1.0)  # before it began
    clock.advance(1000.0, 10.0)
    assert clock.weights(1000.0) == (1.0, 1.0, 1.0, 1000.0)
    assert clock.weights(1240.0) == pytest.approx((2.0, 2.0**8, 2.0**30, 1000.0))


def test_what_was_looked_at_counts_as_a_tenth_where_one_of_ten_is_sampled() -> None:
    clock = Popularity()
    first = clock.advance(1000.0, 10.0)
    # A second was looked at before the clock began.
    assert first.full == pytest.approx([looked_at(one, 1.0) for one in HALF_LIVES_S])
    assert first.sampled == pytest.approx([looked_at(one, 1.0) / 10 for one in HALF_LIVES_S])
    clock.advance(1007.0, 10.0)
    later = clock.advance(1029.0, 5.0)
    assert later == clock.moment
    assert later.full == pytest.approx([looked_at(one, 30.0) for one in HALF_LIVES_S])
    tenth, fifth = 8.0, 22.0
    assert later.sampled == pytest.approx(
        [looked_at(one, tenth) / 10 * 2 ** (-fifth / one) + looked_at(one, fifth) / 5 for one in HALF_LIVES_S]
    )
    assert clock.advance(1028.0, 5.0).full == later.full  # a clock that went back stands still


def test_a_moment_that_is_told_late_lets_no_time_pass_twice() -> None:
    """What was counted at one moment is taken in steps, and rounds come in between."""
    clock, straight = Popularity(), Popularity()
    for now in (1000.0, 1000.5, 1001.0, 1002.0):
        straight.advance(now, 10.0)
        clock.advance(now, 10.0)
        assert clock.advance(1000.0, 10.0).at == 1000.0
        assert clock.moment == straight.moment


def test_what_is_counted_all_the_time_is_estimated_as_it_is() -> None:
    clock, counted, sampled, came = Popularity(), Meter(), Meter(), Meter()
    clock.advance(0.0, 100.0)
    for second in range(2000):
        moment = clock.advance(second + 1.0, 100.0)
        weights = clock.weights(second + 0.5)
        counted.add(50, weights)
        sampled.add(0.5, weights)  # one of a hundred
        if second >= 1900:
            came.add(50, weights)
        if second == 1899:
            came.enter(clock.more(moment))
    estimates, plain = clock.estimates(moment, counted=True), clock.estimates(moment)
    for meter in (counted, came):
        assert estimates.of(meter) == pytest.approx(50.0, rel=0.03)
    assert plain.slow(sampled) == pytest.approx(50.0, rel=0.35)  # less one event
    assert clock.more(None) == (*NOTHING, 0.0)
    assert plain.more == (*NOTHING, 0.0)
    assert (estimates.margin, clock.estimates(moment, 1.5).margin) == (0.0, 1.5)


@pytest.mark.parametrize("start", [0.0, 5000.0])
def test_weights_are_taken_back_before_they_leave_a_float(start: float) -> None:
    clock, meter = Popularity(), Meter()
    clock.advance(start, 1.0)
    meter.add(8, clock.weights(start))
    clock.advance(start + 3200.0, 1.0)
    assert (meter.slow, clock.weights(start + 3200.0)[2]) == (8.0, 2.0**400)
    slow, middle, fast, _ = clock.weights(start + 3201.0)
    clock.advance(start + 3201.0, 1.0)
    assert clock.weights(start + 3201.0) == (1.0, 1.0, 1.0, start + 3201.0)
    meter.follow(clock.landmark)
    assert (meter.slow * slow, meter.middle * middle, meter.fast * fast) == pytest.approx((8.0, 8.0, 8.0))


def test_nothing_is_left_after_hours_in_which_nobody_looked() -> None:
    clock, meter = Popularity(), Meter()
    clock.advance(0.0, 1.0)
    meter.add(8, clock.weights(0.0))
    moment = clock.advance(1e6, 1.0)
    assert clock.estimates(moment).of(meter) == 0.0
    assert (meter.slow, meter.middle, meter.fast) == NOTHING


def test_more_is_what_full_counting_was_beyond_samples() -> None:
    clock = Popularity()
    clock.advance(0.0, 4.0)
    moment = Moment(240.0, (8.0, 8.0, 8.0), (2.0, 2.0, 2.0))
    assert clock.more(moment) == pytest.approx((12.0, 6.0 * 2**8, 6.0 * 2**30, 0.0))
    estimates = clock.estimates(moment, counted=True)
    assert (estimates.weights, estimates.sampled) == (
        pytest.approx((2.0, 2.0**8, 2.0**30, 0.0)),
        pytest.approx((4.0, 2.0**9, 2.0**31)),
    )
    assert estimates.more == clock.more(moment)
