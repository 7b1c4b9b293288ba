"""The loops in C do to RIB and FIB what plain Python does."""

from array import array
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st
from plain_tables import plain_replace, plain_take

from controller.errors import SessionRefused
from controller.model import Quota
from controller.planes.base import LOCAL, UNKNOWN_ACTION, RouteKind, route_action
from controller.routing import _routes
from controller.routing.prefixes import Desired, PrefixTable
from controller.routing.repeated_keys import RepeatedKeys
from controller.routing.rib import Member, NexthopSet, Rib, SetKind
from controller.routing.usage import SliceUsage
from wire.columns import prefix_key

KEYS = {
    4: [prefix_key(f"10.{n}.0.0/16") for n in range(5)],
    6: [prefix_key(f"2001:db8:{n:x}::/48") for n in range(5)],
}
ACTIONS = [route_action(RouteKind.NEXTHOP, 300 + n) for n in range(3)]

messages = st.one_of(
    st.tuples(st.just(family), st.lists(st.sampled_from(list(product(keys, range(5)))), max_size=8))
    for family, keys in KEYS.items()
)


def a_rib() -> Rib:
    rib = Rib()
    for set_id in (1, 2, 3):
        rib.define(set_id, SetKind.FORWARD, [Member(1, bytes((10, 0, 0, set_id)))])
    return rib


@given(st.lists(messages, max_size=6))
def test_messages_into_the_rib(script: list[tuple[int, list[tuple[bytes, int]]]]) -> None:
    ours, plain = a_rib(), a_rib()
    for number, (family, entries) in enumerate(script):
        if number == 3:
            for rib in (ours, plain):
                rib._repeated = RepeatedKeys(0)
        keys, ids = [key for key, _ in entries], [set_id for _, set_id in entries]
        if 4 in ids:
            with pytest.raises(SessionRefused, match="set 4, which is not defined"):
                ours.replace(family, keys, array("I", ids))
            with pytest.raises(KeyError):
                plain_replace(plain, family, keys, ids)
        else:
            assert ours.replace(family, keys, array("I", ids)) == plain_replace(plain, family, keys, ids)
        assert {k: s.members for k, s in ours.routes.items()} == {k: s.members for k, s in plain.routes.items()}
        assert [s.routes for s in ours.sets] == [s.routes for s in plain.sets]
        assert ours.counts == plain.counts
        assert [ours.is_stale(key) for key in ours.routes] == [plain.is_stale(key) for key in ours.routes]
        assert [s.members for s in ours._loose] == [s.members for s in plain._loose]


class Side:
    """One table with what is desired of it."""

    def __init__(self, quota: int) -> None:
        self.usage = SliceUsage(Quota(ipv4_routes=quota, ipv6_routes=quota))
        self.table = PrefixTable(1, self.usage)
        self.sets = [NexthopSet(SetKind.FORWARD, ()) for _ in range(3)]
        self.own: dict[bytes, int] = {}
        self.routes: dict[bytes, NexthopSet] = {}
        self.desired = Desired(self.own, self.routes, self.decide)

    def decide(self, key: bytes) -> int | None:
        if key in self.own:
            return self.own[key]
        one = self.routes.get(key)
        have = self.table.installed.get(key)
        if one is not None and one.action and have == ACTIONS[2]:
            return have  # as if it forwarded equally
        return one.action or None if one is not None else None

    def play(self, step: tuple[str, int, int]) -> object:
        what, place, value = step
        key = [*KEYS[4], *KEYS[6]][place]
        if what == "route":
            self.routes.pop(key, None)
            if value < 3:
                self.routes[key] = self.sets[value]
        elif what == "own":
            self.own.pop(key, None)
            if value < 2:
                self.own[key] = (LOCAL, ACTIONS[1])[value]
        elif what == "action":
            self.sets[place % 3].action = [*ACTIONS, 0][value]
        elif what == "unknown" and key in self.table.installed:
            self.table.refuse(key, "the plane refused it", UNKNOWN_ACTION)
        self.table.enqueue([*KEYS[4], *KEYS[6]] if what == "action" else [key])
        return None

    def state(self) -> object:
        table, usage = self.table, self.usage
        references = {action: count for action, count in table._references.items() if count}
        counts = usage.ipv4_routes, usage.ipv6_routes, table.pending, table.unconfirmed
        return table.installed, references, table.refused, counts


steps = st.sampled_from(list(product(["route", "own", "action", "unknown"], range(10), range(4))))


@given(st.lists(st.lists(steps, max_size=6), max_size=6), st.integers(1, 6), st.integers(0, 10))
def test_the_queue_into_updates(script: list[list[tuple[str, int, int]]], limit: int, quota: int) -> None:
    ours, plain = Side(quota), Side(quota)
    for side in (ours, plain):
        for position, one in enumerate(side.sets):
            one.action = ACTIONS[position]
    for some in script:
        for side in (ours, plain):
            for step in some:
                side.play(step)
        updates, ticket = ours.table.take(limit, ours.desired, lambda key: ours.own.get(key) == LOCAL)
        expected, plain_ticket = plain_take(
            plain.table, limit, plain.desired, lambda key: plain.own.get(key) == LOCAL
        )
        assert (updates, ticket) == (expected, plain_ticket)
        assert ours.state() == plain.state()
        ours.table.confirm(ticket)
        plain.table.confirm(plain_ticket)
        assert ours.state() == plain.state()


def test_what_a_decision_raises_comes_through() -> None:
    side = Side(10)
    side.own[KEYS[4][0]] = LOCAL
    side.table.enqueue(KEYS[4])

    def decide(key: bytes) -> int | None:
        raise RuntimeError("no")

    with pytest.raises(RuntimeError, match="no"):
        side.table.take(10, Desired(side.own, side.routes, decide), lambda key: False)


def test_what_a_caller_may_not_do() -> None:
    with pytest.raises(ValueError, match="2 keys with 4 octets"):
        _routes.replace([b"", b""], array("I", [1]), {}, {})
    empty: tuple[list[object], ...] = ([], [], [])
    with pytest.raises(TypeError, match="a prefix key is bytes"):
        _routes.take(["10/8"], ({}, {}, str), ({}, {}, {}, []), (1, 1, str), (1, 2, 3), empty, empty)
