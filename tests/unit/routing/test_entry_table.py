"""The small tables of one router: what is refused, and for how long that is said."""

from controller.planes.base import Op, Policer
from controller.routing.entries import EntryTable


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
