"""The tables of one router: what is refused, and for how long that is said; which objects their entries use."""

import pytest

from controller.model import Quota
from controller.planes.base import UNKNOWN_ACTION, GroupMember, NexthopGroup, Op, Policer, Update, WriteBatch
from controller.planes.encoding_time import EncodingTime
from controller.routing import prefixes
from controller.routing.entries import EntryTable
from controller.routing.prefixes import READ_AT_ONCE, Desired, PrefixTable, RouteTicket
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


ONE, OTHER = Policer(1, (1,)), Policer(1, (2,))


def ops(table: EntryTable[Policer], limit: int = 10, deletions: bool = True) -> list[tuple[Op, Policer]]:
    return [(update.op, update.entry) for update in table.take(limit, deletions).updates]


def policers(*ids: int) -> EntryTable[Policer]:
    table: EntryTable[Policer] = EntryTable("policer")
    for one in ids:
        table.want(one, Policer(one, ()))
    return table


def test_an_update_leads_from_what_is_installed_to_what_is_desired() -> None:
    table: EntryTable[Policer] = EntryTable("policer")
    table.want(1, None)  # which is nowhere
    assert not table
    table.want(1, ONE)
    assert (bool(table), ops(table), bool(table)) == (True, [(Op.INSERT, ONE)], False)
    table.want(1, ONE)
    assert not table
    table.want(1, OTHER)
    assert ops(table) == [(Op.MODIFY, OTHER)]
    table.want(1, ONE)
    table.want(1, OTHER)  # back before it was taken
    assert (ops(table), table.writes) == ([], 2)
    table.want(1, None)
    assert ops(table) == [(Op.DELETE, OTHER)]
    table.want(1, ONE)
    table.want(1, None)
    assert (ops(table), table.installed, table.writes) == ([], {}, 3)


def test_a_batch_takes_one_at_least_and_no_more_than_its_limit() -> None:
    table = policers(1, 2, 3)
    for limit, ids, whole in ((0, [], False), (1, [1], False), (2, [2, 3], True)):
        taken = table.take(limit)
        assert ([one.entry.vrf_id for one in taken.updates], taken.cost, taken.whole) == (ids, len(ids), whole)


def test_a_group_costs_as_many_as_it_has_members() -> None:
    table: EntryTable[NexthopGroup] = EntryTable("nexthop_group")
    for one in (1, 2, 3):
        table.want(one, NexthopGroup(one, tuple(GroupMember(nexthop, 1, 0) for nexthop in range(one % 3))))
    assert [table.take(1).cost for _ in range(3)] == [1, 2, 1]  # an empty one counts as well


def test_deletions_may_wait() -> None:
    table = policers(1, 2)
    ops(table)
    table.want(1, None)
    table.want(2, OTHER)
    assert ops(table, deletions=False) == [(Op.MODIFY, OTHER)]
    assert ops(table, deletions=False) == []
    assert table.take(10).updates == [Update(Op.DELETE, Policer(1, ()))]


def test_what_a_plane_refused_is_tried_again_once_it_is_asked_for() -> None:
    table = policers(1)
    ops(table)
    table.want(1, OTHER)
    ops(table)
    table.refuse(1, Op.MODIFY, "no")
    assert (table.refused, table.installed, bool(table)) == ({1: "no"}, {}, False)
    table.retry()
    assert table.refused == {}
    assert ops(table) == [(Op.MODIFY, OTHER)]  # it is there, as it was before
    table.refuse(1, Op.MODIFY, "no")
    table.retry()
    assert ops(table) == [(Op.MODIFY, OTHER)]


def test_what_was_refused_may_be_there_in_part_and_is_deleted_when_it_goes() -> None:
    table = policers(1)
    ops(table)
    table.refuse(1, Op.INSERT, "no")
    table.want(1, None)
    taken = table.take(10)
    assert taken.updates == [Update(Op.DELETE, Policer(1, ()))]
    table.refuse(1, Op.DELETE, "busy", taken.deleted[1])
    assert table.refusal(1) == "busy"
    table.retry()
    assert ops(table) == [(Op.DELETE, Policer(1, ()))]


def test_what_is_damaged_is_deleted_when_it_goes_before_it_was_written_again() -> None:
    table = policers(1, 2)
    table.adopt({2: Policer(2, ())}, [1, 2])
    for one in (1, 2):
        table.want(one, None)
    assert ops(table) == [(Op.DELETE, Policer(1, ())), (Op.DELETE, Policer(2, ()))]
    assert not table.take(10).updates


