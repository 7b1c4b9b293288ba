"""An unexpected error in one router's work stops no other router of its plane."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from worlds import World, gateway, router_config

from controller.diagnostics.diagnostics import Diagnostics
from controller.errors import PlaneError
from controller.planes.base import Plane, PuntReason
from controller.routing.fib import Fib
from controller.routing.rib import NexthopSet, SetKind
from controller.shard.mirror import AUDIT_INTERVAL_S, PlaneMirror
from controller.shard.router import VirtualRouter
from controller.shard.shard import AFTER_FAULT_S
from wire.columns import prefix_key

MakeWorld = Callable[..., Awaitable[World]]
FAR = prefix_key("20.1.0.0/16")


async def made(make_world: MakeWorld) -> World:
    world = await make_world(*(router_config(n, (n,)) for n in (1, 2, 3)))
    for vrf_id in (1, 2, 3):
        world.connect(vrf_id)
        world.router(vrf_id).define_set(1, SetKind.FORWARD, [(vrf_id, gateway(vrf_id), 1)])
        world.router(vrf_id).resync_end(True)
        await world.settle(vrf_id)
    await world.shards.by_plane["s1"].tick()
    return world


def break_first(monkeypatch: pytest.MonkeyPatch, what: type, name: str) -> Callable[[], None]:
    """Have a method of the first router's fail, until what is returned is called."""
    whole = getattr(what, name)

    def broken(self: Fib | VirtualRouter, *given: object) -> object:
        if self.config.vrf_id == 1:
            raise RuntimeError("a bug")
        return whole(self, *given)

    monkeypatch.setattr(what, name, broken)
    return lambda: monkeypatch.setattr(what, name, whole)


def told(world: World) -> list[tuple[str, str]]:
    return [(one.subject, one.text) for one in world.events.recent() if one.kind in ("router-failed", "task-failed")]


@pytest.mark.parametrize(
    ("name", "what"),
    [("take", "what it has to write"), ("confirm", "what its plane has confirmed"), ("adopt", "what its plane has")],
)
async def test_the_others_are_written_and_it_is_tried_again_when_an_audit_is_due(
    make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch, name: str, what: str
) -> None:
    monkeypatch.setattr("controller.shard.mirror.TIDY_S", 0.0)
    world = await made(make_world)
    whole = break_first(monkeypatch, Fib, name)
    if name == "adopt":
        world.plane.disconnect()
        world.plane.connect()
    for vrf_id in (1, 2, 3):
        world.learn({"20.1.0.0/16": 1}, vrf_id)
    for vrf_id in (2, 3):
        await world.settle(vrf_id)
        assert FAR in world.installed(vrf_id)
    assert told(world) == [("red/r1", f"{what}: RuntimeError: a bug")]
    problem = f"a fault of the controller at {what}: tried again at the next audit; see vrctl events"
    assert world.router(1).state == ("degraded", problem)
    whole()
    world.clock.now += AUDIT_INTERVAL_S
    await world.until(lambda: world.router(1).state == ("up", ""))
    await world.settle(1)
    assert FAR in world.installed(1)


