"""A fallback that comes back with nothing while the hardware has kept what it had: that goes on forwarding."""

import asyncio
from collections.abc import Collection, Iterator
from dataclasses import replace
from typing import Any

import pytest
from pairs import FAR, LINK, PairWorld, every, learned, made, packet, started, verified
from worlds import gateway, interface, mac, router_config

from controller.diagnostics.verify import longest_match
from controller.errors import PlaneUnreachable
from controller.fallback import recovery
from controller.fallback.recovery import Withdrawn, has_lost_routes
from controller.model import Placement, Quota
from controller.planes.base import FALLBACK, LOCAL, UNREACHABLE, Installed, Op, RouteKind, WriteBatch, route_action
from controller.routing.rib import SetKind
from controller.shard.unclaimed import UnclaimedObjects
from wire.columns import prefix_key

ONE, TWO = (route_action(RouteKind.NEXTHOP, number) for number in (1, 2))


def empty(world: PairWorld) -> None:
    """Take everything from the software."""
    held = world.software.entries
    for entries in (held.routes, held.router_interfaces, held.nexthops, held.policers, held.groups):
        entries.clear()


class Watched:
    """Sends packets by routes that the hardware has between all its writes: each arrives, and none takes the link,
    unless it may change places with others for want of room."""

    def __init__(self, world: PairWorld, routes: dict[str, int], may_link: bool = False) -> None:
        self.world, self.routes, self.may_link, self.linked = world, routes, may_link, False
        self._write, self._transmit = world.hardware.write, world.hardware.cables
        world.hardware.write, world.hardware.cables = self.write, self.transmit
        self.check()

    def transmit(self, port: int, frame: bytes) -> None:
        self.linked = self.linked or port == LINK
        self._transmit(port, frame)

    async def write(self, batch: WriteBatch) -> list:
        refused = await self._write(batch)
        self.check()
        return refused

    def check(self) -> None:
        ports = {prefix_key(name): port for name, port in self.routes.items()}
        for name in self.routes:
            self.world.sent.clear()
            address = name.split("/")[0][:-1] + "1"
            self.world.hardware.inject(1, packet(address))
            assert [port for port, _ in self.world.sent] == [_match(ports, prefix_key(f"{address}/32"))], address
        assert self.may_link or not self.linked


def _match(routes: dict[bytes, int], host: bytes) -> int | None:
    found = longest_match(routes, 4, int.from_bytes(host[:-1], "big"))
    return None if found is None else routes[found]


async def relearned(world: PairWorld, routes: dict[str, int], end: bool = True) -> None:
    """Let the VRC repeat what it knows, one route at a time."""
    await world.router().plane_known()
    world.connect()
    router = world.router()
    router.define_set(1, SetKind.FORWARD, [(1, gateway(1), 1)])
    router.define_set(2, SetKind.FORWARD, [(2, gateway(2), 1)])
    for name, number in routes.items():
        world.learn({name: number})
        await world.settle()
        await world.pair.work()
    if end:
        router.resync_end(True)
        await world.settle()
        world.shards.by_plane["s1"].follow(router)
        await world.pair.work()


async def test_nothing_is_left_of_a_router_that_both_lost_while_it_was_removed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = await made(router_config(1, (1, 2)), replace(router_config(2, ()), interfaces=(interface(3),)))
    await learned(world)
    world.hardware.disconnect()
    world.hardware.entries = Installed()
    with pytest.raises(PlaneUnreachable):
        await world.shards.remove_router(2)
    read = world.pair.read

    async def lose(*asked: Any) -> Installed:
        found = await read(*asked)
        monkeypatch.undo()
        world.software.disconnect()
        empty(world)
        world.software.connect()
        return found

    monkeypatch.setattr(world.pair, "read", lose)
    world.hardware.connect()
    await world.until(lambda: world.pair.read == read)
    await world.shards.remove_router(2)
    await world.pair.work()
    assert world.pair.routes.routers == {1}
    assert not world.in_hardware(2)


