"""Routers on their way between a plane and its fallback: how far they are, and where they came from."""

import asyncio
from dataclasses import replace

import pairs
import pytest
from pairs import ONE_WAY, TWO_WAYS, PairWorld, learned
from worlds import router_config

from controller.model import Placement, Quota
from controller.planes.base import FALLBACK
from controller.routing.rib import SetKind
from controller.views import MoveView

ROUTES = {f"20.{n}.0.0/16": 1 for n in range(0, 120, 2)}  # with holes between them, or they would be one entry


async def made(placement: Placement = Placement.HARDWARE, **options: int) -> PairWorld:
    world = await pairs.made(router_config(1, (1, 2), placement=placement), **options)
    await learned(world, ROUTES, {1: ONE_WAY[1]})
    return world


async def place(world: PairWorld, placement: Placement) -> None:
    await world.shards.put_router(router_config(1, (1, 2), placement=placement))


def moving(world: PairWorld) -> MoveView | None:
    return world.views.router_view(1).move


@pytest.fixture
def small_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("controller.fallback.hardware_routes.BUDGET", 40)
    monkeypatch.setattr("controller.fallback.plane.MAX_ROUNDS", 1)


async def test_nothing_is_said_of_a_router_that_rests() -> None:
    world = await made()
    view = world.views.router_view(1)
    assert (view.placement, view.move) == ("hardware", None)


@pytest.mark.usefixtures("small_rounds")
async def test_how_far_it_is_is_counted_in_entries_of_the_hardware() -> None:
    world = await made()
    while await world.pair.work():
        pass
    entries = len(world.in_hardware())
    await place(world, Placement.SOFTWARE)
    for to, before in ((Placement.SOFTWARE, Placement.HARDWARE), (Placement.HARDWARE, Placement.SOFTWARE)):
        await place(world, to)
        seen = []
        while (move := moving(world)) is not None:
            seen.append(move)
            await world.pair.work()
        total = len(world.forwarding()) or entries - len(world.in_hardware())
        assert {(one.to, one.before, one.total) for one in seen} == {(to.value, before.value, total)}
        done = [one.done for one in seen]
        assert done == sorted(done)
        assert (done[0], done[-1]) == (0, total)
        assert len(set(done)) > 2


@pytest.mark.usefixtures("small_rounds")
async def test_a_second_move_keeps_where_the_first_came_from() -> None:
    world = await made()
    await place(world, Placement.SOFTWARE)
    await world.pair.work()
    await place(world, Placement.AUTO)
    move = moving(world)
    assert move is not None
    assert (move.to, move.before) == ("auto", "hardware")
    while moving(world) is not None:
        await world.pair.work()
    await place(world, Placement.SOFTWARE)
    move = moving(world)
    assert move is not None
    assert move.before == "auto"


async def test_a_move_that_nobody_watched_is_over_too() -> None:
    world = await made()
    for to in (Placement.SOFTWARE, Placement.HARDWARE):
        await place(world, to)
        await world.pair.work()
    await place(world, Placement.SOFTWARE)
    move = moving(world)
    assert move is not None
    assert move.before == "hardware"


async def test_where_routes_are_and_why_not_all_in_hardware() -> None:
    world = await made(room=30)
    view = await world.views.placement(1)
    assert view.routes == len(world.in_software())
    hardware = [one for one in await world.views.fib(1) if one.where == "hardware"]
    assert 0 < view.hardware == len(hardware) < view.routes
    assert view.reason == "the rest for want of room"
    await place(world, Placement.AUTO)
    await world.pair.work()
    view = await world.views.placement(1)
    assert view.reason == "the rest when traffic asks for it, as not all have room"
    await place(world, Placement.SOFTWARE)
    await world.pair.work()
    view = await world.views.placement(1)
    assert (view.placement, view.hardware, view.reason) == ("software", 2, "own addresses stay in hardware")
    world = await made()
    view = await world.views.placement(1)
    assert (view.hardware, view.reason) == (view.routes, "")


