"""What nexthop sets become on the plane: which nexthops and groups there are, until when, and what a look costs."""

from collections.abc import Iterable
from dataclasses import replace
from math import inf

import pytest

from controller.model import InterfaceConfig, Quota
from controller.planes.base import (
    BLACKHOLE,
    GLEAN,
    UNREACHABLE,
    GroupMember,
    Installed,
    Nexthop,
    NexthopGroup,
    NexthopState,
    RouteKind,
    route_action,
)
from controller.routing import resolve
from controller.routing.objects import PlaneObjects
from controller.routing.resolve import (
    DEAD_SETTLE_S,
    MEMBER_COST,
    NEXTHOP_COST,
    SET_COST,
    Interface,
    Resolution,
)
from controller.routing.rib import Member, NexthopSet, SetKind
from controller.routing.usage import Pool, SliceUsage

FORWARD, GLEANS, DROP = NexthopState.FORWARD, NexthopState.GLEAN, NexthopState.DROP
NO_MAC = bytes(6)
ALL = 10**9


def gateway(number: int) -> bytes:
    return bytes((10, 0, number, 2))


def mac(number: int) -> bytes:
    return bytes((2, 0, 0, 0, 0, number))


def config(number: int, **differs: object) -> InterfaceConfig:
    return InterfaceConfig(number, f"i{number}", f"p{number}", 0, bytes((2, 0, 0, 0, 1, number)), **differs)


def one_way(number: int) -> NexthopSet:
    return NexthopSet(SetKind.FORWARD, (Member(number, gateway(number)),))


def ways(*weights: int) -> NexthopSet:
    """A way by each interface that has a weight, from 1 on."""
    members = (Member(number, gateway(number), weight) for number, weight in enumerate(weights, 1) if weight)
    return NexthopSet(SetKind.FORWARD, tuple(members))


def connected(number: int) -> NexthopSet:
    return NexthopSet(SetKind.CONNECTED, (Member(number, b""),))


class Router:
    """A resolution with three interfaces that are up, at the plane's ports 11 to 13."""

    def __init__(self, **quota: int) -> None:
        self.usage = SliceUsage(Quota(**quota))
        self.objects = PlaneObjects("s1")
        self.resolution = Resolution(7, self.objects, self.usage)
        for number in (1, 2, 3):
            self.resolution.interfaces[number] = Interface(config(number), 10 + number, True)

    def attach(self, *sets: NexthopSet) -> None:
        for one in sets:
            one.routes = 1
            self.resolution.attach(one)

    def neighbors(self, *numbers: int, failed: Iterable[int] = ()) -> None:
        """Tell of the neighbors, and follow that."""
        told = {(number, gateway(number)): (mac(number), False) for number in numbers}
        told |= {(number, gateway(number)): (b"", True) for number in failed}
        self.resolution.neighbors.set(told, 0.0)
        self.touch(*numbers, *failed)

    def touch(self, *numbers: int, now: float = 0.0) -> tuple[list[NexthopSet], list[NexthopSet]]:
        for number in numbers:
            self.resolution.touch(self.resolution.on_interface(number), now)
        _, changed, rewritten = self.resolution.refresh(ALL)
        return changed, rewritten

    def link(self, number: int, up: bool, now: float = 0.0) -> tuple[list[NexthopSet], list[NexthopSet]]:
        self.resolution.interfaces[number].port_up = up
        return self.touch(number, now=now)

    def nexthop(self, number: int) -> Nexthop:
        return self.resolution.nexthop_entries.desired[self.id_of(number)]

    def id_of(self, number: int) -> int:
        return self.resolution.nexthops[number, gateway(number)].id

    def group(self, one: NexthopSet) -> dict[int, tuple[int, int]]:
        """The members of a set's group: by interface their weight and port."""
        members = self.resolution.group_entries.desired[one.action & 0xFFFFFF].members
        return {self.resolution._by_id[m.nexthop_id].interface_id: (m.weight, m.watch_port) for m in members}

    def collect(self, *used: int) -> None:
        self.resolution.collect(lambda action: action in used)

    @property
    def entries(self) -> tuple[int, int]:
        """How many nexthops and groups there are, which usage agrees with."""
        found = len(self.resolution.nexthop_entries.desired), len(self.resolution.group_entries.desired)
        assert found == (self.usage.nexthops, self.usage.groups)
        return found


