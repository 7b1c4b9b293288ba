"""The tables of one router: what is refused, and for how long that is said; which objects their entries use."""

from controller.model import Quota
from controller.planes.base import Op, Policer, WriteBatch
from controller.planes.encoding_time import EncodingTime
from controller.routing.entries import EntryTable
from controller.routing.prefixes import PrefixTable
from controller.routing.usage import SliceUsage

FIRST, SECOND, THIRD = (bytes((20, number, 0, 0, 16)) for number in range(3))


def test_a_plane_that_is_read_anew_has_refused_nothing() -> None:
    table: EntryTable[Policer] = EntryTable("policer")
    policer = Policer(1, ())
    table.want(1, policer)
    table.take(10)
    table.refuse(1, Op.INSERT, "policer is full")
    assert table.refused == {1: "policer is full"}
    table.adopt({1: policer}, ())
    assert table.refused == {}
    assert not table.take(10).updates


def test_an_action_is_in_use_until_the_last_prefix_that_was_found_with_it_is_found_with_another() -> None:
    usage = SliceUsage(Quota())
    table = PrefixTable(1, usage)
    table.find(FIRST, 7)
    table.adopt({FIRST: 7, SECOND: 7, THIRD: 9})
    assert (table.actions_in_use(), usage.ipv4_routes) == ({7, 9}, 3)
    table.find(FIRST, 9)
    assert (table.actions_in_use(), dict(table.let_go)) == ({7, 9}, {})
    table.find(SECOND, None)
    assert (table.actions_in_use(), dict(table.let_go)) == ({9}, {7: None})
    table.find(THIRD, None)
    assert (table.actions_in_use(), usage.ipv4_routes) == ({9}, 1)
    table.find(FIRST, None)
    assert (table.actions_in_use(), dict(table.let_go), usage.ipv4_routes) == (set(), {7: None, 9: None}, 0)


def test_batches_are_equal_whatever_encoding_them_took() -> None:
    took = EncodingTime()
    took.spent_s[1] = 1.0
    assert WriteBatch(encoding=took) == WriteBatch()
