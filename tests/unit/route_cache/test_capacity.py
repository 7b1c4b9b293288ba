"""What is learned of a plane's room by refusals, and when more is asked for."""

from math import inf

from controller.route_cache.capacity import FIRST_MORE, FIRST_WAIT_S, LONGEST_WAIT_S, NEXT_S, Capacity

MOMENT_S = 0.25


def asked(capacity: Capacity, start_s: float, *, used_up: bool = True, limit_s: float = 2 * LONGEST_WAIT_S) -> float:
    """After how long more is asked for, looked at every quarter of a second; inf for not within the limit."""
    steps = (start_s + MOMENT_S * number for number in range(int(limit_s / MOMENT_S)))
    return next((now_s - start_s for now_s in steps if capacity.grow(now_s, used_up)), inf)


def test_what_is_said_holds_until_a_refusal_tells_of_less() -> None:
    capacity = Capacity(100)
    assert asked(capacity, 0.0) == inf
    capacity.refuse(120)
    assert (capacity.known, asked(capacity, 0.0)) == (100, inf)
    capacity.refuse(70)
    capacity.refuse(71)
    assert capacity.known == 70
    capacity.say(100)
    assert (capacity.known, asked(capacity, 0.0)) == (100, inf)


def test_more_is_asked_for_step_by_step_as_long_as_it_is_taken() -> None:
    capacity = Capacity(100)
    capacity.refuse(10)
    assert asked(capacity, 5.0) == FIRST_WAIT_S
    assert capacity.known == 10 + FIRST_MORE
    assert asked(capacity, 5.0 + FIRST_WAIT_S) == NEXT_S
    assert capacity.known == 10 + 3 * FIRST_MORE
    assert asked(capacity, 6.0 + FIRST_WAIT_S) == NEXT_S
    assert (capacity.known, asked(capacity, 7.0 + FIRST_WAIT_S)) == (100, inf)


def test_nothing_is_asked_for_as_long_as_there_is_room() -> None:
    capacity = Capacity(100)
    capacity.refuse(10)
    assert asked(capacity, 0.0, used_up=False) == inf
    assert asked(capacity, 2 * LONGEST_WAIT_S) == 0.0


def test_after_each_time_in_vain_it_is_asked_for_half_as_often() -> None:
    capacity, now_s, waits = Capacity(10_000), 0.0, []
    capacity.refuse(10)
    for _ in range(9):
        waits.append(asked(capacity, now_s))
        now_s += waits[-1]
        capacity.refuse(10)
    assert waits == [min(FIRST_WAIT_S * 2**number, LONGEST_WAIT_S) for number in range(9)]
    assert asked(capacity, now_s) == LONGEST_WAIT_S
    capacity.refuse(11)  # one more was taken
    assert asked(capacity, now_s + LONGEST_WAIT_S) == FIRST_WAIT_S
