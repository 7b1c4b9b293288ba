"""What goes into hardware and what leaves it, one rule a test."""

from itertools import count, islice

import pytest

from controller.model import Placement
from controller.planes.base import FALLBACK
from controller.route_cache import fast_table, rebalance
from controller.route_cache.capacity import FIRST_MORE, FIRST_WAIT_S
from controller.route_cache.cover import MAX_COVER, MAX_PARTS, MAX_WRITES, CoveredTable, Room
from controller.route_cache.fast_table import FastTable, PrefixLocation
from controller.route_cache.router import Router
from wire.columns import prefix_key

VRF = 1
DEFAULT = prefix_key("0.0.0.0/0")
WIDE, LONGER, LONGEST, BESIDE = (
    prefix_key(text) for text in ("10.0.0.0/8", "10.1.0.0/16", "10.1.2.0/24", "10.9.0.0/16")
)
FREE = prefix_key("11.0.0.0/8")
NESTED = {WIDE: 1, LONGER: 2, LONGEST: 3, BESIDE: 4}


def a_table(capacity: int = 100, routes: dict[bytes, int] | None = None) -> FastTable:
    fast = FastTable(4, capacity, reserve=0)
    fast.add(VRF, "red")
    if routes:
        fast.change(VRF, dict(routes))
    return fast


def flat(count: int) -> dict[bytes, int]:
    return {bytes((20, number >> 8, number & 255, 0, 24)): 1 + number % 3 for number in range(count)}


