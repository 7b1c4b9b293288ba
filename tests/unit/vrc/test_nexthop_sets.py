"""Interning of nexthop contents, and scopes of nexthop ids."""

import pytest
from netlink_bytes import address, attribute, by_gateway, by_nexthop, group, multipath, nexthop, route, u32

from vrc.errors import MalformedNetlink
from vrc.interfaces import ELSEWHERE
from vrc.netlink.route_messages import RTM_DELNEXTHOP, RTM_NEWNEXTHOP, Batch, decode_nexthop, scan
from vrc.routes.nexthops import BLACKHOLE, MAX_NEXTHOP_OBJECTS, UNREACHABLE, NexthopScope, NexthopSets, SetKind

A, B = address("10.1.0.2"), address("10.2.0.2")


def shape(*attributes: bytes, route_type: int = 1) -> bytes:
    buffer, batch = route("10.0.0.0/8", *attributes, route_type=route_type), Batch()
    scan(buffer, 0, len(buffer), batch)
    return batch.changes[0][2]


def learn(scope: NexthopScope, *messages: bytes) -> None:
    for one in messages:
        scope.change(RTM_NEWNEXTHOP, one[16:])


@pytest.fixture
def down() -> set[int]:
    return set()


@pytest.fixture
def sets() -> NexthopSets:
    return NexthopSets()


@pytest.fixture
def scope(sets: NexthopSets, down: set[int]) -> NexthopScope:
    """Links 2 and 3 are interfaces 102 and 103, and 7 is a tunnel."""
    ids = {2: 102, 3: 103, 7: ELSEWHERE}
    return NexthopScope(sets, lambda ifindex: 0 if ifindex in down else ids.get(ifindex, 0))


def test_equal_content_has_one_id_and_ids_never_return(sets: NexthopSets) -> None:
    first = sets.hold(BLACKHOLE)
    assert sets.hold(BLACKHOLE) == first == 1
    sets.announced.add(first)
    sets.release(first)
    assert sets.gone == []
    sets.release(first)
    assert sets.gone == [first]
    assert sets.hold(BLACKHOLE) == 2


def test_a_set_that_was_never_told_goes_quietly(sets: NexthopSets) -> None:
    sets.release(sets.hold(BLACKHOLE))
    assert (sets.gone, len(sets)) == ([], 0)


def test_a_group_before_its_members(scope: NexthopScope, sets: NexthopSets) -> None:
    learn(scope, group(9, (1, 2), (2, 1)))
    binding = scope.bind(shape(by_nexthop(9)))
    assert binding.set_id == 0
    binding.routes = 1
    learn(scope, nexthop(1, 2, "10.1.0.2"), nexthop(2, 3, "10.2.0.2"))
    assert scope.settle() == {binding}
    assert sets.content(binding.set_id) == (SetKind.FORWARD, ((102, A, 2), (103, B, 1)))


def test_a_group_of_one_is_that_nexthop(scope: NexthopScope) -> None:
    learn(scope, nexthop(1, 2, "10.1.0.2"), group(9, (1, 7)))
    assert scope.bind(shape(by_nexthop(9))).set_id == scope.bind(shape(by_gateway("10.1.0.2", 2))).set_id


def test_kinds(scope: NexthopScope, sets: NexthopSets) -> None:
    learn(scope, nexthop(1, 2), nexthop(2, blackhole=True))

    def content(*attributes: bytes, route_type: int = 1) -> object:
        return sets.content(scope.bind(shape(*attributes, route_type=route_type)).set_id)

    assert content(by_nexthop(1)) == (SetKind.CONNECTED, ((102, b"", 1),))
    assert content(by_nexthop(2)) == content(route_type=6) == BLACKHOLE
    assert content(route_type=7) == content(route_type=8) == content(route_type=9) == UNREACHABLE


def test_what_is_ignored(scope: NexthopScope) -> None:
    assert scope.bind(shape(by_gateway("10.9.0.1", 9))).set_id == 0  # not our interface
    assert scope.bind(shape(by_nexthop(77))).set_id == 0  # unknown nexthop
    assert scope.bind(shape(by_gateway("10.1.0.2", 2), route_type=5)).set_id == 0  # multicast


def test_what_the_guest_alone_can_send_is_unreachable_and_takes_no_shorter_prefix(
    scope: NexthopScope, sets: NexthopSets
) -> None:
    learn(scope, nexthop(1, 2, "10.1.0.2"), nexthop(2, 7), group(9, (1, 1), (2, 1)))
    alone, beside = scope.bind(shape(by_gateway("10.9.0.1", 7))), scope.bind(shape(by_nexthop(9)))
    assert sets.content(alone.set_id) == UNREACHABLE
    assert sets.content(beside.set_id) == (SetKind.FORWARD, ((102, A, 1),))
    assert scope.elsewhere() == set()
    alone.routes = 1
    assert (scope.elsewhere(), scope.gateways()) == ({7}, set())


