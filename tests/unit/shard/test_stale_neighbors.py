"""Neighbors that an earlier session told of, and that the present one does not repeat."""

from worlds import FakeVrc, gateway, mac, router_config

from controller.model import Quota
from controller.planes.base import NexthopState
from controller.routing.neighbors import STALE_IN_USE_S
from controller.routing.rib import SetKind
from wire.columns import prefix_key

HOST = prefix_key("10.0.1.9/32")


def reconnect(router, *numbers: int) -> None:
    """Open a session that repeats the neighbors of that many gateways, and ends its resync."""
    router.open(FakeVrc())
    router.interface_states([(1, True, [bytes((10, 0, 1, 1))])])
    router.define_set(1, SetKind.CONNECTED, [(1, b"", 1)])
    router.routes(4, [prefix_key("10.0.1.0/24")], [1])
    for number in numbers:
        list(router.neighbors([(1, gateway(number), mac(number), False)]))
    router.resync_end(True)


def neighbors(router) -> set[bytes]:
    return {address for _, address in router.fib.neighbors}


async def test_one_that_is_not_repeated_goes_with_the_resync(make_world):
    world = await make_world(router_config(1, (1,)))
    world.connect()
    router = world.router()
    world.learn_links()
    list(router.neighbors([(1, bytes((10, 0, 1, 9)), mac(9), False)]))
    router.resync_end(True)
    await world.settle()
    assert HOST in world.installed()
    reconnect(router, 1)
    await world.settle()
    assert neighbors(router) == {gateway(1)}
    assert HOST not in world.installed()
    assert router.fib.usage.neighbors == 1


async def test_those_of_before_make_room_for_those_that_are_told_now(make_world):
    world = await make_world(router_config(1, (1,), quota=Quota(neighbors=2)))
    world.connect(neighbors=False)
    router = world.router()
    list(router.neighbors([(1, gateway(number), mac(number), False) for number in (7, 8)]))
    router.resync_end(True)
    reconnect(router, 1, 2)
    await world.settle()
    assert neighbors(router) == {gateway(1), gateway(2)}
    assert router.state == ("up", "")
    list(router.neighbors([(1, gateway(3), mac(3), False)]))
    assert router.state == ("degraded", "quota neighbors of 2")
    assert router.punts.counters["neighbors_over_quota"] == 1


async def test_a_gateway_in_use_is_forwarded_to_while_it_is_looked_for(make_world):
    world = await make_world(router_config(1, (1,)))
    world.connect()
    router = world.router()
    router.define_set(1, SetKind.FORWARD, [(1, gateway(1), 1)])
    world.learn({"20.0.0.0/8": 1})
    router.resync_end(True)
    await world.settle()

    def states() -> list[NexthopState]:
        return [one.state for one in world.plane.entries.nexthops.values()]

    router.open(FakeVrc())
    router.interface_states([(1, True, [bytes((10, 0, 1, 1))])])
    router.define_set(1, SetKind.FORWARD, [(1, gateway(1), 1)])
    world.learn({"20.0.0.0/8": 1})
    router.resync_end(True)
    await world.settle()
    assert states() == [NexthopState.FORWARD]
    world.clock.now += STALE_IN_USE_S
    router.tick()
    await world.settle()
    assert states() == [NexthopState.GLEAN]
    assert not neighbors(router)


async def test_none_is_kept_when_the_hold_time_passes_without_a_session(make_world):
    world = await make_world(router_config(1, (1,)))
    await world.router().plane_known()
    vrc = world.connect()
    router = world.router()
    router.resync_end(True)
    router.lost(vrc)
    world.clock.now += router.config.hold_time_s
    router.tick()
    await world.settle()
    assert not neighbors(router)
