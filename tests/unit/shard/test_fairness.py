"""One router's full table does not hold up another's single change."""

from collections import Counter

import pytest
from worlds import World, gateway, mac, router_config

from controller.planes.base import (
    Installed,
    Op,
    Refused,
    RouteKind,
    WriteBatch,
    action_kind,
    action_value,
)
from controller.planes.encoding_time import SHARED
from controller.planes.fake import FakePlane
from controller.routing.rib import MAX_MEMBERS, SetKind
from controller.shard import mirror
from controller.shard.loop_share import LoopShare
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


def cost(batch) -> int:
    """What a batch costs, in routes."""
    small = (*batch.policers, *batch.router_interfaces, *batch.nexthops)
    groups = sum(max(1, len(update.entry.members)) for update in batch.groups)
    return sum(map(len, batch.routes)) + len(small) + groups


GROUPS, MEMBERS = 64, 32


async def with_groups(make_world):
    """Two routers, one of which has many groups of many members, all by one neighbor more."""
    world = await two_routers(make_world)
    one = world.router(1)
    addresses = [bytes((10, 0, 1, number)) for number in range(10, 10 + MEMBERS + 1)]
    list(one.neighbors([(1, address, mac(200 + address[3]), False) for address in addresses]))
    for number in range(GROUPS):
        members = [(1, address, 1 + (number >> bit & 1)) for bit, address in enumerate(addresses)]
        one.define_set(10 + number, SetKind.FORWARD, members)
    world.learn({f"30.0.{number}.0/24": 10 + number for number in range(GROUPS)}, 1)
    await world.settle(1)
    return world, one, addresses


def bounded(world) -> None:
    assert all(cost(batch) < BATCH_ROUTES + MAX_MEMBERS for batch in world.plane.writes)


async def test_small_tables_are_bounded_by_batch_too(make_world):
    world, one, addresses = await with_groups(make_world)
    bounded(world)
    assert len(world.plane.entries.groups) == GROUPS
    world.forget_writes()
    list(one.neighbors([(1, addresses[0], b"", True)]))
    one.processed(1000)
    await world.settle(1)
    assert sum(len(batch.groups) for batch in world.plane.writes) == GROUPS
    bounded(world)
    assert all(len(group.members) == MEMBERS for group in world.plane.entries.groups.values())


async def test_a_neighbor_that_flaps_under_many_groups_holds_up_no_other(make_world):
    world, one, addresses = await with_groups(make_world)
    world.forget_writes()
    world.plane.gate.clear()
    list(one.neighbors([(1, addresses[0], b"", True)]))
    one.processed(1000)
    await world.until(lambda: len(world.plane.writes) == WRITES_IN_FLIGHT)
    world.learn({"40.0.0.0/8": 1}, 2)
    world.plane.gate.set()
    await world.settle(2)
    await world.settle(1)
    assert [written(batch, 2) for batch in world.plane.writes].index(1) == WRITES_IN_FLIGHT
    bounded(world)


async def test_groups_and_routes_of_two_routers_share_alike(make_world):
    world, one, addresses = await with_groups(make_world)
    world.forget_writes()
    world.plane.gate.clear()
    world.learn(many(8 * BATCH_ROUTES), 2)
    await world.until(lambda: len(world.plane.writes) == WRITES_IN_FLIGHT)
    list(one.neighbors([(1, address, mac(300 + address[3]), False) for address in addresses[:2]]))
    for address in addresses[:2]:
        list(one.neighbors([(1, address, b"", True)]))
    one.processed(1000)
    await world.until(lambda: one.fib.busy and not one.fib.unfinished)  # all that it has to write is known
    world.plane.gate.set()
    await world.settle(2)
    await world.settle(1)
    both = [(cost(batch) - written(batch, 2), written(batch, 2)) for batch in world.plane.writes]
    both = [pair for pair in both if all(pair)][:-1]
    assert len(both) >= 3
    assert abs(sum(mine for mine, _ in both) - sum(other for _, other in both)) <= MAX_MEMBERS
    bounded(world)


async def test_every_update_refers_to_what_was_written_before(make_world):
    """Batch after batch, at a plane that is empty: nexthops before groups, these before routes."""
    world, _, _ = await with_groups(make_world)
    world.plane.disconnect("away")
    world.plane.entries = Installed()
    world.forget_writes()
    world.plane.connect()
    await world.settle(1)
    nexthops, groups = set(), set()
    for batch in world.plane.writes:
        nexthops |= {update.entry.id for update in batch.nexthops if update.op is not Op.DELETE}
        groups |= {update.entry.id for update in batch.groups if update.op is not Op.DELETE}
        used = {m.nexthop_id for u in batch.groups if u.op is not Op.DELETE for m in u.entry.members}
        assert used <= nexthops
        for updates in batch.routes:
            actions = [action for op, action in zip(updates.ops, updates.actions, strict=True) if op is not Op.DELETE]
            assert {action_value(a) for a in actions if action_kind(a) is RouteKind.GROUP} <= groups
            assert {action_value(a) for a in actions if action_kind(a) is RouteKind.NEXTHOP} <= nexthops
    assert len(groups) == GROUPS


async def test_what_is_found_equal_is_looked_at_in_parts(make_world, monkeypatch):
    """A queue of prefixes that all are as they should be is not worked off in one turn of the loop."""
    world = await two_routers(make_world)
    world.learn(many(5000), 1)
    await world.settle(1)
    fib = world.router(1).fib
    monkeypatch.setattr(mirror, "BATCH_LOOKS", 2000)
    fib._enqueue(list(fib.installed_routes))
    before = fib.pending
    one = world.shards.by_plane["s1"].mirror
    one.wake(fib)
    batch = WriteBatch()
    for ticket in one._fill(batch):
        fib.confirm(ticket[1], [])
    assert (before - fib.pending, bool(batch)) == (2000, False)
    await world.settle(1)
    assert fib.pending == 0


class DearPlane(FakePlane):
    """Takes a second for each route that it encodes, and for each update of other tables."""

    async def write(self, batch: WriteBatch) -> list[Refused]:
        for columns in batch.routes:
            spent = batch.encoding.spent_s
            spent[columns.vrf_id] = spent.get(columns.vrf_id, 0.0) + len(columns)
        others = len(batch.policers) + len(batch.router_interfaces) + len(batch.nexthops) + len(batch.groups)
        batch.encoding.spent_s[SHARED] = float(others)
        return await super().write(batch)


async def test_what_is_encoded_for_a_plane_is_charged_to_whose_it_is(monkeypatch) -> None:
    world = World(DearPlane("s1"))
    charged: Counter[str] = Counter()
    monkeypatch.setattr(
        LoopShare,
        "charge",
        lambda _share, account, took_s, what: charged.update({account.name: took_s if "encoded" in what else 0.0}),
    )
    try:
        await world.start(router_config(1, (1,)), router_config(2, (2,)))
        for vrf_id in (1, 2):
            world.connect(vrf_id)
            world.learn_links(vrf_id)
            world.router(vrf_id).define_set(1, SetKind.BLACKHOLE, [])
            await world.settle(vrf_id)
        before = Counter(charged)
        for vrf_id, routes in ((1, 30), (2, 10)):
            world.learn({f"20.{number}.0.0/16": 1 for number in range(routes)}, vrf_id)
        await world.settle(1)
        await world.settle(2)
        assert charged["red/r1"] - before["red/r1"] == 30.0
        assert charged["red/r2"] - before["red/r2"] == 10.0
        assert before["red/r1"] == pytest.approx(before["red/r2"], abs=1.0)
        assert before["red/r1"] > 3.0
    finally:
        await world.close()
