"""What passes through planes and routers is counted, and what of it takes the link."""

import asyncio
from functools import partial

import pytest
from pairs import PairWorld, learned, made, packet
from worlds import World, gateway, plane_view, router_config

from controller.diagnostics import describe, load
from controller.errors import Conflict
from controller.model import Placement
from controller.planes.base import (
    Capability,
    Counters,
    DropReason,
    InterfaceCounters,
    PuntClass,
    PuntPlace,
    PuntReason,
)
from controller.planes.shares import ShareUse
from controller.routing.rib import SetKind
from controller.views import LoadView, LostFrames, LostPunts, PlaneLoad, RouterLoad, ShareLoad


def row(view: LoadView) -> RouterLoad:
    (one,) = view.routers
    return one


def planes(view: LoadView) -> dict[str, PlaneLoad]:
    return {one.name: one for one in view.planes}


async def test_what_takes_the_link_is_counted_beside_all_that_comes_in() -> None:
    world = await made()
    await learned(world)
    first = await world.views.load()
    for number in range(8):
        world.hardware.inject(1, packet(f"20.{number}.0.1"))
    in_hardware = await world.views.load()
    assert (row(in_hardware).packets, row(in_hardware).link_packets) == (8, 0)
    assert row(in_hardware).changes == row(first).changes > 0
    assert row(in_hardware).entries == len(world.in_hardware())
    await world.shards.put_router(router_config(1, (1, 2), placement=Placement.SOFTWARE))
    await world.pair.work()
    for number in range(8):
        world.hardware.inject(1, packet(f"20.{number}.0.1"))
    in_software = await world.views.load()
    assert (row(in_software).packets, row(in_software).link_packets) == (16, 8)
    assert row(in_software).changes > row(in_hardware).changes
    by_name = planes(in_software)
    assert [(name, one.packets, one.link_packets) for name, one in by_name.items()] == [
        ("s1", 16, 8),
        ("f1", 8, None),
    ]
    assert by_name["s1"].changes == row(in_software).changes
    assert by_name["f1"].changes == planes(first)["f1"].changes > 0
    assert by_name["s1"].tables["ipv4_route"].used == len([key for key in world.in_hardware() if len(key) == 5])


async def test_a_plane_without_a_fallback_has_no_link() -> None:
    world = World()
    await world.start(router_config(1, (1, 2)))
    world.connect()
    world.router().resync_end(True)
    await world.settle()
    world.plane.inject(1, packet("20.0.0.1"))
    view = await world.views.load()
    assert (row(view).packets, row(view).link_packets) == (1, None)
    assert row(view).entries == len(world.router().fib.installed_routes) == row(view).changes
    assert [(one.name, one.packets, one.link_packets) for one in view.planes] == [("s1", 1, None)]


