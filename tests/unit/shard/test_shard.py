"""A router with nothing to do costs nothing, and what comes in finds its router."""

import asyncio
from dataclasses import replace

import pytest
from worlds import FakeVrc, interface, router_config

from controller.errors import Conflict, NoSuch, PlaneUnreachable
from controller.fallback import pace
from controller.model import Quota
from controller.planes.base import PlaneListener, PuntReason
from controller.planes.fake import FakePlane
from controller.routing.rib import SetKind
from controller.shard.router import VirtualRouter
from wire.columns import prefix_key


async def rested(make_world, count: int = 3):
    world = await make_world(*(router_config(n, interfaces=(n,)) for n in range(1, count + 1)))
    for vrf_id in range(1, count + 1):
        world.connect(vrf_id)
        world.router(vrf_id).resync_end(True)
        world.learn({"20.0.0.0/8": 0}, vrf_id)
        await world.settle(vrf_id)
    for _ in range(3):
        world.clock.now += 20  # stale neighbors and hold times are over
        await world.shards.by_plane["s1"].tick()
    return world


def ticked(monkeypatch) -> list[int]:
    seen: list[int] = []
    tick = VirtualRouter.tick

    def noted(self: VirtualRouter) -> float:
        seen.append(self.config.vrf_id)
        return tick(self)

    monkeypatch.setattr(VirtualRouter, "tick", noted)
    return seen


async def test_only_a_router_that_something_happened_to_is_looked_at(make_world, monkeypatch):
    world = await rested(make_world)
    seen = ticked(monkeypatch)
    for _ in range(5):
        world.clock.now += 1
        await world.shards.by_plane["s1"].tick()
    assert seen == []
    world.learn({"20.1.0.0/16": 0}, 2)
    world.clock.now += 1
    await world.shards.by_plane["s1"].tick()
    assert seen == [2]


async def test_a_router_whose_vrc_is_lost_is_looked_at_when_its_hold_time_is_over(make_world, monkeypatch):
    world = await rested(make_world)
    router = world.router(3)
    router.lost(router.vrc)
    world.clock.now += 1
    await world.shards.by_plane["s1"].tick()
    seen = ticked(monkeypatch)
    world.clock.now += router.config.hold_time_s - 2
    await world.shards.by_plane["s1"].tick()
    assert seen == []
    world.clock.now += 3
    await world.shards.by_plane["s1"].tick()
    assert seen == [3]
    assert not router.holds


async def test_a_punted_frame_finds_the_router_that_has_its_interface_now(make_world):
    world = await make_world(router_config(1, (1, 2)), router_config(2, (3,)))
    world.connect(1)
    world.connect(2)
    await world.settle(1)
    shard, frame = world.shards.by_plane["s1"], bytes(60)

    async def taken(interface_id: int) -> list[int]:
        before = [sum(map(len, router.punts._queues.values())) for router in shard.routers.values()]
        shard.packet_in(interface_id, PuntReason.LOCAL, frame)
        after = [sum(map(len, router.punts._queues.values())) for router in shard.routers.values()]
        return [now - then for then, now in zip(before, after, strict=True)]

    assert await taken(2) == [1, 0]
    assert await taken(3) == [0, 1]
    await world.shards.put_router(router_config(1, interfaces=(1,)))
    assert await taken(2) == [0, 0]
    await world.shards.put_router(router_config(2, interfaces=(3, 2)))
    assert await taken(2) == [0, 1]
    await world.shards.remove_router(2)
    shard.packet_in(2, PuntReason.LOCAL, frame)  # a late one is nobody's
    assert list(shard._interfaces) == [1]


async def test_a_port_that_changes_is_told_to_the_routers_on_it_alone(make_world):
    world = await make_world(router_config(1, (1,)), router_config(2, (2,)))
    first, second = world.connect(1), world.connect(2)
    first.ports, second.ports = {}, {}
    world.plane.set_port(2, "p2", False)
    assert (first.ports, second.ports) == ({}, {2: False})
    await world.shards.put_router(replace(router_config(2), interfaces=(interface(2, port="p1", vlan=5),)))
    first.ports, second.ports = {}, {}
    world.plane.set_port(2, "p2", True)
    assert (first.ports, second.ports) == ({}, {})
    world.plane.set_port(1, "p1", False)
    assert (first.ports, second.ports) == ({1: False}, {2: False})


