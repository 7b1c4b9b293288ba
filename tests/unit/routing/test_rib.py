"""What a VRC's session may say of nexthop sets and routes, and what is counted of it."""

from array import array

import pytest

from controller.errors import SessionRefused
from controller.model import Quota
from controller.routing import rib as rib_module
from controller.routing.rib import Member, Rib, SetKind
from controller.routing.usage import SliceUsage
from wire.columns import prefix_key

A, B, C = ((Member(number, bytes((10, 0, number, 2))),) for number in (1, 2, 3))
V4 = [prefix_key(f"20.{number}.0.0/16") for number in range(4)]
V6 = [prefix_key(f"2001:db8:{number}::/48") for number in range(1, 4)]


def learned(*set_ids: int) -> Rib:
    rib = Rib()
    rib.define(1, SetKind.FORWARD, A)
    rib.define(2, SetKind.FORWARD, B)
    rib.replace(4, V4[: len(set_ids)], array("I", set_ids))
    return rib


def test_a_set_may_be_named_twice_but_a_name_means_one_set() -> None:
    rib = Rib()
    assert rib.define(1, SetKind.FORWARD, A) is not None
    assert rib.define(1, SetKind.FORWARD, A) is None
    assert rib.define(2, SetKind.FORWARD, A) is None
    assert rib.names[1] is rib.names[2]
    with pytest.raises(SessionRefused, match="set 1 was defined before with other members"):
        rib.define(1, SetKind.FORWARD, B)
    with pytest.raises(SessionRefused, match="set 1 was defined before"):
        rib.define(1, SetKind.BLACKHOLE, ())
    with pytest.raises(SessionRefused, match="set 0 is reserved"):
        rib.define(0, SetKind.FORWARD, B)


def test_the_order_of_members_makes_no_other_set() -> None:
    rib = Rib()
    rib.define(1, SetKind.FORWARD, A + B)
    assert rib.define(2, SetKind.FORWARD, B + A) is None


def test_names_are_bounded_but_one_that_is_known_may_be_told_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rib_module, "MAX_SETS", 2)
    rib = learned()
    assert rib.define(2, SetKind.FORWARD, B) is None
    with pytest.raises(SessionRefused, match="more than 2 nexthop sets"):
        rib.define(3, SetKind.FORWARD, A)
    rib.release([1])
    rib.define(3, SetKind.FORWARD, A)
    assert set(rib.names) == {2, 3}


@pytest.mark.parametrize(("most_sets", "most_members"), [(2, 1000), (1000, 4)])
def test_sets_that_are_kept_are_bounded_and_so_are_their_members(
    most_sets: int, most_members: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rib_module, "MAX_KEPT_SETS", most_sets)
    monkeypatch.setattr(rib_module, "MAX_KEPT_MEMBERS", most_members)
    monkeypatch.setattr(rib_module, "MAX_MEMBERS", 3)
    rib = Rib()
    rib.define(1, SetKind.FORWARD, A)
    assert not rib.crowded
    rib.define(2, SetKind.FORWARD, B)
    assert rib.crowded  # no room is left for two more and one of three members
    rib.define(3, SetKind.FORWARD, A)  # which is kept already
    with pytest.raises(SessionRefused, match=f"more than {most_sets} nexthop sets or {most_members} members"):
        rib.define(4, SetKind.BLACKHOLE, ())
    rib.release([1, 2, 3])
    assert len(rib.collect()) == 2
    assert not rib.crowded
    assert list(rib.sets) == []


def test_a_set_is_kept_while_a_route_or_a_name_uses_it() -> None:
    rib = learned(1, 1)
    rib.release([1])
    assert rib.collect() == []
    rib.release([2])
    assert [one.members for one in rib.collect()] == [B]
    rib.begin_resync()
    rib.withdraw(list(rib.routes))
    assert [one.members for one in rib.collect()] == [A]


@pytest.mark.parametrize(("limit", "collected"), [(2, [1, 1, 1, 0]), (3, [2, 1, 0, 0])])
def test_as_many_sets_are_looked_at_as_a_call_may(
    monkeypatch: pytest.MonkeyPatch, limit: int, collected: list[int]
) -> None:
    monkeypatch.setattr(rib_module, "COLLECT_AT_ONCE", limit)  # a set and its member count two
    rib = Rib()
    for set_id, members in enumerate((A, B, C), 1):
        rib.define(set_id, SetKind.FORWARD, members)
    rib.release([1, 2, 3])
    assert [len(rib.collect()) for _ in collected] == collected


def test_what_is_not_repeated_is_withdrawn_and_uncounted() -> None:
    rib = learned(1, 1, 2)
    rib.replace(6, V6, array("I", [1, 2, 2]))
    rib.begin_resync()
    rib.define(7, SetKind.FORWARD, A)
    rib.replace(4, V4[:1], array("I", [7]))
    assert sorted(rib.withdraw(list(rib.routes))) == sorted(V4[1:3] + V6)
    assert rib.counts == {4: 1, 6: 0}
    assert [one.routes for one in rib.sets] == [1, 0]
    rib.end_resync()
    assert rib.withdraw(list(rib.routes)) == []


def test_a_resync_forgets_names_and_what_was_not_kept() -> None:
    rib = learned(1)
    rib.unkept[4] = 3
    rib.begin_resync()
    assert (rib.names, rib.unkept) == ({}, {4: 0, 6: 0})
    with pytest.raises(SessionRefused, match="routes use nexthop set 1, which is not defined"):
        rib.replace(4, V4, array("I", [1] * 4))