async def test_lost_punts_are_told_by_interface_class_and_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of what both planes and the relay lost; by no interface where the plane does not tell it."""
    world = await made()
    await learned(world)
    router = world.router()
    first, second = router.config.interfaces
    told = Counters(), Counters()
    for plane, counters in zip((world.hardware, world.software), told, strict=True):
        monkeypatch.setattr(plane, "counters", partial(asyncio.sleep, 0, counters))
    told[0].lost_of_routers[router.config.vrf_id, PuntClass.ARP, PuntPlace.POLICER] = 5
    told[0].lost_of_routers[router.config.vrf_id + 1, PuntClass.ARP, PuntPlace.POLICER] = 50
    told[1].lost_punts[first.id, PuntClass.BFD, PuntPlace.OUTBOX] = 6
    told[1].lost_punts[9_999, PuntClass.BFD, PuntPlace.OUTBOX] = 60
    router.punts.lost[second.id, PuntClass.BFD] = 7
    router.punts.lost_with_guest([(second.id, "kernel", 3), (9_999, "refused", 2), (0, "not_read", 9)], {second.id})
    world.hardware.capabilities -= {Capability.LOST_PUNTS}
    view = await world.views.load()
    assert row(view).lost_punts == [
        LostPunts("", "arp", "policer", 5),
        LostPunts("", "", "tap", 2),
        LostPunts(first.name, "bfd", "outbox", 6),
        LostPunts(second.name, "bfd", "relay", 7),
        LostPunts(second.name, "", "tap", 3),
    ]
    assert router.punts.counters["vrc_drop_not_read"] == 9, "the guest sent them: they are no punts"
    assert {name: one.tells_lost_punts for name, one in planes(view).items()} == {"s1": False, "f1": True}


async def test_what_routers_have_had_is_of_both_planes_together_where_one_has_shares() -> None:
    world = await made()
    world.software.use[1], world.hardware.use[1] = ShareUse(1000, 3, 4), ShareUse(50, 1, 0)
    assert row(await world.views.load()).shares == ShareLoad(1050, 4, 4)
    world.hardware.capabilities -= {Capability.SHARES}
    assert row(await world.views.load()).shares is not None
    world.software.capabilities -= {Capability.SHARES}
    assert row(await world.views.load()).shares is None


async def test_what_routers_have_had_is_added_up_once_and_not_for_each(monkeypatch: pytest.MonkeyPatch) -> None:
    world = await made()
    await world.shards.put_router(router_config(2, ()))
    world.software.use.update({1: ShareUse(1000), 2: ShareUse(2000)})
    add, added = ShareUse.__add__, []
    monkeypatch.setattr(ShareUse, "__add__", lambda one, other: added.append(other) or add(one, other))
    assert [one.shares for one in (await world.views.load()).routers] == [
        ShareLoad(1000, 0, 0),
        ShareLoad(2000, 0, 0),
    ]
    assert [one.core_ns for one in added] == [1000, 2000]


async def test_lost_frames_are_told_by_plane_and_port(monkeypatch: pytest.MonkeyPatch) -> None:
    """A port that is not declared by its number."""
    world = await made()
    told = Counters(), Counters()
    for plane, counters in zip((world.hardware, world.software), told, strict=True):
        monkeypatch.setattr(plane, "counters", partial(asyncio.sleep, 0, counters))
    told[0].lost_frames[1, "egress", "down"] = 5
    told[0].lost_frames[99, "device", "rx_dropped"] = 6
    told[1].lost_frames[1, "egress", "ring_full"] = 7
    view = planes(await world.views.load())
    names = [plane.ports[1].name for plane in (world.hardware, world.software)]
    assert view["s1"].lost_frames == [
        LostFrames(names[0], "egress", "down", 5),
        LostFrames("99", "device", "rx_dropped", 6),
    ]
    assert view["f1"].lost_frames == [LostFrames(names[1], "egress", "ring_full", 7)]


async def test_a_plane_that_is_away_counts_nothing() -> None:
    world = PairWorld()
    await world.start(router_config(1, (1, 2)))
    world.software.disconnect()
    view = await world.views.load()
    assert (row(view).packets, row(view).link_packets) == (None, None)
    assert [(one.name, one.packets) for one in view.planes] == [("s1", None), ("f1", None)]


async def test_a_plane_that_is_removed_while_it_is_read_is_left_out() -> None:
    world = await made()
    counters = world.hardware.counters

    async def read() -> Counters:
        await world.shards.remove_plane("s1")
        return await counters()

    world.hardware.counters = read  # type: ignore[method-assign]
    view = await world.views.load()
    assert (view.planes, view.routers) == ([], [])


async def test_a_plane_that_is_used_anew_while_it_is_read_is_left_out() -> None:
    """What it has counted is the former one's."""
    world = await made()
    counters = world.hardware.counters

    async def read() -> Counters:
        await world.shards.remove_plane("s1")
        await world.shards.add_plane(world.pair)
        return Counters()

    world.hardware.counters = read  # type: ignore[method-assign]
    view = await world.views.load()
    assert (view.planes, view.routers) == ([], [])
    world.hardware.counters = counters  # type: ignore[method-assign]
    world.hardware.connect()
    world.software.connect()
    assert [one.name for one in (await world.views.load()).planes] == ["s1", "f1"]


async def test_counters_of_a_router_are_those_of_both_planes_and_of_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    world = await made()
    told = Counters(), Counters()
    for plane, counters in zip((world.hardware, world.software), told, strict=True):
        monkeypatch.setattr(plane, "counters", partial(asyncio.sleep, 0, counters))
        for vrf_id in (1, 2):
            counters.punts[vrf_id, PuntReason.TTL_EXPIRED] = 10 * vrf_id, 1000
            counters.router_interfaces[vrf_id] = InterfaceCounters(rx_packets=vrf_id)
        for vrf_id in (0, 1, 2):
            counters.drops[vrf_id, DropReason.MARTIAN] = 1 << vrf_id, 64
    told[1].punts[1, PuntReason.LOCAL] = 0, 0
    view = await world.views.counters(1)
    assert (view.punts, view.drops) == ({"local": 0, "ttl_expired": 20}, {"martian": 6})
    assert view.interfaces["eth1"]["rx_packets"] == 1, "the hardware sees all of them"


async def test_others_have_the_loop_while_routers_and_what_they_lost_are_shown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World()
    await world.start(*(router_config(number, (number,)) for number in (1, 2, 3)))
    told = Counters(lost_of_routers={(number, PuntClass.ARP, PuntPlace.POLICER): 5 for number in (1, 2, 3)})
    monkeypatch.setattr(world.plane, "counters", partial(asyncio.sleep, 0, told))

    async def turns_meanwhile() -> int:
        looking, turns = asyncio.ensure_future(world.views.load()), 0
        while not looking.done():
            await asyncio.sleep(0)
            turns += 1
        assert [one.lost_punts for one in looking.result().routers] == [[LostPunts("", "arp", "policer", 5)]] * 3
        return turns

    fewest = await turns_meanwhile()
    monkeypatch.setattr(load, "ROUTERS_AT_ONCE", 1)
    by_router = await turns_meanwhile()
    monkeypatch.setattr(load, "LOST_AT_ONCE", 1)
    assert (by_router - fewest, await turns_meanwhile() - by_router) == (3, 2)


