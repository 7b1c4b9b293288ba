"""The neighbors of one router: on which interfaces there is one of an address."""

from controller.model import Quota
from controller.routing.neighbors import NeighborTable
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
