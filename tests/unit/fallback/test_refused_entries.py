"""Router interfaces and policers that the hardware of a pair has no room for: what is said, and what is left of them.

Their ports are the hardware's, so the software cannot do without it.
"""

from dataclasses import replace

import pytest
from pairs import FAR, TWO_WAYS, PairWorld, every, learned, made, started, verified
from worlds import gateway, interface, router_config

from controller.fallback.hardware_routes import BUDGET, HardwareRoutes
from controller.fallback.hardware_tables import HardwareTables
from controller.fallback.writer import RETRY_S
from controller.model import Placement
from controller.planes.base import FALLBACK, Installed, Op, Refused, RouteKind, RouteUpdates, route_action
from controller.routing import route_audit
from controller.routing.rib import SetKind
from controller.shard.router import REFUSED_RETRY_S
from wire.columns import prefix_key as key_of

Key = tuple[str, int]

NO_DEFAULT = "plane s1 refused policer: ipv4_route refused its default entry: full"


def full_for(world: PairWorld, *keys: Key) -> None:
    world.hardware.fault = lambda table, key, op: "full" if (table, key) in keys and op is Op.INSERT else None


def refuse_default(world: PairWorld, reason: str = "full") -> None:
    """Have the hardware refuse what sends to the software the packets that it has no IPv4 route for."""
    world.hardware.fault = lambda _, key, op: reason if (key, op) == (bytes(5), Op.INSERT) else None


async def lost_default(world: PairWorld, vrf_id: int = 1) -> None:
    """Have a read-back find that this is gone, and the hardware refuse it."""
    refuse_default(world)
    del world.in_hardware(vrf_id)[bytes(5)]
    await world.pair.read()
    await world.pair.work()


async def made_with_refused() -> PairWorld:
    """Return a world of a router whose third interface the hardware has refused."""
    world = await made(router_config(1, (1, 2)))
    await learned(world)
    full_for(world, ("router_interface", 3))
    await world.shards.put_router(router_config(1, (1, 2, 3)))
    await world.settle()
    return world


async def made_with_second() -> PairWorld:
    """Return a world of two routers that have learned what they are to."""
    second = replace(router_config(2, ()), interfaces=(interface(3),))
    world = await made(router_config(1, (1, 2)), second)
    await learned(world)
    await learned(world, {}, {}, vrf_id=2)
    return world


def learn(routes: HardwareRoutes, number: int) -> None:
    """Have a router of id 1 learn so many routes, with holes between them, or they would be one entry."""
    keys = [key_of(f"20.{n >> 7}.{2 * (n & 127)}.0/24") for n in range(number)]
    actions = [route_action(RouteKind.NEXTHOP, 1)] * number
    routes.tables.change(RouteUpdates(1, 4, [Op.INSERT] * number, keys, actions))


def held(world: PairWorld, table: str) -> list[set[int]]:
    return [set(getattr(plane.entries, table)) for plane in (world.hardware, world.software)]


async def test_an_interface_that_is_refused_is_one_line_and_the_others_go_on():
    world = await made_with_refused()
    assert world.router().state == ("degraded", "plane s1 refused router_interface: full")
    assert world.pair.refusals == {"router_interface": 1}
    full_for(world)
    world.router().fib.retry_refused()
    await world.settle()
    assert world.router().state == ("up", "")
    assert held(world, "router_interfaces") == [{1, 2, 3}, {1, 2, 3}]


async def test_nothing_is_left_of_an_interface_that_was_refused_and_goes():
    world = await made_with_refused()
    await world.shards.put_router(router_config(1, (1, 2)))
    assert world.router().state == ("up", "")
    assert held(world, "router_interfaces") == [{1, 2}, {1, 2}]
    assert world.router().state == ("up", "")


async def test_nothing_is_left_of_an_interface_that_was_refused_in_part_and_goes():
    """Of several entries of it a switch may have room for some."""
    world = await made_with_refused()
    world.hardware.entries.damaged.add(("router_interface", 3))
    await world.shards.put_router(router_config(1, (1, 2)))
    assert not world.hardware.entries.damaged