def test_a_refused_delete_of_what_is_installed_is_told() -> None:
    table = policers(1)
    ops(table)
    table.want(1, None)
    ops(table)
    table.refuse(1, Op.DELETE, "busy")
    assert table.refused == {1: "busy"}
    table.want(1, ONE)
    assert (ops(table), table.refused) == ([(Op.INSERT, ONE)], {})


def test_what_a_plane_refused_to_delete_is_there_and_deleted_once_that_is_asked_for() -> None:
    table = policers(1)
    ops(table)
    table.want(1, None)
    taken = table.take(10)
    assert taken.deleted == {1: Policer(1, ())}
    table.refuse(1, Op.DELETE, "busy", taken.deleted[1])
    assert (table.refusal(1), table.installed, bool(table)) == ("busy", {1: Policer(1, ())}, False)
    table.retry()
    assert (table.refusal(1), ops(table), table.installed) == ("", [(Op.DELETE, Policer(1, ()))], {})


@pytest.mark.parametrize("sent", [False, True])
@pytest.mark.parametrize("wanted", [Policer(1, ()), OTHER])
def test_what_a_plane_refused_to_delete_is_written_again_where_it_is_desired_by_then(
    wanted: Policer, sent: bool
) -> None:
    table = policers(1)
    ops(table)
    table.want(1, None)
    taken = table.take(10)
    table.want(1, wanted)
    if sent:
        assert ops(table) == [(Op.INSERT, wanted)]
    table.refuse(1, Op.DELETE, "busy", taken.deleted[1])
    assert (table.installed, table.refusal(1)) == ({1: Policer(1, ())}, "")
    assert (ops(table), table.installed) == ([(Op.MODIFY, wanted)], {1: wanted})


def test_what_is_read_back_is_made_what_is_desired() -> None:
    table = policers(1, 2, 3)
    ops(table)
    first, second = Policer(1, ()), Policer(2, ())
    table.adopt({1: first, 2: OTHER, 9: ONE}, {1})
    assert ops(table) == [
        (Op.MODIFY, first),  # damaged
        (Op.MODIFY, second),
        (Op.INSERT, Policer(3, ())),
        (Op.DELETE, ONE),
    ]
    assert ops(table) == []
    table.want(1, None)
    assert ops(table) == [(Op.DELETE, first)]
    table.want(1, ONE)
    assert ops(table) == [(Op.INSERT, ONE)]  # it is damaged no more


def test_what_was_perhaps_there_and_has_come_back_is_there() -> None:
    table = policers(1)
    ops(table)
    table.refuse(1, Op.INSERT, "no")
    table.want(1, None)
    assert ops(table) == [(Op.DELETE, Policer(1, ()))]
    table.want(1, ONE)
    assert ops(table) == [(Op.INSERT, ONE)]
    table.want(1, None)
    assert ops(table) == [(Op.DELETE, ONE)]
    table.refuse(1, Op.DELETE, "busy")
    assert table.refused == {1: "busy"}


def test_once_it_is_read_back_nothing_may_be_there_in_part() -> None:
    table = policers(1, 2)
    ops(table)
    for one in (1, 2):
        table.refuse(one, Op.INSERT, "no")
    table.want(2, None)
    assert ops(table) == [(Op.DELETE, Policer(2, ()))]  # which is under way
    table.adopt({2: ONE}, ())
    table.want(1, None)
    assert ops(table) == [(Op.DELETE, ONE)]
    table.refuse(2, Op.DELETE, "busy")  # it was there now
    assert table.refused == {2: "busy"}


def test_an_audit_repairs_what_differs_and_leaves_what_it_did_not_ask_for() -> None:
    table = policers(1, 2, 3, 4)
    ops(table)
    found = {1: Policer(1, ()), 2: OTHER, 4: Policer(4, ()), 9: ONE}
    assert table.repair(found, {4, 8}) == 3
    assert table.installed == {1: Policer(1, ()), 2: OTHER, 4: Policer(4, ())}
    assert ops(table) == [(Op.MODIFY, Policer(2, ())), (Op.INSERT, Policer(3, ())), (Op.MODIFY, Policer(4, ()))]
    assert ops(table) == []


def test_an_audit_has_the_rest_deleted_of_what_a_plane_has_deleted_in_part() -> None:
    table = policers(1)
    ops(table)
    table.want(1, None)
    taken = table.take(10)
    table.refuse(1, Op.DELETE, "busy", taken.deleted[1])
    assert table.repair({}, {1}) == 1
    assert (table.waits(1), ops(table), ops(table)) == (True, [(Op.DELETE, Policer(1, ()))], [])