# Interfaces


def test_an_address_is_an_own_one_for_as_long_as_an_interface_has_it() -> None:
    resolution = Router().resolution
    first, second = resolution.interfaces[1], resolution.interfaces[2]
    a, b, c = (bytes((10, 0, 0, last)) for last in (1, 2, 3))
    assert resolution.set_addresses(first, frozenset({a, b})) == {a, b}
    assert resolution.set_addresses(second, frozenset({b})) == {b}
    assert resolution.local == {a: 1, b: 2}
    assert resolution.set_addresses(first, frozenset({a, c})) == {b, c}
    assert resolution.local == {a: 1, b: 1, c: 1}
    assert resolution.set_addresses(second, frozenset()) == {b}
    assert resolution.local == {a: 1, c: 1}


def test_with_virtual_macs_only_declared_addresses_are_the_interfaces_own() -> None:
    declared, told = bytes((10, 0, 0, 1)), bytes((10, 0, 0, 9))
    interface = Interface(config(1, addresses=("10.0.0.1/24",)), addresses=frozenset({told}))
    assert interface.own_addresses == {declared, told}
    interface.config = replace(interface.config, virtual_macs=(mac(9),))
    assert interface.own_addresses == {declared}


@pytest.mark.parametrize(
    ("port", "port_up", "guest_up", "up"),
    [
        (1, True, True, True),
        (1, True, None, True),
        (1, True, False, False),
        (1, False, True, False),
        (None, False, True, False),
    ],
)
def test_a_link_is_up_where_port_and_guest_say_so(
    port: int | None, port_up: bool, guest_up: bool | None, up: bool
) -> None:
    assert Interface(config(1), port, port_up, guest_up).up is up
    assert not Interface(config(1)).up


# Nexthops


def test_a_nexthop_does_what_is_known_of_its_neighbor_and_link() -> None:
    router = Router()
    router.attach(one_way(1))
    assert router.nexthop(1) == Nexthop(router.id_of(1), 1, NO_MAC, GLEANS)
    router.neighbors(1)
    assert router.nexthop(1) == Nexthop(router.id_of(1), 1, mac(1), FORWARD)
    router.link(1, up=False)
    assert router.nexthop(1) == Nexthop(router.id_of(1), 1, NO_MAC, DROP)
    router.link(1, up=True)
    router.neighbors(failed=[1])
    assert router.nexthop(1) == Nexthop(router.id_of(1), 1, NO_MAC, DROP)
    router.resolution.neighbors.states[1, gateway(1)].failed_until = 0.0
    router.touch(1)
    assert router.nexthop(1) == Nexthop(router.id_of(1), 1, NO_MAC, GLEANS)
    del router.resolution.interfaces[1]
    router.touch(1)
    assert router.nexthop(1).state is DROP


def test_sets_by_one_gateway_have_one_nexthop() -> None:
    router = Router()
    sets = one_way(1), one_way(1)
    router.attach(*sets)
    assert router.entries == (1, 0)
    assert {one.action for one in sets} == {route_action(RouteKind.NEXTHOP, router.id_of(1))}
    router.resolution.detach(sets[0])
    router.collect()
    assert router.entries == (1, 0)
    router.resolution.detach(sets[1])
    router.collect()
    assert router.entries == (0, 0)
    assert router.resolution.on_interface(1) == []