async def test_its_plane_is_read_anew_once_however_long_that_is_at_a_write(
    make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("controller.shard.mirror.TIDY_S", 0.0)
    world = await made(make_world)
    whole, begun = break_first(monkeypatch, Fib, "take"), 0

    def connected(self: PlaneMirror, plane: Plane) -> None:
        nonlocal begun
        begun += 1
        read_anew(self, plane)

    read_anew = PlaneMirror.plane_connected
    monkeypatch.setattr(PlaneMirror, "plane_connected", connected)
    world.learn({"20.1.0.0/16": 1}, 1)
    await world.until(lambda: told(world) != [])
    world.plane.gate.clear()
    world.forget_writes()
    world.learn({"20.1.0.0/16": 1}, 2)
    await world.until(lambda: world.plane.writes != [])
    whole()
    world.clock.now += AUDIT_INTERVAL_S
    await world.until(lambda: begun > 0)
    for _ in range(20):
        await asyncio.sleep(0)
    assert begun == 1
    world.plane.gate.set()
    await world.settle(1)
    assert FAR in world.installed(1)


async def test_what_is_due_of_the_others_is_done_and_its_own_later(
    make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = await made(make_world)
    shard = world.shards.by_plane["s1"]
    for vrf_id in (1, 2, 3):
        world.router(vrf_id).lost(world.router(vrf_id).vrc)
    world.clock.now += 1
    await shard.tick()
    whole = break_first(monkeypatch, VirtualRouter, "tick")
    world.clock.now += world.router(1).config.hold_time_s
    await shard.tick()
    assert [world.router(vrf_id).holds for vrf_id in (1, 2, 3)] == [True, False, False]
    whole()
    world.clock.now += AFTER_FAULT_S + 1
    await shard.tick()
    assert not world.router(1).holds


async def test_the_others_have_their_packets(make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    world = await made(make_world)
    break_first(monkeypatch, VirtualRouter, "speaks_for_itself")
    for vrf_id in (1, 2):
        world.plane.punt(vrf_id, PuntReason.LOCAL, bytes(60))
    await asyncio.sleep(0)
    assert told(world) == [("red/r1", "a punted packet: RuntimeError: a bug")]
    assert world.router(2).punts.lost.total() or any(map(len, world.router(2).punts._queues.values()))


@pytest.mark.parametrize("wait", ["removed", "given up", "converged"])
@pytest.mark.parametrize("first", [True, False])
async def test_who_waits_for_it_hears_why_it_is_in_vain(
    make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch, wait: str, first: bool
) -> None:
    monkeypatch.setattr("controller.shard.mirror.TIDY_S", 0.0)
    world = await made(make_world)
    whole = break_first(monkeypatch, Fib, "set_ports")

    def fail() -> None:
        world.plane.set_port(1, "p1", False)

    async def asked() -> None:
        if wait == "removed":
            await world.shards.remove_router(1)
        elif wait == "given up":
            await world.shards.ports_left(1, {1})
        else:
            await world.shards.converged(1)

    world.plane.gate.clear()
    world.learn({"20.1.0.0/16": 1}, 1)
    world.router(1).interface_states([(1, False, [])])
    await world.until(lambda: world.router(1).fib.in_flight > 0)  # or there is nothing that is waited for
    if first:
        fail()
    waiting = asyncio.create_task(asked())
    await asyncio.sleep(0)
    if not first:
        fail()
    with pytest.raises(PlaneError, match="a fault of the controller at a port that has changed"):
        await asyncio.wait_for(waiting, 10)
    whole()
    world.plane.gate.set()
    world.clock.now += AUDIT_INTERVAL_S
    await world.until(lambda: not world.shards.by_plane["s1"].mirror.fault(1))
    again = asyncio.create_task(asked())
    async with asyncio.timeout(10):
        while not again.done():
            await world.shards.by_plane["s1"].tick()  # which collects what was still in use when it was looked at
            await asyncio.sleep(0)
    await again


async def test_a_pass_over_its_tables_is_tried_again_with_the_rest(
    make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("controller.shard.mirror.TIDY_S", 0.0)
    monkeypatch.setattr("controller.supervisor.RESTART_S", 0.0)
    monkeypatch.setattr("controller.routing.fib.SLICE_COST", 1)
    world = await made(make_world)
    world.learn({f"20.{i}.0.0/16": 1 for i in range(1, 5)}, 1)
    await world.settle(1)
    world.connect(1)
    world.router(1).resync_end(True)
    assert world.router(1).fib.unfinished
    whole = break_first(monkeypatch, Fib, "advance")
    for _ in range(20):
        await asyncio.sleep(0)
    assert told(world) == [("red/r1", "a pass over its tables: RuntimeError: a bug")]
    assert world.router(1).state[0] == "degraded"
    whole()
    world.clock.now += AUDIT_INTERVAL_S
    await world.until(lambda: world.router(1).state[0] == "up")
    await world.settle(1)
    assert FAR not in world.installed(1)


async def test_nothing_is_written_of_it_that_waited_already(
    make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("controller.shard.mirror.TIDY_S", 0.0)
    world = await made(make_world)
    whole = break_first(monkeypatch, Fib, "set_ports")
    world.learn({"20.1.0.0/16": 1}, 1)
    world.plane.set_port(1, "p1", False)
    world.learn({"20.1.0.0/16": 1}, 2)
    await world.settle(2)
    assert (FAR in world.installed(1), world.router(1).fib.in_flight) == (False, 0)
    whole()
    world.clock.now += AUDIT_INTERVAL_S
    await world.until(lambda: FAR in world.installed(1))


@pytest.mark.parametrize("repair", [False, True])
@pytest.mark.parametrize("first", [False, True])
async def test_who_has_it_verified_hears_of_it_also_where_it_comes_meanwhile(
    make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch, first: bool, repair: bool
) -> None:
    world = await made(make_world)
    shard = world.shards.by_plane["s1"]
    break_first(monkeypatch, Fib, "set_ports")

    async def fail(router: VirtualRouter) -> dict[bytes, NexthopSet]:
        world.plane.set_port(1, "p1", False)
        await world.until(lambda: bool(shard.mirror.fault(1)))
        return router.fib.learned

    if first:
        await fail(world.router(1))
    monkeypatch.setattr(shard, "snapshot", fail)
    with pytest.raises(PlaneError, match="a fault of the controller at a port that has changed"):
        await Diagnostics(world.shards, world.clock).verify(1, repair)