def play(fast: FastTable, packets: dict[bytes, int], start: int = 0, seconds: int = 60, one_in: int = 10) -> int:
    """Let traffic pass, in packets a second by prefix; return how many entries were written."""
    written = 0
    for now in range(start, start + seconds):
        held = fast.entries(VRF)
        hard = {key for key in packets if held.get(key, FALLBACK) != FALLBACK}
        list(fast.count(now, VRF, {key: packets[key] for key in hard}))
        fast.sample(
            now, VRF, [key for key in packets if key not in hard for _ in range(packets[key] // one_in)], one_in
        )
        written += sum(map(len, fast.rebalance(now, 1000).values()))
    return written


def test_a_prefix_enters_with_its_cover() -> None:
    fast = a_table(4, {**NESTED, **flat(10)})
    fast.sample(1, VRF, [WIDE] * 5, 10)
    assert fast.rebalance(1, 100) == {
        VRF: {WIDE: (None, 1), LONGER: (None, FALLBACK), BESIDE: (None, 4)},  # BESIDE is no dearer than its cover
    }
    assert [fast.where(VRF, key) for key in NESTED] == [
        PrefixLocation.HARDWARE,
        PrefixLocation.SOFTWARE,
        PrefixLocation.SOFTWARE,
        PrefixLocation.HARDWARE,
    ]


def test_a_cover_goes_with_its_prefix_unless_one_inside_needs_it() -> None:
    fast = a_table(4, {**NESTED, **flat(10)})
    fast.sample(1, VRF, [WIDE] * 5, 10)
    fast.rebalance(1, 100)
    assert fast.change(VRF, {LONGER: None}) == {}  # there is LONGEST
    assert fast.change(VRF, {LONGEST: None}) == {}
    assert fast.change(VRF, {LONGER: 2, LONGEST: 3}) == {}
    assert fast.change(VRF, {LONGEST: None, LONGER: None}) == {LONGER: (FALLBACK, None)}


def test_what_is_kept_has_the_room_of_what_the_change_before_deleted() -> None:
    first, second = flat(2)
    fast = a_table(2, flat(2))
    fast.sample(1, VRF, [first] * 5, 10)
    fast.rebalance(1, 100)
    assert fast.keep(VRF, [second], ()) == {}
    assert fast.change(VRF, {first: None}) == {first: (1, None)}
    assert fast.keep(VRF, [second], ()) == {second: (None, 2)}


def test_what_stays_on_the_plane_takes_no_room_of_what_is_kept_beside_it() -> None:
    first, second, third, fourth = flat(4)
    fast = a_table(4, flat(4))
    fast.leaving(VRF, "red", 2)
    kept = fast.keep(VRF, [first, second, third, fourth], {first, second})
    assert set(kept) == {first, second, third}
    assert fast.used == 4


def test_what_is_kept_needs_no_cover_for_what_is_kept_inside_it() -> None:
    inside = {bytes((10, number, 0, 0, 16)): 2 for number in range(MAX_COVER + 1)}
    fast = a_table(100, {WIDE: 1, **inside})
    assert set(fast.keep(VRF, [WIDE, *inside], ())) == {WIDE, *inside}


def test_a_part_goes_to_the_prefix_that_comes_around_it() -> None:
    wide, half, part = (prefix_key(text) for text in ("10.0.0.0/8", "10.0.0.0/9", "10.64.0.0/10"))
    inside = {bytes((10, number, 0, 0, 24)): 2 for number in range(MAX_COVER + 1)}
    fast = a_table(MAX_COVER, {wide: 1, **inside})
    assert fast.keep(VRF, [part], ()) == {part: (None, 1)}
    assert fast.change(VRF, {half: 5}) == {part: (1, 5)}
    assert fast.change(VRF, {half: 6}) == {part: (5, 6)}
    assert fast.change(VRF, {wide: 7}) == {}
    assert fast.change(VRF, {part: 8}) == {part: (6, 8)}
    assert fast.counts(VRF).parts == 0


def test_a_prefix_with_too_large_a_cover_enters_in_parts() -> None:
    inside = {bytes((30, number, 0, 0, 24)): 2 for number in range(0, 2 * MAX_COVER + 4, 2)}
    wide, host = prefix_key("30.0.0.0/8"), bytes((30, 1, 2, 3, 32))
    fast = a_table(MAX_COVER, {wide: 1, **inside})
    fast.sample(1, VRF, [host] * 5, 10)
    assert fast.rebalance(1, 100) == {VRF: {prefix_key("30.1.0.0/16"): (None, 1)}}
    assert fast.where(VRF, wide) is PrefixLocation.PARTS
    assert fast.counts(VRF).parts == 1
    assert fast.change(VRF, {wide: 5}) == {prefix_key("30.1.0.0/16"): (1, 5)}
    assert fast.change(VRF, {prefix_key("30.1.0.0/17"): 6}) == {prefix_key("30.1.0.0/17"): (None, 6)}
    assert fast.change(VRF, {wide: None}) == {prefix_key("30.1.0.0/16"): (5, None)}


def test_one_change_writes_no_more_parts_than_the_bound() -> None:
    inside = {bytes((40, number, 128, 0, 24)): 2 for number in range(200)}
    wide = prefix_key("40.0.0.0/8")
    fast = a_table(150, {wide: 1, **inside})
    fast.sample(1, VRF, [bytes((40, number, 1, 1, 32)) for number in range(200)], 10)
    fast.rebalance(1, 1000)
    assert fast.counts(VRF).parts == MAX_PARTS
    assert len(fast.change(VRF, {wide: 5})) == MAX_PARTS < MAX_WRITES


def test_a_part_is_not_needed_beside_the_whole() -> None:
    routes = {WIDE: 1, LONGER: 2}
    fast = a_table(3, {**routes, **flat(5)})
    fast.sample(1, VRF, [prefix_key("10.200.0.1/32")] * 9, 10)
    fast.rebalance(1, 100)
    assert set(fast.entries(VRF)) == {DEFAULT, prefix_key("10.128.0.0/9")}
    fast.resize(4)
    fast.sample(2, VRF, [WIDE] * 9, 10)
    fast.rebalance(2, 100)
    fast.rebalance(3, 100)
    assert dict(fast.entries(VRF)) == {DEFAULT: FALLBACK, WIDE: 1, LONGER: 2}


def test_a_new_longer_prefix_is_covered_at_once() -> None:
    fast = a_table(10, {WIDE: 1, **flat(20)})
    play(fast, {WIDE: 100}, seconds=2)
    assert fast.change(VRF, {LONGER: 2}) == {LONGER: (None, 2)}
    assert fast.change(VRF, {BESIDE: 2, prefix_key("10.9.9.0/24"): 3}) == {
        BESIDE: (None, FALLBACK),
    } | {prefix_key("10.9.9.0/24"): (None, 3)}


def test_the_goal_of_a_router_is_what_others_leave_to_it() -> None:
    fast = a_table(20, flat(30))
    fast.add(2, "blue")
    fast.change(2, {WIDE: 1})
    play(fast, dict.fromkeys(flat(30), 100), seconds=5)
    assert (len(fast.entries(VRF)), len(fast.entries(2))) == (19, 1)
    assert (fast.goal(VRF), fast.goal(2)) == (19, 1)


def test_what_only_a_short_mean_speaks_for_enters_on_trial() -> None:
    first, second, third = flat(3)
    fast = a_table(3, flat(3))
    trials = fast._rebalance.confidence._trials
    play(fast, {first: 50, second: 50}, seconds=600)
    assert set(fast.entries(VRF)) == {DEFAULT, first, second}
    play(fast, {first: 50, second: 50, third: 400}, start=600, seconds=5)
    assert third in fast.entries(VRF)
    assert set(trials.get(VRF, {})) == {third}
    assert trials[VRF][third].needed == pytest.approx(1.25 * 50, rel=0.05)


def test_what_enters_on_trial_has_to_bring_enough_for_its_cover_too() -> None:
    fast = a_table(4, {WIDE: 1, LONGER: 2, LONGEST: 3, **flat(3)})
    before = dict.fromkeys(flat(3), 50)
    play(fast, before, seconds=600)
    play(fast, before | {WIDE: 800}, start=600, seconds=5)
    assert len(fast.entries(VRF).keys() & before.keys()) == 1
    assert fast._rebalance.confidence._trials[VRF][WIDE].needed == pytest.approx(2 * 1.25 * 50, rel=0.05)


@pytest.mark.parametrize(("capacity", "enter"), [(11, 10), (10, 0)])
def test_a_table_that_fits_with_its_default_entry_enters_without_traffic(capacity: int, enter: int) -> None:
    fast = a_table(capacity, flat(10))
    assert len(fast.rebalance(1, 100).get(VRF, {})) == enter


def test_a_cover_that_comes_later_is_counted_with_what_it_is_in_until_that_leaves() -> None:
    """What an entry brings is divided by the entries it takes, its cover among them."""
    fast = a_table(10, {WIDE: 1, **flat(20)})
    play(fast, {WIDE: 100}, seconds=2)
    router = fast._routers[VRF]
    meter = router.hard[WIDE]
    assert meter.entries == 1
    fast.change(VRF, {LONGER: 2, LONGEST: 3})
    assert (meter.entries, router.hard[LONGEST].entries) == (2, 1)
    fast.resize(1)
    fast.rebalance(3, 100)
    assert router.soft[WIDE] is meter
    assert meter.entries == 1


def test_the_shorter_prefix_leaves_where_the_cover_has_no_room() -> None:
    fast = a_table(2, {WIDE: 1, **flat(20)})
    play(fast, {WIDE: 100}, seconds=2)
    assert fast.where(VRF, WIDE) is PrefixLocation.HARDWARE
    assert fast.change(VRF, {LONGER: 2}) == {WIDE: (1, None)}


def test_popular_ones_take_the_place_of_others_and_stay() -> None:
    routes = flat(100)
    keys = list(routes)
    fast = a_table(11, routes)
    cold, hot = dict.fromkeys(keys[:10], 50), dict.fromkeys(keys[10:20], 500)
    play(fast, cold)
    assert set(fast.entries(VRF)) == {DEFAULT, *cold}
    play(fast, cold | hot, start=60, seconds=30)
    assert set(fast.entries(VRF)) == {DEFAULT, *hot}
    assert play(fast, cold | hot, start=90) == 0


def test_what_is_hardly_more_popular_moves_nothing() -> None:
    routes = flat(100)
    keys = list(routes)
    fast = a_table(11, routes)
    here = dict.fromkeys(keys[:10], 500)
    play(fast, here, seconds=600)
    assert play(fast, here | dict.fromkeys(keys[10:20], 550), start=600) == 0


def test_what_begins_and_what_ends_is_noticed_long_before_the_slow_mean() -> None:
    routes = flat(100)
    keys = list(routes)
    fast = a_table(2, routes)
    play(fast, {keys[0]: 1000, keys[1]: 100}, seconds=600)
    assert keys[0] in fast.entries(VRF)
    play(fast, {keys[1]: 100}, start=600, seconds=40)
    assert keys[1] in fast.entries(VRF)
    play(fast, {keys[1]: 100, keys[2]: 2000}, start=640, seconds=5)
    assert keys[2] in fast.entries(VRF)


def test_the_reserve_stays_free_and_is_there_for_changes() -> None:
    fast = FastTable(4, 20, reserve=5)
    fast.add(VRF, "red")
    fast.change(VRF, {WIDE: 1, **flat(100)})
    play(fast, {WIDE: 1000} | dict.fromkeys(flat(30), 100), seconds=20)
    assert fast.used == 15
    inside = {bytes((10, number, 0, 0, 16)): 2 for number in range(5)}
    assert fast.change(VRF, inside) == dict.fromkeys(inside, (None, 2))
    assert fast.used == 20
    play(fast, {WIDE: 1000}, start=20, seconds=5)
    assert fast.used == 15


def test_a_round_writes_no_more_than_its_budget() -> None:
    fast = a_table(60, flat(100))
    fast.sample(1, VRF, list(flat(100)), 10)
    assert [len(fast.rebalance(1 + number, 7).get(VRF, {})) for number in range(10)] == [7] * 8 + [3, 0]


def test_the_budget_of_a_round_counts_covers() -> None:
    fast = a_table(100, {LONGEST: 3})
    fast.rebalance(1, 100)
    fast.refused(VRF, LONGEST, full=False)
    fast.change(VRF, {LONGER: 2})
    assert fast.rebalance(1, 1) == {}
    assert fast.rebalance(1, 2) == {VRF: {LONGER: (None, 2), LONGEST: (None, FALLBACK)}}


def test_the_budget_of_a_round_counts_what_leaves_before_a_pinned_prefix_does() -> None:
    fast = a_table(10, {DEFAULT: 1})
    fast.rebalance(1, 100)
    fast.change(VRF, {LONGEST: 7}, pinned=True)
    fast.resize(1)
    fast.rebalance(2, 0)  # which looks for victims
    assert [fast.rebalance(2, 1)[VRF] for _ in range(2)] == [{DEFAULT: (1, FALLBACK)}, {LONGEST: (7, None)}]


def test_an_entry_refused_for_want_of_room_teaches_the_capacity() -> None:
    fast = a_table(50, flat(100))
    fast.sample(1, VRF, list(flat(30)), 10)
    entered = list(fast.rebalance(1, 100)[VRF])
    assert fast.refused(VRF, entered[-1], full=True) == {entered[-1]: (1, None)} or len(entered) == 30
    assert fast.capacity == fast.used == 30
    assert fast.counts(VRF).refused == 0
    fast.sample(2, VRF, list(flat(60)), 10)
    fast.rebalance(2, 100)
    assert fast.used <= 30


def test_more_than_was_learned_is_tried_again_later() -> None:
    fast = a_table(50, flat(100))
    fast.set_placement(VRF, Placement.HARDWARE)
    fast.rebalance(1, 100)
    for key in list(fast.entries(VRF))[5:]:
        fast.refused(VRF, key, full=True)
    assert (fast.capacity, fast.used) == (5, 5)
    assert not fast.grow(2)
    assert not fast.grow(2 + FIRST_WAIT_S - 1)
    assert fast.grow(2 + FIRST_WAIT_S)
    fast.rebalance(2 + FIRST_WAIT_S, 100)
    assert fast.capacity == fast.used == 5 + FIRST_MORE


@pytest.mark.parametrize(("left", "asked"), [(1 + MAX_COVER, True), (2 + MAX_COVER, False)])
def test_more_than_was_learned_is_tried_once_a_prefix_might_lack_room_for_its_cover(left: int, asked: bool) -> None:
    fast = a_table(100, flat(50))
    fast.rebalance(1, 100)
    first, *others = flat(50)
    fast.refused(VRF, first, full=True)
    fast.change(VRF, dict.fromkeys(others[:left]))
    assert fast.capacity - fast.used == left
    assert not fast.grow(1)
    assert fast.grow(1 + FIRST_WAIT_S) is asked


def test_a_refusal_that_comes_after_many_have_left_does_not_make_the_plane_smaller_than_it_is() -> None:
    routes = flat(40)
    *first, last = routes
    fast = a_table(50, routes)
    fast.keep(VRF, routes, ())
    fast.change(VRF, dict.fromkeys(first[3:]))
    fast.leaving(VRF, "red", 36)  # which the plane has still
    fast.change(VRF, {last: None})
    fast.refused(VRF, last, full=True)  # it was written before
    assert fast.capacity == 1 + 3 + 36
    fast.leaving(VRF, "red", 0)
    fast.rebalance(1, 100)
    assert set(fast.entries(VRF)) == {DEFAULT, *first[:3]}


def test_an_entry_refused_otherwise_stays_in_software_until_its_action_changes() -> None:
    fast = a_table(50, NESTED)
    play(fast, {}, seconds=2)
    assert fast.refused(VRF, BESIDE, full=False) == {BESIDE: (4, FALLBACK)}
    assert fast.refused(VRF, BESIDE, full=False) == {BESIDE: (FALLBACK, None), WIDE: (1, FALLBACK)}
    assert (fast.capacity, fast.counts(VRF).refused) == (50, 1)
    play(fast, {BESIDE: 100}, start=2, seconds=5)
    assert fast.where(VRF, BESIDE) is PrefixLocation.SOFTWARE
    assert fast.where(VRF, WIDE) is PrefixLocation.HARDWARE, "it is tried again"
    fast.change(VRF, {BESIDE: 9})
    play(fast, {}, start=7, seconds=2)
    assert fast.where(VRF, BESIDE) is PrefixLocation.HARDWARE
    with pytest.raises(ValueError, match="without its default entry"):
        fast.refused(VRF, DEFAULT, full=True)


def test_modes() -> None:
    fast = a_table(50, NESTED)
    pinned = prefix_key("10.0.0.1/32")
    assert fast.change(VRF, {pinned: 7}, pinned=True) == {pinned: (None, 7)}
    play(fast, {}, seconds=2)  # there is room for all
    assert dict(fast.entries(VRF)) == {DEFAULT: FALLBACK, pinned: 7, **NESTED}
    fast.set_placement(VRF, Placement.SOFTWARE)
    play(fast, {LONGEST: 1000}, start=2, seconds=5)
    assert dict(fast.entries(VRF)) == {DEFAULT: FALLBACK, pinned: 7}
    fast.set_placement(VRF, Placement.HARDWARE)
    play(fast, {}, start=7, seconds=2)
    assert fast.counts(VRF).hardware == 5
    assert fast.change(VRF, {prefix_key("11.0.0.0/8"): 1}) == {prefix_key("11.0.0.0/8"): (None, 1)}
    fast.set_placement(VRF, Placement.AUTO)
    assert len(fast.change(VRF, flat(1000))) == 0


def test_a_router_in_hardware_gets_the_rest_beside_what_has_too_large_a_cover() -> None:
    inside = {bytes((10, number, 0, 0, 16)): 2 for number in range(MAX_COVER + 1)}
    fast = a_table(100, {WIDE: 1, FREE: 3, **inside})
    for key in inside:
        fast._routers[VRF].table.refused.add(key)
    fast.set_placement(VRF, Placement.HARDWARE)
    fast.rebalance(1, 100)
    assert dict(fast.entries(VRF)) == {DEFAULT: FALLBACK, FREE: 3}


def test_a_router_in_hardware_gets_its_entries_back_when_others_have_gone() -> None:
    fast = a_table(12)
    fast.add(2, "red")
    fast.change(2, {FREE: 1, WIDE: 2})
    fast.set_placement(2, Placement.SOFTWARE)
    fast.set_placement(VRF, Placement.HARDWARE)
    fast.change(VRF, flat(10))
    play(fast, {}, seconds=2)
    assert fast.used == 12
    fast.set_placement(2, Placement.AUTO)
    for now in range(2, 12):
        list(fast.count(now, VRF, {}))
        fast.sample(now, 2, [FREE] * 100, 10)
        fast.rebalance(now, 100)
    assert fast.where(2, FREE) is PrefixLocation.HARDWARE
    assert len(fast.entries(VRF)) == 10
    fast.change(2, {FREE: None})
    fast.rebalance(12, 100)
    assert len(fast.entries(VRF)) == 11


def test_what_one_round_has_no_writes_for_is_for_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rebalance, "SOFT_SLICE", 1)
    wide, inner, inmost = ([bytes((30 + number, 1, 2, 0, length)) for number in range(4)] for length in (8, 16, 24))
    wide = [key[:1] + bytes(3) + key[4:] for key in wide]
    inner = [key[:2] + bytes(2) + key[4:] for key in inner]
    fast = a_table(
        100, {**dict.fromkeys(wide, 1), **dict.fromkeys(inner, 2), **dict.fromkeys(inmost, 3), **flat(100)}
    )
    fast.sample(1, VRF, [key for key in wide for _ in range(9)], 10)
    for _ in range(2):  # each takes two writes
        assert len(fast.rebalance(1, 4)[VRF]) == 4
    assert fast.entries(VRF).keys() == {DEFAULT, *wide, *inner}


def test_a_round_without_writes_left_decides_nothing_of_what_comes_next(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rebalance, "SOFT_SLICE", 1)
    fast = a_table(3, {**NESTED, FREE: 5, **flat(5)})
    fast.sample(1, VRF, [*flat(5), *[LONGER] * 20, *[FREE] * 5], 10)
    assert fast.rebalance(1, 2) == {VRF: {LONGER: (None, 2), LONGEST: (None, 3)}}
    fast.resize(4)
    assert fast.rebalance(1, 2) == {VRF: {FREE: (None, 5)}}


def test_an_exchange_that_one_round_has_no_writes_for_is_for_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rebalance, "SOFT_SLICE", 1)
    here, popular, *others = flat(9)
    fast = a_table(2, flat(9))
    play(fast, {here: 50}, seconds=10)
    fast.sample(10, VRF, [popular] * 200 + others, 10)
    assert fast.rebalance(10, 1) == {}
    assert fast.rebalance(10, 2) == {VRF: {here: (1, None)}}
    assert fast.rebalance(10, 1) == {VRF: {popular: (None, 2)}}