def test_a_prefix_is_in_one_batch_at_a_time_and_those_behind_it_wait() -> None:
    actions = {FIRST: 7, SECOND: 7, THIRD: 7}
    table = PrefixTable(1, SliceUsage(Quota()))
    desired = Desired(actions, {}, actions.get)

    def take() -> tuple[list[bytes], RouteTicket]:
        updates, ticket = table.take(10, desired, lambda _: False)
        return [key for column in updates for key in column.keys], ticket

    table.enqueue([FIRST])
    keys, first = take()
    assert (keys, table.ready) == ([FIRST], False)
    actions[FIRST] = 9
    table.enqueue([SECOND, FIRST, THIRD])
    mark = table.mark()
    assert table.ready
    keys, second = take()
    assert (keys, table.ready, table.pending) == ([SECOND], False, 2)
    table.enqueue([SECOND])
    assert (take()[0], table.ready, table.pending) == ([], False, 3)
    table.confirm(first)
    table.refuse(FIRST, "no", None)
    assert table.ready
    keys, third = take()
    assert (keys, table.installed[FIRST], table.refused) == ([FIRST, THIRD], 9, {})
    assert table.pending == 1
    table.confirm(second)
    assert not table.reached(mark)
    assert (take()[0], table.pending) == ([], 0)  # it is as it should be
    table.confirm(third)
    assert table.reached(mark)


@pytest.mark.parametrize("again", ["lost", "read back"])
def test_nothing_waits_for_a_batch_that_was_lost(again: str) -> None:
    actions = {FIRST: 7}
    table = PrefixTable(1, SliceUsage(Quota()))
    desired = Desired(actions, {}, actions.get)
    table.enqueue([FIRST])
    table.take(10, desired, lambda _: False)
    actions[FIRST] = 9
    table.enqueue([FIRST])
    assert (table.take(10, desired, lambda _: False)[0], table.ready) == ([], False)
    if again == "lost":
        table.abandon()
    else:
        list(table.adopt({FIRST: 7}, False))
    assert table.ready
    (updates,), _ = table.take(10, desired, lambda _: False)
    assert (updates.keys, updates.actions) == ([FIRST], [9])


def test_an_action_is_in_use_until_the_last_prefix_that_was_found_with_it_is_found_with_another() -> None:
    usage = SliceUsage(Quota())
    table = PrefixTable(1, usage)
    table.find(FIRST, 7)
    list(table.adopt({FIRST: 7, SECOND: 7, THIRD: 9}, False))
    assert (table.actions_in_use(), usage.ipv4_routes) == ({7, 9}, 3)
    table.find(FIRST, 9)
    assert (table.actions_in_use(), dict(table.let_go)) == ({7, 9}, {})
    table.find(SECOND, None)
    assert (table.actions_in_use(), dict(table.let_go)) == ({9}, {7: None})
    table.find(THIRD, None)
    assert (table.actions_in_use(), usage.ipv4_routes) == ({9}, 1)
    table.find(FIRST, None)
    assert (table.actions_in_use(), dict(table.let_go), usage.ipv4_routes) == (set(), {7: None, 9: None}, 0)


@pytest.mark.parametrize("at_once", [1, READ_AT_ONCE])
def test_what_a_fallback_was_found_to_have_otherwise_than_adopted_is_doubted(
    monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    monkeypatch.setattr(prefixes, "READ_AT_ONCE", at_once)
    usage = SliceUsage(Quota())
    table = PrefixTable(1, usage)
    list(table.adopt({FIRST: 7, SECOND: 7}, True))
    assert table.installed == {FIRST: 7, SECOND: 7}  # of a plane to which nothing was written
    list(table.adopt({FIRST: 7, THIRD: 9}, True))
    assert table.installed == {FIRST: 7, SECOND: UNKNOWN_ACTION, THIRD: UNKNOWN_ACTION}
    assert (table.actions_in_use(), usage.ipv4_routes) == ({7, UNKNOWN_ACTION}, 3)


def test_a_read_back_is_taken_over_in_steps_of_which_only_the_last_changes_anything(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(prefixes, "READ_AT_ONCE", 2)
    usage = SliceUsage(Quota())
    table = PrefixTable(1, usage)
    list(table.adopt({FIRST: 7}, False))
    steps, found = table.adopt({FIRST: 9, SECOND: 9, THIRD: 9}, False), []
    for _ in steps:
        found.append((table.actions_in_use(), dict(table.installed), usage.ipv4_routes))
    assert found == [({7}, {FIRST: 7}, 1)]
    assert (table.actions_in_use(), usage.ipv4_routes) == ({9}, 3)
    table.enqueue([FIRST])
    assert not table.reached(0)
    table.fence()
    assert not table.reached(0)  # before what was queued is confirmed


def test_batches_are_equal_whatever_encoding_them_took() -> None:
    took = EncodingTime()
    took.spent_s[1] = 1.0
    assert WriteBatch(encoding=took) == WriteBatch()
