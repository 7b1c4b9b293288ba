"""What a message costs a router's tables depends on its size, not on what they hold."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from lines import counted
from worlds import FakeVrc, World, gateway, mac, router_config

from controller.model import Quota
from controller.planes.base import GroupMember, Installed, Nexthop, NexthopGroup, NexthopState, Policer
from controller.routing import fib, prefixes, resolve, rib
from controller.routing.objects import PlaneObjects
from controller.routing.resolve import DEAD_SETTLE_S
from controller.routing.rib import SetKind
from controller.shard import fib_work
from controller.shard.unclaimed import interfaces_by_router
from wire.columns import prefix_text

FEW, MANY = 100, 1000
QUOTA = Quota(nexthops=100_000, groups=100_000)

MakeWorld = Callable[..., Awaitable[World]]
Prepare = Callable[[World, int], Awaitable[Callable[[], object]]]


async def fresh(make_world: MakeWorld) -> World:
    """Return a world whose one router has a session and rests."""
    world = await make_world(router_config(1, quota=QUOTA))
    world.connect()
    await world.settle()
    return world


def connected(router: Any, count: int) -> None:
    for set_id in range(1, count + 1):
        router.define_set(set_id, SetKind.CONNECTED, [(1, (10 << 24 | set_id).to_bytes(4, "big"), 1)])


async def redefine_while_crowded(world: World, size: int) -> Callable[[], object]:
    router = world.router()
    connected(router, size)
    return lambda: router.define_set(1, SetKind.CONNECTED, [(1, (10 << 24 | 1).to_bytes(4, "big"), 1)])


async def release_what_is_not_there(world: World, size: int) -> Callable[[], object]:
    router = world.router()
    connected(router, size)
    return lambda: router.release([100_000])


async def release_a_group_that_routes_stay_on(world: World, size: int) -> Callable[[], object]:
    router = world.router()
    for set_id, dead in enumerate((8, 9), 1):  # of one content, as the last member is not resolved
        members = [(1, gateway(1), 1), (2, gateway(2), 1), (3, gateway(dead), 1)]
        router.define_set(set_id, SetKind.FORWARD, members)
    routes = {f"20.{i >> 8}.{i & 255}.0/24": 1 for i in range(size)}
    world.learn(routes)
    await world.settle()
    world.learn(dict.fromkeys(routes, 2))
    await world.settle()
    assert router.fib.group_count == 2
    return lambda: router.release([1])


async def repeat_an_interface_s_state(world: World, size: int) -> Callable[[], object]:
    router = world.router()
    connected(router, size)
    return lambda: router.interface_states([(1, True, [bytes((10, 0, 1, 1))])])


async def say_an_interface_s_state(world: World, size: int) -> Callable[[], object]:
    router = world.router()
    connected(router, size)
    return lambda: router.interface_states([(2, False, [bytes((10, 0, 2, 1))])])


async def repeat_a_neighbor(world: World, size: int) -> Callable[[], object]:
    router = world.router()
    for set_id in range(1, size + 1):
        members = [(1, gateway(1), 1), (2, (11 << 24 | set_id).to_bytes(4, "big"), 1)]
        router.define_set(set_id, SetKind.FORWARD, members)
    await world.settle()
    return lambda: list(router.neighbors([(1, gateway(1), mac(101), False)]))


@pytest.mark.parametrize(
    "prepare",
    [
        redefine_while_crowded,
        release_what_is_not_there,
        release_a_group_that_routes_stay_on,
        repeat_an_interface_s_state,
        say_an_interface_s_state,
        repeat_a_neighbor,
    ],
)
async def test_a_message_costs_the_same_however_much_there_is(
    make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch, prepare: Prepare
) -> None:
    costs = []
    for size in (FEW, MANY):
        monkeypatch.setattr(rib, "MAX_KEPT_SETS", size)  # crowded, where the work needs that
        world = await fresh(make_world)
        say = await prepare(world, size)
        await world.settle()
        while world.router().fib.next_due == 0.0:
            world.router().tick()  # what was left to look at
        with counted("routing") as lines:
            say()
        costs.append(lines.count)
    assert costs[1] <= costs[0] + 10, costs


async def test_one_confirmed_route_costs_the_same_however_many_sets_there_are(make_world: MakeWorld) -> None:
    costs = []
    for size in (FEW, MANY):
        world = await fresh(make_world)
        connected(world.router(), size)
        world.learn({"20.0.0.0/8": 1})
        await world.settle()
        with counted("routing") as lines:
            world.learn({"20.0.0.0/8": 0})
            await world.settle()
        costs.append(lines.count)
    assert costs[1] <= costs[0] + 50, costs


def test_a_look_up_of_what_is_unclaimed_costs_the_same_however_much_that_is() -> None:
    costs = []
    for size in (FEW, MANY):
        groups = {
            i: NexthopGroup(i, tuple(GroupMember(member, 1, 0) for member in (i + 2, i + 1)))
            for i in range(1, size + 1)
        }
        nexthops = {i: Nexthop(i, 1, bytes(6), NexthopState.GLEAN) for i in range(10_000, 10_000 + size)}
        plane = PlaneObjects("s1")
        list(plane.adopt(Installed(groups=groups, nexthops=nexthops), set(), {}))
        with counted("routing") as lines:
            assert plane.claim_group(((1, 1), (9, 9))) is None
            assert plane.claim_group(((size + 1, 1), (size + 2, 1))) is not None
            assert plane.claim_nexthop(1, gateway(1), bytes(6), NexthopState.FORWARD) is None
            assert plane.claim_nexthop(1, gateway(1), bytes(6), NexthopState.GLEAN) is not None
        costs.append(lines.count)
    assert costs[1] == costs[0], costs


async def test_many_released_sets_are_looked_at_in_shares(
    make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rib, "COLLECT_AT_ONCE", FEW)
    world = await fresh(make_world)
    router = world.router()
    connected(router, MANY)
    router.release(range(1, MANY + 1))
    left = len(list(router.fib._rib.sets))
    assert left >= MANY - FEW
    while router.fib.next_due == 0.0:
        router.tick()
        left, before = len(list(router.fib._rib.sets)), left
        assert before - left <= FEW
    assert not left


async def test_many_nexthops_that_nothing_uses_are_looked_at_in_shares(
    make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resolve, "COLLECT_AT_ONCE", FEW)
    world = await fresh(make_world)
    router, resolution = world.router(), world.router().fib._resolution
    for set_id in range(1, 3 * FEW + 1):
        router.define_set(set_id, SetKind.FORWARD, [(1, (10 << 24 | set_id).to_bytes(4, "big"), 1)])
    await world.settle()
    held = [len(resolution.nexthops)]
    router.release(range(1, 3 * FEW + 1))  # which looks at a first share
    held.append(len(resolution.nexthops))
    while held[-1] < held[-2]:
        router.fib.collect()
        held.append(len(resolution.nexthops))
    gone = [before - after for before, after in pairwise(held)]
    assert max(gone) == FEW
    assert sum(gone) >= 3 * FEW - 1  # one is of the world's own set, too


async def test_a_new_set_takes_away_no_unused_one_while_something_is_written(make_world: MakeWorld) -> None:
    world = await fresh(make_world)
    router = world.router()
    connected(router, FEW)
    router.fib.in_flight += 1
    router.release(range(1, FEW + 1))
    before = len(list(router.fib._rib.sets))
    router.fib.define_set(FEW + 1, SetKind.BLACKHOLE, ())
    assert len(list(router.fib._rib.sets)) == before + 1


async def test_the_least_cost_lets_one_in_that_a_quota_kept_out(make_world: MakeWorld) -> None:
    world = await fresh(make_world)
    resolution = world.router().fib._resolution
    await try_again_what_a_quota_kept_out(world, 12)
    kept_out = len(resolution.over_quota)
    world.router().fib.usage.quota = QUOTA
    resolution.retry_over_quota()
    left, let_in = resolution.attach_waiting(1)
    assert left <= 0
    assert (len(let_in), len(resolution.over_quota)) == (1, kept_out - 1)


async def begin_a_resync(world: World, size: int) -> Callable[[], object]:
    connected(world.router(), size)
    learn_many(world, size)
    return lambda: world.router().open(FakeVrc())


async def end_a_resync(world: World, size: int) -> Callable[[], object]:
    learn_many(world, size)
    await world.settle()
    world.connect()
    return lambda: world.router().resync_end(True)


async def bring_an_interface_back(world: World, size: int) -> Callable[[], object]:
    learn_many(world, size)
    await world.settle()
    world.plane.set_port(1, "p1", False)
    world.clock.now += DEAD_SETTLE_S
    world.router().tick()
    await world.settle()
    assert not installed_prefixes(world)
    return lambda: world.plane.set_port(1, "p1", True)


async def lose_a_neighbor_of_many_sets(world: World, size: int) -> Callable[[], object]:
    router = world.router()
    for set_id in range(1, size + 1):
        members = [(1, gateway(1), 1), (2, (11 << 24 | set_id).to_bytes(4, "big"), 1)]
        router.define_set(set_id, SetKind.FORWARD, members)
    return lambda: list(router.neighbors([(1, gateway(1), b"", True)]))


async def try_again_what_a_quota_kept_out(world: World, size: int) -> Callable[[], object]:
    router = world.router()
    router.fib.usage.quota = replace(QUOTA, nexthops=10)
    for set_id in range(1, size + 1):
        router.define_set(set_id, SetKind.FORWARD, [(1, (11 << 24 | set_id).to_bytes(4, "big"), 1)])
    return router.fib.retry_refused


async def remove_the_router(world: World, size: int) -> Callable[[], object]:
    learn_many(world, size)
    await world.settle()
    return world.router().fib.remove


def learn_many(world: World, size: int) -> None:
    world.router().define_set(100_000, SetKind.FORWARD, [(1, gateway(1), 1)])
    world.learn({f"20.{i >> 8}.{i & 255}.0/24": 100_000 for i in range(size)})


def installed_prefixes(world: World) -> set[str]:
    return {prefix_text(key) for key in world.installed() if key[-1] != 32}


@pytest.mark.parametrize(
    "prepare",
    [
        begin_a_resync,
        end_a_resync,
        bring_an_interface_back,
        lose_a_neighbor_of_many_sets,
        try_again_what_a_quota_kept_out,
        remove_the_router,
    ],
)
async def test_what_takes_a_pass_over_the_tables_is_done_in_slices(
    make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch, prepare: Prepare
) -> None:
    costs = []
    for size in (FEW, MANY):
        world = await fresh(make_world)
        act = await prepare(world, size)
        await world.settle()
        monkeypatch.setattr(fib, "SLICE_COST", FEW, raising=False)
        router, slices = world.router(), []
        with counted("routing") as lines:
            act()
        slices.append(lines.count)
        while router.fib.unfinished:
            with counted("routing") as lines:
                router.fib.advance()
            slices.append(lines.count)
        monkeypatch.undo()
        costs.append((max(slices), len(slices)))
    (few, _), (many, slices_of_many) = costs
    assert many <= few + 20, costs
    assert slices_of_many > 5


async def test_what_a_plane_was_read_to_have_is_taken_over_in_slices(
    make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    costs = []
    for size in (FEW, MANY):
        world = await fresh(make_world)
        learn_many(world, size)
        await world.settle()
        monkeypatch.setattr(fib, "SLICE_COST", FEW)
        monkeypatch.setattr(prefixes, "READ_AT_ONCE", FEW // 10)
        router, slices, left = world.router(), [], True
        read = await world.plane.read()
        lost = read.routes[1].popitem()[0]
        steps = router.fib.adopt(read, read.router_interfaces)
        while left or router.fib.unfinished:
            with counted("routing") as lines:
                left = left and next(steps, False) is None
                if not left:
                    router.fib.advance()
            slices.append(lines.count)
        monkeypatch.undo()
        assert list(router.fib._prefixes._queue) == [lost]
        costs.append((max(slices), len(slices)))
    (few, _), (many, slices_of_many) = costs
    assert many <= few + 20, costs
    assert slices_of_many > 5


async def test_a_router_takes_over_what_a_plane_has_at_the_same_cost_however_much_others_have(
    make_world: MakeWorld,
) -> None:
    costs = []
    for size in (FEW, MANY):
        world = await fresh(make_world)
        read = await world.plane.read()
        others = range(100_000, 100_000 + size)
        read.nexthops |= {i: Nexthop(i, i, bytes(6), NexthopState.GLEAN) for i in others}
        read.groups |= {i: NexthopGroup(i, ()) for i in others}
        read.policers |= {i: Policer(i, ()) for i in others}
        read.damaged |= {("nexthop", i) for i in others}
        mine = interfaces_by_router(read)[1]
        with counted("routing") as lines:
            assert not list(world.router().fib.adopt(read, mine))
        costs.append(lines.count)
    assert costs[1] == costs[0], costs


async def test_a_router_is_audited_at_the_same_cost_however_much_is_damaged_of_others(make_world: MakeWorld) -> None:
    costs = []
    for size in (FEW, MANY):
        world = await fresh(make_world)
        fib, read = world.router().fib, await world.plane.read()
        read.damaged |= {("nexthop", i) for i in range(100_000, 100_000 + size)} | {("policer", 1)}
        fib.begin_audit()
        with counted("routing") as lines:
            assert fib.repair_entries(read) == 1
        costs.append(lines.count)
    assert costs[1] == costs[0], costs


@pytest.mark.parametrize("most_pending", [0, fib_work.MOST_PENDING])
async def test_a_message_is_acknowledged_once_the_pass_that_it_began_is_done(
    make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch, most_pending: int
) -> None:
    """Also where the plane has confirmed all that the pass has found so far."""
    world = await fresh(make_world)
    learn_many(world, MANY)
    await world.settle()
    vrc = world.connect()
    monkeypatch.setattr(fib, "SLICE_COST", FEW)
    monkeypatch.setattr(fib_work, "MOST_PENDING", most_pending)
    world.router().resync_end(True)
    world.router().processed(7)
    while world.router().fib.unfinished:
        assert vrc.acknowledged < 7
        await asyncio.sleep(0)
    await world.settle()
    assert vrc.acknowledged == 7
    assert not installed_prefixes(world)
    assert [event.text for event in world.events.recent() if event.kind == "swept"] == [f"{MANY} stale routes"]


async def test_what_is_learned_while_stale_routes_are_swept_stays(
    make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = await fresh(make_world)
    learn_many(world, MANY)
    await world.settle()
    world.connect()
    world.router().define_set(1, SetKind.FORWARD, [(2, gateway(2), 1)])
    monkeypatch.setattr(fib, "SLICE_COST", FEW)
    world.router().resync_end(True)
    late = {f"20.{i >> 8}.{i & 255}.0/24": 1 for i in range(0, MANY, 7)}
    world.learn(late)
    world.learn({"30.0.0.0/8": 1})
    await world.settle()
    assert installed_prefixes(world) == {"30.0.0.0/8", *late}


async def test_a_pass_waits_where_many_prefixes_wait_for_the_plane(
    make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = await fresh(make_world)
    learn_many(world, MANY)
    await world.settle()
    world.connect()
    monkeypatch.setattr(fib, "SLICE_COST", FEW)
    monkeypatch.setattr(fib_work, "MOST_PENDING", FEW)
    world.plane.disconnect()
    world.router().resync_end(True)
    await world.until(lambda: world.router().fib.pending >= FEW)
    for _ in range(MANY):
        await asyncio.sleep(0)
    assert world.router().fib.pending <= 2 * FEW
    world.plane.connect()
    await world.settle()
    assert not installed_prefixes(world)