def test_what_no_plane_encapsulates_goes_to_the_guest_where_it_has_no_plain_way(
    scope: NexthopScope, sets: NexthopSets, down: set[int]
) -> None:
    labelled = nexthop(1, 2, "10.1.0.2", attribute(8, b""))
    learn(scope, labelled, nexthop(2, 3, "10.2.0.2"), group(8, (1, 1)), group(9, (1, 1), (2, 1)))
    inline = shape(by_gateway("10.1.0.2", 2), attribute(22, b""))
    alone = [scope.bind(one) for one in (inline, shape(by_nexthop(1)), shape(by_nexthop(8)))]
    assert [sets.content(one.set_id) for one in alone] == [UNREACHABLE] * 3
    assert sets.content(scope.bind(shape(by_nexthop(9))).set_id) == (SetKind.FORWARD, ((103, B, 1),))
    down.add(2)
    scope.resolve()
    assert [one.set_id for one in alone] == [0, 0, 0]


def test_links_take_members_out_and_bring_them_back(scope: NexthopScope, sets: NexthopSets, down: set[int]) -> None:
    learn(scope, nexthop(1, 2, "10.1.0.2"), nexthop(2, 3, "10.2.0.2"), group(9, (1, 1), (2, 1)))
    binding = scope.bind(shape(by_nexthop(9)))
    binding.routes = 1
    whole = sets.content(binding.set_id)
    down.add(3)
    assert scope.resolve() == {binding}
    assert sets.content(binding.set_id) == (SetKind.FORWARD, ((102, A, 1),))
    down.add(2)
    assert scope.resolve() == {binding}
    assert (binding.set_id, len(sets)) == (0, 0)
    down.clear()
    assert scope.resolve() == {binding}
    assert sets.content(binding.set_id) == whole


def test_content_that_changes_under_an_id_moves_its_groups(scope: NexthopScope, sets: NexthopSets) -> None:
    learn(scope, nexthop(1, 2, "10.1.0.2"), nexthop(2, 3, "10.2.0.2"), group(9, (1, 1), (2, 1)))
    binding, other = scope.bind(shape(by_nexthop(9))), scope.bind(shape(by_nexthop(2)))
    binding.routes = other.routes = 1
    learn(scope, nexthop(1, 2, "10.1.0.7"), nexthop(2, 3, "10.2.0.2"))
    assert scope.settle() == {binding}
    assert sets.content(binding.set_id)[1][0] == (102, address("10.1.0.7"), 1)


def test_an_id_that_was_deleted_and_is_used_again_leads_the_new_way(scope: NexthopScope, sets: NexthopSets) -> None:
    learn(scope, nexthop(1, 2, "10.1.0.2"), group(9, (1, 1)))
    bindings = [scope.bind(shape(by_nexthop(number))) for number in (1, 9)]
    before = bindings[0].set_id
    for binding in bindings:
        binding.routes = 1
    scope.change(RTM_DELNEXTHOP, nexthop(1)[16:])
    assert scope.settle() == set()
    assert bindings[0].set_id == before
    learn(scope, nexthop(1, 3, "10.2.0.2"))
    assert scope.settle() == set(bindings)
    assert [sets.content(one.set_id) for one in bindings] == [(SetKind.FORWARD, ((103, B, 1),))] * 2


def test_of_deleted_ids_only_those_are_kept_that_something_refers_to(scope: NexthopScope) -> None:
    learn(scope, *(nexthop(number, 2, "10.1.0.2") for number in range(1, 2001)), group(3000, (2, 1)))
    scope.bind(shape(by_nexthop(1))).routes = 1
    for number in range(1, 2001):
        scope.change(RTM_DELNEXTHOP, nexthop(number)[16:])
    scope.sweep(force=True)
    assert scope._missing == {1, 2}
    scope.bindings.clear()
    scope.sweep(force=True)
    assert scope._missing == set()