def test_a_nexthop_stays_for_its_neighbor_its_group_or_its_routes() -> None:
    router = Router()
    alone, both = one_way(1), ways(1, 1)
    router.attach(alone, both)
    router.neighbors(1, 2)
    action = route_action(RouteKind.NEXTHOP, router.id_of(1))
    router.resolution.detach(alone)
    router.resolution.detach(both)
    router.collect(both.action, action)
    assert router.entries == (2, 1)  # routes use both the group and the nexthop
    router.resolution.loosen([both.action])
    router.collect(action)
    assert router.entries == (2, 0)  # neighbors
    router.resolution.neighbors.forget_interface(1)
    router.resolution.neighbors.forget_interface(2)
    router.resolution.loosen_all()
    router.collect(action)
    assert router.entries == (1, 0)
    router.resolution.loosen([action])
    router.collect()
    assert router.entries == (0, 0)
    assert not router.resolution.loose


def test_a_nexthop_of_a_group_that_waits_for_an_owner_stays() -> None:
    router = Router()
    both = ways(1, 1)
    router.attach(both)
    router.neighbors(1, 2)
    router.resolution.detach(both)
    router.resolution.neighbors.forget_interface(1)
    router.resolution.loosen_all()
    router.collect(both.action)
    assert router.entries == (2, 1)


def test_a_nexthop_and_a_group_of_what_was_read_back_are_taken_over_without_a_write() -> None:
    router = Router()
    nexthops = {number: Nexthop(30 + number, number, mac(number), FORWARD) for number in (1, 2)}
    group = NexthopGroup(40, (GroupMember(31, 1, 11), GroupMember(32, 2, 12)))
    read = Installed(nexthops={one.id: one for one in nexthops.values()}, groups={40: group})
    list(router.objects.adopt(read, set(), {}))
    router.resolution.neighbors.set({(number, gateway(number)): (mac(number), False) for number in (1, 2)}, 0.0)
    both = ways(1, 2)
    router.attach(both)
    assert both.action == route_action(RouteKind.GROUP, 40)
    assert not router.resolution.nexthop_entries.take(10).updates
    assert not router.resolution.group_entries.take(10).updates
    assert router.entries == (2, 1)


# Groups


def test_a_group_has_the_members_that_can_forward_by_their_weights() -> None:
    router = Router()
    three = ways(2, 4, 6)
    router.attach(three)
    assert router.group(three) == {1: (1, 11)}  # one that is gleaned
    router.neighbors(2, 3)
    assert router.group(three) == {2: (2, 12), 3: (3, 13)}
    router.neighbors(1)
    assert router.group(three) == {1: (1, 11), 2: (2, 12), 3: (3, 13)}
    router.link(3, up=False)
    assert router.group(three) == {1: (1, 11), 2: (2, 12)}
    assert router.entries == (3, 1)


def test_where_none_forwards_one_is_gleaned_rather_than_dropped() -> None:
    router = Router()
    three = ways(1, 5, 7)
    router.attach(three)
    router.link(1, up=False)
    assert router.group(three) == {2: (1, 12)}
    router.neighbors(failed=[2, 3])
    assert router.group(three) == {1: (1, 11)}
    router.resolution.interfaces[1].port = None
    router.resolution.interfaces[2].port_up = False
    router.touch(1, 2)
    assert router.group(three) == {1: (1, 0)}


def test_a_group_without_its_set_follows_a_sharer_of_its_content() -> None:
    router = Router()
    owner, sharer = ways(1, 1), ways(1, 1)
    router.attach(owner, sharer)
    group = router.resolution.owned[owner][0]
    router.resolution.note_sharer(group, sharer)
    assert (sharer.shares, group.shared, router.resolution.owned[sharer][0].shared) == (True, True, False)
    router.resolution.detach(owner)
    assert [one.id for one in router.resolution.owned[sharer]] == [sharer.action & 0xFFFFFF, group.id]
    router.neighbors(1)
    assert router.group(owner) == router.group(sharer) == {1: (1, 11)}
    router.neighbors(2)
    assert router.group(owner) == router.group(sharer) == {1: (1, 11), 2: (1, 12)}


