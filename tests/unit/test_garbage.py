"""Routers and sessions end with their last reference: what is old is never looked through for cycles."""

import gc
import weakref

from worlds import gateway, router_config

from controller.garbage import bound_pauses
from controller.routing.rib import SetKind


async def test_a_removed_router_leaves_no_cycle(make_world):
    world = await make_world(router_config())
    vrc = world.connect()
    world.router().define_set(1, SetKind.FORWARD, [(1, gateway(1), 1), (2, gateway(2), 1)])
    world.learn({"20.1.0.0/16": 1})
    await world.settle()
    router = world.router()
    kept = [weakref.ref(one) for one in (router, router.fib, router.punts, vrc)]
    del router, vrc
    gc.collect()
    gc.disable()
    try:
        await world.shards.remove_router(1)
        await world.until(lambda: not world.installed())
        assert [one for one in kept if one() is not None] == []
    finally:
        gc.enable()


def test_what_survives_a_full_collection_is_set_aside():
    before, thresholds = list(gc.callbacks), gc.get_threshold()
    try:
        bound_pauses()
        bound_pauses()
        assert len(gc.callbacks) <= len(before) + 1
        gc.unfreeze()
        gc.collect()
        assert gc.get_freeze_count() > 0
        assert gc.get_objects(2) == []
    finally:
        gc.callbacks[:] = before
        gc.set_threshold(*thresholds)
        gc.unfreeze()