async def test_a_plane_that_is_attached_again_takes_its_routers_over(make_world):
    world = await make_world(router_config(1, (1,)))
    vrc = world.connect(1)
    await world.settle()
    router = world.router()
    await world.shards.remove_plane("s1")
    assert world.shards.routers == {1: router}
    assert world.views.router_view(1).state == "no-plane"
    await world.shards.add_plane(world.plane)
    assert vrc.closed == "the plane was attached again"
    assert world.shards.of_router(1).routers == {1: router}
    router.open(FakeVrc())
    world.plane.connect()
    await world.settle()


async def test_a_plane_is_started_once_its_routers_are_known(make_world, monkeypatch):
    monkeypatch.setattr(pace, "SLICE_S", 0.0)
    world, plane = await make_world(), FakePlane("s2")
    seen: list[tuple[int, bool]] = []

    async def put_routers() -> None:
        for number in range(1, 4):
            await world.shards.put_router(router_config(number, (number,), plane="s2"))
            await asyncio.sleep(0)
            seen.append((number, plane._listener is not None))

    await world.shards.add_plane(plane, put_routers)
    assert seen == [(1, False), (2, False), (3, False)]
    assert plane._listener is world.shards.of_plane("s2").mirror
    others = asyncio.create_task(noted_turns(turns := []))
    await world.shards.remove_plane("s2")
    before = len(turns)
    await world.shards.add_plane(plane)
    assert len(turns) - before >= 3  # taken over one by one
    others.cancel()


async def noted_turns(turns: list[None]) -> None:
    while True:
        turns.append(None)
        await asyncio.sleep(0)


class Taken(FakePlane):
    """A plane whose switch is another's, once."""

    def __init__(self) -> None:
        super().__init__("s2")
        self.conflict = True

    async def start(self, listener: PlaneListener) -> None:
        conflict, self.conflict = self.conflict, False
        if conflict:
            raise Conflict("datapath 0x1 is plane s1's")
        await super().start(listener)


async def test_a_plane_that_cannot_be_started_is_not_in_use_and_keeps_its_routers_for_the_next_time(make_world):
    world, plane = await make_world(), Taken()

    async def put_routers() -> None:
        await world.shards.put_router(router_config(1, (1,), plane="s2"))

    with pytest.raises(Conflict):
        await world.shards.add_plane(plane, put_routers)
    with pytest.raises(NoSuch, match="plane in use"):
        world.shards.of_plane("s2")
    assert world.views.router_view(1).state == "no-plane"
    await world.shards.add_plane(plane)
    plane.set_port(1, "p1", True)
    plane.connect()
    await world.settle()
    assert world.shards.of_router(1).routers == {1: world.router()}


async def test_who_waits_for_a_plane_that_is_removed_hears_that_it_is_away(make_world):
    world = await rested(make_world, 1)
    waiting = asyncio.create_task(world.shards.of_plane("s1").mirror.until(lambda: False))
    await asyncio.sleep(0)
    await world.shards.remove_plane("s1")
    with pytest.raises(PlaneUnreachable):
        await asyncio.wait_for(waiting, 5)


async def test_a_plane_that_is_not_in_use_is_named_with_the_way_back(make_world):
    world = await rested(make_world, 1)
    await world.shards.remove_plane("s1")
    with pytest.raises(NoSuch, match="no plane in use 's1'; use it again with vrctl plane attach s1"):
        world.shards.of_router(1)