async def test_what_was_refused_is_known_as_such_when_both_are_read_back():
    world = await made(router_config(1, (1, 2)))
    await learned(world)
    full_for(world, ("router_interface", 3), ("policer", 2))
    await world.shards.put_router(router_config(1, (1, 2, 3)))
    await world.shards.put_router(router_config(2, ()))
    await world.settle()
    world.hardware.disconnect()
    world.hardware.connect()
    await world.until(lambda: world.pair._adopted)
    await world.settle()
    assert world.router().state == ("degraded", "plane s1 refused router_interface: full")
    await world.shards.put_router(router_config(1, (1, 2)))
    await world.shards.remove_router(2)
    assert world.router().state == ("up", "")
    assert held(world, "router_interfaces") == [{1, 2}, {1, 2}]
    assert held(world, "policers") == [{1}, {1}]
    assert not world.in_hardware(2)


async def test_an_interface_that_was_refused_and_changes_is_no_more_refused():
    world = await made(router_config(1, (1, 2)))
    await learned(world)
    full_for(world, ("router_interface", 3))
    three = router_config(1, (1, 2, 3))
    await world.shards.put_router(three)
    await world.settle()
    full_for(world)
    other = replace(three.interfaces[2], virtual_macs=(bytes.fromhex("00005e000101"),))
    await world.shards.put_router(replace(three, interfaces=(*three.interfaces[:2], other)))
    await world.settle()
    assert world.router().state == ("up", "")


async def test_an_interface_that_no_plane_has_is_gone_at_once():
    world = await made(router_config(1, (1, 2)))
    await learned(world)
    fault = lambda table, key, op: "no" if (table, key) == ("router_interface", 3) else None  # noqa: E731
    world.hardware.fault = world.software.fault = fault
    await world.shards.put_router(router_config(1, (1, 2, 3)))
    await world.settle()
    assert world.router().state[0] == "degraded"
    await world.shards.put_router(router_config(1, (1, 2)))
    assert world.router().state == ("up", "")


@pytest.mark.parametrize("removed", [True, False])
async def test_nothing_is_left_of_a_router_whose_policer_was_refused(removed: bool):
    world = await made(router_config(1, (1, 2)))
    await learned(world)
    full_for(world, ("policer", 2))
    second = replace(router_config(2, ()), interfaces=(interface(3),))
    await world.shards.put_router(second)
    await learned(world, {}, {}, vrf_id=2)
    assert world.router(2).state == ("degraded", "plane s1 refused policer: full")
    assert world.router(1).state == ("up", "")
    if removed:
        await world.shards.remove_router(2)
        assert held(world, "policers") == [{1}, {1}]
        assert not world.in_hardware(2)
    else:
        full_for(world)
        world.router(2).fib.retry_refused()
        await world.settle(2)
        assert world.router(2).state == ("up", "")
        assert held(world, "policers") == [{1, 2}, {1, 2}]


async def test_a_router_whose_packets_cannot_go_to_the_software_is_degraded_until_they_can():
    world = await made(router_config(1, (1, 2)))
    await learned(world)
    refuse_default(world)
    world.hardware.disconnect()
    world.hardware.entries = Installed()
    world.hardware.connect()
    await world.settle()
    for _ in range(2):
        assert world.router().state == ("degraded", NO_DEFAULT)
        world.router().fib.retry_refused()
        await world.settle()
    world.hardware.fault = lambda *_: None
    world.router().fib.retry_refused()
    await world.settle()
    assert world.router().state == ("up", "")
    assert bytes(5) in world.in_hardware()


@pytest.mark.parametrize("by", ["audit", "reconnect"])
async def test_a_router_whose_default_entry_alone_is_found_to_be_gone_is_degraded_until_it_is_back(monkeypatch, by):
    monkeypatch.setattr(route_audit, "_BITS_A_KEY", 1 << 16)  # or it may be taken for read
    world = await made(router_config(1, (1, 2)))
    await learned(world)
    refuse_default(world)
    if by == "audit":
        del world.in_hardware()[bytes(5)]
        await world.shards.by_plane["s1"].mirror.audit()
    else:
        world.hardware.disconnect()
        del world.in_hardware()[bytes(5)]
        world.hardware.connect()
        await world.until(lambda: world.pair._adopted)
    await world.pair.work()
    await world.settle()
    assert world.router().state == ("degraded", NO_DEFAULT)
    await world.shards.by_plane["s1"].tick()
    world.hardware.fault = lambda *_: None
    assert bytes(5) not in world.in_hardware()
    world.clock.now += REFUSED_RETRY_S
    await world.shards.by_plane["s1"].tick()
    await world.settle()
    assert world.router().state == ("up", "")
    assert bytes(5) in world.in_hardware()


async def test_a_router_is_removed_though_the_hardware_had_refused_its_default_entry():
    world = await made_with_second()
    await lost_default(world, 2)
    await world.shards.remove_router(2)
    assert held(world, "policers") == [{1}, {1}]
    assert not world.in_hardware(2)


