"""The hardware of a pair while the software behind it is away: it follows what changes, and the software later."""

import ipaddress
import random

import pytest
from pairs import LINK, PairWorld
from test_pair import learned, made, packet, port_of, verified
from worlds import gateway, router_config

from controller.errors import PlaneUnreachable
from controller.model import Placement
from controller.planes.base import UNREACHABLE, RouteUpdates, WriteBatch
from controller.rib import SetKind
from wire.columns import prefix_key

AWAY = (
    "plane f1 is not connected: routes that are in software alone stay as they were until it is back; start it again"
)


async def quiet(world: PairWorld) -> None:
    """Wait until the routes that were learned are confirmed."""
    router = world.router()
    await world.until(lambda: not router.fib.busy_ahead and not router.fib.in_flight)


async def back(world: PairWorld) -> None:
    world.software.connect()
    await world.until(lambda: world.pair.connected)
    await world.settle()
    await world.pair.work()


async def test_only_routers_with_something_in_software_alone_are_degraded() -> None:
    world = await made(router_config(1, (1, 2)), router_config(2, (3,), placement=Placement.SOFTWARE))
    await learned(world)
    await world.settle(2)
    world.connect(2)
    world.router(2).define_set(1, SetKind.FORWARD, [(3, gateway(3), 1)])
    world.learn({"20.0.0.0/16": 1}, 2)
    world.router(2).resync_end(True)
    await world.settle(2)
    world.software.disconnect()
    assert (world.core.router_view(1).state, world.core.router_view(1).reason) == ("up", "")
    assert (world.core.router_view(2).state, world.core.router_view(2).reason) == ("degraded", AWAY)
    (view, behind) = world.core.plane_views()
    assert (view.connected, view.reason) == (False, "plane f1 is not connected")
    assert not world.router().plane.silent
    assert not behind.connected
    world.software.connect()
    await world.settle(2)
    assert [world.core.router_view(one).state for one in (1, 2)] == ["up", "up"]


async def test_a_move_waits_for_the_software() -> None:
    world = await made()
    await learned(world)
    world.software.disconnect()
    await world.core.put_router(router_config(1, (1, 2), placement=Placement.SOFTWARE))
    assert not await world.pair.work()
    assert world.forwarding()
    view = world.core.router_view(1)
    assert view.move is not None
    assert view.reason == "plane f1 is not connected: the move waits until it is back; start it again"
    await world.core.put_router(router_config(1, (1, 2)))  # an abort of what has not begun
    assert world.core.router_view(1).move is None
    await world.core.put_router(router_config(1, (1, 2), placement=Placement.SOFTWARE))
    await back(world)
    assert not world.forwarding()
    assert world.core.router_view(1).state == "up"


async def test_the_hardware_follows_the_routes_and_the_software_later() -> None:
    world = await made()
    await learned(world)
    world.software.disconnect()
    world.learn({"20.1.0.0/16": 1, "20.9.0.0/16": 2})
    await quiet(world)
    assert world.router().fib.prefixes.unconfirmed == 0
    ports = []
    for address in ("20.1.0.1", "20.9.0.1"):
        world.hardware.inject(1, packet(address))
        ports.append(world.sent.pop()[0])
    assert ports == [1, 2]
    assert prefix_key("20.9.0.0/16") not in world.in_software()
    world.hardware.writes.clear()
    await back(world)
    assert prefix_key("20.9.0.0/16") in world.in_software()
    assert not [batch for batch in world.hardware.writes if any(map(len, batch.routes))]  # it never goes back
    assert (await verified(world)).equal


