"""What a fast table says of its routers: how much of them is in hardware, what is meant to be, and what they lack."""

from controller.model import Placement
from controller.planes.base import FALLBACK
from controller.route_cache.fast_table import FastTable, TableCounts
from wire.columns import prefix_key

VRF, OTHER = 1, 2
DEFAULT, WIDE, LONGER, BESIDE, FREE = (
    prefix_key(text) for text in ("0.0.0.0/0", "10.0.0.0/8", "10.1.0.0/16", "10.9.0.0/16", "11.0.0.0/8")
)


def flat(count: int) -> dict[bytes, int | None]:
    return {bytes((20, number >> 8, number & 255, 0, 24)): 1 + number % 3 for number in range(count)}


def a_table(capacity: int, reserve: int = 0, **routers: int) -> FastTable:
    """``routers`` are numbers of routes by slice; their ids count from 1."""
    fast = FastTable(4, capacity, reserve)
    for vrf_id, (name, count) in enumerate(routers.items(), 1):
        fast.add(vrf_id, name)
        fast.change(vrf_id, flat(count))
    return fast


def test_the_goal_is_all_of_a_table_or_what_others_and_the_reserve_leave() -> None:
    fast = a_table(100, 10, red=20, blue=300)
    assert (fast.goal(VRF), fast.goal(OTHER)) == (21, 100 - 10 - 1)
    fast.rebalance(1, 1000)
    assert fast.used == 1 + 1  # only what fits enters without traffic
    fast.set_placement(OTHER, Placement.SOFTWARE)
    fast.rebalance(2, 1000)
    assert fast.used == 21 + 1
    assert fast.goal(OTHER) == 100 - 10 - 21
    fast.limit("red", 5)
    assert fast.goal(VRF) == 5
    fast.limit("red", 0)
    assert fast.goal(VRF) == 1  # its default entry in any case
    fast.change(VRF, {DEFAULT: 7})
    fast.limit("red", None)
    assert fast.goal(VRF) == 21  # which is a route now


def test_what_keeps_routes_out_of_hardware() -> None:
    fast = a_table(100, red=20, blue=50)
    assert (fast.short_of(VRF), fast.short_of(OTHER)) == ("", "")
    fast.limit("red", 20)
    assert fast.short_of(VRF) == "quota"
    fast.limit("red", 21)
    assert fast.short_of(VRF) == ""
    fast.resize(22)
    assert fast.short_of(VRF) == ""
    fast.resize(21)
    assert (fast.short_of(VRF), fast.short_of(OTHER)) == ("room", "room")
    fast.limit("red", 20)
    assert fast.short_of(VRF) == "quota"  # as much as the room is
    fast.resize(20)
    assert fast.short_of(VRF) == "room"


def test_a_router_that_is_forgotten_wants_nothing() -> None:
    fast = a_table(100, red=60, blue=50)
    fast.rebalance(1, 1000)
    assert fast.used == 1 + 1  # there is no room for both
    fast.drop(OTHER)
    fast.rebalance(2, 1000)
    assert (fast.used, fast.whole(VRF)) == (1 + 60, True)


def test_refused_is_what_has_room_and_is_not_there() -> None:
    fast = a_table(100, red=3)
    fast.rebalance(1, 100)
    assert (fast.whole(VRF), fast.short_of(VRF)) == (True, "")
    first, second, third = flat(3)
    for key in (first, second):
        fast.refused(VRF, key, full=False)
    assert (fast.whole(VRF), fast.short_of(VRF)) == (False, "refused")
    assert fast.counts(VRF) == TableCounts(routes=3, hardware=1, parts=0, covers=1, refused=2)
    fast.allow(VRF, fast.refusals(VRF), [2])  # that of the second
    assert fast.counts(VRF).refused == 1
    assert fast.rebalance(2, 100) == {VRF: {second: (None, 2)}}
    assert fast.rebalance(3, 100) == {}
    fast.allow(VRF, fast.refusals(VRF), [1, 3])
    assert fast.rebalance(4, 100) == {VRF: {first: (None, 1)}}
    assert third in fast.entries(VRF)


def test_a_table_is_whole_where_every_prefix_has_an_entry() -> None:
    fast = a_table(100, red=0)
    fast.change(VRF, {WIDE: 1, LONGER: 2, BESIDE: 3})
    fast.keep(VRF, [prefix_key("10.128.0.0/9"), LONGER, BESIDE], ())
    assert fast.counts(VRF) == TableCounts(routes=3, hardware=2, parts=1, covers=1, refused=0)
    assert not fast.whole(VRF)
    fast.keep(VRF, [WIDE], ())
    assert fast.whole(VRF)


def test_vacant_is_where_there_is_no_prefix_at_around_or_inside() -> None:
    fast = a_table(100, red=0)
    fast.change(VRF, {LONGER: 1})
    assert fast.vacant(VRF, BESIDE)
    assert fast.vacant(VRF, FREE)
    assert not fast.vacant(VRF, LONGER)
    assert not fast.vacant(VRF, WIDE)
    assert not fast.vacant(VRF, prefix_key("10.1.2.0/24"))


def test_what_leaves_takes_its_room_along_and_what_is_still_there_keeps_it() -> None:
    fast = a_table(10, red=3, blue=3)
    fast.rebalance(1, 100)
    assert (fast.used, fast.used_by("red"), fast.used_by("blue")) == (8, 4, 4)
    assert fast.remove(VRF) == {DEFAULT: (FALLBACK, None), **{key: (action, None) for key, action in flat(3).items()}}
    assert (fast.used, fast.used_by("red"), fast.used_by("blue")) == (4, 0, 4)
    fast.leaving(VRF, "red", 4)
    fast.change(OTHER, flat(9))
    fast.rebalance(2, 100)
    assert fast.used == 6  # of ten, four are still those of the other
    fast.leaving(VRF, "red", 1)
    fast.rebalance(3, 100)
    assert fast.used == 9
    fast.leaving(VRF, "red", 0)
    fast.rebalance(4, 100)
    assert fast.used == 10


def test_who_asks_for_a_slice_that_has_no_router_here_leaves_nothing() -> None:
    """A list of tenants asks for all of them, and each round looks at all slices."""
    fast = a_table(100, red=20)
    fast.rebalance(1, 1000)
    assert (fast.used_by("red"), fast.used_by("blue")) == (21, 0)
    assert list(fast._slices) == ["red"]


def test_what_counts_for_another_slice_is_in_its_quota_and_what_leaves_too() -> None:
    fast = a_table(100, before=20, red=5)
    fast.set_placement(VRF, Placement.HARDWARE)
    fast.rebalance(1, 1000)
    fast.leaving(VRF, "before", 4)
    fast.join(VRF, "red", "before")
    fast.limit("red", 12)
    assert (fast.used_by("before"), fast.used_by("red")) == (0, 21 + 6)
    fast.rebalance(2, 1000)
    assert fast.used_by("red") == fast.used == 12
    fast.leaving(VRF, "red", 0)
    assert [room.held for room in fast._slices.values()] == [0, 12]
    fast.join(3, "red", "unknown")
    assert list(fast._slices) == ["before", "red"]
