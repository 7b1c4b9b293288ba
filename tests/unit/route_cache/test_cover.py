"""The room of a plane and of the slices in it, and what a covered table writes, one rule a test."""

import pytest

from controller.planes.base import FALLBACK
from controller.route_cache.cover import MAX_COVER, UNLIMITED, CoveredTable, Room
from wire.columns import prefix_key

DEFAULT, WIDE, LONGER, LONGEST, BESIDE = (
    prefix_key(text) for text in ("0.0.0.0/0", "10.0.0.0/8", "10.1.0.0/16", "10.1.2.0/24", "10.9.0.0/16")
)
NESTED = {WIDE: 1, LONGER: 2, LONGEST: 3, BESIDE: 4}
PART = prefix_key("10.128.0.0/9")


# Room


@pytest.mark.parametrize(
    ("capacity", "around", "given", "reserve"),
    [(100, False, None, 4), (1000, False, None, 5), (100, True, None, 0), (1000, True, None, 5), (1000, False, 7, 7)],
)
def test_a_two_hundredth_is_reserved_and_of_a_plane_four_at_least(
    capacity: int, around: bool, given: int | None, reserve: int
) -> None:
    assert Room(capacity, given, Room(UNLIMITED) if around else None).reserve == reserve


def test_what_is_used_in_a_slice_is_used_in_the_plane() -> None:
    plane = Room(100)
    red, blue = Room(10, around=plane), Room(50, around=plane)
    assert (red.chain, plane.chain) == ((red, plane), (plane,))
    for room in (red, blue):
        room.begin()
    red.add(3, 3)
    blue.add(20, 18)
    red.write()
    blue.write()
    assert (red.used, blue.used, plane.used) == (3, 20, 23)
    assert (red.writes, blue.writes, plane.writes) == (1, 1, 2)
    assert (red.spare, blue.spare, plane.spare) == (7, 32, 79)
    assert (red.free, blue.free, plane.free) == (7, 32, 75)
    assert (red.excess, blue.excess, plane.excess) == (-7, -30, 23 + 4 - 100)
    blue.begin()
    assert (blue.spare, plane.spare) == (30, 77)


def test_a_slice_has_no_more_than_the_plane_has_left() -> None:
    plane = Room(20)
    red, blue = Room(15, around=plane), Room(15, around=plane)
    red.begin()
    red.add(12, 12)
    blue.begin()
    assert (blue.spare, blue.free) == (8, 4)
    plane.awaited = 2
    assert plane.excess == 12 + 2 + 4 - 20
    blue.begin()
    assert plane.awaited == 0


def test_what_has_left_takes_room_until_the_plane_has_it_no_more() -> None:
    plane = Room(20, reserve=0)
    red = Room(10, around=plane)
    red.leave(4)
    red.begin()
    assert (red.spare, plane.spare) == (6, 16)
    red.leave(-3)
    red.begin()
    assert (red.spare, plane.spare) == (9, 19)


def test_a_slice_that_moves_takes_along_what_it_uses() -> None:
    plane = Room(100, reserve=0)
    unreserved = Room(30, around=plane)
    red = Room(10, around=unreserved)
    red.add(5, 5)
    red.leave(2)
    red.move(plane)
    for room in (red, unreserved, plane):
        room.begin()
    assert (red.used, unreserved.used, plane.used) == (5, 0, 5)
    assert (red.spare, unreserved.spare, plane.spare) == (3, 30, 93)
    red.move(plane)
    assert plane.used == 5
    red.move(unreserved)
    assert (unreserved.used, plane.used) == (5, 5)
    plane.move(unreserved)  # which is inside it
    assert plane.chain == (plane,)


# The covered table


def a_table(routes: dict[bytes, int | None], capacity: int = 100) -> CoveredTable:
    room = Room(capacity, reserve=0)
    room.begin()
    table = CoveredTable(4, room)
    table.change(routes)
    table.take_writes()
    return table


def enter(table: CoveredTable, *keys: bytes) -> None:
    for key in keys:
        cover = table.uncovered(key)
        assert cover is not None
        table.enter(key, cover)


def hardware(table: CoveredTable) -> dict[bytes, int]:
    return dict(table.hardware.actions)


def test_a_table_begins_with_its_default_entry() -> None:
    room = Room(100, reserve=0)
    room.begin()
    table = CoveredTable(4, room)
    assert table.take_writes() == {DEFAULT: (None, FALLBACK)}
    assert table.take_writes() == {}
    assert (room.used, room.spare, room.writes) == (1, 99, 1)


