"""The neighbors of one router: on which interfaces there is one of an address."""

from math import inf

from controller.model import Quota
from controller.routing.neighbors import FAILED_DROP_S, STALE_IN_USE_S, NeighborTable
from controller.routing.usage import SliceUsage

ADDRESS, OTHER = bytes((10, 0, 0, 2)), bytes((10, 0, 0, 3))
MAC = bytes((2, 0, 0, 0, 0, 1))


def test_an_address_is_on_the_interfaces_that_have_it_and_nothing_is_kept_of_one_that_is_gone() -> None:
    usage = SliceUsage(Quota())
    table = NeighborTable(usage)
    table.set({(1, ADDRESS): (MAC, False), (2, ADDRESS): (MAC, False), (1, OTHER): (MAC, False)}, 0.0)
    table.set({(1, ADDRESS): (b"", False)}, 0.0)
    assert table.by_address == {ADDRESS: {2: None}, OTHER: {1: None}}
    table.forget_interface(2)
    assert table.by_address == {OTHER: {1: None}}
    assert usage.neighbors == 1


def key(number: int) -> tuple[int, bytes]:
    return 1, bytes((10, 0, 0, number))


def table_of(neighbors: int, *numbers: int) -> NeighborTable:
    table = NeighborTable(SliceUsage(Quota(neighbors=neighbors)))
    table.set({key(number): (MAC, False) for number in numbers}, 0.0)
    return table


def test_only_what_differs_has_changed() -> None:
    table = table_of(9, 1)
    assert table.set({key(1): (MAC, False)}, 1.0) == ({}, 0)
    assert table.set({key(1): (MAC, False), key(2): (MAC, False)}, 1.0) == ({key(2): None}, 0)
    other = bytes((2, 0, 0, 0, 0, 9))
    assert table.set({key(1): (other, False)}, 1.0) == ({key(1): None}, 0)
    assert table.states[key(1)].mac == other
    assert table.set({key(7): (b"", False)}, 1.0) == ({key(7): None}, 0)


def test_a_failed_neighbor_is_tried_again_after_a_while() -> None:
    table = table_of(9, 1, 2, 3)
    for number, now in ((1, 10.0), (2, 11.0), (3, 11.0)):
        assert table.set({key(number): (b"", True)}, now) == ({key(number): None}, 0)
    assert (table.states[key(1)].mac, table.states[key(1)].failed_until) == (b"", 10.0 + FAILED_DROP_S)
    table.set({key(2): (MAC, False)}, 12.0)
    assert table.states[key(2)].failed_until == 0.0
    assert table.next_due == 10.0 + FAILED_DROP_S
    assert table.expire(9.9 + FAILED_DROP_S) == ([], [])
    assert table.expire(10.0 + FAILED_DROP_S) == ([key(1)], [])
    assert table.states[key(1)].failed_until == 0.0
    assert table.next_due == 11.0 + FAILED_DROP_S
    table.set({key(3): (b"", True)}, 13.0)  # failed anew: from then on
    assert table.next_due == 13.0 + FAILED_DROP_S
    table.set({key(3): (b"", False)}, 13.0)
    assert table.next_due == inf


def test_one_more_than_the_quota_is_refused_and_counted_until_the_next_resync() -> None:
    table = table_of(2, 1)
    assert table.set({key(number): (MAC, False) for number in (2, 3, 4)}, 0.0) == ({key(2): None}, 2)
    assert table.set({key(5): (MAC, False)}, 0.0) == ({}, 1)
    assert (table.refused, set(table.states)) == (3, {key(1), key(2)})
    table.begin_resync()
    assert table.refused == 0


def test_what_a_resync_does_not_repeat_goes_and_a_gateway_in_use_a_while_later() -> None:
    table = table_of(9, 1, 2, 3, 4)
    table.begin_resync()
    table.set({key(1): (MAC, False), key(4): (b"", False)}, 5.0)
    assert table.sweep(lambda one: one == key(2), 6.0) == [key(3)]
    assert set(table.states) == {key(1), key(2)}
    assert table.next_due == 6.0 + STALE_IN_USE_S
    assert table.expire(5.9 + STALE_IN_USE_S) == ([], [])
    assert table.expire(6.0 + STALE_IN_USE_S) == ([], [key(2)])
    assert (set(table.states), table.next_due) == ({key(1)}, inf)


def test_a_resync_that_begins_while_gateways_wait_to_be_forgotten_begins_anew() -> None:
    table = table_of(9, 1, 2)
    table.begin_resync()
    table.sweep(lambda _: True, 0.0)
    table.begin_resync()
    assert table.expire(100.0) == ([], [])
    assert set(table.states) == {key(1), key(2)}


def test_the_oldest_stale_one_gives_its_place() -> None:
    table = table_of(2, 1, 2)
    table.begin_resync()
    assert table.set({key(3): (MAC, False)}, 0.0) == ({key(1): None, key(3): None}, 0)
    assert table.set({key(2): (MAC, False)}, 0.0) == ({}, 0)  # it is stale no more
    assert table.set({key(4): (MAC, False)}, 0.0) == ({}, 1)
    assert set(table.states) == {key(2), key(3)}


def test_what_leaves_with_its_interface_is_told() -> None:
    table = table_of(9, 1, 2)
    table.set({(2, ADDRESS): (MAC, False)}, 0.0)
    assert table.forget_interface(1) == [key(1), key(2)]
    assert set(table.states) == {(2, ADDRESS)}