async def test_a_withdrawn_route_is_unreachable_though_the_software_has_it() -> None:
    world = await made()
    await learned(world)
    world.software.disconnect()
    key = prefix_key("20.1.0.0/16")
    world.learn({"20.1.0.0/16": 0})
    await quiet(world)
    assert key in world.in_software()
    world.hardware.inject(1, packet("20.1.0.1"))
    assert not world.sent
    assert world.core.router_view(1).state == "up"
    world.learn({"20.0.0.0/8": 2})  # a route around it
    await quiet(world)
    assert world.in_hardware().get(key) != UNREACHABLE
    world.hardware.inject(1, packet("20.1.0.1"))
    assert [port for port, _ in world.sent] == [2]
    world.learn({"20.0.0.0/8": 0, "20.2.0.0/16": 0})
    await quiet(world)
    unreachable = [one for one, action in world.in_hardware().items() if action == UNREACHABLE]
    assert unreachable == [prefix_key("20.2.0.0/16")]
    world.learn({"20.2.0.0/16": 1})
    await quiet(world)
    world.hardware.inject(1, packet("20.2.0.1"))
    assert [port for port, _ in world.sent] == [2, 1]
    world.learn({"20.2.0.0/16": 0})
    await quiet(world)
    await back(world)
    assert key not in world.in_software()
    assert UNREACHABLE not in world.in_hardware().values()
    assert (await verified(world)).equal


async def test_a_port_that_fails_is_no_way_for_the_hardware_any_more() -> None:
    world = await made()
    world.connect()
    router = world.router()
    router.define_set(1, SetKind.FORWARD, [(1, gateway(1), 1), (2, gateway(2), 1)])
    world.learn({"20.0.0.0/8": 1})
    router.resync_end(True)
    await world.settle()
    await world.pair.work()
    ((before,),) = [world.hardware.entries.groups.values()]
    assert len(before.members) == 2
    world.software.disconnect()
    world.hardware.set_port(2, "p2", up=False)
    await quiet(world)
    ((after,),) = [world.hardware.entries.groups.values()]
    assert len(after.members) == 1
    ((stale,),) = [world.software.entries.groups.values()]
    assert len(stale.members) == 2
    await back(world)
    assert world.software.entries.groups == world.hardware.entries.groups
    assert (await verified(world)).equal


async def test_an_interface_waits_for_both() -> None:
    """Or its VLAN could be another tenant's while the software still leads it to this one's routes."""
    world = await made()
    await learned(world)
    vlan = world.software.entries.router_interfaces[2].vlan
    world.software.disconnect()
    with pytest.raises(PlaneUnreachable):
        await world.core.put_router(router_config(1, (1,)))
    await quiet(world)
    assert 2 in world.hardware.entries.router_interfaces
    assert world.pair._vlans.of(2) == vlan
    await back(world)
    for plane in (world.hardware, world.software):
        assert set(plane.entries.router_interfaces) == {1}


async def test_a_batch_under_which_the_software_goes_reaches_the_hardware() -> None:
    world = await made()
    await learned(world)
    world.software.gate.clear()
    world.learn({"20.1.0.0/16": 1})
    await world.until(
        lambda: world.in_software()[prefix_key("20.1.0.0/16")] == world.in_software()[prefix_key("20.0.0.0/16")]
    )
    world.software.disconnect()
    world.software.gate.set()
    await quiet(world)
    world.hardware.inject(1, packet("20.1.0.1"))
    assert [port for port, _ in world.sent] == [1]
    await back(world)
    assert (await verified(world)).equal


async def test_a_hardware_that_goes_as_well_is_read_back_with_the_software() -> None:
    world = await made()
    await learned(world)
    world.software.disconnect()
    world.learn({"20.1.0.0/16": 1})
    await quiet(world)
    world.hardware.disconnect()
    view = world.core.router_view(1)
    assert (view.state, view.reason) == ("no-plane", "plane s1: plane s1 is not connected")
    assert world.router().plane.silent  # its guest's probes reach nobody now
    world.learn({"20.1.0.0/16": 0, "20.9.0.0/16": 2})
    world.hardware.connect()
    assert not world.pair.ahead
    assert world.core.router_view(1).state == "no-plane"
    await back(world)
    assert (await verified(world)).equal
    assert prefix_key("20.9.0.0/16") in world.forwarding()


