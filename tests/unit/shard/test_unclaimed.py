"""What nobody has of a plane is found in steps, whatever routers do between any two of them."""

from collections.abc import Iterator
from typing import Any

import pytest
from worlds import mac, router_config

from controller.errors import PlaneError
from controller.fallback import pace
from controller.model import Quota
from controller.planes.base import (
    GroupMember,
    Installed,
    Nexthop,
    NexthopGroup,
    NexthopState,
    Policer,
    RouteKind,
    RouterInterface,
    WriteBatch,
    route_action,
)
from controller.routing import objects
from controller.routing.fib import Fib
from controller.routing.objects import PlaneObjects
from controller.routing.usage import SliceUsage
from controller.shard import unclaimed
from controller.shard.unclaimed import UnclaimedObjects, deletions
from wire.columns import prefix_key

SIZE = 6
STEP = 2


@pytest.fixture(autouse=True)
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pace, "STEP_ROUTES", STEP)
    monkeypatch.setattr(objects, "ADOPTED_AT_ONCE", STEP)
    monkeypatch.setattr(unclaimed, "READ_AT_ONCE", STEP)


@pytest.fixture
def read() -> Installed:
    """Nexthops 1 to 6 and groups 11 to 16, each of a router of its own, and a route of each to its group."""
    numbers = range(1, SIZE + 1)
    return Installed(
        policers={i: Policer(i, ()) for i in numbers},
        router_interfaces={i: RouterInterface(i, i, 1, i, mac(i), 1500) for i in numbers},
        nexthops={i: Nexthop(i, i, mac(i)) for i in numbers},
        groups={10 + i: NexthopGroup(10 + i, (GroupMember(i, 1, 1),)) for i in numbers},
        routes={i: {prefix_key("20.0.0.0/8"): route_action(RouteKind.GROUP, 10 + i)} for i in numbers},
    )


def fibs(plane: PlaneObjects) -> dict[int, Fib]:
    return {i: Fib(router_config(i, (i,)), plane, SliceUsage(Quota())) for i in range(1, SIZE + 1)}


def count(steps: Iterator[None]) -> int:
    return sum(1 for _ in steps)


def taken_off(found: UnclaimedObjects) -> list[set[int]]:
    """Return the ids of what may be deleted, by batches."""
    return [
        {update.entry.id for updates in (batch.groups, batch.nexthops) for update in updates}
        for batch in found.deletions({}, 1000)
    ]


@pytest.mark.parametrize(("at_once", "steps"), [(STEP, 2 * SIZE // STEP), (SIZE + 1, 0)])
def test_a_read_back_is_taken_over_in_steps(
    read: Installed, monkeypatch: pytest.MonkeyPatch, at_once: int, steps: int
) -> None:
    monkeypatch.setattr(objects, "ADOPTED_AT_ONCE", at_once)
    plane = PlaneObjects("s1")
    plane.begin_adoption()
    assert count(plane.adopt(read, set(), {})) == steps
    assert plane.unclaimed_groups.keys() == read.groups.keys()


def test_what_nobody_claims_is_found_in_steps(read: Installed) -> None:
    plane = PlaneObjects("s1")
    found = UnclaimedObjects(plane)
    routers = fibs(plane)
    parts = SIZE // STEP
    assert count(found.adopt(read, routers)) == SIZE + 8 * parts
    assert set(plane.unclaimed_nexthops) | set(plane.unclaimed_groups) == {*read.nexthops, *read.groups}
    assert count(found.adopt_left(read, routers)) == parts
    assert taken_off(found) == [{*read.nexthops, *read.groups}]


@pytest.mark.parametrize("takes", ["one that is new", "one that was adopted"])
def test_what_a_router_takes_between_any_two_steps_is_its_own(
    read: Installed, monkeypatch: pytest.MonkeyPatch, takes: str
) -> None:
    monkeypatch.setattr(objects, "MAX_OBJECT_ID", 2 * SIZE + 1)
    read.groups = {SIZE + i: NexthopGroup(SIZE + i, (GroupMember(i, 1, 1),)) for i in range(1, SIZE + 1)}
    read.routes = {i: {prefix_key("20.0.0.0/8"): route_action(RouteKind.GROUP, SIZE + i)} for i in read.routes}
    at = steps = 0
    while steps >= at:
        at += 1
        plane = PlaneObjects("s1")
        found, routers = UnclaimedObjects(plane), fibs(plane)
        mine: Any = routers[1].object_tables[0].desired
        count(found.adopt(read, routers))
        for steps, _ in enumerate(found.adopt(read, routers), 1):
            if steps == at and takes == "one that is new":
                mine[plane.issue()] = None
            elif steps == at:
                for one in (
                    plane.claim_nexthop(2, b"\x0a\0\0\2", mac(2), NexthopState.FORWARD),
                    plane.claim_group(((3, 1),)),
                ):
                    assert one is not None
                    mine[one.id] = one
        left = {*read.nexthops, *read.groups} - mine.keys()
        assert set(plane.unclaimed_nexthops) | set(plane.unclaimed_groups) == left
        if 2 * SIZE + 1 not in mine:
            assert plane.issue() == 2 * SIZE + 1
        with pytest.raises(PlaneError):
            plane.issue()
        assert mine.keys().isdisjoint(set().union(*taken_off(found)))
    assert at > 12


def test_what_is_given_up_as_the_others_adopt_is_found_then(read: Installed) -> None:
    plane = PlaneObjects("s1")
    found, routers = UnclaimedObjects(plane), fibs(plane)
    table: Any = routers[3].object_tables[0]
    table.want(3, read.nexthops[3])
    count(found.adopt(read, routers))
    assert 3 not in plane.unclaimed_nexthops
    table.want(3, None)
    count(found.adopt_left(read, routers))
    assert 3 in plane.unclaimed_nexthops


def test_what_is_of_no_router_is_deleted_in_batches(read: Installed) -> None:
    batches: list[WriteBatch] = list(deletions(read, {1: fibs(PlaneObjects("s1"))[1]}, STEP))
    assert max(len(one.router_interfaces) + len(one.policers) for one in batches) == STEP
    assert [u.entry.id for one in batches for u in one.router_interfaces] == [2, 3, 4, 5, 6]
    assert [u.entry.vrf_id for one in batches for u in one.policers] == [2, 3, 4, 5, 6]