async def test_nothing_is_kept_of_a_router_that_nobody_declares_though_the_fallback_has_lost_its_routes() -> None:
    former = await made(router_config(1, (1, 2)), replace(router_config(2, ()), interfaces=(interface(3),)))
    await learned(former)
    await learned(former, {}, {}, vrf_id=2)
    assert former.in_hardware(2)
    world = PairWorld()
    world.hardware.entries, world.software.entries = former.hardware.entries, former.software.entries
    for held in (world.hardware.entries, world.software.entries):
        del held.policers[2]
    del world.software.entries.routes[2]
    await world.start(router_config(1, (1, 2)))
    await world.until(lambda: world.pair._adopted)
    await world.pair.work()
    assert not world.in_hardware(2)


@pytest.mark.parametrize("room", [0, 12])
async def test_a_new_controller_finds_the_fallback_empty(room: int) -> None:
    config = router_config(1, (1, 2), placement=Placement.HARDWARE)
    world = await made(config, room=room)
    await learned(world)
    held = dict(world.in_hardware())
    there = {name: number for name, number in FAR.items() if _match(held, prefix_key(name)) != FALLBACK}
    assert 0 < len(there) <= len(FAR)
    again = PairWorld(room=room)
    again.hardware.entries = world.hardware.entries
    await again.start(config)
    watched = Watched(again, there, may_link=bool(room))
    await again.until(lambda: again.pair._adopted)
    await again.settle()
    await again.pair.work()
    watched.check()
    await relearned(again, FAR)
    watched.check()
    assert room or again.in_hardware() == held
    assert again.in_software() == world.in_software()
    assert again.software.entries.policers == world.software.entries.policers
    assert (await verified(again)).equal


async def test_both_were_away_and_the_fallback_comes_back_empty() -> None:
    world = await made()
    await learned(world)
    before, software = dict(world.in_hardware()), dict(world.in_software())
    watched = Watched(world, FAR)
    world.hardware.disconnect()
    world.software.disconnect()
    empty(world)
    world.software.connect()
    world.hardware.connect()
    await world.until(lambda: world.pair._adopted)
    await world.settle()
    await world.pair.work()
    watched.check()
    assert world.in_hardware() == before
    assert world.in_software() == software
    assert (await verified(world)).equal


async def test_what_moves_out_of_hardware_meanwhile_is_in_the_software_by_then() -> None:
    world = await made()
    await learned(world)
    world.software.disconnect()
    empty(world)
    world.pair.routes.place(1, Placement.SOFTWARE)
    write = world.hardware.write

    async def watched(batch: WriteBatch) -> list:
        refused = await write(batch)
        for name in FAR:
            world.sent.clear()
            world.hardware.inject(1, packet(name.split("/")[0][:-1] + "1"))
            assert [port for port, _ in world.sent] == [FAR[name]], name
        return refused

    world.hardware.write = watched
    world.software.gate.clear()
    world.software.connect()
    await world.until(lambda: bool(world.software.entries.routes))
    assert not await world.pair.work()  # not before the software has them
    assert world.forwarding()
    world.software.gate.set()
    await world.settle()
    await world.pair.work()
    assert not world.forwarding()
    assert (await verified(world)).equal


async def test_a_hardware_that_goes_while_it_is_read_is_read_again() -> None:
    world = await made()
    await learned(world)
    world.hardware.disconnect()
    world.software.disconnect()
    empty(world)
    world.software.gate.clear()
    world.software.connect()
    world.hardware.connect()
    await world.until(lambda: bool(world.software.entries.policers))
    world.hardware.disconnect()
    world.software.gate.set()
    for _ in range(20):
        await asyncio.sleep(0)
    assert not world.pair._adopted
    world.hardware.connect()
    await world.until(lambda: world.pair._adopted)
    await world.settle()
    await world.pair.work()
    assert (await verified(world)).equal


async def test_what_the_guest_has_no_more_leaves_when_it_has_said_so() -> None:
    world = await made()
    await learned(world)
    again = PairWorld()
    again.hardware.entries = world.hardware.entries
    await again.start(router_config(1, (1, 2)))
    await again.until(lambda: again.pair._adopted)
    held = dict(again.in_hardware())
    less = {name: number for name, number in FAR.items() if name != "20.1.0.0/16"} | {"20.2.0.0/16": 2}
    await relearned(again, less, end=False)
    assert again.in_hardware() == held
    again.router().resync_end(True)
    again.shards.by_plane["s1"].follow(again.router())
    await again.pair.work()
    assert (await verified(again)).equal
    again.hardware.inject(1, packet("20.1.0.1"))
    assert not again.sent
    again.hardware.inject(1, packet("20.2.0.1"))
    assert [port for port, _ in again.sent] == [2]