async def test_a_quota_of_the_slice_is_the_reason_too() -> None:
    world, quota = await made(), Quota(hardware_ipv4_routes=10)
    await world.shards.put_router(router_config(1, (1, 2), quota=quota, placement=Placement.HARDWARE))
    await world.pair.work()
    view = await world.views.placement(1)
    assert 0 < view.hardware <= 10 + 2
    assert view.reason == "the rest beyond its slice's quota of hardware routes"


async def test_routes_that_the_plane_refuses_are_the_reason() -> None:
    world = await made(Placement.SOFTWARE)
    world.hardware.fault = lambda table, key, op: "no room" if table == "nexthop_group" else None
    router = world.router()
    router.define_set(2, SetKind.FORWARD, TWO_WAYS[1])
    world.learn({"30.0.0.0/8": 2})
    await world.settle()
    await place(world, Placement.HARDWARE)
    await world.pair.work()
    view = await world.views.placement(1)
    assert view.hardware == view.routes - 1
    assert view.reason == "the rest because plane s1 refused what it leads to"
    assert view.move is None


async def test_a_plane_that_goes_away_in_the_middle_does_not_end_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("controller.fallback.staged_writes.STAGE_ROUTES", 10)
    world = await made()
    world.hardware.gate.clear()
    await place(world, Placement.SOFTWARE)
    working = asyncio.create_task(world.pair.work())
    await world.until(lambda: not all(world.in_hardware().get(key) for key in world.in_software()))
    world.hardware.disconnect()
    world.hardware.gate.set()
    await asyncio.gather(working, return_exceptions=True)
    assert world.views.router_view(1).state == "no-plane"
    world.hardware.connect()
    assert moving(world) is not None
    await world.until(lambda: world.pair._adopted)
    move = moving(world)
    assert move is not None
    assert (move.to, move.before) == ("software", "hardware")
    await world.pair.work()
    assert moving(world) is None
    assert not world.forwarding()


@pytest.mark.usefixtures("small_rounds")
async def test_a_fallback_that_goes_away_in_the_middle_stops_it_until_it_is_back() -> None:
    world = await made()
    await place(world, Placement.SOFTWARE)
    await world.pair.work()
    left = len(world.forwarding())
    assert left
    world.software.disconnect()
    assert not await world.pair.work()
    assert len(world.forwarding()) == left
    move = moving(world)
    assert move is not None
    assert (move.to, move.before) == ("software", "hardware")
    world.software.connect()
    await world.settle()
    while moving(world) is not None:
        await world.pair.work()
    assert not world.forwarding()


async def test_a_new_controller_goes_on_with_it() -> None:
    world = await made()
    again = PairWorld()
    again.hardware.entries, again.software.entries = world.hardware.entries, world.software.entries
    assert again.forwarding()
    again.pair.routes.place(1, Placement.SOFTWARE, Placement.HARDWARE)
    assert again.pair.move(1) == MoveView("software", "hardware", 0, 0)  # so that it can be taken back already
    stored = replace(router_config(1, (1, 2), placement=Placement.SOFTWARE), came_from=Placement.HARDWARE)
    await again.start(stored)
    assert moving(again) == MoveView("software", "hardware", 0, 0)
    await again.until(lambda: again.pair._adopted)
    total = len(world.forwarding())
    assert moving(again) == MoveView("software", "hardware", 0, total)
    await again.pair.work()
    assert moving(again) is None
    assert not again.forwarding()
    assert set(again.in_hardware().values()) >= {FALLBACK}


@pytest.mark.usefixtures("small_rounds")
async def test_an_abort_goes_back_the_way_it_came() -> None:
    world = await made()
    while await world.pair.work():
        pass
    held = dict(world.in_hardware())
    await place(world, Placement.SOFTWARE)
    await world.pair.work()
    assert len(world.in_hardware()) < len(held)
    await place(world, Placement.HARDWARE)
    move = moving(world)
    assert move is not None
    assert (move.to, move.before) == ("hardware", "hardware")
    while moving(world) is not None:
        await world.pair.work()
    assert world.in_hardware() == held