async def test_a_removed_router_leaves_nothing_in_its_slice(make_world):
    quota = replace(Quota(), nexthops=20)
    world = await make_world(router_config(quota=quota), router_config(2, (2,), quota=quota))
    world.connect()
    for number in range(1, 10_001):
        address = bytes((10, 0, 1 + (number >> 8), number & 255))
        world.router().define_set(number, SetKind.FORWARD, [(1, address, 1)])
    await world.settle()
    usage = world.shards.by_plane["s1"].usage_of("red")
    assert usage is not None
    assert usage.kept_sets > 4096
    await world.shards.remove_router(1)
    assert (usage.kept_sets, usage.kept_members) == (0, 0)


async def test_a_plane_that_is_removed_names_the_routers_that_it_has_not_confirmed_to_be_gone(make_world):
    world = await make_world(router_config(1, (1,)), router_config(2, (2,)))
    await world.settle()
    world.plane.disconnect()
    with pytest.raises(PlaneUnreachable):
        await world.shards.remove_router(1)
    assert await world.shards.remove_plane("s1") == {1}
    assert list(world.shards.routers) == [2]


async def test_a_router_that_is_forgotten_does_not_come_back_with_its_plane(make_world):
    world = await rested(make_world, 2)
    await world.shards.remove_plane("s1")
    world.shards.forget_router(1)
    plane = FakePlane("s1")
    await world.shards.add_plane(plane)
    for number in (1, 2):
        plane.set_port(number, f"p{number}", True)
    plane.connect()
    await world.settle(2)
    assert list(world.shards.routers) == [2]
    assert set(plane.entries.router_interfaces) == {2}


async def test_a_router_that_is_deleted_has_neither_lost_its_session_nor_routes_that_were_not_repeated(make_world):
    world = await rested(make_world, 1)
    router = world.router(1)
    router.define_set(1, SetKind.UNREACHABLE, [])
    world.learn({"20.0.0.0/8": 1})
    await world.settle()
    assert world.installed()[prefix_key("20.0.0.0/8")]
    before = len(world.events.recent())
    removing = asyncio.create_task(world.shards.remove_router(1))
    await world.until(lambda: router.fib.removing)
    router.lost(router.vrc)
    await removing
    assert world.events.recent()[before:] == []


async def test_what_is_asked_of_one_router_copies_no_others_routes(make_world, monkeypatch):
    world = await rested(make_world)
    asked, read = [], world.plane.read

    async def noted(only=None, into=None):
        found = await read(only, into)
        asked.append({vrf_id for vrf_id, routes in found.routes.items() if routes})
        return found

    monkeypatch.setattr(world.plane, "read", noted)
    verifying = asyncio.create_task(world.views.verify(2, repair=True))
    await world.until(lambda: world.router(2).snapshots)
    world.router(2).snapshot_end(next(iter(world.router(2).snapshots)), "")
    await verifying
    await world.views.trace(2, "20.0.0.1")
    assert len(asked) >= 3
    assert all(one <= {2} for one in asked)


@pytest.mark.parametrize(("destination", "interface"), [("10.0.0", None), ("10.0.0.1", "eth9")])
async def test_trace_of_what_is_none_says_so_also_while_its_plane_is_away(make_world, destination, interface):
    world = await rested(make_world, 1)
    world.plane.disconnect()
    with pytest.raises(NoSuch, match=f"'{interface or destination}'"):
        await world.views.trace(1, destination, interface)


async def test_trace_ends_before_the_routes_where_the_pipeline_does(make_world):
    world = await rested(make_world, 1)
    world.router().define_set(1, SetKind.BLACKHOLE, [])
    world.learn({"0.0.0.0/0": 1, "::/0": 1})
    await world.settle()

    async def end(destination: str) -> tuple[str, str]:
        last = (await world.views.trace(1, destination))[-1]
        return last.table, last.action

    assert await end("203.0.113.1") == ("ipv4_route", "drop blackhole")
    assert await end("224.0.0.5") == await end("fe80::1%eth0") == ("punt", "punt control")
    assert await end("239.1.1.1") == await end("ff0e::1") == ("punt", "drop multicast")
    assert await end("127.0.0.1") == await end("::1") == ("punt", "drop martian")