@pytest.mark.parametrize("why", ["no routes", "another content", "none"])
def test_a_group_whose_sharer_is_none_any_more_waits_and_goes_when_no_route_uses_it(why: str) -> None:
    router = Router()
    owner, sharer = ways(1, 1), ways(1, 2) if why == "another content" else ways(1, 1)
    router.attach(owner, sharer)
    router.neighbors(1, 2)
    group = router.resolution.owned[owner][0]
    if why != "none":
        router.resolution.note_sharer(group, sharer)
    if why == "no routes":
        sharer.routes = 0
    router.resolution.detach(owner)
    assert group.owner is None
    router.collect(owner.action, sharer.action)
    assert router.entries == (2, 2)
    router.resolution.loosen([owner.action])
    router.collect(sharer.action)
    assert router.entries == (2, 1)
    assert not router.resolution._orphans


def test_a_group_that_waits_is_given_to_a_set_that_comes_to_its_content() -> None:
    router = Router()
    first, second = ways(1, 1), ways(1, 1, 1)
    router.attach(first)
    router.neighbors(1, 2)
    group = router.resolution.owned[first][0]
    router.resolution.detach(first)
    router.collect(first.action)
    router.attach(second)
    assert group.owner is None  # its own group comes first
    router.touch(1)
    assert group.owner is second
    router.neighbors(3)
    assert router.group(first) == router.group(second) == {1: (1, 11), 2: (1, 12), 3: (1, 13)}
    assert not router.resolution._orphans


def test_routes_that_are_left_on_a_group_that_waits_give_it_their_set() -> None:
    router = Router()
    first, second = ways(1, 1), ways(1, 1)
    router.attach(first, second)
    group = router.resolution.owned[first][0]
    router.resolution.detach(first)
    router.resolution.note_sharer(group, second)
    assert group.owner is second
    assert not router.resolution._orphans
    router.collect()
    assert router.entries == (2, 2)


def test_what_an_action_does() -> None:
    router = Router()
    both = ways(1, 2)
    router.attach(both, one_way(1))
    router.neighbors(1, 2)
    nexthop = route_action(RouteKind.NEXTHOP, router.id_of(1))
    assert router.resolution.content_of(nexthop) == ((router.id_of(1), 1),)
    assert router.resolution.content_of(both.action) == ((router.id_of(1), 1), (router.id_of(2), 2)) == both.content
    assert router.resolution.content_of(route_action(RouteKind.GROUP, 999)) == (None,)
    assert router.resolution.content_of(route_action(RouteKind.PUNT, both.action & 0xFFFFFF)) == (None,)


# Sets that are not forwarded to


def test_sets_of_other_kinds() -> None:
    router = Router()
    link, hole, nothing = connected(1), NexthopSet(SetKind.BLACKHOLE, ()), NexthopSet(SetKind.UNREACHABLE, ())
    router.attach(link, hole, nothing)
    assert [one.action for one in (link, hole, nothing)] == [GLEAN, BLACKHOLE, UNREACHABLE]
    assert [one.content for one in (link, hole, nothing)] == [(GLEAN,), (BLACKHOLE,), (UNREACHABLE,)]
    assert router.entries == (0, 0)


def test_a_connected_set_follows_its_link() -> None:
    router = Router()
    first, second = connected(1), connected(2)
    router.attach(first, second)
    router.resolution.interfaces[1].port_up = False
    router.resolution.touch_connected([1, 2])
    assert router.resolution.outdated
    assert router.resolution.refresh(ALL) == (ALL - 2 * NEXTHOP_COST, [], [first])
    assert (first.action, second.action) == (0, GLEAN)
    router.resolution.interfaces[1].port_up = True
    router.resolution.touch_connected([1])
    assert router.resolution.refresh(ALL)[2] == [first]
    router.resolution.detach(first)
    router.resolution.touch_connected([1])
    assert not router.resolution.outdated