async def test_a_default_entry_that_the_hardware_has_again_is_no_trouble_when_another_router_is_written():
    world = await made_with_second()
    await lost_default(world)
    world.hardware.fault = lambda *_: None
    await world.pair.read()
    await world.pair.work()
    assert bytes(5) in world.in_hardware()
    await world.shards.put_router(replace(router_config(2, ()), interfaces=(interface(3), interface(4))))
    await world.settle(2)
    assert world.router().state == ("up", "")


async def test_a_router_whose_default_route_does_not_leave_the_hardware_is_degraded_until_it_does():
    world = await made(router_config(1, (1, 2)))
    await learned(world, {"0.0.0.0/0": 1})
    assert bytes(5) in world.forwarding()
    world.hardware.fault = lambda _, key, op: "busy" if key == bytes(5) else None
    world.learn({"0.0.0.0/0": 0})
    await world.settle()
    assert world.router().state[0] == "degraded"
    world.hardware.fault = lambda *_: None
    world.router().fib.retry_refused()
    await world.settle()
    assert world.router().state == ("up", "")
    assert bytes(5) not in world.forwarding()


async def test_a_route_that_the_software_refused_of_one_router_is_in_hardware_of_another():
    """Both have the prefix, and are written together."""
    world = await made_with_second()
    far, refused = key_of("20.1.0.0/16"), [1]
    world.router(2).define_set(1, SetKind.FORWARD, [(3, gateway(3), 1)])
    world.software.fault = lambda _, key, __: "no" if key == far and refused and refused.pop() else None
    world.learn({"20.1.0.0/16": 1}, 1)
    world.learn({"20.1.0.0/16": 1}, 2)
    await world.settle(1)
    await world.settle(2)
    await world.pair.work()
    assert [far in world.router(one).fib.refused_routes for one in (1, 2)] == [True, False]
    assert world.in_hardware(2)[far] == world.in_software(2)[far]


@pytest.mark.parametrize("removed", [False, True])
async def test_a_route_that_the_hardware_did_not_delete_leaves_it_later(removed: bool):
    world = await made_with_second()
    there = world.forwarding()
    world.hardware.fault = lambda table, _, op: "no" if op is Op.DELETE and table == "ipv4_route" else None
    world.learn(dict.fromkeys(FAR, 0))
    await world.settle()
    if removed:
        await world.shards.remove_router(1)
    assert world.forwarding() == there
    world.hardware.fault = lambda *_: None
    world.clock.now += RETRY_S
    await world.pair.work()
    assert world.forwarding() == set()


async def test_what_routes_led_to_and_the_hardware_did_not_delete_leaves_it_later():
    world = await made(router_config(1, (1, 2)))
    await learned(world, sets=TWO_WAYS)
    assert [len(entries) for entries in held(world, "groups")] == [1, 1]
    world.hardware.fault = lambda table, _, op: "no" if op is Op.DELETE and table == "nexthop_group" else None
    world.learn(dict.fromkeys(FAR, 0))
    world.router().release([1])
    await world.settle()
    assert [len(entries) for entries in held(world, "groups")] == [1, 0]
    for _ in range(10):
        world.clock.now += 1
        await world.pair.work()
    assert world.pair.refusals == {"nexthop_group": 1}
    world.hardware.fault = lambda *_: None
    world.clock.now += RETRY_S
    await world.pair.work()
    assert held(world, "groups") == [set(), set()]


async def test_the_table_that_is_full_is_named_where_the_hardware_has_no_room_for_a_default_entry():
    world = await made(capacity=1)
    await learned(world)
    text = "plane s1 refused policer: ipv6_route has no room for its default entry: table full"
    assert world.router().state == ("degraded", text)


def test_nothing_is_told_of_a_router_that_is_gone_to_whoever_gets_its_id():
    routes = HardwareRoutes({4: 0, 6: 0})
    refused = Refused("ipv4_route", 1, bytes(5), Op.INSERT, "full")
    for told in ([1], []):
        routes.tables.open(1)
        if told:
            while stage := routes.next_stage():
                routes.confirm(stage, [refused] if bytes(5) in stage[0].keys else [])
            routes.forget(1)
    assert not routes.tables.failed()


