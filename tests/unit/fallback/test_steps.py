"""What goes over all routes of a pair does so in steps: whatever else is due comes in between."""

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pairs import FAR, ONE_WAY, PairWorld, back, every, held, learned, made, started, verified
from worlds import router_config

from controller import supervisor
from controller.errors import PlaneUnreachable
from controller.fallback import pace, plane
from controller.fallback.hardware_routes import HardwareRoutes
from controller.fallback.hardware_tables import HardwareTables
from controller.fallback.staged_writes import StagedWrites
from controller.fallback.traffic_poll import TrafficPoll
from controller.model import Placement, Quota
from controller.planes.base import Op, RouteKind, RouteUpdates, WriteBatch, route_action
from controller.route_cache.aggregate import LEAST_BUDGET
from controller.routing import route_audit
from controller.shard.unclaimed import UnclaimedObjects
from wire.columns import prefix_key

STEP = 5
ROUTES = {f"20.{2 * n}.0.0/16": 1 + n % 2 for n in range(100)}  # none can be merged with another
ONE, TWO = (route_action(RouteKind.NEXTHOP, number) for number in (1, 2))


@pytest.fixture
async def world(monkeypatch: pytest.MonkeyPatch) -> PairWorld:
    monkeypatch.setattr(pace, "STEP_ROUTES", STEP)
    monkeypatch.setattr(pace, "SLICE_S", 0.0)
    world = await made()
    await learned(world, ROUTES)
    return world


async def reconnected(world: PairWorld) -> None:
    world.hardware.disconnect()
    await asyncio.sleep(0)
    world.hardware.connect()
    await world.until(lambda: world.pair._adopted)
    await world.settle()


class Interrupted:
    """Does something before a step of each adoption, and of others; ``steps`` counts them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, at: int, does: Callable[[], Any]) -> None:
        self.steps, self._at, self._does = 0, at, does
        monkeypatch.setattr(plane, "paced", self._paced)

    async def _paced(self, steps: Iterator[None]) -> None:
        for _ in steps:
            self.steps += 1
            if self.steps == self._at:
                waited = self._does()
                if waited is not None:
                    await waited
            await asyncio.sleep(0)


async def test_others_have_the_loop_while_a_pair_is_adopted(world: PairWorld) -> None:
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    counting = asyncio.create_task(count())
    held = dict(world.in_hardware())
    await reconnected(world)
    counting.cancel()
    assert turns > 4 * len(ROUTES) / STEP
    assert world.in_hardware() == held


async def test_an_audit_of_a_pair_copies_no_routes(world: PairWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    copies = []
    for side in (world.hardware, world.software):

        async def reading(*asked: Any, read: Any = side.read) -> Any:
            found = await read(*asked)
            copies.append(sum(map(len, found.routes.values())))
            return found

        monkeypatch.setattr(side, "read", reading)
    assert not await world.shards.by_plane["s1"].mirror.audit()
    assert copies == [0, 0]


async def test_damage_is_found_while_other_routes_are_written(
    world: PairWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("controller.fallback.staged_writes.STAGE_ROUTES", 1)
    world.hardware.writes.clear()
    world.hardware.gate.clear()
    world.learn({"20.4.0.0/16": 2, "20.6.0.0/16": 1})
    await world.until(lambda: world.hardware.writes != [])
    gone = prefix_key("20.50.0.0/16")
    del world.in_hardware()[gone]
    await world.pair.read()
    world.hardware.gate.set()
    await world.settle()
    await world.pair.work()
    assert gone in world.forwarding()
    assert [event.text for event in world.events.recent() if event.kind == "repaired"] == [
        "1 routes differed in hardware"
    ]


async def test_of_what_is_read_whole_no_route_that_is_gone_is_taken_for_another(
    world: PairWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(route_audit, "_BITS_A_KEY", 0)
    gone = prefix_key("20.50.0.0/16")
    del world.in_hardware()[gone]
    await world.pair.read()
    await world.pair.work()
    assert gone in world.forwarding()


@pytest.mark.parametrize("at", [1, 30, 60, 90, 120])
async def test_an_adoption_that_a_lost_connection_ends_is_begun_anew(
    world: PairWorld, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    held = dict(world.in_hardware())
    interrupted = Interrupted(monkeypatch, at, world.hardware.disconnect)
    world.hardware.disconnect()
    await asyncio.sleep(0)
    world.hardware.connect()
    await world.until(lambda: interrupted.steps >= at)
    world.in_hardware().clear()  # it comes back empty, and what it was to have keeps its place
    world.hardware.connect()
    await world.until(lambda: world.pair._adopted)
    await world.settle()
    await world.pair.work()
    assert world.in_hardware() == held
    assert (await verified(world)).equal


async def test_an_audit_fails_where_a_connection_is_lost_in_its_last_step(
    world: PairWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or what the fallback missed would be taken for written to it."""
    whole = Interrupted(monkeypatch, 0, lambda: None)
    await world.pair.read()
    Interrupted(monkeypatch, whole.steps, world.software.disconnect)
    with pytest.raises(PlaneUnreachable):
        await world.pair.read()
    assert world.pair._behind
    monkeypatch.undo()
    await back(world)
    assert (await verified(world)).equal