def test_a_router_in_hardware_gets_what_room_there_is() -> None:
    fast = a_table(20)
    fast.set_placement(VRF, Placement.HARDWARE)
    assert len(fast.change(VRF, {**NESTED, **flat(100)})) == 19
    popular = list(flat(100))[90]
    play(fast, {popular: 1000}, seconds=5)
    assert fast.where(VRF, popular) is PrefixLocation.HARDWARE


def test_pinned_ones_wait_for_room_and_then_come_first() -> None:
    routes = flat(100)
    fast = a_table(6, routes)
    play(fast, dict.fromkeys(list(routes)[:5], 100), seconds=5)
    assert fast.used == 6
    pinned = prefix_key("10.0.0.1/32")
    assert fast.change(VRF, {pinned: 7}, pinned=True) == {}
    assert fast.rebalance(6, 0) == {}
    assert pinned not in fast.rebalance(6, 1).get(VRF, {})
    fast.change(VRF, {next(iter(routes)): None})
    assert fast.rebalance(7, 0) == {}
    assert pinned in fast.rebalance(7, 1)[VRF]
    assert fast._routers[VRF].waiting == set()


def test_of_what_there_was_no_room_for_only_pinned_ones_wait() -> None:
    fast = a_table(20)
    pinned, other = prefix_key("10.0.0.1/32"), prefix_key("10.0.0.2/32")
    fast.set_placement(VRF, Placement.HARDWARE)
    fast.change(VRF, {pinned: 7}, pinned=True)
    fast.change(VRF, {other: 7})
    fast.refused(VRF, pinned, full=False)
    fast.refused(VRF, other, full=True)
    assert fast._routers[VRF].waiting == set()
    fast.change(VRF, {pinned: 8}, pinned=True)
    fast.refused(VRF, pinned, full=True)
    assert fast._routers[VRF].waiting == {pinned}


