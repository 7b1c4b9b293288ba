"""What slices share of a plane and of the controller: who is within a part is not refused because of another."""

import pytest
from worlds import FakeVrc, World, mac, router_config

from controller.model import MAX_MEMORY, Quota
from controller.planes.fake import FakePlane
from controller.routing.neighbors import STALE_IN_USE_S
from controller.routing.rib import SetKind
from controller.routing.usage import MEMBER_OCTETS, ROUTE_OCTETS, SET_OCTETS
from controller.shard.router import REFUSED_RETRY_S
from controller.spec.merge import merge
from controller.spec.parse import parse
from controller.spec.reservations import Shares, share, slices_of
from controller.spec.state import Ids, State
from wire.columns import prefix_key

ROOM = 100
OWN = 3
"""Prefixes of a router with three interfaces that it never learns: an address on each."""


def slices(red: str = "", blue: str = "") -> State:
    text = f"""\
version: 1
planes: [{{name: s1, kind: fake, capacity: {{ipv4_route: {ROOM}}}}}]
tenants:
  - {{name: red, slices: [{{plane: s1{red}}}]}}
  - {{name: blue, slices: [{{plane: s1{blue}}}]}}
"""
    return merge(parse(text, "t.yaml"), State(), Ids(), {})[0]


def divide(world: World, state: State) -> None:
    pooled = {tenant for (tenant, _), part in slices_of(state, "s1") if part.overcommit}
    world.shards.limit("s1", share(state, "s1", world.shards.usage("s1")), pooled)


async def two(make_world, red: Quota | None = None) -> World:
    """A plane with room for ROOM prefixes of two tenants, whose routers are connected."""
    plane = FakePlane("s1", capacity=ROOM)
    blue = router_config(2, (4,), tenant="blue")
    world = await make_world(router_config(1, (1, 2, 3), quota=red or Quota()), blue, plane=plane)
    for vrf_id in (1, 2):
        world.connect(vrf_id)
        router = world.router(vrf_id)
        interface = router.config.interfaces[0].id
        router.define_set(1, SetKind.FORWARD, [(interface, bytes((10, 0, interface, 2)), 1)])
    for vrf_id in (1, 2):
        await world.settle(vrf_id)
    return world


def many(count: int, first: int = 20) -> dict[str, int]:
    return {f"{first}.{number >> 8}.{number & 255}.0/24": 1 for number in range(count)}


async def fill(world: World, vrf_id: int, count: int) -> int:
    """Learn so many routes; returns how many prefixes of the router are installed."""
    world.learn(many(count), vrf_id)
    await world.settle(vrf_id)
    return len(world.installed(vrf_id))


async def test_a_part_keeps_a_greedy_slice_from_the_room_of_another(make_world) -> None:
    world = await two(make_world)
    divide(world, slices())
    assert await fill(world, 1, 3 * ROOM) <= ROOM // 2
    blue = world.shards.usage("s1")["blue"]["ipv4_routes"]
    more = ROOM // 2 - ROOM // 8 - blue  # a quarter of a part is for neighbors
    assert await fill(world, 2, more) == blue + more
    assert not world.router(2).fib.refused_routes
    assert len(world.installed(1)) + len(world.installed(2)) <= ROOM


async def test_a_slice_that_comes_later_does_not_shrink_what_is_installed(make_world) -> None:
    world = await two(make_world)
    divide(world, slices(", quota: {ipv4_routes: 85, neighbors: 5}"))
    installed = await fill(world, 1, 3 * ROOM)
    assert installed == 85
    state = slices(", quota: {ipv4_routes: 10, neighbors: 5}")
    divide(world, state)
    assert share(state, "s1", world.shards.usage("s1")).reserved["blue"]["ipv4_routes"] == ROOM - installed
    world.router(1).fib.retry_refused()
    await world.settle(1)
    assert len(world.installed(1)) == installed
    await fill(world, 2, ROOM)
    assert not [text for text in world.router(2).fib.refused_routes.values() if "full" in text]


async def test_slices_that_overcommit_refuse_each_other_alone(make_world) -> None:
    world = await two(make_world)
    state = slices(", quota: {ipv4_routes: 90}, overcommit: true", ", quota: {ipv4_routes: 90}, overcommit: true")
    divide(world, state)
    first = await fill(world, 1, 3 * ROOM)
    blue = world.shards.usage("s1")["blue"]["ipv4_routes"]
    assert first + blue == ROOM - ROOM // 4  # the pool, less what is there for neighbors
    await fill(world, 2, 50)
    reasons = set(world.router(2).fib.refused_routes.values())
    assert reasons == {f"overcommitted ipv4_routes: {ROOM} for all slices that overcommit"}
    divide(world, slices(", quota: {ipv4_routes: 40, neighbors: 4}", ", quota: {ipv4_routes: 20, neighbors: 4}"))
    world.learn(dict.fromkeys(many(3 * ROOM), 0), 1)
    await world.settle(1)
    world.router(2).fib.retry_refused()
    await world.settle(2)
    assert len(world.installed(2)) == 20