# Dead links


def test_a_set_whose_link_is_down_is_not_installed_until_it_is_up() -> None:
    router = Router()
    router.resolution.interfaces[1].port_up = False
    one = one_way(1)
    router.attach(one)
    assert (one.action, router.resolution.next_due) == (0, inf)
    assert router.touch(1) == ([], [])
    assert (one.action, router.resolution.next_due) == (0, inf)
    assert router.link(1, up=True) == ([], [one])
    assert one.action == route_action(RouteKind.NEXTHOP, router.id_of(1))


def test_routes_over_a_dead_link_wait_for_their_daemons() -> None:
    router = Router()
    one = one_way(1)
    router.attach(one, ways(1, 1))
    router.link(1, up=False, now=5.0)
    assert router.resolution.next_due == 5.0 + DEAD_SETTLE_S
    router.touch(1, now=6.0)
    assert router.resolution.next_due == 5.0 + DEAD_SETTLE_S
    assert router.resolution.settle(5.0 + DEAD_SETTLE_S - 0.01) == []
    router.link(1, up=True, now=6.5)
    assert (router.resolution.next_due, one.action) == (inf, route_action(RouteKind.NEXTHOP, router.id_of(1)))
    router.link(1, up=False, now=7.0)
    assert router.resolution.settle(7.0 + DEAD_SETTLE_S) == [one]
    assert (router.resolution.next_due, one.action) == (inf, 0)
    router.link(1, up=True)
    router.link(1, up=False, now=9.0)
    router.resolution.detach(one)
    assert router.resolution.next_due == inf


# Quotas


def test_a_set_gets_in_with_just_the_nexthops_that_there_is_room_for() -> None:
    router = Router(nexthops=2)
    first, wide, second = one_way(1), ways(1, 1, 1), ways(1, 1)
    router.attach(first, wide, second)
    assert router.resolution.over_quota == {wide: "quota nexthops of 2"}
    assert (wide.action, router.entries) == (0, (2, 1))


def test_known_nexthops_need_no_room_where_there_is_less_than_none() -> None:
    router = Router(nexthops=2)
    router.attach(one_way(1), one_way(2))
    router.usage.quota = Quota(nexthops=1)
    again, other = one_way(1), one_way(3)
    router.attach(again, other)
    assert router.resolution.over_quota == {other: "quota nexthops of 1"}


def test_one_group_more_than_the_quota_is_refused_and_sets_of_one_need_none() -> None:
    router = Router(groups=1)
    first, second, single = ways(1, 1), ways(0, 1, 1), one_way(3)
    router.attach(first, second, single)
    assert router.resolution.over_quota == {second: "quota groups of 1"}
    assert router.entries == (3, 1)
    router.resolution.detach(second)
    assert router.resolution.over_quota == {}


def test_sets_that_a_quota_kept_out_get_in_as_far_as_the_cost_goes() -> None:
    router = Router(nexthops=1)
    narrow, wide, other = one_way(2), ways(1, 0, 1), one_way(3)
    router.attach(one_way(1), narrow, wide, other)
    router.usage.quota = Quota(nexthops=3)
    assert not router.resolution.waits
    router.resolution.retry_over_quota()
    assert router.resolution.waits
    first_cost = SET_COST + MEMBER_COST
    assert router.resolution.attach_waiting(0) == (0, [])
    assert router.resolution.attach_waiting(1) == (1 - first_cost, [other])
    router.resolution.detach(wide)  # which waits: it is passed over
    cost, let_in = router.resolution.attach_waiting(ALL)
    assert (cost, let_in) == (ALL - 2 * SET_COST - 3 * MEMBER_COST, [narrow])
    assert not router.resolution.waits
    assert router.resolution.over_quota == {}