def test_a_cover_around_another_takes_its_place() -> None:
    table = CoveredTable(4, Room(10))
    table.change({DEFAULT: 1, LONGER: 3, LONGEST: 4})
    table.enter(DEFAULT, table.uncovered(DEFAULT) or [])
    assert table.hardware.actions == {DEFAULT: 1, LONGER: FALLBACK}
    table.change({WIDE: 2})
    assert table.hardware.actions == {DEFAULT: 1, WIDE: FALLBACK, LONGER: FALLBACK}
    while table.loose:
        table.tidy(table.loose.pop())
    assert table.hardware.actions == {DEFAULT: 1, WIDE: FALLBACK}


def tidied(table: CoveredTable) -> dict[bytes, int]:
    while table.loose:
        table.tidy(table.loose.pop())
    return dict(table.hardware.actions)


def a_cover_of_what_is_gone() -> CoveredTable:
    """LONGER was a route of its own when it became the cover of LONGEST inside WIDE."""
    table = CoveredTable(4, Room(10))
    table.change({WIDE: 1, LONGER: 2, LONGEST: 3})
    table.enter(WIDE, [LONGER])
    table.change({LONGER: None})
    assert tidied(table) == {DEFAULT: FALLBACK, WIDE: 1, LONGER: FALLBACK}
    return table