async def test_a_write_waits_for_an_adoption(world: PairWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """As after a write that an unforeseen error has ended: the mirror goes on."""
    go_on, written = asyncio.Event(), prefix_key("30.0.0.0/8")
    interrupted = Interrupted(monkeypatch, 30, go_on.wait)
    world.pair._adopted = False
    reading = asyncio.create_task(world.pair.read())
    await world.until(lambda: interrupted.steps == 30)
    action = world.in_software()[prefix_key("20.4.0.0/16")]
    batch = WriteBatch(routes=[RouteUpdates(1, 4, [Op.INSERT], [written], [action])])
    write = asyncio.create_task(world.pair.write(batch))
    for _ in range(10):
        await asyncio.sleep(0)
    assert written not in world.in_software()
    go_on.set()
    await reading
    assert await write == []
    await world.pair.work()
    assert world.in_software()[written] == world.in_hardware()[written] == action


async def test_what_was_written_before_an_adoption_that_was_given_up_is_not_what_the_software_has_since(
    world: PairWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    def go_away() -> None:
        world.pair.written(1, True)
        world.hardware.disconnect()

    forwarded = world.forwarding()
    Interrupted(monkeypatch, 30, go_away)
    world.pair._adopted = False
    with pytest.raises(PlaneUnreachable):
        await world.pair.read()
    world.in_software().clear()
    monkeypatch.undo()
    world.hardware.connect()
    await world.pair.read()
    assert world.pair.routes.writes.frozen == {1}
    assert world.forwarding() == forwarded


async def test_what_was_written_while_an_adoption_is_under_way_does_not_end_what_it_freezes(
    world: PairWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in an audit after a write that an unforeseen error has ended: the mirror goes on by what it knew."""
    forwarded = world.forwarding()
    interrupted = Interrupted(monkeypatch, 30, lambda: world.pair.written(1, True))
    world.pair._adopted = False
    world.in_software().clear()
    await world.pair.read()
    assert interrupted.steps > 30
    assert world.pair.routes.writes.frozen == {1}
    await world.pair.work()
    assert world.pair.routes.writes.frozen == {1}
    assert world.forwarding() == forwarded


async def test_no_router_is_complete_before_it_has_adopted_what_was_read_after_a_write_that_failed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Or the hardware lets go of what the software has lost."""
    monkeypatch.setattr(supervisor, "RESTART_S", 0.0)
    world = await made(router_config(1, (1,)), router_config(2, (2,)))
    await learned(world, dict.fromkeys(FAR, 1), {1: ONE_WAY[1]})
    await learned(world, {}, {2: ONE_WAY[2]}, vrf_id=2)
    writes, adopts = world.software.write, UnclaimedObjects.adopt
    shard, frozen = world.shards.by_plane["s1"], []

    async def failing(batch: WriteBatch) -> Any:
        world.software.write = writes  # type: ignore[method-assign]
        world.in_software().clear()
        raise RuntimeError("unforeseen")

    def adopt(*given: Any) -> Iterator[None]:
        for _ in adopts(*given):
            shard.follow(world.router())
            every(world.pair.routes.adoption.thaw())
            frozen.append(1 in world.pair.routes.writes.frozen)
            yield

    monkeypatch.setattr(UnclaimedObjects, "adopt", adopt)
    world.software.write = failing  # type: ignore[method-assign]
    world.learn({"30.0.0.0/8": 2}, vrf_id=2)
    await world.until(lambda: frozen != [] and shard.mirror.adopted)
    assert all(frozen)


@pytest.mark.parametrize("does", ["forget", "place"])
def test_routers_are_forgotten_and_placed_between_any_two_steps(monkeypatch: pytest.MonkeyPatch, does: str) -> None:
    monkeypatch.setattr(pace, "STEP_ROUTES", STEP)
    plane = {vrf_id: {prefix_key(f"20.{2 * n}.0.0/16"): (ONE, TWO)[n % 2] for n in range(12)} for vrf_id in (1, 2)}
    at = steps = 0
    while steps >= at:
        at += 1
        routes, hardware = HardwareRoutes({4: 0, 6: 0}), {vrf_id: dict(held) for vrf_id, held in plane.items()}
        for steps, _ in enumerate(routes.adoption.adopt(hardware, plane, [1, 2]), 1):
            if steps == at and does == "forget":
                routes.forget(1)
            elif steps == at:
                routes.place(1, Placement.SOFTWARE)
        while routes.rebalance(0.0):
            pass
        while stage := routes.next_stage():
            routes.confirm(stage, [])
        assert held(routes, 2).items() >= plane[2].items()
        if does == "forget" and steps >= at:
            assert not held(routes, 1)
            assert routes.routers == {2}
        elif steps >= at:
            assert not held(routes, 1).items() & plane[1].items()
    assert at > 12


def test_a_router_that_is_forgotten_between_any_two_steps_stays_frozen_no_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pace, "STEP_ROUTES", STEP)
    plane = {vrf_id: {prefix_key(f"20.{2 * n}.0.0/16"): ONE for n in range(12)} for vrf_id in (1, 2)}
    at = steps = 0
    while steps >= at:
        at += 1
        routes = HardwareRoutes({4: 0, 6: 0})
        for vrf_id in plane:
            routes.tables.share(vrf_id, "red", Quota())
        for steps, _ in enumerate(routes.adoption.adopt(plane, {}, [1, 2]), 1):
            if steps == at:
                routes.forget(1)
        assert routes.writes.frozen == ({2} if steps >= at else {1, 2})
    assert at > 6


def test_routers_are_opened_in_steps_and_closed_before_and_none_that_is_forgotten() -> None:
    routes = HardwareRoutes({4: 0, 6: 0})
    for opened, _ in enumerate(routes.adoption.adopt({}, {}, range(1, 10))):
        assert len(routes.routers) <= opened + 1
    steps = routes.adoption.adopt({}, {}, range(1, 10))
    left = 9
    while left:
        next(steps)
        left -= 1
        assert len(routes.routers) == left
        if left == 6:
            assert 8 in routes.routers
            routes.forget(8)
            left -= 1
    next(steps)
    (first,) = routes.routers
    routes.forget(9)
    routes.forget(first)
    every(steps)
    assert routes.routers == set(range(1, 8)) - {first}


@pytest.mark.parametrize("at", range(1, 6))
def test_a_router_stays_frozen_though_an_adoption_is_given_up(at: int) -> None:
    plane = {vrf_id: {prefix_key(f"20.{2 * n}.0.0/16"): ONE for n in range(12)} for vrf_id in (1, 2)}
    routes = HardwareRoutes({4: 0, 6: 0})
    for vrf_id in plane:
        routes.tables.share(vrf_id, "red", Quota())
    every(routes.adoption.adopt(plane, {}, [1, 2]))
    given_up = routes.adoption.adopt(plane, plane, [1, 2])
    for _ in range(at):
        next(given_up)
    every(routes.adoption.adopt(plane, plane, [1, 2]))
    assert routes.writes.frozen == {1, 2}


def test_every_step_is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pace, "STEP_ROUTES", STEP)
    assert [len(part) for part in pace.parts(range(12))] == [STEP, STEP, 2]


async def refilled(world: PairWorld) -> PairWorld:
    """Return a world of the same hardware whose software has all routes again, and whose router is frozen still."""
    again = PairWorld()
    again.hardware.entries = world.hardware.entries
    await started(again)
    thaw = again.pair.routes.adoption.thaw
    again.pair.routes.adoption.thaw = lambda: iter(())  # type: ignore[method-assign]
    await learned(again, ROUTES)
    again.pair.routes.adoption.thaw = thaw  # type: ignore[method-assign]
    again.shards.by_plane["s1"].follow(again.router())
    assert again.pair.routes.writes.frozen == {1}
    return again


async def thawed(world: PairWorld) -> None:
    """See that the hardware follows the software."""
    for _ in range(3):
        world.shards.by_plane["s1"].follow(world.router())
        await world.settle()
        await world.pair.work()
    assert not world.pair.routes.writes.frozen
    assert world.pair.routes.writes.idle
    assert (await verified(world)).equal
    assert world.in_hardware().items() >= world.in_software().items()


async def test_others_have_the_loop_while_a_router_that_was_frozen_is_brought_back(
    world: PairWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    again = await refilled(world)
    interrupted = Interrupted(monkeypatch, 0, lambda: None)
    await again.pair.work()
    assert interrupted.steps > 2 * len(ROUTES) / STEP
    await thawed(again)


@pytest.mark.parametrize("at", [1, 10, 25, 45, 60])
@pytest.mark.parametrize("does", ["change", "lose", "close"])
async def test_a_router_that_was_frozen_is_right_whatever_comes_between_any_two_steps(
    world: PairWorld, monkeypatch: pytest.MonkeyPatch, at: int, does: str
) -> None:
    again = await refilled(world)
    removing: list[asyncio.Task[None]] = []

    def act() -> None:
        if does == "change":
            again.learn(dict.fromkeys(ROUTES, 2) | {"20.4.0.0/16": 0, "20.8.8.0/24": 1})
        elif does == "lose":
            again.hardware.disconnect()
        else:
            removing.append(asyncio.create_task(again.shards.remove_router(1)))

    interrupted = Interrupted(monkeypatch, at, act)
    await again.pair.work()
    assert interrupted.steps >= at
    if does == "lose":
        again.hardware.connect()
        await again.until(lambda: again.pair._adopted)
    if does == "close":
        await removing[0]
        assert not again.in_hardware()
    else:
        await thawed(again)


async def test_what_is_to_be_written_is_looked_at_in_steps(
    world: PairWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("controller.fallback.staged_writes.PLANNED_AT_ONCE", STEP)
    routes = world.pair.routes
    keys = [prefix_key(name) for name in ROUTES]
    routes.tables.change(RouteUpdates(1, 4, [Op.MODIFY] * len(keys), keys, [ONE] * len(keys)))
    written = []
    while stage := routes.next_stage():
        written += [len(columns) for columns in stage]
        assert sum(1 for _ in routes.planning()) == 0  # what is planned goes first
        routes.confirm(stage, [])
    assert set(written) == {STEP}
    assert sum(written) == len(ROUTES) / 2  # the others have that nexthop


def test_what_a_full_batch_changes_is_planned_in_one_go() -> None:
    pairs = [f"{10 + n // 256}.{n % 256}.0.0" for n in range(520)]  # and as many covers, or parts
    wanted = {prefix_key(f"{one}/{length}"): action for one in pairs for length, action in ((16, ONE), (24, TWO))}
    writes = StagedWrites({(1, 4): wanted})
    writes.note((1, 4), wanted)
    stages = 0
    while (pending := writes.next_pending()) is not None:
        writes.plan(*pending)
        while stage := writes.next_stage():
            writes.confirm(stage, [])
            stages += 1
    assert stages == 2


def test_a_round_aggregates_the_tables_of_a_few_routers_however_many_wait() -> None:
    tables, halves = HardwareTables({4: 0, 6: 0}), [prefix_key("20.0.0.0/9"), prefix_key("20.128.0.0/9")]
    for vrf_id in range(1, 8):
        tables.open(vrf_id)
        tables.place(vrf_id, Placement.HARDWARE)
        tables.change(RouteUpdates(vrf_id, 4, [Op.INSERT] * 2, halves, [ONE] * 2))
    tables.close(7)
    merged = []
    while not tables.aggregated:
        tables.aggregate(2 * LEAST_BUDGET)
        merged.append([one for one in sorted(tables.routers) if not tables._routes[one, 4].aggregate.queued])
    assert merged == [[1, 2], [1, 2, 3, 4], [1, 2, 3, 4, 5, 6]]


async def counting(world: PairWorld) -> TrafficPoll:
    """Have the world's pair know what its entries had counted before."""
    poll = world.pair.traffic_poll
    for _ in range(2):
        world.clock.now += 5
        await poll.measure()
    return poll


async def test_what_is_counted_and_sampled_is_taken_in_steps(
    world: PairWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("controller.route_cache.fast_table.COUNTED_AT_ONCE", STEP)
    poll, routes = await counting(world), world.pair.routes
    steps = Interrupted(monkeypatch, 0, lambda: None)
    monkeypatch.setattr("controller.fallback.traffic_poll.paced", steps._paced)
    world.clock.now += 5
    await poll.measure()
    assert steps.steps > 2 * len(ROUTES) / STEP
    steps.steps = 0
    world.clock.now += 100  # what came since is of no use
    await poll.measure()
    assert steps.steps > 2 * len(ROUTES) / STEP
    poll.traffic.one_in = 10.0
    poll.traffic.sample((1, 4), [prefix_key("20.0.0.1/32")] * 100)
    steps.steps = 0
    await world.pair.work()
    assert steps.steps >= 100 / STEP
    assert 1 in routes.routers


async def test_a_router_may_go_while_its_packets_are_taken(world: PairWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    await counting(world)
    routes = world.pair.routes
    packets = dict.fromkeys(routes.usage.installed(1, 4), 5)
    steps = routes.count(world.clock.now + 5, 1, packets)
    monkeypatch.setattr("controller.route_cache.fast_table.COUNTED_AT_ONCE", 1)
    next(steps)
    routes.close(1)
    assert list(steps) == [None] * (len(packets) - 1)


async def test_nothing_of_a_plane_that_is_gone_is_counted(world: PairWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    poll = await counting(world)
    before = poll.traffic.rates
    steps = Interrupted(monkeypatch, 3, world.hardware.disconnect)
    monkeypatch.setattr("controller.fallback.traffic_poll.paced", steps._paced)
    world.clock.now += 5
    await poll.measure()
    assert steps.steps == 3
    assert poll.traffic.rates is before