async def test_a_software_that_lost_everything_is_filled_while_the_hardware_goes_on() -> None:
    world = await made()
    await learned(world)
    links = {i: one.fallback for i, one in world.hardware.entries.router_interfaces.items()}
    world.software.disconnect()
    world.learn({"20.1.0.0/16": 0})
    await quiet(world)
    held = world.software.entries
    for entries in (held.routes, held.router_interfaces, held.nexthops, held.policers, held.groups):
        entries.clear()
    before = dict(world.in_hardware())
    assert before.pop(prefix_key("20.1.0.0/16")) == UNREACHABLE  # what the software has no more need not be said
    await back(world)
    assert world.in_hardware() == before
    assert {i: one.fallback for i, one in world.hardware.entries.router_interfaces.items()} == links
    assert (await verified(world)).equal


NESTED = sorted(
    {
        str(ipaddress.ip_network(f"20.{second}.0.0/{length}", strict=False))
        for second in (0, 16, 32, 128)
        for length in (8, 9, 10, 12, 16)
    }
)


class Watched:
    """Sends packets between all writes to the hardware, and tells whether each went as it may.

    What the hardware routes itself goes as routes say or said before the latest change; what takes the link may go as
    they said since the software was away.
    """

    def __init__(self, world: PairWorld, rng: random.Random) -> None:
        self.truths: list[dict[str, int]] = [{}]  # since the software was away
        self.world, self.rng, self.over_link = world, rng, 0
        self._write, self._transmit, self._linked = world.hardware.write, world.hardware.cables, False
        world.hardware.write, world.hardware.cables = self.write, self.transmit

    def transmit(self, port: int, frame: bytes) -> None:
        self._linked = self._linked or port == LINK
        self._transmit(port, frame)

    def check(self) -> None:
        for second in (0, 1, 17, 33, 64, 129, 200):
            self.world.sent.clear()
            self._linked = False
            self.world.hardware.inject(1, packet(f"20.{second}.9.9"))
            self.over_link += self._linked
            (found,) = [port for port, _ in self.world.sent] or [None]
            may = self.truths if self._linked else self.truths[-2:]
            assert found in {port_of(f"20.{second}.9.9", table) for table in may}, (second, self._linked, may)

    async def write(self, batch: WriteBatch) -> list:
        routes, batch.routes = batch.routes, []
        refused = await self._write(batch)
        self.check()
        for columns in routes:
            one_by_one = list(zip(columns.ops, columns.keys, columns.actions, strict=True))
            self.rng.shuffle(one_by_one)
            for op, key, action in one_by_one:
                one = RouteUpdates(columns.vrf_id, columns.family, [op], [key], [action])
                refused += await self._write(WriteBatch(routes=[one]))
                self.check()
        return refused


@pytest.mark.parametrize(("seed", "room"), [(0, 0), (1, 12)])
async def test_the_hardware_is_right_or_falls_back_at_every_moment(seed: int, room: int) -> None:
    rng = random.Random(seed)
    world = await made(room=room)
    await learned(world, {"20.0.0.0/8": 1})
    watched = Watched(world, rng)
    watched.truths = [{"20.0.0.0/8": 1}]
    away = 0
    for _ in range(50):
        if rng.random() < 0.1:
            if world.software.connected:
                world.software.disconnect()
            else:
                await back(world)
                del watched.truths[:-1]
        away += not world.software.connected
        name, wanted = rng.choice(NESTED), rng.choice([0, 0, 0, 1, 2])
        truth = {one: port for one, port in watched.truths[-1].items() if one != name}
        watched.truths.append(truth | ({name: wanted} if wanted else {}))
        world.learn({name: wanted})
        await quiet(world)
        if rng.random() < 0.5:
            world.clock.now += 1
            await world.pair.work()
        if world.software.connected:
            del watched.truths[:-1]
        watched.check()
    assert away
    if not world.software.connected:
        await back(world)
    assert world.router().state == ("up", "")
    assert UNREACHABLE not in world.in_hardware().values()
    assert (await verified(world)).equal