def test_a_cover_goes_with_the_last_prefix_that_needed_it() -> None:
    table = a_cover_of_what_is_gone()
    table.change({LONGEST: None})
    assert tidied(table) == {DEFAULT: FALLBACK, WIDE: 1}


def test_a_cover_goes_when_all_that_needed_it_has_entries() -> None:
    table = a_cover_of_what_is_gone()
    assert table.uncovered(LONGEST) == []
    table.enter(LONGEST, [])
    assert tidied(table) == {DEFAULT: FALLBACK, WIDE: 1, LONGEST: 3}


def test_a_default_route_leaves_for_a_smaller_quota_with_its_cover() -> None:
    fast = FastTable(4, 10, reserve=0)
    fast.add(VRF, "red")
    fast.change(VRF, {DEFAULT: 1, **flat(2)})
    fast.rebalance(1, 100)
    for key in flat(2):
        fast.refused(VRF, key, full=False)
    assert fast.entries(VRF) == {DEFAULT: 1, **dict.fromkeys(flat(2), FALLBACK)}
    fast.limit("red", 0)
    fast.rebalance(2, 100)
    assert fast.entries(VRF) == {DEFAULT: FALLBACK}


def test_a_quota_keeps_a_slice_from_the_room_of_others() -> None:
    fast = FastTable(4, 121, reserve=0)
    for vrf_id, name in ((VRF, "red"), (2, "red"), (3, "blue")):
        fast.add(vrf_id, name)
        fast.change(vrf_id, flat(100))

    clock = count()

    def uses(quota: int | None) -> tuple[int, int]:
        fast.limit("red", quota)
        for now in islice(clock, 4):
            for vrf_id in (VRF, 2, 3):  # ten packets a second to each prefix, wherever it is
                held = fast.entries(vrf_id)
                list(fast.count(now, vrf_id, {key: 10 for key in flat(100) if key in held}))
                fast.sample(now, vrf_id, [key for key in flat(100) if key not in held], 10)
            fast.rebalance(now, 200)
        assert fast.used_by("red") == len(fast.entries(VRF)) + len(fast.entries(2))
        return fast.used_by("red"), fast.used_by("blue")

    assert uses(20) == (20, 101)
    assert uses(5) == (5, 101)
    fast.resize(303)
    assert uses(60) == (60, 101)
    assert uses(None) == (202, 101)


@pytest.mark.parametrize(
    ("packets", "beside", "written", "enters"),
    [(60, 60, 0, False), (70, 70, 4, True), (100, 0, 0, False), (120, 0, 0, False), (150, 0, 3, True)],
)
def test_what_leaves_with_its_cover_makes_room_for_what_brings_more_than_both(
    packets: int, beside: int, written: int, enters: bool
) -> None:
    """Two that bring 70 each, or one that brings 150, not one of 120 that would leave the other entry empty."""
    free, other = prefix_key("11.0.0.0/8"), prefix_key("12.0.0.0/8")
    fast = a_table(3, {WIDE: 1, LONGER: 2, LONGEST: 3, free: 4, other: 5})
    play(fast, {WIDE: 100})
    before = {DEFAULT: FALLBACK, WIDE: 1, LONGER: FALLBACK}
    assert dict(fast.entries(VRF)) == before
    assert play(fast, {WIDE: 100, free: packets, other: beside}, start=60, seconds=300) == written
    after = {DEFAULT: FALLBACK, free: 4} | ({other: 5} if beside else {})
    assert dict(fast.entries(VRF)) == (after if enters else before)


def test_what_has_no_room_beside_a_candidate_does_not_count_as_what_comes_after_it() -> None:
    """The three entries that bring 100 would leave room for one that brings 70, or for the 90 of three others."""
    other, beside = prefix_key("12.0.0.0/8"), prefix_key("13.0.0.0/8")
    inside = [prefix_key(f"12.{number}.0.0/16") for number in (1, 2)]
    longer = [prefix_key(text) for text in ("10.9.9.0/24", "12.1.1.0/24", "12.2.2.0/24")]
    routes = {FREE: 5, other: 6, beside: 6, **dict.fromkeys(inside, 7), **dict.fromkeys(longer, 8)}
    fast = a_table(4, {**NESTED, **routes})
    play(fast, {WIDE: 100})
    assert dict(fast.entries(VRF)) == {DEFAULT: FALLBACK, WIDE: 1, LONGER: FALLBACK, BESIDE: FALLBACK}
    assert play(fast, {WIDE: 100, FREE: 70, other: 90}, start=60, seconds=300) == 0
    assert play(fast, {WIDE: 100, FREE: 70, beside: 90}, start=360, seconds=300) > 0