def test_weights_from_the_kernel(scope: NexthopScope, sets: NexthopSets) -> None:
    learn(scope, nexthop(1, 2, "10.1.0.2"), nexthop(2, 3, "10.2.0.2"), group(9, (1, 1), (2, 1)))
    binding = scope.bind(shape(by_nexthop(9)))
    binding.routes = 1
    assert not scope.correct_weights(decode_nexthop(group(9, (1, 3), (3, 1))[16:]))
    assert not scope.correct_weights(decode_nexthop(group(8, (1, 3), (2, 1))[16:]))
    assert scope.correct_weights(decode_nexthop(group(9, (1, 3), (2, 1))[16:]))
    assert scope.settle() == {binding}
    assert sets.content(binding.set_id)[1] == ((102, A, 3), (103, B, 1))


@pytest.mark.parametrize(
    ("given", "told"),
    [((1000, 500), (256, 128)), ((65536, 1), (256, 1)), ((256, 1), (256, 1)), ((1000, 1000), (256, 256))],
)
def test_weights_of_two_octets_keep_their_proportion(
    scope: NexthopScope, sets: NexthopSets, given: tuple[int, int], told: tuple[int, int]
) -> None:
    learn(scope, nexthop(1, 2, "10.1.0.2"), nexthop(2, 3, "10.2.0.2"), group(9, (1, given[0]), (2, given[1])))
    binding = scope.bind(shape(by_nexthop(9)))
    assert sets.content(binding.set_id)[1] == ((102, A, told[0]), (103, B, told[1]))


def test_weights_that_a_route_of_the_kernel_cuts_to_an_octet_are_those_of_its_group(sets: NexthopSets) -> None:
    scope = NexthopScope(sets, lambda ifindex: {2: 102, 3: 103}.get(ifindex, 0), inline_first=True)
    ways = multipath(("10.1.0.2", 2), ("10.2.0.2", 3)) + attribute(30, u32(9))  # 257 and 513, as an octet has them
    learn(scope, nexthop(1, 2, "10.1.0.2"), nexthop(2, 3, "10.2.0.2"), group(9, (1, 257), (2, 513)))
    binding = scope.bind(shape(ways))
    assert sets.content(binding.set_id)[1] == ((102, A, 128), (103, B, 256))
    binding.routes = 1
    learn(scope, group(9, (1, 256), (2, 1)))  # whose routes have other hops, of which the kernel tells next
    assert scope.settle() == {binding}
    assert sets.content(binding.set_id)[1] == ((102, A, 1), (103, B, 1))


def test_a_route_follows_its_nexthop_that_is_a_blackhole_no_more(scope: NexthopScope, sets: NexthopSets) -> None:
    learn(scope, nexthop(1, blackhole=True))
    binding = scope.bind(shape(by_nexthop(1), route_type=6))
    binding.routes = 1
    assert sets.content(binding.set_id) == BLACKHOLE
    learn(scope, nexthop(1, 2, "10.1.0.2"))
    assert scope.settle() == {binding}
    assert sets.content(binding.set_id) == (SetKind.FORWARD, ((102, A, 1),))
    learn(scope, nexthop(1, blackhole=True))
    assert scope.settle() == {binding}
    assert sets.content(binding.set_id) == BLACKHOLE


def test_sweep_drops_what_no_route_has(scope: NexthopScope, sets: NexthopSets) -> None:
    kept, gone = scope.bind(shape(by_gateway("10.1.0.2", 2))), scope.bind(shape(by_gateway("10.1.0.3", 2)))
    kept.routes = 1
    sets.announced |= {kept.set_id, gone.set_id}
    scope.sweep()
    assert len(sets) == 2  # too few to be worth it
    scope.sweep(force=True)
    assert sets.gone == [gone.set_id]
    assert list(scope.bindings.values()) == [kept]


def test_gateways_of_routes_in_use(scope: NexthopScope) -> None:
    learn(scope, nexthop(1, 2, "10.1.0.2"), nexthop(2, 3, "10.2.0.2"), group(9, (1, 1), (2, 1)))
    scope.bind(shape(by_gateway("10.1.0.9", 2)))
    scope.bind(shape(by_nexthop(9))).routes = 1
    assert scope.gateways() == {(2, A), (3, B)}


def test_nexthop_ids_are_bounded(scope: NexthopScope, monkeypatch: pytest.MonkeyPatch) -> None:
    assert MAX_NEXTHOP_OBJECTS > 1000
    monkeypatch.setattr("vrc.routes.nexthops.MAX_NEXTHOP_OBJECTS", 2)
    learn(scope, nexthop(1, 2), nexthop(2, 2), nexthop(3, 2), nexthop(1, 3))
    assert (set(scope.objects), scope.refused) == ({1, 2}, 1)
    scope.change(RTM_DELNEXTHOP, nexthop(1)[16:])
    assert set(scope.objects) == {2}
    with pytest.raises(MalformedNetlink):
        scope.change(RTM_NEWNEXTHOP, b"x")
