"""How much has to be seen of a prefix before it moves, and what is learned from what came of it."""

from controller.route_cache.confidence import LEAST_MARGIN, MOST_MARGIN, TRIAL_S, Confidence
from controller.route_cache.fast_table import FastTable

VRF = 1
MANY = [bytes((20, number, 0, 0, 24)) for number in range(200)]


def test_one_sample_fills_what_is_free_but_is_not_worth_a_cover() -> None:
    wide, inside, leaf = (
        bytes((10, 0, 0, 0, 8)),
        [bytes((10, number, 0, 0, 16)) for number in range(3)],
        b"\x14\0\0\0\x18",
    )
    fast = FastTable(4, 100, reserve=0)
    fast.add(VRF, "red")
    fast.change(VRF, {wide: 1, **dict.fromkeys(inside, 2), leaf: 3, **dict.fromkeys(MANY[1:], 4)})
    fast.sample(1, VRF, [leaf, bytes((10, 200, 0, 1, 32))], 100)
    assert fast.rebalance(1, 100) == {VRF: {leaf: (None, 3), bytes((10, 128, 0, 0, 9)): (None, 1)}}
    fast.sample(2, VRF, [wide], 100)
    assert fast.rebalance(2, 100) == {}
    fast.sample(3, VRF, [wide] * 2, 100)
    assert wide in fast.rebalance(3, 100)[VRF]


def test_the_margin_grows_by_what_was_wrong_and_falls_by_what_was_right() -> None:
    confidence, keys = Confidence(), MANY[:30]
    for now in range(0, 100, 10):
        for key in keys:
            confidence.begin(VRF, key, now, 10.0)
        confidence.count(now + 4, VRF, dict.fromkeys(keys, 0))
        before = confidence.margin
        confidence.count(now + 8, VRF, dict.fromkeys(keys, 79))
        assert before < confidence.margin or before == MOST_MARGIN
    for now in range(100, 200, 10):
        for key in keys:
            confidence.begin(VRF, key, now, 10.0)
        confidence.count(now + 8, VRF, dict.fromkeys(keys, 80))
    assert confidence.margin == LEAST_MARGIN


def test_a_trial_is_decided_once_its_time_is_over() -> None:
    confidence, key = Confidence(), MANY[0]
    before = confidence.margin
    confidence.begin(VRF, key, 0, 10.0)
    confidence.count(TRIAL_S - 0.01, VRF, {key: 0})
    assert confidence.margin == before
    confidence.count(TRIAL_S, VRF, {key: 0})
    assert confidence.margin > before


def test_a_trial_goes_on_where_another_entry_leaves() -> None:
    confidence, (key, other) = Confidence(), MANY[:2]
    for one in (key, other):
        confidence.begin(VRF, one, 0, 10.0)
    confidence.drop(VRF, other)
    before = confidence.margin
    confidence.count(TRIAL_S, VRF, {key: 0})
    assert confidence.margin > before


def test_a_trial_ends_undecided_with_its_entry() -> None:
    confidence, key = Confidence(), MANY[0]
    before = confidence.margin
    confidence.begin(VRF, key, 0, 10.0)
    confidence.drop(VRF, key)
    confidence.begin(2, key, 0, 10.0)
    confidence.drop(2)
    for vrf_id in (VRF, 2, 3):
        confidence.count(10, vrf_id, {})
        confidence.drop(vrf_id, key)  # which has none any more
    assert confidence.margin == before
