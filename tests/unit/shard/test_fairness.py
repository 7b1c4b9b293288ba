"""One router's full table does not hold up another's single change."""

from worlds import gateway, router_config

from controller.routing.rib import SetKind
from controller.shard.mirror import BATCH_ROUTES, WRITES_IN_FLIGHT
from wire.columns import prefix_key as key


async def two_routers(make_world):
    world = await make_world(router_config(1, (1,)), router_config(2, (2,)))
    for vrf_id in (1, 2):
        world.connect(vrf_id)
        world.router(vrf_id).define_set(1, SetKind.FORWARD, [(vrf_id, gateway(vrf_id), 1)])
        await world.settle(vrf_id)
    world.forget_writes()
    return world


def many(count: int) -> dict[str, int]:
    return {f"20.{i >> 8}.{i & 255}.0/24": 1 for i in range(count)}


def written(batch, vrf_id: int) -> int:
    return sum(len(updates) for updates in batch.routes if updates.vrf_id == vrf_id)


async def test_a_single_change_is_in_the_next_batch(make_world):
    world = await two_routers(make_world)
    world.plane.gate.clear()
    world.learn(many(10 * BATCH_ROUTES), 1)
    await world.until(lambda: len(world.plane.writes) == WRITES_IN_FLIGHT)
    world.learn({"30.0.0.0/8": 1}, 2)
    world.plane.gate.set()
    await world.settle(1)
    turn = [written(batch, 2) for batch in world.plane.writes].index(1)
    assert turn == WRITES_IN_FLIGHT
    assert key("30.0.0.0/8") in world.installed(2)


async def test_two_backlogs_share_every_batch_equally(make_world):
    world = await two_routers(make_world)
    world.learn(many(3 * BATCH_ROUTES), 1)
    world.learn(many(3 * BATCH_ROUTES), 2)
    await world.settle(1)
    await world.settle(2)
    shared = [(written(batch, 1), written(batch, 2)) for batch in world.plane.writes]
    both = [pair for pair in shared if all(pair)]
    assert both
    assert all(pair == (BATCH_ROUTES // 2, BATCH_ROUTES // 2) for pair in both)


async def test_batches_are_bounded_and_full(make_world):
    world = await two_routers(make_world)
    world.learn(many(3 * BATCH_ROUTES), 1)
    await world.settle(1)
    assert [written(batch, 1) for batch in world.plane.writes] == [BATCH_ROUTES] * 3