def test_what_is_written_twice_in_a_change_is_one_write_and_takes_room_once() -> None:
    table = a_table(NESTED)
    room = table.room
    room.begin()
    enter(table, LONGEST)
    table.leave(LONGEST)
    assert table.take_writes() == {}
    assert (room.writes, room.used, room.spare) == (1, 1, 99)
    enter(table, LONGEST)
    table.take_writes()
    room.begin()
    table.leave(LONGEST)
    assert (room.writes, room.used, room.spare) == (1, 1, 98)  # deletes come last: it frees nothing in this change
    room.begin()
    assert room.spare == 99


def test_only_the_outermost_prefixes_need_a_cover() -> None:
    table = a_table(NESTED)
    assert table.uncovered(WIDE) == [LONGER, BESIDE]
    enter(table, BESIDE)
    assert table.uncovered(WIDE) == [LONGER]
    enter(table, WIDE)
    assert hardware(table) == {DEFAULT: FALLBACK, WIDE: 1, LONGER: FALLBACK, BESIDE: 4}
    assert table.uncovered(WIDE) == []


def test_a_cover_of_just_the_most_is_not_too_large() -> None:
    inside = {bytes((10, number, 0, 0, 16)): 2 for number in range(MAX_COVER + 1)}
    table = a_table({WIDE: 1, **inside})
    assert table.uncovered(WIDE) is None
    table.change({bytes((10, 0, 0, 0, 16)): None})
    assert len(table.uncovered(WIDE) or ()) == MAX_COVER


def test_an_entry_that_leaves_from_inside_another_becomes_its_cover() -> None:
    table = a_table(NESTED)
    enter(table, LONGEST, LONGER, WIDE)
    table.leave(LONGER)
    assert hardware(table) == {DEFAULT: FALLBACK, WIDE: 1, LONGER: FALLBACK, LONGEST: 3, BESIDE: 4}
    assert LONGER in table.loose
    table.leave(WIDE)
    assert WIDE not in table.hardware
    assert {LONGER} <= table.loose
    table.tidy(LONGER)
    assert hardware(table) == {DEFAULT: FALLBACK, LONGEST: 3, BESIDE: 4}


def test_a_cover_stays_while_anything_inside_has_no_other() -> None:
    table = a_table({WIDE: 1, LONGER: 2, LONGEST: 3})
    enter(table, LONGEST, WIDE)
    assert hardware(table) == {DEFAULT: FALLBACK, WIDE: 1, LONGER: FALLBACK, LONGEST: 3}
    table.change({LONGER: None})
    table.tidy(LONGER)
    assert LONGER not in table.hardware  # LONGEST has an entry
    table.change({LONGER: 2})
    table.leave(LONGEST)
    table.change({LONGER: None})
    table.tidy(LONGER)
    assert hardware(table) == {DEFAULT: FALLBACK, WIDE: 1, LONGER: FALLBACK}
    table.change({LONGEST: None})
    table.tidy(LONGER)
    assert hardware(table) == {DEFAULT: FALLBACK, WIDE: 1}


def test_parts_follow_their_prefix() -> None:
    table = a_table(NESTED)
    enter(table, PART)
    assert (hardware(table), table.parts(WIDE), table.all_parts()) == ({DEFAULT: FALLBACK, PART: 1}, 1, 1)
    table.change({WIDE: 7})
    assert hardware(table)[PART] == 7
    enter(table, WIDE)
    assert PART in table.loose
    table.tidy(PART)
    assert PART not in table.hardware
    assert (table.parts(WIDE), table.all_parts()) == (0, 0)
    with pytest.raises(ValueError, match="0b00000008 is no part of a prefix"):
        table.enter(prefix_key("11.0.0.0/8"), [])


def test_parts_stay_where_a_prefix_around_them_goes_that_was_not_there() -> None:
    table = a_table(NESTED)
    enter(table, prefix_key("10.192.0.0/10"))
    before = hardware(table)
    table.change({PART: None})
    assert (hardware(table), table.parts(WIDE)) == (before, 1)


def test_parts_go_with_their_prefix() -> None:
    table = a_table(NESTED)
    enter(table, PART)
    table.change({WIDE: None})
    assert (hardware(table), table.all_parts()) == ({DEFAULT: FALLBACK}, 0)