def test_a_prefix_does_not_count_as_what_comes_after_its_part() -> None:
    """A part brings the packets of its prefix, which are not twice as many as those of what would leave."""
    packet, inside = prefix_key("11.200.0.1/32"), [prefix_key(text) for text in ("10.9.9.0/24", "11.1.0.0/16")]
    fast = a_table(4, {**NESTED, FREE: 5, **dict.fromkeys(inside, 6)})
    play(fast, {WIDE: 100})
    assert dict(fast.entries(VRF)) == {DEFAULT: FALLBACK, WIDE: 1, LONGER: FALLBACK, BESIDE: FALLBACK}
    assert play(fast, {WIDE: 100, packet: 100}, start=60, seconds=300) == 0
    assert play(fast, {WIDE: 100, packet: 200}, start=360, seconds=300) > 0


@pytest.mark.parametrize(("packets", "enters"), [(60, False), (70, True)])
def test_what_is_pinned_inside_what_a_victim_leaves_with_does_not_leave(packets: int, enters: bool) -> None:
    """WIDE and LONGER bring 50 for each of the two, and would bring 33 with the pinned one."""
    first, second, pinned = prefix_key("11.0.0.0/8"), prefix_key("12.0.0.0/8"), prefix_key("10.0.0.1/32")
    fast = a_table(4, {WIDE: 1, LONGER: 2, first: 4, second: 5})
    fast.change(VRF, {pinned: 7}, pinned=True)
    play(fast, {WIDE: 100, LONGER: 0, pinned: 0})
    before = {DEFAULT: FALLBACK, pinned: 7, WIDE: 1, LONGER: 2}
    assert dict(fast.entries(VRF)) == before
    play(fast, {WIDE: 100, LONGER: 0, first: packets, second: packets, pinned: 0}, start=60, seconds=300)
    after = {DEFAULT: FALLBACK, pinned: 7, first: 4, second: 5}
    assert dict(fast.entries(VRF)) == (after if enters else before)


def test_a_candidate_whose_cover_has_become_smaller_takes_less() -> None:
    inner = [prefix_key(f"10.{number}.0.0/16") for number in range(3)]
    inmost = [prefix_key(f"10.{number}.1.0/24") for number in range(3)]
    fast = a_table(7, {WIDE: 1, **dict.fromkeys(inner, 2), **dict.fromkeys(inmost, 3), **flat(6)})
    packets = {WIDE: 100} | dict.fromkeys(flat(6), 40)
    play(fast, packets)
    assert fast.where(VRF, WIDE) is PrefixLocation.SOFTWARE  # 25 for each of four entries
    fast.change(VRF, dict.fromkeys((*inner, *inmost)))
    play(fast, packets, start=60, seconds=10)
    assert fast.where(VRF, WIDE) is PrefixLocation.HARDWARE


@pytest.mark.parametrize(
    ("capacity", "packets", "held"),
    [
        (2, {WIDE: 100, LONGER: 40}, {LONGER: 2}),  # LONGER would be the cover of WIDE
        (3, {WIDE: 100, LONGER: 40, FREE: 60}, {WIDE: 1, LONGER: 2}),
        (4, {WIDE: 100, LONGER: 40, FREE: 50}, {WIDE: 1, LONGER: 2, FREE: 9}),
    ],
)
def test_an_entry_does_not_leave_for_whom_it_would_be_the_cover(
    capacity: int, packets: dict[bytes, int], held: dict[bytes, int]
) -> None:
    fast = a_table(capacity, {WIDE: 1, LONGER: 2, FREE: 9, **flat(2)})
    play(fast, packets)
    assert dict(fast.entries(VRF)) == {DEFAULT: FALLBACK, **held}
    assert play(fast, packets, start=60) == 0


def test_what_a_victim_brought_with_the_prefix_around_it_keeps_it_no_longer_than_that_does() -> None:
    first, second = prefix_key("11.0.0.0/8"), prefix_key("12.0.0.0/8")
    fast = a_table(3, {WIDE: 1, LONGER: 2, first: 4, second: 4})
    play(fast, {WIDE: 100, LONGER: 0})
    play(fast, {WIDE: 100, LONGER: 0, first: 60}, start=60)
    assert dict(fast.entries(VRF)) == {DEFAULT: FALLBACK, WIDE: 1, LONGER: 2}
    play(fast, {WIDE: 0, LONGER: 0, first: 20, second: 20}, start=120, seconds=600)
    assert dict(fast.entries(VRF)) == {DEFAULT: FALLBACK, first: 4, second: 4}


def test_what_is_not_brought_in_is_not_tried_again_before_its_next_sample() -> None:
    free = prefix_key("11.0.0.0/8")
    inside = {bytes((10, number, 0, 0, 16)): 2 for number in range(MAX_COVER + 1)}
    fast = a_table(2, {WIDE: 1, free: 3, **inside, BESIDE: 4})
    play(fast, {free: 100}, seconds=10)
    fast.sample(10, VRF, [WIDE, BESIDE], 10)  # WIDE with too large a cover, BESIDE without bringing enough
    fast.rebalance(10, 100)
    assert dict(fast.entries(VRF)) == {DEFAULT: FALLBACK, free: 3}
    assert fast._routers[VRF].recent == set()
    fast.resize(4)
    fast.sample(11, VRF, [BESIDE], 10)
    assert fast.rebalance(11, 100) == {VRF: {BESIDE: (None, 4)}}
    assert fast._routers[VRF].recent == set()


