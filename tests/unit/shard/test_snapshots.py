"""What a guest's kernel has is asked for by whoever compares, several at once; what comes late is nobody's."""

import asyncio

import pytest
from worlds import World, gateway, mac, router_config, vrc_of

from controller.errors import NoSuch, SessionRefused
from controller.planes.base import RouteKind
from controller.routing.rib import SetKind
from controller.shard import shard
from wire.columns import prefix_key as key

ROUTES = [key(f"20.{number}.0.0/16") for number in range(4)]


@pytest.fixture
async def world(make_world) -> World:
    world = await make_world(router_config())
    world.connect()
    world.router().define_set(1, SetKind.FORWARD, [(1, gateway(1), 1)])
    await world.settle()
    return world


async def asked(world: World, count: int) -> None:
    await world.until(lambda: len(vrc_of(world).snapshot_requests) == count)


async def test_two_at_once_are_not_mixed(world):
    router, serving = world.router(), world.shards.of_plane("s1")
    waiting = [asyncio.create_task(serving.snapshot(router)) for _ in range(2)]
    await asked(world, 2)
    first, second = vrc_of(world).snapshot_requests
    for number, part in ((first, ROUTES[:1]), (second, ROUTES[:1]), (first, ROUTES[1:3]), (second, ROUTES[3:])):
        router.snapshot_chunk(number, 4, part, [1] * len(part))
    for number in (first, second):
        router.snapshot_end(number, "")
    assert [sorted(taken) for taken in await asyncio.gather(*waiting)] == [ROUTES[:3], [ROUTES[0], ROUTES[3]]]


async def test_what_comes_after_nobody_waits_is_dropped(world, monkeypatch):
    monkeypatch.setattr(shard, "SNAPSHOT_TIMEOUT_S", 0.01)
    router = world.router()
    with pytest.raises(NoSuch, match="did not answer in time"):
        await world.shards.of_plane("s1").snapshot(router)
    assert not router.snapshots
    (late,) = vrc_of(world).snapshot_requests
    router.snapshot_chunk(late, 4, ROUTES, [1] * 4)
    router.snapshot_end(late, "")
    with pytest.raises(SessionRefused, match=f"snapshot {late + 1} was not asked for"):
        router.snapshot_chunk(late + 1, 4, ROUTES, [1] * 4)


async def test_prefixes_of_its_own_that_a_plane_refused_are_no_differences(make_world):
    world = await make_world(router_config())
    refused = key("10.0.1.2/32")
    world.plane.fault = lambda _table, one, _op: "table full" if one == refused else None
    world.connect()
    world.learn_links()
    list(world.router().neighbors([(1, gateway(1), mac(101), False)]))
    world.router().resync_end(True)
    await world.settle()
    assert refused in world.router().fib.refused_routes
    verifying = asyncio.create_task(world.views.verify(1))
    await asked(world, 1)
    (request,) = vrc_of(world).snapshot_requests
    links = [key(f"10.0.{number}.0/24") for number in (1, 2, 3)]
    world.router().snapshot_chunk(request, 4, links, [1001, 1002, 1003])
    world.router().snapshot_end(request, "")
    assert (await verifying).equal


async def test_a_host_on_a_link_by_a_route_of_its_own_is_no_difference_once_it_is_resolved(make_world):
    world = await make_world(router_config())
    world.connect()
    world.learn_links()
    world.learn({"10.0.1.2/32": 1001})  # the gateway of `connect`
    world.router().resync_end(True)
    await world.settle()
    assert world.installed()[key("10.0.1.2/32")] >> 28 == RouteKind.NEXTHOP
    verifying = asyncio.create_task(world.views.verify(1))
    await asked(world, 1)
    (request,) = vrc_of(world).snapshot_requests
    links = [key(f"10.0.{number}.0/24") for number in (1, 2, 3)]
    world.router().snapshot_chunk(request, 4, [*links, key("10.0.1.2/32")], [1001, 1002, 1003, 1001])
    world.router().snapshot_end(request, "")
    assert (await verifying).equal