def test_a_part_that_becomes_a_prefix_is_one() -> None:
    table = a_table(NESTED)
    enter(table, PART)
    table.change({PART: 9})
    assert (hardware(table)[PART], table.parts(WIDE), table.all_parts()) == (9, 0, 0)
    table.change({WIDE: 5})
    assert hardware(table)[PART] == 9


def test_a_new_prefix_is_covered_at_once_or_what_is_around_it_leaves() -> None:
    table = a_table({WIDE: 1})
    enter(table, WIDE)
    table.change({LONGER: 2})
    assert hardware(table) == {DEFAULT: FALLBACK, WIDE: 1, LONGER: 2}
    table.change({LONGEST: 3})
    assert hardware(table) == {DEFAULT: FALLBACK, WIDE: 1, LONGER: 2, LONGEST: 3}
    table.room.capacity = 4
    table.room.begin()
    table.change({prefix_key("10.1.3.0/24"): 5})
    assert hardware(table)[LONGER] == FALLBACK  # there is no room for a cover
    assert WIDE in table.hardware


def test_an_entry_that_was_refused_is_a_cover_where_one_is_needed() -> None:
    table = a_table({WIDE: 1, LONGER: 2})
    enter(table, LONGER, WIDE)
    table.refuse(LONGER, full=False)
    assert hardware(table) == {DEFAULT: FALLBACK, WIDE: 1, LONGER: FALLBACK}
    assert table.refused == {LONGER}
    table.refuse(WIDE, full=False)
    assert hardware(table) == {DEFAULT: FALLBACK, LONGER: FALLBACK}
    assert LONGER in table.loose
    table.change({LONGER: 5})
    assert table.refused == {WIDE}


def test_for_want_of_room_what_is_around_leaves_too() -> None:
    table = a_table({WIDE: 1, LONGER: 2})
    enter(table, LONGER, WIDE)
    table.refuse(LONGER, full=True)
    assert hardware(table) == {DEFAULT: FALLBACK, WIDE: FALLBACK}
    assert table.refused == set()
    assert WIDE in table.loose


def test_the_covers_of_what_leaves_for_want_of_room_are_not_needed() -> None:
    table = a_table({WIDE: 1, LONGER: 2, BESIDE: 3})
    enter(table, BESIDE, LONGER, WIDE)
    table.refuse(BESIDE, full=False)
    table.loose.clear()
    table.refuse(LONGER, full=True)
    assert hardware(table) == {DEFAULT: FALLBACK, WIDE: FALLBACK, BESIDE: FALLBACK}
    assert table.loose == {WIDE, BESIDE}


def test_a_part_that_was_refused_refuses_its_prefix() -> None:
    table = a_table(NESTED)
    enter(table, PART)
    table.refuse(PART, full=False)
    assert (table.refused, hardware(table)) == ({WIDE}, {DEFAULT: FALLBACK})


def test_a_default_entry_cannot_be_done_without() -> None:
    table = a_table({DEFAULT: 1})
    enter(table, DEFAULT)
    table.refuse(DEFAULT, full=False)
    assert hardware(table) == {DEFAULT: FALLBACK}
    with pytest.raises(ValueError, match="a router without its default entry cannot be in hardware"):
        table.refuse(DEFAULT, full=True)


def test_the_covers_below_a_default_entry_that_was_refused_are_not_needed() -> None:
    table = a_table({DEFAULT: 1, WIDE: 2, LONGER: 3})
    enter(table, DEFAULT)
    assert (hardware(table), table.loose) == ({DEFAULT: 1, WIDE: FALLBACK}, set())
    table.refuse(DEFAULT, full=False)
    assert (hardware(table), table.loose) == ({DEFAULT: FALLBACK, WIDE: FALLBACK}, {WIDE})


def test_a_default_route_that_goes_leaves_its_entry() -> None:
    table = a_table({DEFAULT: 1, WIDE: 2})
    enter(table, WIDE, DEFAULT)
    table.change({DEFAULT: None, WIDE: None})
    assert hardware(table) == {DEFAULT: FALLBACK}


def test_a_table_that_is_cleared_has_nothing() -> None:
    table = a_table(NESTED)
    enter(table, LONGEST)
    table.take_writes()
    table.clear()
    assert table.take_writes() == {DEFAULT: (FALLBACK, None), LONGEST: (3, None)}
    assert table.room.used == 0