def test_what_a_router_in_software_learns_stays_there() -> None:
    fast = a_table(20, {WIDE: 1})
    fast.rebalance(1, 100)
    assert fast.change(VRF, {FREE: 1}) == {FREE: (None, 1)}  # there is room for all
    fast.set_placement(VRF, Placement.SOFTWARE)
    assert fast.change(VRF, {BESIDE: 1, **flat(1)}) == {BESIDE: (None, 1)}  # which WIDE needs as its cover


def test_what_goes_to_software_leaves_from_the_outside() -> None:
    fast = a_table(20, {WIDE: 1, LONGER: 2})
    for key in (LONGER, WIDE):
        fast.keep(VRF, [key], ())
    fast.set_placement(VRF, Placement.SOFTWARE)
    assert fast.rebalance(1, 1) == {VRF: {WIDE: (1, None)}}
    assert fast.rebalance(2, 1) == {VRF: {LONGER: (2, None)}}


@pytest.mark.parametrize(("slice_size", "most_rounds"), [(rebalance.HARD_SLICE, 1), (2, 52)])
def test_what_came_after_the_last_search_leaves_for_a_smaller_quota(
    monkeypatch: pytest.MonkeyPatch, slice_size: int, most_rounds: int
) -> None:
    """In one round where half a slice is all; otherwise in as many as a search takes, of one slice each."""
    monkeypatch.setattr(rebalance, "HARD_SLICE", slice_size)
    fast = a_table(200, flat(100))
    fast.rebalance(1, 0)
    fast.keep(VRF, flat(100), ())
    fast.limit("red", 10)
    for _ in range(most_rounds):
        fast.rebalance(1, 1000)
    assert fast.used == 10


def test_routers_of_a_slice_get_of_its_quota_what_they_bring() -> None:
    fast = FastTable(4, 1000, reserve=0)
    keys = list(flat(20))
    for vrf_id in (VRF, 2):
        fast.add(vrf_id, "red")
        fast.change(vrf_id, flat(20))
    fast.limit("red", 12)
    for now in range(30):
        for vrf_id, packets in ((VRF, 5), (2, 50)):
            held = fast.entries(vrf_id)
            list(fast.count(now, vrf_id, {key: 10 * packets for key in keys if key in held}))
            fast.sample(now, vrf_id, [key for key in keys if key not in held for _ in range(packets)], 10)
        fast.rebalance(now, 100)
    assert (len(fast.entries(VRF)), len(fast.entries(2))) == (1, 11)


def test_a_quota_counts_own_addresses_but_not_the_way_to_the_software() -> None:
    fast = FastTable(4, 100, reserve=0)
    own = prefix_key("10.0.0.1/32")
    for vrf_id in (VRF, 2):
        fast.add(vrf_id, "red")
        fast.change(vrf_id, {own: 7}, pinned=True)
    fast.limit("red", 3)
    fast.rebalance(1, 100)
    assert fast.used_by("red") == 3
    fast.limit("red", 0)
    fast.rebalance(2, 100)
    assert [dict(fast.entries(vrf_id)) for vrf_id in (VRF, 2)] == [{DEFAULT: FALLBACK}] * 2
    fast.limit("red", None)
    fast.rebalance(3, 100)
    assert [dict(fast.entries(vrf_id)) for vrf_id in (VRF, 2)] == [{DEFAULT: FALLBACK, own: 7}] * 2


@pytest.mark.parametrize(("refused", "again"), [(10, False), (11, True)])
def test_what_is_missing_is_looked_for_once_half_the_reserve_is_free_beside_it(refused: int, again: bool) -> None:
    routes = flat(54)  # not all has room: 60 less the default entry and the reserve
    fast = FastTable(4, 60, reserve=10)
    fast.add(VRF, "red")
    fast.set_placement(VRF, Placement.HARDWARE)
    fast.change(VRF, routes)
    for now in range(5):
        fast.rebalance(now, 100)
    assert fast.used == 50
    for key in list(routes)[:refused]:
        fast.refused(VRF, key, full=False)
    for now in range(5, 10):
        fast.rebalance(now, 100)
    assert fast.used == 1 + 54 - refused
    fast.retry(VRF)
    for now in range(10, 15):
        fast.rebalance(now, 100)
    assert (fast.used == 50) is again


def test_a_small_quota_of_a_large_plane_is_filled() -> None:
    fast = FastTable(4, 1_000_000)
    fast.add(VRF, "red")
    fast.set_placement(VRF, Placement.HARDWARE)
    fast.change(VRF, flat(300))
    fast.limit("red", 100)
    fast.rebalance(1, 1000)
    assert fast.used_by("red") == 100
    fast.limit("red", 200)
    fast.rebalance(2, 1000)
    assert fast.used_by("red") == 199


def test_a_quota_that_is_said_again_has_nobody_looked_at_anew() -> None:
    """As it is for each router of a slice that is declared."""
    fast = FastTable(4, 1_000_000)
    fast.add(VRF, "red")
    for quota in (100, None):
        fast.limit("red", quota)
        fast.rebalance(1, 1000)
        assert not fast._routers[VRF].incomplete
        fast.limit("red", quota)
        assert not fast._rebalance.resized


def test_no_room_for_a_router() -> None:
    fast = FastTable(4, 1)
    fast.add(VRF, "red")
    with pytest.raises(ValueError, match="all 1 entries are in use: nothing is left for router 2"):
        fast.add(2, "red")


def test_a_router_that_goes_makes_room_for_what_is_counted_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fast_table, "_TRACKED", 5)
    fast = a_table(2, flat(12))
    fast.add(2, "red")
    fast.change(2, flat(12))
    fast.sample(1, VRF, flat(12), 10)
    assert fast.untracked == 2
    fast.remove(VRF)
    fast.sample(1, 2, list(flat(10)), 10)
    assert fast.untracked == 2


@pytest.mark.parametrize(("sampled", "left"), [(5, 5), (6, 2)])
def test_the_less_popular_half_is_forgotten_of_more_than_may_be_counted(
    monkeypatch: pytest.MonkeyPatch, sampled: int, left: int
) -> None:
    monkeypatch.setattr(fast_table, "_TRACKED", 5)
    fast, keys = a_table(1, flat(12)), list(flat(12))
    fast.sample(1, VRF, [key for number, key in enumerate(keys[:sampled]) for _ in range(1 + number)], 10)
    fast.rebalance(1, 0)
    assert list(fast._routers[VRF].soft) == keys[sampled - left : sampled]


