"""Ids of nexthops and groups on one plane, and who takes over what an earlier controller left there."""

import pytest

from controller.errors import PlaneError
from controller.planes.base import (
    GroupMember,
    Installed,
    Nexthop,
    NexthopGroup,
    NexthopState,
    RouteKind,
    route_action,
)
from controller.routing import objects
from controller.routing.objects import PlaneObjects, own_nexthops
from wire.columns import prefix_key

MAC = bytes((2, 0, 0, 0, 0, 1))
FORWARD = NexthopState.FORWARD


def nexthops(*ids: int) -> dict[int, Nexthop]:
    return {one: Nexthop(one, 7, MAC) for one in ids}


def test_an_id_is_not_issued_again_before_all_others_were(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(objects, "MAX_OBJECT_ID", 4)
    plane = PlaneObjects("s1")
    assert [plane.issue(), plane.issue()] == [1, 2]
    plane.free(1)
    assert [plane.issue(), plane.issue(), plane.issue()] == [3, 4, 1]
    with pytest.raises(PlaneError, match="plane s1 has no nexthop or group id left"):
        plane.issue()
    plane.free(3)
    assert plane.issue() == 3


def test_ids_that_were_read_back_are_not_issued() -> None:
    plane = PlaneObjects("s1")
    list(plane.adopt(Installed(nexthops=nexthops(1, 3), groups={4: NexthopGroup(4, ())}), {2}, {}))
    assert [plane.issue(), plane.issue()] == [5, 6]


def test_what_is_lost_and_led_to_has_its_id_still_and_is_nobody_s_to_claim() -> None:
    plane = PlaneObjects("s1")
    groups = {2: NexthopGroup(2, (GroupMember(1, 1, 1), GroupMember(3, 1, 1)))}
    damaged = {("nexthop", 4), ("nexthop_group", 5), ("nexthop", 6), ("policer", 7)}
    read = Installed(nexthops=nexthops(1), groups=groups, damaged=damaged)
    list(plane.adopt(read, {6}, {}, [("nexthop_group", 8), ("nexthop", 1)]))
    assert (plane.unclaimed_nexthops.keys(), plane.unclaimed_groups.keys()) == ({1, 3, 4}, {2, 5, 8})
    assert [plane.issue() for _ in range(2)] == [7, 9]
    assert plane.claim_group(()) is None
    assert plane.claim_nexthop(0, b"", bytes(6), NexthopState.DROP) is None


def test_what_a_router_has_already_waits_for_nobody() -> None:
    plane = PlaneObjects("s1")
    groups = {4: NexthopGroup(4, ()), 5: NexthopGroup(5, ())}
    list(plane.adopt(Installed(nexthops=nexthops(1, 2), groups=groups), {1, 4}, {}))
    assert (set(plane.unclaimed_nexthops), set(plane.unclaimed_groups)) == ({2}, {5})


def test_a_nexthop_is_claimed_once_and_by_its_whole_content() -> None:
    plane = PlaneObjects("s1")
    list(plane.adopt(Installed(nexthops=nexthops(1)), set(), {}))
    assert plane.claim_nexthop(8, b"\x0a\0\0\1", MAC, FORWARD) is None
    assert plane.claim_nexthop(7, b"\x0a\0\0\1", bytes(6), FORWARD) is None
    assert plane.claim_nexthop(7, b"\x0a\0\0\1", MAC, NexthopState.DROP) is None
    assert plane.claim_nexthop(7, b"\x0a\0\0\1", MAC, FORWARD) == Nexthop(1, 7, MAC)
    assert plane.claim_nexthop(7, b"\x0a\0\0\1", MAC, FORWARD) is None


def test_of_equal_nexthops_its_own_comes_before_nobody_s_and_that_before_another_neighbor_s() -> None:
    plane = PlaneObjects("s1")
    routes = {
        prefix_key("10.0.0.3/32"): route_action(RouteKind.NEXTHOP, 3),
        prefix_key("2001:db8::1/128"): route_action(RouteKind.NEXTHOP, 1),
        prefix_key("10.9.0.0/24"): route_action(RouteKind.NEXTHOP, 2),  # no neighbor's own route
        prefix_key("10.0.0.2/32"): route_action(RouteKind.GROUP, 2),
    }
    list(plane.adopt(Installed(nexthops=nexthops(1, 2, 3), routes={5: routes}), set(), own_nexthops(routes)))
    ipv6 = prefix_key("2001:db8::1/128")[:-1]
    claimed = [plane.claim_nexthop(7, gateway, MAC, FORWARD) for gateway in (ipv6, b"\x0a\0\0\7", b"\x0a\0\0\7")]
    assert [one.id for one in claimed if one] == [1, 2, 3]


def test_a_group_is_claimed_by_its_members_in_any_order() -> None:
    plane = PlaneObjects("s1")
    group = NexthopGroup(4, (GroupMember(9, 1, 2), GroupMember(8, 3, 2)))
    list(plane.adopt(Installed(groups={4: group}), set(), {}))
    assert plane.claim_group(((8, 1), (9, 3))) is None
    assert plane.claim_group(((8, 3), (9, 1))) == group
    assert plane.claim_group(((8, 3), (9, 1))) is None
