"""The hardware of a pair while the software behind it is away: it follows what changes, and the software later."""

import asyncio
from typing import Any

import pytest
from pairs import TWO_WAYS, PairWorld, back, learned, made, packet, quiet, verified
from worlds import gateway, mac, plane_view, router_config

from controller.errors import PlaneUnreachable
from controller.model import Placement
from controller.planes.base import UNREACHABLE, Installed, Op, Refused, WriteBatch
from controller.routing.rib import SetKind
from controller.shard import mirror
from wire.columns import prefix_key

AWAY = (
    "plane f1 is not connected: routes that are in software alone stay as they were until it is back; start it again"
)


async def test_only_routers_with_something_in_software_alone_are_degraded() -> None:
    world = await made(router_config(1, (1, 2)), router_config(2, (3,), placement=Placement.SOFTWARE))
    await learned(world)
    await learned(world, {"20.0.0.0/16": 1}, {1: [(3, gateway(3), 1)]}, vrf_id=2)
    world.software.disconnect()
    assert (world.views.router_view(1).state, world.views.router_view(1).reason) == ("up", "")
    assert (world.views.router_view(2).state, world.views.router_view(2).reason) == ("degraded", AWAY)
    view, behind = await plane_view(world, "s1"), await plane_view(world, "f1")
    assert (view.connected, view.reason) == (False, "plane f1 is not connected")
    assert not world.router().host.silent
    assert not behind.connected
    world.software.connect()
    await world.settle(2)
    assert [world.views.router_view(one).state for one in (1, 2)] == ["up", "up"]


async def test_a_move_waits_for_the_software() -> None:
    world = await made()
    await learned(world)
    world.software.disconnect()
    await world.shards.put_router(router_config(1, (1, 2), placement=Placement.SOFTWARE))
    assert not await world.pair.work()
    assert world.forwarding()
    view = world.views.router_view(1)
    assert view.move is not None
    assert view.reason == "plane f1 is not connected: the move waits until it is back; start it again"
    await world.shards.put_router(router_config(1, (1, 2)))  # an abort of what has not begun
    assert world.views.router_view(1).move is None
    await world.shards.put_router(router_config(1, (1, 2), placement=Placement.SOFTWARE))
    await back(world)
    assert not world.forwarding()
    assert world.views.router_view(1).state == "up"


async def test_the_hardware_goes_ahead_though_the_software_went_while_the_unclaimed_were_deleted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """After a restart of the controller, of one route that leaves by another neighbor now."""
    monkeypatch.setattr(mirror, "TIDY_S", 0.01)
    other = bytes((10, 0, 2, 77))
    former = await made(router_config(1, (1, 2)))
    await learned(former, {"20.0.0.0/8": 1})
    list(former.router().neighbors([(2, other, mac(177), False)]))
    former.router().define_set(3, SetKind.FORWARD, [(2, other, 1)])
    former.learn({"20.1.0.0/16": 3})
    await former.settle()
    await former.pair.work()
    await former.close()
    world = PairWorld()
    world.hardware.entries, world.software.entries = former.hardware.entries, former.software.entries
    await world.start(router_config(1, (1, 2)))
    await world.until(lambda: world.shards.of_plane("s1").mirror.adopted)
    world.connect()
    world.router().define_set(1, SetKind.FORWARD, [(1, gateway(1), 1)])
    world.learn({"20.0.0.0/8": 1, "20.1.0.0/16": 1})
    write, deleting, goes_on = world.hardware.write, asyncio.Event(), asyncio.Event()

    async def slow(batch: WriteBatch) -> list[Refused]:
        if any(one.op is Op.DELETE for one in batch.nexthops):
            deleting.set()
            await goes_on.wait()
        return await write(batch)

    monkeypatch.setattr(world.hardware, "write", slow)
    world.router().resync_end(True)
    await world.settle()
    await deleting.wait()
    world.software.disconnect()
    for _ in range(20):
        await asyncio.sleep(0)
    goes_on.set()
    world.learn({"20.1.0.0/16": 0, "20.0.0.0/8": 0})
    await world.until(lambda: world.in_hardware().get(prefix_key("20.0.0.0/8")) == UNREACHABLE)
    world.hardware.inject(1, packet("20.1.0.9"))
    assert world.sent == []


async def test_the_hardware_follows_the_routes_and_the_software_later() -> None:
    world = await made()
    await learned(world)
    world.software.disconnect()
    world.learn({"20.1.0.0/16": 1, "20.9.0.0/16": 2})
    await quiet(world)
    assert world.router().fib.unconfirmed == 0
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
    assert world.views.router_view(1).state == "up"
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
    await learned(world, {"20.0.0.0/8": 1}, TWO_WAYS)
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


async def back_while(world: PairWorld, routes: dict[str, int]) -> None:
    """Bring the software back; these routes are learned while it is read."""
    read, was_read, taken = world.software.read, asyncio.Event(), asyncio.Event()

    async def slow(*args):
        found = await read(*args)
        was_read.set()
        await taken.wait()
        return found

    world.software.read = slow
    world.software.connect()
    await was_read.wait()
    world.software.read = read
    world.learn(routes)
    taken.set()
    await world.settle()
    await world.pair.work()


@pytest.mark.parametrize(
    ("ahead", "then"),
    [
        ({"20.1.0.0/16": 2}, {"20.1.0.0/16": 0}),  # a longer prefix came and went
        ({"20.0.0.0/8": 2}, {"20.0.0.0/8": 1}),  # changed, and back
        ({"20.0.0.0/8": 0}, {"20.0.0.0/8": 1}),  # withdrawn, and back
    ],
)
async def test_what_is_as_the_software_has_it_again_when_that_is_back(ahead, then) -> None:
    world = await made()
    await learned(world, {"20.0.0.0/8": 1})
    world.software.disconnect()
    world.learn(ahead)
    await quiet(world)
    await back_while(world, then)
    world.hardware.inject(1, packet("20.1.0.9"))
    assert [port for port, _ in world.sent] == [1]
    assert (await verified(world)).equal