def test_what_is_counted_in_software_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fast_table, "_TRACKED", 20)
    routes = flat(100)
    keys = list(routes)
    fast = a_table(2, routes)
    fast.sample(1, VRF, keys[:5] * 3 + keys, 10)
    assert fast.untracked == 60
    fast.rebalance(1, 0)
    fast.sample(1, VRF, keys[50:], 10)
    assert fast.untracked == 60 + 50 - (40 - 5)
    fast.rebalance(1, 100)
    assert set(fast.entries(VRF)) & set(keys[:5])


@pytest.mark.parametrize("key", [prefix_key("10.200.0.1/32"), WIDE])
def test_samples_of_routes_that_are_gone_move_nothing(key: bytes) -> None:
    fast = a_table(3, {**NESTED, **flat(10)})
    fast.sample(1, VRF, [key] * 5, 10)
    fast.change(VRF, {WIDE: None})
    assert fast.rebalance(1, 100) == {}


def test_all_of_a_table_enters_by_small_budgets_once_there_is_room() -> None:
    routes = {**NESTED, **flat(30)}
    fast = a_table(10, routes)
    assert sum(len(fast.rebalance(now, 3).get(VRF, {})) for now in range(20)) == 0  # it does not fit, nobody asks
    fast.resize(40)
    assert [len(fast.rebalance(now, 3).get(VRF, {})) for now in range(20, 33)] == [3] * 11 + [1, 0]
    assert fast.counts(VRF).hardware == 34


def test_what_is_dropped_as_a_candidate_is_counted_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fast_table, "_TRACKED", 20)
    fast = a_table(60, flat(50))
    for now in range(20):
        keys = list(flat(50))[: 20 + now]
        fast.sample(now, VRF, keys[-20:], 10)
        fast.change(VRF, dict.fromkeys(keys[-20:]))  # gone before they could enter
        fast.rebalance(now, 1000)
        fast.change(VRF, flat(50))
    assert fast.untracked == 0


def test_what_a_slice_reserves_is_kept_from_those_without_a_quota() -> None:
    fast, keys, clock = FastTable(4, 100, reserve=0), list(flat(90)), count()
    for vrf_id, name in ((VRF, "red"), (2, "blue"), (3, "green")):
        fast.add(vrf_id, name)
        fast.change(vrf_id, flat(90))

    def uses() -> tuple[int, int]:
        for now in islice(clock, 20):
            for vrf_id, packets in ((VRF, 1), (2, 100), (3, 100)):  # each prefix of red brings least
                held = fast.entries(vrf_id)
                list(fast.count(now, vrf_id, {key: 10 * packets for key in keys if key in held}))
                fast.sample(now, vrf_id, [key for key in keys if key not in held for _ in range(packets)], 10)
            fast.rebalance(now, 400)
        return fast.used_by("red"), fast.used_by("blue") + fast.used_by("green")

    assert uses() == (1, 99)
    fast.limit("red", 40)
    assert uses() == (40, 60)
    assert fast.short_of(2) == "room"
    assert fast.short_of(VRF) == "quota"
    fast.limit("blue", 50)
    assert uses() == (40, 60)
    assert fast.used_by("blue") == 50
    fast.resize(120)
    assert uses() == (40, 80)
    fast.limit("red", None)
    fast.limit("blue", None)
    assert uses() == (1, 119)


def test_victims_of_a_table_that_became_smaller_are_looked_for_bit_by_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pinned prefixes wait only when all entries were looked at, and nothing that could leave is left."""
    looked_at: list[int] = []
    note = rebalance.Round._note

    def noted(self: rebalance.Round, vrf_id: int, router: Router, keys: list[bytes]) -> None:
        looked_at.append(len(keys))
        note(self, vrf_id, router, keys)

    monkeypatch.setattr(rebalance, "HARD_SLICE", 4)
    monkeypatch.setattr(rebalance.Round, "_note", noted)
    pinned = list(flat(40))[30:]
    fast = a_table(100, flat(30))
    fast.rebalance(1, 0)  # the last search found none of them
    fast.change(VRF, dict.fromkeys(pinned, 9), pinned=True)
    for _ in range(2):  # what was searched for the first time tells nothing of the second
        fast.resize(100)
        fast.keep(VRF, flat(30), ())
        fast.resize(14)  # for three beside what is pinned and the default entry
        for rounds in count(1):
            assert rounds < 40
            looked_at.clear()
            fast.rebalance(1, 1000)
            assert sum(looked_at) <= 4
            assert fast.entries(VRF).keys() >= set(pinned)
            if not fast.unfinished:
                break
        assert rounds > 4
        assert fast.used == 14
    fast.resize(6)
    while fast.unfinished or fast.used > 6:
        fast.rebalance(1, 1000)
        held = fast.entries(VRF).keys()
        assert held >= set(pinned) or held <= {DEFAULT, *pinned}
    assert fast.used == 6
    fast.limit("red", 0)  # what is left is its default entry, which has room in any case
    while fast.used > 1:
        fast.rebalance(1, 1000)
    fast.rebalance(1, 1000)
    assert not fast.unfinished


def test_victims_of_one_round_are_bounded_and_the_rest_follows_before_anything_is_exchanged() -> None:
    """A turn of the loop has an end, however much smaller a table becomes."""
    most = rebalance.SHRINK_WRITES
    fast = a_table(3 * most, flat(2 * most))
    fast.rebalance(1, 3 * most)
    while fast.unfinished:
        fast.rebalance(1, 3 * most)
    assert fast.used == 2 * most + 1
    fast.resize(50)
    rounds = []
    while not rounds or fast.unfinished:
        rounds.append(sum(map(len, fast.rebalance(2, 3 * most).values())))
        assert len(rounds) < 10
    assert rounds[0] == most
    assert max(rounds) == most
    assert fast.used == 50