async def test_a_hardware_that_is_emptied_meanwhile_sends_all_to_the_fallback() -> None:
    """Nothing is left there that could stay as it is, and the guest's daemons may settle minutes later."""
    world = await made()
    await learned(world)
    again = PairWorld()
    again.hardware.entries = world.hardware.entries
    await started(again)
    await relearned(again, FAR, end=False)
    assert again.pair.routes.writes.frozen == {1}
    again.hardware.disconnect()
    again.hardware.entries = Installed()
    again.hardware.connect()
    await again.until(lambda: again.pair._adopted)
    await again.settle()
    Watched(again, FAR, may_link=True).check()
    assert (await verified(again)).equal


async def test_what_routers_have_not_adopted_is_read_again_where_the_fallback_is_lost_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It had a route that it was not told the end of; the hardware had that from it, and the router never knew."""
    world = await made()
    await learned(world)
    gone = prefix_key("20.1.0.0/16")
    world.software.disconnect()
    world.learn({"20.1.0.0/16": 0})
    await world.until(lambda: world.in_hardware().get(gone) == UNREACHABLE and not world.router().fib.busy_ahead)
    world.hardware.disconnect()
    adopts = UnclaimedObjects.adopt

    def adopt(*given: Any) -> Iterator[None]:
        monkeypatch.undo()
        world.software.disconnect()
        empty(world)
        world.software.connect()
        yield from adopts(*given)

    monkeypatch.setattr(UnclaimedObjects, "adopt", adopt)
    world.software.connect()
    world.hardware.connect()
    await world.until(lambda: UnclaimedObjects.adopt is adopts and world.shards.by_plane["s1"].mirror.adopted)
    await world.settle()
    await world.pair.work()
    assert (await verified(world)).equal
    assert world.in_hardware().get(gone) is None


async def test_who_is_declared_while_both_are_adopted_is_in_the_quota_of_its_slice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What the planes have under its id was opened before, as of no slice."""
    former = await made()
    await learned(former)
    world, config = PairWorld(), router_config(1, (1, 2), quota=Quota(hardware_ipv4_routes=3))
    world.hardware.entries, world.software.entries = former.hardware.entries, former.software.entries
    read = world.pair.read

    async def declare(*asked: Any) -> Installed:
        found = await read(*asked)
        monkeypatch.undo()
        await world.shards.put_router(config)
        return found

    monkeypatch.setattr(world.pair, "read", declare)
    await world.start()
    await world.until(lambda: world.shards.by_plane["s1"].mirror.adopted)
    assert world.in_hardware()
    await learned(world)
    await world.pair.work()
    assert world.views.slice_usage("red", "s1")["hardware_ipv4_routes"] == 3
    assert (await verified(world)).equal


async def test_a_router_that_is_deleted_meanwhile_leaves_the_hardware() -> None:
    world = await made()
    await learned(world)
    again = PairWorld()
    again.hardware.entries = world.hardware.entries
    await again.start()
    await again.until(lambda: not again.in_hardware() and not again.hardware.entries.policers)
    assert not again.hardware.entries.router_interfaces
    again = PairWorld()
    world = await made()
    await learned(world)
    again.hardware.entries = world.hardware.entries
    await again.start(router_config(1, (1, 2)))
    await again.until(lambda: again.pair._adopted)
    await again.shards.remove_router(1)
    assert not again.in_hardware()


async def test_a_nexthop_of_the_default_route_that_is_refused_meanwhile_holds_nobody_up() -> None:
    """What the hardware still has of a router is not what it is to have: there is nothing to do without."""
    routes = FAR | {"0.0.0.0/0": 1}
    world = await made()
    await learned(world, routes)
    again = PairWorld()
    again.hardware.entries = world.hardware.entries
    await again.start(router_config(1, (1, 2)))
    await again.until(lambda: again.pair._adopted)
    held = dict(again.in_hardware())
    await relearned(again, routes, end=False)
    again.hardware.fault = lambda table, key, op: "busy" if table == "nexthop" and op is not Op.DELETE else None
    list(again.router().neighbors([(n, gateway(n), mac(200 + n), False) for n in (1, 2)]))
    again.learn({"20.1.2.0/24": 1})
    await again.settle()
    assert again.pair.refusals == {"nexthop": 2}
    assert again.in_hardware() == held
    again.router().resync_end(True)
    again.shards.by_plane["s1"].follow(again.router())
    for fault in (again.hardware.fault, lambda table, key, op: None):
        again.hardware.fault = fault
        again.clock.now += 31
        await again.pair.work()
        again.sent.clear()
        for address in ("20.1.2.1", "20.1.3.1"):
            again.hardware.inject(1, packet(address))
        assert [(port, frame[:6]) for port, frame in again.sent] == [(1, mac(201)), (2, mac(202))]
    assert (await verified(again)).equal
    assert "task-failed" not in {event.kind for event in again.events.recent()}