async def test_what_the_software_has_lost_and_the_guest_withdrew_when_it_is_back() -> None:
    world = await made()
    await learned(world, {"20.0.0.0/8": 1, "20.1.0.0/16": 2})
    world.software.disconnect()
    del world.in_software()[prefix_key("20.1.0.0/16")]
    await back_while(world, {"20.1.0.0/16": 0})
    world.hardware.inject(1, packet("20.1.0.9"))
    assert [port for port, _ in world.sent] == [1]


async def test_a_batch_under_which_the_software_goes_and_comes_back_reaches_the_hardware() -> None:
    """Or nobody would know that the hardware still has what was written ahead."""
    world = await made()
    await learned(world, {"20.0.0.0/8": 1})
    world.software.disconnect()
    world.learn({"20.0.0.0/8": 2})
    await quiet(world)
    write = world.software.write

    async def reset(_batch):
        world.software.write = write
        world.software.disconnect()
        world.software.connect()
        raise PlaneUnreachable("f1", "connection reset")

    world.software.write = reset
    await back_while(world, {"20.0.0.0/8": 1})
    assert world.software.write is write
    world.hardware.inject(1, packet("20.1.0.9"))
    assert [port for port, _ in world.sent] == [1]
    assert (await verified(world)).equal


async def test_a_router_that_changes_all_the_time_stops_nobodys_placement_for_longer_than_it_is_filled() -> None:
    world = await made(router_config(1, (1, 2)), router_config(2, (3, 4), tenant="blue"))
    await learned(world)
    await learned(world, {"40.0.0.0/8": 3}, {n: [(n, gateway(n), 1)] for n in (3, 4)}, vrf_id=2)
    world.software.disconnect()
    write, batches = world.software.write, 0

    async def changing(batch):
        nonlocal batches
        batches += 1
        world.learn({"40.0.0.0/8": 4 - batches % 2}, 2)
        return await write(batch)

    world.learn({"40.0.0.0/8": 4}, 2)
    world.software.write = changing
    world.software.connect()
    await world.until(lambda: batches > 9)
    await world.shards.put_router(router_config(1, (1, 2), placement=Placement.SOFTWARE))
    await world.pair.work()
    assert not world.forwarding()
    assert not world.router(2).fib.idle
    world.software.write = write
    await world.settle(2)
    assert (await verified(world)).equal


async def test_a_router_that_nobody_declares_any_more_is_not_waited_for() -> None:
    """It was to be deleted when the plane was adopted, and the software went away under that."""
    former = await made(router_config(1, (1, 2)), router_config(2, (3,), tenant="blue"))
    await learned(former)
    world = PairWorld()
    world.hardware.entries, world.software.entries = former.hardware.entries, former.software.entries
    write = world.software.write

    async def lost(batch):
        world.software.write = write
        world.software.disconnect()
        return await write(batch)

    world.software.write = lost
    await world.start(router_config(1, (1, 2)))
    await world.until(lambda: world.pair._behind)
    assert world.pair.routes.routers == {1, 2}
    await back(world)
    assert world.pair.routes.routers == {1}
    await learned(world)
    await world.shards.put_router(router_config(1, (1, 2), placement=Placement.SOFTWARE))
    await world.pair.work()
    assert not world.forwarding()


async def test_an_interface_waits_for_both() -> None:
    """Or its VLAN could be another tenant's while the software still leads it to this one's routes."""
    world = await made()
    await learned(world)
    vlan = world.software.entries.router_interfaces[2].vlan
    world.software.disconnect()
    with pytest.raises(PlaneUnreachable):
        await world.shards.put_router(router_config(1, (1,)))
    await quiet(world)
    assert 2 in world.hardware.entries.router_interfaces
    assert world.pair._writer.vlans.of(2) == vlan
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
    view = world.views.router_view(1)
    assert (view.state, view.reason) == ("no-plane", "plane s1: plane s1 is not connected")
    assert world.router().host.silent  # its guest's probes reach nobody now
    world.learn({"20.1.0.0/16": 0, "20.9.0.0/16": 2})
    world.hardware.connect()
    assert not world.pair.ahead
    assert world.views.router_view(1).state == "no-plane"
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


async def test_an_interface_that_was_written_as_the_software_left_and_is_on_neither_has_no_vlan():
    """Or each of them would take one of 4,092 until the hardware connects anew."""
    world = await made()
    await learned(world)
    world.software.gate.clear()
    await world.shards.put_router(router_config(1, (1, 2, 3)))
    vlans = world.pair._writer.vlans._by_interface
    await world.until(lambda: 3 in vlans)
    world.software.disconnect()
    world.software.gate.set()
    await world.until(lambda: not world.router().fib.in_flight)
    with pytest.raises(PlaneUnreachable):
        await world.shards.put_router(router_config(1, (1, 2)))
    del world.software.entries.router_interfaces[3]
    await back(world)
    assert world.pair._writer.vlans._by_interface.keys() == {1, 2}


async def test_an_interface_that_goes_while_both_are_read_has_no_vlan_any_more() -> None:
    world = await made(router_config(1, (1, 2, 3)))
    await learned(world)
    read = world.software.read

    async def slow(*given: Any) -> Installed:
        found = await read(*given)
        await world.shards.put_router(router_config(1, (1, 2)))
        return found

    world.software.read = slow  # type: ignore[method-assign]
    await world.pair.read()
    assert world.pair._writer.vlans._by_interface.keys() == {1, 2}