@pytest.mark.parametrize("reconnected", [False, True])
@pytest.mark.parametrize("by", ["software", "room"])
async def test_a_router_that_gets_into_hardware_late_is_there_with_the_routes_that_it_has(by: str, reconnected: bool):
    world = PairWorld(room=1 if by == "room" else 0)
    world.software.fault = lambda table, key, op: "full" if (by, table, key) == ("software", "policer", 2) else None
    second = replace(router_config(2, ()), interfaces=(interface(3), interface(4)))
    await started(world, router_config(1, (1, 2)), second)
    ways = {number: [(number + 2, gateway(number + 2), 1)] for number in (1, 2)}
    await learned(world, {"20.1.0.0/16": 2}, ways, vrf_id=2)
    assert not world.in_hardware(2)
    if reconnected:
        world.hardware.disconnect()
        world.hardware.connect()
        await world.settle(2)
    world.software.fault = lambda *_: None
    for fast in world.pair.routes.tables.fast.values():
        fast.resize(100)
    world.router(2).fib.retry_refused()
    await world.settle(2)
    world.learn({"20.0.0.0/8": 1}, vrf_id=2)
    await world.settle(2)
    await world.pair.work()
    assert (await verified(world, 2)).equal
    assert key_of("20.1.0.0/16") in world.forwarding(2)


def test_the_routes_of_a_router_that_gets_into_hardware_late_enter_by_the_budget():
    routes = HardwareRoutes({4: 0, 6: 0})
    routes.place(1, Placement.HARDWARE)
    learn(routes, 3 * BUDGET)
    routes.tables.open(1)
    assert [*routes.tables.wanted[1, 4]] == [bytes(5)]
    while routes.hurried:
        assert routes.rebalance(0.0) <= BUDGET
    assert len(routes.tables.wanted[1, 4]) == 1 + 3 * BUDGET


def test_a_policer_that_is_written_again_has_default_entries_alone_looked_at():
    """All routes of a large table would take a second."""
    routes = HardwareRoutes({4: 0, 6: 0})
    routes.tables.open(1)
    otherwise = {bytes(17): FALLBACK, key_of("20.0.0.0/8"): route_action(RouteKind.NEXTHOP, 1)}
    every(routes.tables.set_installed({1: otherwise}))
    routes.tables.open(1)
    (columns,) = stage = routes.next_stage()
    assert (columns.family, columns.keys, columns.ops) == (4, [bytes(5)], [Op.INSERT])
    routes.confirm(stage, [])
    assert not routes.next_stage()


def test_nothing_is_left_of_a_router_that_one_family_has_no_room_for():
    """Or each time that it is tried again takes room from all others."""
    tables = HardwareTables({4: 9, 6: 1})
    tables.open(1)
    used = tables.fast[4].used
    for _ in range(3):
        with pytest.raises(ValueError, match="ipv6_route has no room for its default entry: all 1 entries"):
            tables.open(2)
        assert tables.fast[4].used == used
    tables.close(1)
    tables.open(2)
    assert set(tables.wanted) == {(2, 4), (2, 6)}


async def test_a_route_that_the_hardware_refused_for_want_of_what_it_had_lost_is_back_with_it(monkeypatch):
    monkeypatch.setattr(route_audit, "_BITS_A_KEY", 1 << 16)  # or it may be taken for read
    world = await made(router_config(1, (1, 2)))
    await learned(world)
    world.pair.routes.place(1, Placement.HARDWARE)
    await world.pair.work()
    entries, lost = world.hardware.entries, key_of("20.1.0.0/16")
    action = world.in_hardware()[lost]
    (one,) = [each for each in entries.nexthops.values() if route_action(RouteKind.NEXTHOP, each.id) == action]
    assert lost in world.forwarding()
    world.hardware.fault = lambda table, _key, op: (
        "no such nexthop"
        if table == "ipv4_route" and op is not Op.DELETE and one.id not in entries.nexthops
        else None
    )
    del world.in_hardware()[lost]
    mirror = world.shards.by_plane["s1"].mirror
    entries.nexthops.pop(one.id)
    kept = dict(entries.nexthops)
    entries.nexthops[one.id] = one  # as an audit reads it a moment before it goes
    before = world.hardware.write

    async def loses_it(batch):
        monkeypatch.setattr(world.hardware, "write", before)
        entries.nexthops.clear()
        entries.nexthops.update(kept)
        return await before(batch)

    monkeypatch.setattr(world.hardware, "write", loses_it)
    assert await mirror.audit() == {}  # that counts what both have
    await world.pair.work()
    await world.settle()
    assert lost not in world.forwarding()
    assert await mirror.audit() == {1: 1}
    await world.settle()
    await world.pair.work()
    await world.settle()
    assert lost in world.forwarding()