async def test_a_larger_part_lets_what_was_refused_in_at_once(make_world) -> None:
    world = await two(make_world)
    divide(world, slices(", quota: {ipv4_routes: 10, neighbors: 8}"))
    assert await fill(world, 1, 20) == 10
    divide(world, slices(", quota: {ipv4_routes: 30, neighbors: 8}"))
    await world.settle(1)
    assert len(world.installed(1)) == 20 + OWN


async def test_who_leaves_the_pool_gets_in_what_the_pool_had_no_room_for_at_once(make_world) -> None:
    world = await two(make_world)
    asked = ", quota: {ipv4_routes: 70, neighbors: 8}"
    state = slices(f"{asked}, overcommit: true", ", quota: {ipv4_routes: 70}, overcommit: true")
    divide(world, state)
    await fill(world, 2, 70)
    world.learn(many(50), 1)
    await world.settle(1)
    assert world.router(1).fib.refused_routes
    world.learn(dict.fromkeys(many(70), 0), 2)
    await world.settle(2)
    assert world.router(1).fib.refused_routes, "tried again in 30 s"
    divide(world, slices(asked, ", quota: {ipv4_routes: 10}, overcommit: true"))
    await world.settle(1)
    assert not world.router(1).fib.refused_routes


async def test_own_addresses_have_the_room_beside_the_quota_and_no_more(make_world) -> None:
    world = await two(make_world)
    divide(world, slices(", quota: {ipv4_routes: 10, neighbors: 3}"))
    assert await fill(world, 1, 20) == 10
    addresses = [bytes((10, 9, 0, last)) for last in range(1, 30)]
    world.router(1).interface_states([(1, True, [bytes((10, 0, 1, 1)), *addresses])])
    await world.settle(1)
    assert len(world.installed(1)) == 10 + 3


@pytest.mark.parametrize(
    ("quota", "reason"),
    [
        (Quota(sets=2), "quota sets of 2"),
        (Quota(members=4), "quota members of 4"),
        (
            Quota(memory=13 * ROUTE_OCTETS + 6 * 1024 + 3 * (SET_OCTETS + 2 * MEMBER_OCTETS)),
            f"quota memory of {13 * ROUTE_OCTETS + 6 * 1024 + 3 * (SET_OCTETS + 2 * MEMBER_OCTETS)} octets",
        ),
    ],
)
async def test_nexthop_sets_over_a_quota_are_refused_by_name_and_the_session_goes_on(make_world, quota, reason):
    world = await make_world(router_config(1, (1, 2, 3), quota=quota))
    vrc = world.connect(1)
    await world.settle()
    router = world.router()
    for set_id in range(1, 7):
        router.define_set(set_id, SetKind.FORWARD, [(1, mac(set_id)[2:], 1), (2, bytes((10, 0, 2, 2)), 1)])
    world.learn({f"20.{set_id}.0.0/16": set_id for set_id in range(1, 7)})
    await world.settle()
    assert prefix_key("20.1.0.0/16") in world.installed()
    assert prefix_key("20.6.0.0/16") not in world.installed()
    router.resync_end(True)
    assert (router.state, vrc.closed) == (("degraded", reason), None)
    router.tick()
    assert vrc.closed is None  # nothing has changed that would make room
    await world.shards.put_router(router_config(1, (1, 2, 3), quota=Quota()))
    router.tick()
    assert vrc.closed is not None  # the next session tells all of them again


async def test_routes_that_memory_has_no_room_for_are_not_kept(make_world) -> None:
    world = await two(make_world, Quota(memory=20 * ROUTE_OCTETS + SET_OCTETS + MEMBER_OCTETS + 3 * 1024))
    usage = world.shards.usage("s1")
    world.learn(many(60), 1)
    await world.settle(1)
    router = world.router(1)
    assert 0 < len(router.fib.learned) <= 20
    assert router.punts.counters["ipv4_routes_not_kept"] == 60 - len(router.fib.learned)
    router.resync_end(True)
    assert router.state[1].startswith("quota memory of ")
    own = 3 * ROUTE_OCTETS  # addresses come on top
    assert world.shards.usage("s1")["red"]["memory"] <= router.config.quota.memory + own
    assert world.shards.usage("s1")["blue"] == usage["blue"]
    assert router_config(2).quota.memory == MAX_MEMORY


async def test_what_a_deleted_router_took_is_given_back(make_world) -> None:
    world = await two(make_world)
    await fill(world, 1, 30)
    usage = world.shards.by_plane["s1"].usage_of("red")
    assert usage is not None
    await world.shards.remove_router(1)
    assert set(usage.counts().values()) == {0}
    assert world.shards.usage("s1").keys() == {"blue"}


async def sharing(make_world, quota: Quota) -> tuple[World, FakeVrc]:
    """Two routers of one slice; returns the second one's VRC."""
    world = await make_world(*(router_config(one, (one,), quota=quota) for one in (1, 2)))
    vrcs = [world.connect(one) for one in (1, 2)]
    for one in (1, 2):
        world.router(one).define_set(1, SetKind.FORWARD, [(one, bytes((10, 0, one, 2)), 1)])
        await world.settle(one)
    return world, vrcs[1]