def test_a_set_that_there_is_still_no_room_for_is_not_let_in() -> None:
    router = Router(nexthops=1)
    kept_out = one_way(2)
    router.attach(one_way(1), kept_out)
    router.resolution.retry_over_quota()
    assert router.resolution.attach_waiting(ALL)[1] == []
    assert kept_out in router.resolution.over_quota


def test_the_pool_of_slices_that_overcommit_is_told_as_the_reason() -> None:
    router = Router(nexthops=9)
    router.usage.join(Pool({"nexthops": 1}))
    kept_out = one_way(2)
    router.attach(one_way(1), kept_out)
    assert "overcommitted nexthops: 1" in router.resolution.over_quota[kept_out]


# Costs


def test_refreshing_costs_by_nexthop_set_and_member_and_stops_where_that_is_used_up() -> None:
    router = Router()
    single, both = one_way(1), ways(1, 1)
    router.attach(single, both)
    router.resolution.neighbors.set({(1, gateway(1)): (mac(1), False)}, 0.0)
    router.resolution.touch(router.resolution.on_interface(1), 0.0)
    assert router.resolution.refresh(0) == (0, [], [])
    assert router.resolution.outdated
    left, changed, rewritten = router.resolution.refresh(1)
    assert (left, changed, rewritten) == (1 - NEXTHOP_COST - 2, [], [])  # the two sets that have it are next
    assert router.resolution.outdated
    looks = 2 * SET_COST + 3 * MEMBER_COST
    assert router.resolution.refresh(looks) == (0, [], [])
    assert not router.resolution.outdated
    router.resolution.neighbors.set({(2, gateway(2)): (mac(2), False)}, 0.0)
    router.resolution.touch(router.resolution.on_interface(2), 0.0)
    left, changed, rewritten = router.resolution.refresh(ALL)
    assert (left, changed, rewritten) == (ALL - NEXTHOP_COST - 1 - SET_COST - 2 * MEMBER_COST, [both], [])


def test_what_is_touched_twice_is_looked_at_once_and_as_of_the_first_time() -> None:
    router = Router()
    one = one_way(1)
    router.attach(one)
    router.resolution.interfaces[1].port_up = False
    for now in (3.0, 4.0):
        router.resolution.touch(router.resolution.on_interface(1), now)
    assert router.resolution.refresh(ALL)[0] == ALL - NEXTHOP_COST - 1 - SET_COST - MEMBER_COST
    assert router.resolution.next_due == 3.0 + DEAD_SETTLE_S


def test_a_nexthop_that_has_gone_since_it_was_touched_costs_nothing() -> None:
    router = Router()
    one = one_way(1)
    router.attach(one)
    router.resolution.touch(router.resolution.on_interface(1), 0.0)
    router.resolution.detach(one)
    router.collect()
    assert router.resolution.refresh(ALL) == (ALL, [], [])


def test_a_set_that_is_forgotten_before_its_turn_is_not_resolved_again() -> None:
    router = Router()
    both = ways(1, 1)
    router.attach(both)
    router.resolution.touch(router.resolution.on_interface(1), 0.0)
    router.resolution.refresh(1)  # the nexthop; its set is next
    router.resolution.detach(both)
    assert router.resolution.refresh(ALL) == (ALL, [], [])
    router.collect()
    assert router.entries == (0, 0)


def test_collecting_looks_at_no_more_than_the_bound_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    router = Router()
    sets = [ways(1, 1), ways(0, 1, 1), ways(1, 0, 1)]
    router.attach(*sets)
    for one in sets:
        router.resolution.detach(one)
    monkeypatch.setattr(resolve, "COLLECT_AT_ONCE", 1)
    seen = []
    while router.resolution.loose:
        router.collect()
        seen.append(router.entries)
    # A group with what it has in it is one look too many for a nexthop beside it.
    assert seen == [(3, 2), (3, 1), (3, 0), (2, 0), (1, 0), (0, 0)]
    assert router.resolution._in_groups == {}