def test_new_routes_are_admitted_up_to_the_most_and_all_else_always() -> None:
    rib = learned(1, 1)
    assert rib.admit(4, V4, array("I", [2, 0, 1, 1]), most=3) == [0, 1, 2]
    assert rib.unkept == {4: 1, 6: 0}
    assert rib.admit(6, V6, array("I", [1, 0, 1]), most=0) == [1]
    assert rib.unkept == {4: 1, 6: 2}
    with pytest.raises(SessionRefused, match="routes use nexthop set 8, which"):
        rib.admit(4, V4, array("I", [9, 8, 0, 1]), most=9)


def test_what_a_resync_repeated_is_forgotten_bit_by_bit() -> None:
    rib = learned(1, 2, 1)
    rib.begin_resync()
    rib.define(1, SetKind.FORWARD, A)
    rib.replace(4, V4[:2], array("I", [1, 1]))
    rib.forget_left(1 << 20)  # what the session before had named
    assert not rib.has_left
    rib.end_resync()
    assert rib.has_left
    rib.forget_left(1 << 20)
    assert not rib.has_left


def test_a_session_that_begins_has_all_of_the_quota_again() -> None:
    usage = SliceUsage(Quota(sets=2, members=2))
    rib = Rib(usage)
    rib.define(1, SetKind.FORWARD, A)
    rib.define(2, SetKind.FORWARD, B)
    rib.define(3, SetKind.FORWARD, C)
    assert (rib.unkept_sets, usage.sets, usage.members) == ({3: "quota sets of 2"}, 2, 2)
    rib.begin_resync()
    assert (rib.unkept_sets, usage.sets, usage.members, usage.kept_sets, usage.kept_members) == ({}, 0, 0, 2, 2)
    assert rib.define(3, SetKind.FORWARD, C) is not None
    assert (usage.sets, usage.members, usage.kept_sets, usage.kept_members) == (1, 1, 3, 3)


def test_sets_of_an_earlier_session_go_once_their_names_are_forgotten() -> None:
    rib = learned(1, 1)
    rib.begin_resync()
    assert rib.collect() == []
    assert not rib.loose
    rib.forget_left(1 << 20)
    assert rib.loose
    assert [one.members for one in rib.collect()] == [B]
    assert not rib.loose
    rib.withdraw(list(rib.routes))
    assert rib.loose
    assert [one.members for one in rib.collect()] == [A]


def test_names_of_an_earlier_session_are_forgotten_as_far_as_the_cost_goes() -> None:
    rib = Rib()
    for number in range(1, 8):
        rib.define(number, SetKind.FORWARD, (Member(number, b"\x0a\0\1\2"),))
    rib.begin_resync()
    assert rib.forget_left(0) == 0
    assert rib.forget_left(1) == -3  # one, at 4 each
    assert rib.forget_left(8) == -4  # three: as many as that pays for, and one
    assert (len(rib.collect()), rib.has_left) == (4, True)
    assert rib.forget_left(1 << 20) == (1 << 20) - 12
    assert (len(rib.collect()), rib.has_left) == (3, False)


def test_a_resync_inside_another_begins_anew() -> None:
    rib = learned(1, 1)
    rib.begin_resync()
    rib.define(1, SetKind.FORWARD, A)
    rib.replace(4, V4[:2], array("I", [1, 1]))
    assert not rib.is_stale(V4[0])
    rib.begin_resync()
    assert rib.is_stale(V4[0])
    assert not rib.is_stale(V4[3])  # which is no route
    rib.forget_left(1 << 20)
    assert not rib.has_left


@pytest.mark.parametrize("quota", [Quota(sets=3, members=2), Quota(sets=2, members=3), Quota(sets=2, members=2)])
def test_what_kept_a_set_out_may_be_over(quota: Quota) -> None:
    usage = SliceUsage(Quota(sets=2, members=2))
    rib = Rib(usage)
    rib.define(1, SetKind.FORWARD, A)
    rib.define(2, SetKind.FORWARD, B)
    assert not rib.room_for_sets
    rib.define(3, SetKind.FORWARD, C)
    assert not rib.room_for_sets
    usage.quota = quota
    assert rib.room_for_sets is (quota != Quota(sets=2, members=2))
    usage.quota = Quota(sets=2, members=2)
    rib.release([1])
    assert rib.room_for_sets
    assert (usage.sets, usage.members) == (1, 1)
    rib.release([3, 9])
    assert not rib.room_for_sets  # nothing is kept out any more
    assert (usage.sets, usage.members) == (1, 1)


def test_a_name_that_was_kept_out_stays_so_and_withdraws_what_it_names() -> None:
    rib = Rib(SliceUsage(Quota(sets=1)))
    rib.define(1, SetKind.FORWARD, A)
    rib.define(2, SetKind.FORWARD, B)
    assert rib.define(2, SetKind.FORWARD, A) is None
    rib.replace(4, V4[:1], array("I", [2]))
    assert rib.routes[V4[0]] is rib.unkept_set
    rib.release([2])
    assert (rib.names.keys(), rib.unkept_set.names) == ({1}, 1)


def test_what_moved_and_what_was_learned_is_counted() -> None:
    usage = SliceUsage(Quota())
    rib = Rib(usage)
    rib.define(1, SetKind.FORWARD, A)
    rib.replace(4, V4, array("I", [1] * 4))
    rib.replace(6, V6, array("I", [1] * 3))
    assert (rib.moved, usage.learned, rib.counts) == (7, 7, {4: 4, 6: 3})
    rib.replace(4, V4[:2], array("I", [1, 0]))
    assert (rib.moved, usage.learned, rib.counts) == (8, 6, {4: 3, 6: 3})
    rib.begin_resync()
    rib.withdraw([V4[0], V4[1], V6[0]])  # of which one is gone
    assert (rib.moved, usage.learned, rib.counts) == (10, 4, {4: 2, 6: 2})