def neighbor(world: World, vrf_id: int, host: int, there: bool = True) -> None:
    list(world.router(vrf_id).neighbors([(vrf_id, bytes((10, 0, vrf_id, host)), mac(host) if there else b"", False)]))


async def limits(world: World, quota: Quota) -> None:
    world.shards.limit("s1", Shares({"red": quota}, {"red": {}}), set())
    await world.shards.by_plane["s1"].tick()


async def test_neighbors_that_had_no_room_are_asked_for_again_when_their_quota_is_raised(make_world) -> None:
    """A VRC repeats none that is as it was."""
    world, vrc = await sharing(make_world, Quota(neighbors=2))
    neighbor(world, 2, 9)
    world.router(2).resync_end(True)
    assert world.router(2).state == ("degraded", "quota neighbors of 2")
    await limits(world, Quota(neighbors=2))
    assert vrc.closed is None
    await limits(world, Quota(neighbors=3))
    assert vrc.closed == "there is room again for what was not kept"


async def test_neighbors_that_had_no_room_are_asked_for_again_when_another_router_has_left_some(make_world) -> None:
    """Of ten with one more, so that one that comes and goes is not a new session each time."""
    world, vrc = await sharing(make_world, Quota(neighbors=10))
    for host in range(10, 18):
        neighbor(world, 1, host)
    neighbor(world, 2, 9)
    world.router(2).resync_end(True)
    for gone, asked in ((10, False), (11, True)):
        neighbor(world, 1, gone, there=False)
        world.clock.now += REFUSED_RETRY_S + 1
        for _ in range(2):
            await world.shards.by_plane["s1"].tick()
            world.clock.now += REFUSED_RETRY_S + 1
        assert (vrc.closed is not None) == asked


async def test_routes_that_memory_had_no_room_for_are_asked_for_again_without_another_word(make_world) -> None:
    world, vrc = await sharing(
        make_world, Quota(memory=30 * ROUTE_OCTETS + 2 * (SET_OCTETS + MEMBER_OCTETS) + 2 * 1024)
    )
    world.learn(many(28), 1)
    world.learn(many(20, first=21), 2)
    for one in (1, 2):
        world.router(one).resync_end(True)
        await world.settle(one)
    assert world.router(2).state[1].startswith("quota memory of ")
    for _ in range(3):  # until nothing is due of it any more
        world.clock.now += STALE_IN_USE_S
        await world.shards.by_plane["s1"].tick()
        await world.settle(2)
    world.learn(dict.fromkeys(many(28), 0), 1)
    await world.settle(1)
    for _ in range(2):
        world.clock.now += REFUSED_RETRY_S + 1
        await world.shards.by_plane["s1"].tick()
    assert vrc.closed is not None


async def test_a_larger_part_of_memory_has_it_asked_for_at_once(make_world) -> None:
    quota = Quota(memory=30 * ROUTE_OCTETS + 2 * (SET_OCTETS + MEMBER_OCTETS) + 2 * 1024)
    world, vrc = await sharing(make_world, quota)
    world.learn(many(60), 2)
    await world.settle(2)
    world.router(2).resync_end(True)
    await limits(world, quota)
    assert vrc.closed is None
    await limits(world, Quota())
    assert vrc.closed is not None


async def test_neighbors_take_no_nexthops_of_another_slice(make_world) -> None:
    """What a slice has beyond its quota, others do not have that are within theirs."""
    world = await make_world(router_config(1, (1,), quota=Quota(nexthops=8)))
    world.connect(1, neighbors=False)
    router = world.router()
    world.learn_links()
    for host in range(10, 20):
        neighbor(world, 1, host)
    router.resync_end(True)
    await world.settle()
    usage = world.shards.by_plane["s1"].usage_of("red")
    assert usage is not None
    assert usage.nexthops == len(world.plane.entries.nexthops) == 6
    assert router.state == ("degraded", "quota nexthops of 8")
    router.define_set(1, SetKind.FORWARD, [(1, bytes((10, 0, 1, last)), 1) for last in (18, 19)])
    world.learn({"20.0.0.0/8": 1})  # what routes lead to has a quarter
    await world.settle()
    assert prefix_key("20.0.0.0/8") in world.installed()
    assert usage.nexthops == 8
    neighbor(world, 1, 10, there=False)
    await world.settle()
    assert usage.nexthops == 7
    for _ in range(2):  # one that is free is not for them
        world.clock.now += REFUSED_RETRY_S
        await world.shards.by_plane["s1"].tick()
    await world.settle()
    assert usage.nexthops == 7
    await world.shards.put_router(router_config(1, (1,), quota=Quota(nexthops=12)))
    await world.settle()
    assert router.state == ("up", "")
    assert {prefix_key(f"10.0.1.{host}/32") for host in range(11, 20)} < set(world.installed())
