"""A queue that many share has room for whoever does not fill it."""

from itertools import count

from controller.planes.shared_queue import SharedQueue

ROOM = 64


def filled(queue: SharedQueue[int], owner: int) -> int:
    """Push until one is refused; returns how many were taken."""
    return next(number for number in count() if not queue.push(owner, owner))


def test_who_fills_it_alone_has_half() -> None:
    assert filled(SharedQueue(ROOM), 1) == ROOM // 2


def test_another_finds_room_however_full_it_is() -> None:
    queue = SharedQueue[int](ROOM)
    taken = [filled(queue, owner) for owner in range(5)]
    assert taken == [32, 16, 8, 4, 2]
    assert queue.push(5, 5)


def test_owners_take_turns() -> None:
    queue = SharedQueue[int](ROOM)
    for owner in (1, 1, 1, 1, 2, 3, 3):
        queue.push(owner, owner)
    assert [queue.pop() for _ in range(7)] == [1, 2, 3, 1, 3, 1, 1]
    assert not queue


def test_what_is_taken_makes_room() -> None:
    queue = SharedQueue[int](ROOM)
    for number in range(10 * ROOM):
        assert queue.push(1, number)
        assert queue.pop() == number
    assert filled(queue, 1) == ROOM // 2


def test_the_items_of_one_keep_their_order() -> None:
    queue = SharedQueue[int](ROOM)
    for number in range(10):
        queue.push(number % 2, number)
    taken = [queue.pop() for _ in range(10)]
    assert [one for one in taken if one % 2] == [1, 3, 5, 7, 9]