async def test_a_router_that_goes_while_others_are_shown_is_left_out_and_nothing_that_comes_is_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All is of one moment, as rates are of what passes between two; an id may be another router's by then."""
    monkeypatch.setattr(load, "ROUTERS_AT_ONCE", 1)
    world = World()
    await world.start(*(router_config(number, (number,)) for number in (1, 2, 3)))
    for number in (1, 2, 3):
        world.connect(number)
        await world.settle(number)
    shard, before = world.shards.by_plane["s1"], (await world.views.load()).routers
    look = await load._look(shard, world.shards.loop_share, world.clock)
    rows = load._router_loads(shard, look)
    assert (await anext(rows)).router == "red/r1"
    await world.shards.remove_router(2)
    await world.shards.put_router(router_config(2, (2,), name="other"))
    world.learn({"20.0.0.0/16": 0, "20.1.0.0/16": 0}, 3)
    world.router(3).define_set(1, SetKind.FORWARD, [(3, gateway(3), 1)])
    world.learn({"20.0.0.0/16": 1}, 3)
    await world.settle(3)
    (last,) = [row async for row in rows]
    assert (last.router, last.changes, last.loop_s) == ("red/r3", before[2].changes, before[2].loop_s)
    after = (await world.views.load()).routers
    assert [one.router for one in after] == ["red/r1", "red/r3", "red/other"]
    assert after[1].changes > last.changes


async def test_a_plane_is_shown_as_it_is_once_its_routers_were_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(describe, "FIBS_AT_ONCE", 1)
    world = World()
    await world.start(*(router_config(number, (number,)) for number in (1, 2, 3)))
    for number in (1, 2, 3):
        await world.settle(number)
    view = await plane_view(world, "s1")
    assert (view.connected, view.routers, view.entries["router_interface"]) == (True, 3, 3)
    looking = asyncio.ensure_future(world.views.plane_view("s1"))
    await asyncio.sleep(0)
    world.plane.disconnect()
    found = await looking
    assert found is not None
    assert (found.connected, found.reason) == (False, "connection reset")


async def test_a_plane_that_is_left_or_used_anew_while_it_is_looked_at_is_shown_as_it_is_then(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(describe, "FIBS_AT_ONCE", 1)
    world, anew = World(), World()
    await world.start(*(router_config(number, (number,)) for number in (1, 2, 3)))
    await anew.start(router_config(4, (4,)))
    looking = asyncio.ensure_future(world.views.plane_view("s1"))
    await asyncio.sleep(0)
    left = world.shards.by_plane.pop("s1")
    assert await looking is None
    world.shards.by_plane["s1"] = left
    looking = asyncio.ensure_future(world.views.plane_view("s1"))
    await asyncio.sleep(0)
    world.shards.by_plane["s1"] = anew.shards.by_plane["s1"]
    found = await looking
    assert found is not None
    assert found.routers == 1


async def test_what_routes_have_met_is_told_by_plane_and_how_it_was_counted() -> None:
    world = await made()
    await learned(world)
    world.software.capabilities = world.software.capabilities - {Capability.ROUTE_COUNTERS}
    world.software.capabilities |= {Capability.SAMPLED_ROUTE_COUNTERS}
    for count, last in ((1, 1), (3, 2)):
        for _ in range(count):
            world.hardware.inject(1, packet(f"20.{last}.0.1"))
    await world.shards.put_router(router_config(1, (1, 2), placement=Placement.SOFTWARE))
    await world.pair.work()
    world.hardware.inject(1, packet("20.1.0.1"))
    rows = list(await world.views.route_counters(1))
    shown = {(one.prefix, one.plane, one.packets, one.counted) for one in rows}
    assert ("20.1.0.0/16", "f1", 1, "sampled") in shown
    assert {one.plane for one in rows if one.counted == "exact"} <= {"s1"}
    assert [one.packets for one in rows] == sorted((one.packets for one in rows), reverse=True)
    tag = {"s1": 0, "f1": 4}  # of the link's VLAN
    assert all(one.octets == one.packets * (len(packet("20.1.0.1")) + tag[one.plane]) for one in rows)


async def test_a_plane_that_counts_no_routes_is_named_with_the_remedy() -> None:
    world = World()
    await world.start(router_config(1, (1, 2)))
    world.plane.capabilities -= {Capability.ROUTE_COUNTERS, Capability.SAMPLED_ROUTE_COUNTERS}
    with pytest.raises(Conflict, match="plane s1 counts no packets by route; a vr-forwarder does with --route-c"):
        await world.views.route_counters(1)