def table(*routes: tuple[str, int]) -> dict[bytes, int]:
    return {prefix_key(name): action for name, action in routes}


def lost(hardware: dict[bytes, int], software: Collection[bytes]) -> bool:
    found = []

    def steps() -> Iterator[None]:
        found.append((yield from has_lost_routes(hardware, software)))

    every(steps())
    return found[0]


@pytest.mark.parametrize("prefixes", [["20.0.0.0/8"], [f"20.{n}.0.0/15" for n in range(0, 256, 2)]])
def test_whether_routes_are_lost_is_looked_for_in_steps_however_many_are_inside_a_prefix(
    monkeypatch: pytest.MonkeyPatch, prefixes: list[str]
) -> None:
    monkeypatch.setattr(recovery, "STEP_ROUTES", 5)
    hardware = table(*((name, ONE) for name in prefixes))
    software = table(*((f"20.{n}.0.0/16", ONE) for n in range(256)))
    assert sum(1 for _ in has_lost_routes(hardware, software)) > 256 / 5


def test_routes_are_lost_where_the_software_has_none_for_what_the_hardware_forwards() -> None:
    whole = table(("0.0.0.0/0", FALLBACK), ("20.0.0.0/8", ONE), ("20.1.0.0/16", FALLBACK))
    halves = table(("20.0.0.0/9", ONE), ("20.128.0.0/10", ONE), ("20.192.0.0/10", TWO))
    assert not lost(whole, whole)
    assert not lost(whole, halves)
    assert not lost(whole, table(("16.0.0.0/4", TWO)))
    for one in halves:
        assert lost(whole, halves.keys() - {one})
    assert lost(whole, ())
    assert lost(whole, table(("20.1.0.0/16", TWO)))
    assert not lost(table(("0.0.0.0/0", FALLBACK), ("20.0.0.0/8", UNREACHABLE)), ())
    assert lost(table(("2001:db8::1/128", LOCAL)), table(("0.0.0.0/0", ONE)))


BLOCKS = {f"20.0.{16 * n}.0/20": n % 2 + 1 for n in range(4)} | {
    f"20.0.{16 * n + 2 * part}.0/24": (n + 1) % 2 + 1 for n in range(4) for part in range(8)
}


async def test_what_was_one_entry_in_hardware_is_many_routes_again() -> None:
    world = await made()
    await learned(world, BLOCKS)
    software = dict(world.in_software())
    world.software.disconnect()
    empty(world)
    watched = Watched(world, BLOCKS)
    world.software.connect()
    await world.until(lambda: not world.pair._behind)
    await world.settle()
    assert world.in_software() == software
    watched.check()
    again = PairWorld()
    again.hardware.entries = world.hardware.entries
    await again.start(router_config(1, (1, 2)))
    watched = Watched(again, BLOCKS)
    await again.until(lambda: again.pair._adopted)
    await relearned(again, BLOCKS)
    watched.check()
    assert again.in_software() == software


def test_withdrawn_prefixes_are_forgotten_where_a_route_comes_and_others_are_not_touched() -> None:
    withdrawn = Withdrawn(4)
    inside, beside, apart = (prefix_key(text) for text in ("20.1.0.0/16", "20.2.0.0/16", "30.0.0.0/8"))
    withdrawn.add([inside, beside])
    assert withdrawn.displaced({apart: ONE, beside: None}) == {}
    assert withdrawn.displaced({inside: ONE, apart: ONE}) == {inside: None}
    assert withdrawn.displaced({prefix_key("20.0.0.0/8"): ONE}) == {beside: None}
