"""Two planes as one: what each of them holds, what becomes of packets, and what is left when one of them fails."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from pairs import FAR, LINK, TWO_WAYS, PairWorld, every, held, learned, made, packet, started, verified
from worlds import gateway, mac, plane_view, router_config

from controller.errors import NoSuch
from controller.fallback.hardware_routes import HardwareRoutes
from controller.fallback.plane import FallbackPair
from controller.model import Placement, Quota, Share
from controller.planes.base import (
    FALLBACK,
    Capability,
    FallbackLink,
    Op,
    Refused,
    RouteKind,
    RouteUpdates,
    Update,
    WriteBatch,
    route_action,
)
from controller.planes.shares import ShareEntry
from controller.route_cache.aggregate import LEAST_BUDGET
from controller.routing import route_audit
from controller.routing.rib import SetKind
from controller.shard import mirror
from wire.columns import prefix_key


def held_by(world: PairWorld, *routers: int) -> int:
    return sum(len(key) == 5 for vrf_id in routers for key in world.in_hardware(vrf_id))


def all_arrive(world: PairWorld) -> None:
    """Send a packet to each of FAR, and see it leave by the port of its route."""
    world.sent.clear()
    for number in range(len(FAR)):
        world.hardware.inject(1, packet(f"20.{number}.0.1"))
    assert [port for port, _ in world.sent] == list(FAR.values())


async def test_it_has_what_both_planes_have_as_they_tell_it():
    world = await made()
    both = set(Capability) - {Capability.LOCAL_FAILOVER}  # the software sees the port of the link alone
    assert world.pair.capabilities == both
    world.software.capabilities -= {Capability.RESILIENT_HASH}
    assert world.pair.capabilities == both - {Capability.RESILIENT_HASH}
    world.hardware.capabilities -= {Capability.LOST_PUNTS}
    assert world.pair.capabilities == both - {Capability.RESILIENT_HASH, Capability.LOST_PUNTS}


async def test_shares_are_written_where_there_are_any_and_promised_where_both_have_them():
    share = ShareEntry(Share(2), 7)
    world = await made(router_config(1, (1, 2), share=Share(2), slice_id=7))
    await world.until(lambda: bool(world.software.shares))
    assert world.hardware.shares == world.software.shares == {("router_share", 1): share}
    world.software.disconnect()
    world.hardware.capabilities -= {Capability.SHARES}
    world.software.shares["router_share", 1] = ShareEntry(Share(3), 7)
    world.software.connect()
    await world.until(lambda: world.software.shares == {("router_share", 1): share})
    assert Capability.SHARES not in world.pair.capabilities
    assert world.shards.without_shares() == {"s1"}, "the hardware divides nothing"


async def test_a_share_that_is_not_the_same_in_both_is_written_again():
    world = await made(router_config(1, (1, 2), share=Share(2), slice_id=7))
    await world.until(lambda: bool(world.hardware.shares and world.software.shares))
    shares = dict(world.software.shares)
    world.hardware.shares.clear()
    assert (await world.shards.of_plane("s1").mirror.audit())[1] == 1
    await world.until(lambda: world.hardware.shares == world.software.shares == shares)


async def test_all_of_a_small_table_is_in_both():
    world = await made()
    await learned(world)
    assert {entry.where for entry in await world.views.fib(1)} == {"hardware"}
    assert world.in_software().keys() >= {prefix_key(text) for text in FAR}
    assert len(world.forwarding()) < len(world.in_software())
    assert world.in_hardware()[prefix_key("0.0.0.0/0")] == FALLBACK
    assert world.in_hardware()[prefix_key("::/0")] == FALLBACK


async def test_an_interface_has_one_vlan_of_the_link_on_both_planes():
    world = await made()
    await learned(world)
    here, there = world.hardware.entries.router_interfaces, world.software.entries.router_interfaces
    for interface_id in (1, 2):
        link = here[interface_id].fallback
        assert link == FallbackLink(LINK, there[interface_id].vlan)
        assert there[interface_id].mac == here[interface_id].mac == mac(interface_id)
    assert len({one.vlan for one in there.values()}) == 2
    assert (await world.pair.read()).damaged == set()


@pytest.mark.parametrize("placement", list(Placement))
async def test_a_packet_arrives_with_one_hop_less_whatever_routes_it(placement):
    world = await made(router_config(1, (1, 2), placement=placement))
    await learned(world)
    assert bool(world.forwarding()) is (placement is not Placement.SOFTWARE)
    world.hardware.inject(1, packet("20.1.0.1", 9))
    ((port, frame),) = world.sent
    assert port == 2
    assert (frame[:6], frame[6:12]) == (mac(102), mac(2))
    assert frame[22] == 8
    counters = await world.pair.counters()
    assert (counters.router_interfaces[1].rx_packets, counters.router_interfaces[2].tx_packets) == (1, 1)


async def test_the_last_hop_ends_at_the_hardware_also_for_the_fallback():
    world = await made(router_config(1, (1, 2), placement=Placement.SOFTWARE))
    await learned(world)
    world.hardware.inject(1, packet("20.1.0.1", 1))
    assert not world.sent
    counters = await world.views.counters(1)
    assert counters.punts["ttl_expired"] == 1


async def test_what_has_no_room_is_left_to_the_software():
    world = await made(router_config(1, (1, 2), placement=Placement.HARDWARE), room=8)
    await learned(world)
    view = world.views.router_view(1)
    assert (view.state, view.refused) == ("up", 0)
    assert 0 < len(world.forwarding()) < len(FAR)
    assert held_by(world, 1) <= 8
    all_arrive(world)


async def test_what_is_over_a_slices_quota_is_left_to_the_software():
    hardware = Placement.HARDWARE
    configs = [router_config(1, (1, 2), placement=hardware), router_config(2, (3,), placement=hardware)]
    world = await made(*configs)
    await learned(world)
    await learned(world, {f"30.{n}.0.0/24": 1 for n in range(40)}, {1: [(3, gateway(3), 1)]}, vrf_id=2)
    all_of_it = held_by(world, 1, 2)
    assert world.views.slice_usage("red", "s1")["hardware_ipv4_routes"] == all_of_it > 20
    write, most = world.hardware.write, all_of_it

    async def watched(batch):
        refused = await write(batch)
        assert held_by(world, 1, 2) <= most
        return refused

    world.hardware.write = watched
    for quota, reached in ((12, 12), (7, 7), (0, 2), (15, 15), (None, all_of_it)):
        most = max(held_by(world, 1, 2), reached)
        for config in configs:
            await world.shards.put_router(replace(config, quota=Quota(hardware_ipv4_routes=quota)))
        await world.pair.work()
        assert held_by(world, 1, 2) == reached
        assert [world.views.router_view(vrf_id).state for vrf_id in (1, 2)] == ["up", "up"]
        all_arrive(world)
    assert len([key for key in world.in_hardware() if len(key) == 17]) > 0


async def test_what_was_reserved_for_a_slice_goes_to_others_with_its_last_router():
    quota = Quota(hardware_ipv4_routes=90)
    world = await made(router_config(1, (1, 2)), router_config(2, (3,), tenant="blue", quota=quota), room=100)
    await learned(world, {f"20.{n}.0.0/16": 1 for n in range(0, 60, 2)})
    assert not world.pair.routes.usage.whole(1)
    await world.shards.remove_router(2)
    await world.pair.work()
    assert world.pair.routes.usage.whole(1)
    assert world.pair.routes.usage.short_of(1) == ""


async def test_a_router_with_the_id_of_one_that_is_gone_has_nothing_of_its_placement():
    former = router_config(2, (3,), tenant="blue", placement=Placement.SOFTWARE)
    world = await made(router_config(1, (1, 2)), former)
    await learned(world)
    await world.shards.remove_router(2)
    await world.shards.put_router(router_config(2, (3,), tenant="green"))
    assert world.pair.move(2) is None
    await world.settle(2)
    assert world.pair.move(2) is None


async def test_a_table_that_is_full_sooner_than_declared_teaches_its_size():
    world = await made(capacity=6)
    await learned(world)
    assert world.views.router_view(1).state == "up"
    assert world.pair.refusals["ipv4_route"]
    view = await plane_view(world, "s1")
    assert view.entries["refused ipv4_route"] == world.pair.refusals["ipv4_route"]
    assert world.in_software().keys() >= {prefix_key(text) for text in FAR}
    refusals = dict(world.pair.refusals)
    await world.pair.work()
    assert world.pair.refusals == refusals
    world.hardware.inject(1, packet("20.7.0.1"))
    assert [port for port, _ in world.sent] == [2]


async def fullness(world: PairWorld) -> tuple[int, int | None, str]:
    one = (await plane_view(world, "s1")).tables["ipv4_route"]
    return one.used, one.capacity, one.source


async def test_the_room_is_what_the_plane_says_until_a_write_is_refused():
    world = PairWorld(capacity=9)
    world.hardware.table_sizes, world.software.table_sizes = {"ipv4_route": 7}, {"ipv4_route": 5000}
    await world.start(router_config(1, (1, 2), placement=Placement.HARDWARE))
    await learned(world)
    world.learn_links()
    await world.settle()
    await world.pair.work()
    assert await fullness(world) == (3, 7, "reported")  # 4 entries are kept free
    behind = (await plane_view(world, "f1")).tables["ipv4_route"]
    assert (behind.used, behind.capacity, behind.source) == (
        len([k for k in world.in_software() if len(k) == 5]),
        5000,
        "reported",
    )
    world.hardware.table_sizes = {"ipv4_route": 40}
    world.hardware.disconnect()
    world.hardware.connect()
    await world.until(lambda: world.pair._adopted)
    await world.pair.work()
    used, room, source = await fullness(world)
    assert (used, room, source) == (4, 8, "learned")  # of 9 one is IPv6's, and 4 are kept free
    assert world.pair.refusals["ipv4_route"]
    view = await plane_view(world, "s1")
    assert view.entries["refused ipv4_route"] == world.pair.refusals["ipv4_route"]


async def test_the_room_that_is_given_comes_before_what_the_plane_says():
    world = PairWorld(room=8)
    world.hardware.table_sizes = {"ipv4_route": 1_000_000}
    await world.start(router_config(1, (1, 2), placement=Placement.HARDWARE))
    await learned(world)
    assert await fullness(world) == (4, 8, "given")


async def test_a_plane_that_says_nothing_of_its_room():
    world = await made()
    await learned(world)
    assert (await fullness(world))[1:] == (None, "")


async def test_a_group_that_the_hardware_refuses_is_used_by_the_software():
    world = await made()
    world.hardware.fault = lambda table, key, op: "no room" if table == "nexthop_group" else None
    await learned(world, {"20.0.0.0/8": 1, "20.1.0.0/16": 2}, TWO_WAYS)
    assert world.router().state == ("up", "")
    assert prefix_key("20.0.0.0/8") not in world.forwarding()
    assert prefix_key("20.1.0.0/16") in world.forwarding()
    world.hardware.inject(1, packet("20.2.0.1"))
    assert len(world.sent) == 1
    world.hardware.fault = lambda table, key, op: None
    world.clock.now += 31
    await world.pair.work()
    assert len(world.hardware.entries.groups) == 1
    assert prefix_key("20.0.0.0/8") in world.forwarding()


async def test_a_route_that_the_hardware_refused_is_tried_again_where_an_operator_asks():
    world = await made()
    refused = prefix_key("20.1.0.0/16")
    world.hardware.fault = lambda table, key, op: "busy" if key == refused else None
    await learned(world, {"20.0.0.0/8": 1, "20.1.0.0/16": 2})
    world.hardware.fault = lambda table, key, op: None
    world.clock.now += 3600
    await world.pair.work()
    assert refused not in world.forwarding()
    verifying = asyncio.create_task(world.views.verify(1, repair=True))
    await world.until(lambda: world.router().snapshots)
    assert refused in world.forwarding()
    world.router().snapshot_end(1, "it is busy")
    with pytest.raises(NoSuch):
        await verifying


@pytest.mark.parametrize("room", [0, 12])
@pytest.mark.parametrize("placement", Placement)
async def test_so_is_an_own_address_whatever_else_is_in_hardware(placement: Placement, room: int):
    world = await made(router_config(1, (1, 2), placement=placement), room=room)
    own = prefix_key("10.0.1.1/32")
    world.hardware.fault = lambda table, key, op: "busy" if key == own else None
    await learned(world)
    world.hardware.fault = lambda table, key, op: None
    await world.pair.work()
    assert own not in world.in_hardware()
    world.pair.routes.tables.retry(1)
    await world.pair.work()
    assert own in world.in_hardware()


async def test_a_group_with_a_nexthop_that_the_hardware_does_not_change_is_used_by_the_software():
    """The hardware still has the nexthop as it was, and would send to the neighbor of before."""
    world = await made()
    await learned(world, {"20.0.0.0/8": 1, "20.1.0.0/16": 2}, TWO_WAYS)
    assert {prefix_key("20.0.0.0/8"), prefix_key("20.1.0.0/16")} <= world.forwarding()
    refusing = True
    world.hardware.fault = lambda table, key, op: "no" if refusing and (table, op) == ("nexthop", Op.MODIFY) else None
    list(world.router().neighbors([(2, gateway(2), mac(202), False)]))
    await world.settle()
    await world.pair.work()
    assert not {prefix_key("20.0.0.0/8"), prefix_key("20.1.0.0/16")} & world.forwarding()
    assert world.pair.refusals == {"nexthop": 1}
    world.clock.now += 31
    await world.pair.work()
    assert not {prefix_key("20.0.0.0/8"), prefix_key("20.1.0.0/16")} & world.forwarding(), "it was tried in vain"
    world.hardware.inject(1, packet("20.2.0.1"))
    world.hardware.inject(1, packet("20.1.0.1"))
    assert mac(102) not in [frame[:6] for _, frame in world.sent]
    assert len(world.sent) == 2
    refusing = False
    world.clock.now += 31
    await world.pair.work()
    await world.pair.work()
    assert {prefix_key("20.0.0.0/8"), prefix_key("20.1.0.0/16")} <= world.forwarding()
    assert not world.pair.routes.barred.groups


async def test_a_hardware_that_goes_before_routes_to_a_refused_nexthop_have_left_is_rid_of_them_when_it_is_back():
    world = await made()
    await learned(world, {"20.1.0.0/16": 2})
    fault = lambda table, key, op: "no" if (table, op) == ("nexthop", Op.MODIFY) else None  # noqa: E731
    write, world.hardware.fault = world.hardware.write, fault

    async def lost(batch):
        if any(map(len, batch.routes)):
            world.hardware.disconnect()
        return await write(batch)

    world.hardware.write = lost
    list(world.router().neighbors([(2, gateway(2), mac(202), False)]))
    world.shards.by_plane["s1"].attend(world.router())
    await world.until(lambda: not world.hardware.connected)
    world.hardware.write = write
    assert prefix_key("20.1.0.0/16") in world.forwarding()
    world.hardware.connect()
    await world.until(lambda: world.pair._adopted)
    await world.settle()
    await world.pair.work()
    assert prefix_key("20.1.0.0/16") not in world.forwarding()
    world.hardware.inject(1, packet("20.1.0.1"))
    assert [frame[:6] for _, frame in world.sent] == [mac(202)]


def test_routes_are_looked_at_once_for_all_nexthops_of_a_batch_that_are_refused():
    """There may be a thousand of each, and all are tried again twice a minute."""

    class Watched(dict[bytes, int]):
        looks = 0

        def __iter__(self):
            self.looks += 1
            return super().__iter__()

    routes = HardwareRoutes({4: 0, 6: 0})
    routes.tables.open(1)
    routes.tables.wanted[1, 4] = wanted = Watched(routes.tables.wanted[1, 4])
    refused = [Refused("nexthop", 1, number, Op.INSERT, "no") for number in range(1, 4)]
    for _ in range(2):
        for _ in routes.barring(refused):
            pass
        assert routes.barred.nexthops == {1, 2, 3}
        assert wanted.looks == 1


async def test_a_group_enters_soon_where_another_one_has_left():
    world = await made()
    there = world.hardware.entries.groups
    world.hardware.fault = lambda table, key, op: (
        "no room" if (table, op) == ("nexthop_group", Op.INSERT) and there else None
    )
    await learned(world, {"20.0.0.0/8": 1}, TWO_WAYS)
    world.router().define_set(3, SetKind.FORWARD, [(1, gateway(1), 1), (2, gateway(2), 3)])
    world.learn({"30.0.0.0/8": 3})
    await world.settle()
    assert prefix_key("30.0.0.0/8") not in world.forwarding()
    world.learn({"20.0.0.0/8": 0})
    await world.settle()
    world.router().release([1])
    await world.until(lambda: not there)
    world.clock.now += 1
    await world.pair.work()
    assert len(there) == 1
    assert prefix_key("30.0.0.0/8") in world.forwarding()


async def test_a_group_that_the_hardware_refused_is_not_tried_again_once_it_is_gone():
    world = await made()
    world.hardware.fault = lambda table, key, op: "no room" if table == "nexthop_group" else None
    await learned(world, {"20.0.0.0/8": 1}, TWO_WAYS)
    world.learn({"20.0.0.0/8": 0})
    await world.settle()
    (group,) = world.software.entries.groups.values()
    assert await world.pair.write(WriteBatch(groups=[Update(Op.DELETE, group)])) == []
    world.hardware.fault = lambda table, key, op: None
    world.clock.now += 31
    await world.pair.work()
    assert not world.hardware.entries.groups
    assert not world.pair.routes.barred.groups


async def test_a_nexthop_is_not_tried_again_as_it_was_while_it_changes():
    world = await made()
    world.hardware.fault = lambda table, key, op: "no room" if table == "nexthop" else None
    await learned(world, {"20.0.0.0/8": 1})
    world.hardware.fault = lambda table, key, op: None
    world.clock.now += 31
    world.hardware.gate.clear()
    world.hardware.writes.clear()
    list(world.router().neighbors([(1, gateway(1), mac(201), False)]))
    settling = asyncio.create_task(world.settle())
    await world.until(lambda: any(batch.nexthops for batch in world.hardware.writes))
    working = asyncio.create_task(world.pair.work())
    await asyncio.sleep(0)
    world.hardware.gate.set()
    await asyncio.gather(settling, working)
    assert world.hardware.entries.nexthops == world.software.entries.nexthops
    assert (await verified(world)).equal


async def test_a_group_that_the_hardware_refused_is_not_tried_again_where_both_went_as_the_software_deleted_it():
    world = await made()
    world.hardware.fault = lambda table, key, op: "no room" if table == "nexthop_group" else None
    await learned(world, {"20.0.0.0/8": 1}, TWO_WAYS)
    world.hardware.fault = lambda table, key, op: None
    world.learn({"20.0.0.0/8": 0})
    await world.settle()
    world.software.gate.clear()
    world.router().release([1])
    await world.until(lambda: not world.software.entries.groups)
    for plane in (world.hardware, world.software):
        plane.disconnect()
    world.software.gate.set()
    await world.until(lambda: not world.router().fib.in_flight)
    for plane in (world.hardware, world.software):
        plane.connect()
    await world.settle()
    await world.pair.work()
    assert not world.hardware.entries.groups


async def test_a_way_in_that_the_hardware_does_not_close_keeps_its_vlan():
    world = await made()
    await learned(world)
    world.hardware.fault = lambda table, key, op: "no" if (table, op) == ("router_interface", Op.DELETE) else None
    interface = world.hardware.entries.router_interfaces[2]
    (refused,) = await world.pair.write(WriteBatch(router_interfaces=[Update(Op.DELETE, interface)]))
    assert (refused.table, refused.key, refused.reason) == ("router_interface", 2, "no")
    assert interface.fallback is not None
    assert world.pair._writer.vlans.of(2) == interface.fallback.vlan


async def test_own_addresses_are_in_hardware_also_of_a_router_in_software():
    world = await made(router_config(1, (1, 2), placement=Placement.SOFTWARE))
    await learned(world)
    assert prefix_key("10.0.1.1/32") in world.in_hardware()
    assert not world.forwarding()


async def test_placement_changes_while_it_runs():
    world = await made()
    await learned(world)
    for placement in (Placement.SOFTWARE, Placement.HARDWARE, Placement.AUTO):
        await world.shards.put_router(router_config(1, (1, 2), placement=placement))
        await world.pair.work()
        assert bool(world.forwarding()) is (placement is not Placement.SOFTWARE)


async def test_a_router_of_many_routes_moves_without_a_pause(monkeypatch):
    monkeypatch.setattr("controller.fallback.plane.WORK_S", 3600.0)
    monkeypatch.setattr("controller.fallback.plane.MAX_ROUNDS", 1)
    monkeypatch.setattr("controller.fallback.hardware_routes.BUDGET", LEAST_BUDGET)
    world = await made(router_config(1, (1, 2), placement=Placement.HARDWARE))
    await learned(world)
    world.learn_links()
    await world.settle()
    await world.pair.work()
    assert len(world.forwarding()) > LEAST_BUDGET
    world.pair.routes.place(1, Placement.SOFTWARE)
    placing = asyncio.create_task(world.pair.run())
    try:
        await world.until(lambda: not world.forwarding())
    finally:
        placing.cancel()


def test_aggregation_goes_on_while_nothing_moves(monkeypatch):
    monkeypatch.setattr("controller.fallback.hardware_routes.BUDGET", LEAST_BUDGET)
    routes = HardwareRoutes({4: 0, 6: 0})
    routes.tables.open(1)
    keys = [prefix_key(f"20.{n}.0.0/16") for n in range(200)]
    actions = [route_action(RouteKind.NEXTHOP, 1 + n % 3) for n in range(200)]
    routes.tables.change(RouteUpdates(1, 4, [Op.INSERT] * 200, keys, actions))
    assert not routes.tables.aggregated
    for _ in range(200):
        routes.rebalance(0.0)
    assert routes.tables.aggregated


async def test_it_is_there_only_when_both_and_the_link_are():
    world = PairWorld()
    await world.start(router_config(1, (1, 2)))
    assert world.pair.connected
    world.software.disconnect("closed")
    assert not world.pair.connected
    assert world.pair.problem == "plane f1 is not connected"
    world.software.connect()
    assert world.pair.connected
    world.hardware.set_port(LINK, "s1-f1", up=False, present=False)
    assert world.pair.problem == "port s1-f1 of the fallback link is not on plane s1"
    assert not world.pair.connected


async def test_a_link_that_is_down_is_said():
    world = await made()
    await learned(world)
    world.hardware.set_port(LINK, "s1-f1", up=False)
    view = world.views.router_view(1)
    assert view.state == "degraded"
    assert view.reason.startswith("port s1-f1 of plane s1 is down")
    world.hardware.set_port(LINK, "s1-f1", up=True)
    assert world.views.router_view(1).state == "up"


async def test_hardware_without_room_for_a_router_at_all_says_so():
    world = await made(room=1)
    await world.shards.put_router(router_config(2, (3,)))
    await learned(world)
    await world.settle(2)
    world.connect(2)
    world.router(2).resync_end(True)
    assert world.router(1).state == ("up", "")
    text = "all 1 entries are in use: nothing is left for router 2"
    text = f"plane s1 refused policer: ipv4_route has no room for its default entry: {text}"
    assert world.router(2).state == ("degraded", text)


async def test_hardware_that_lost_everything_is_filled_again_while_the_software_has_all():
    world = await made()
    await learned(world)
    before = {key: dict(world.in_hardware()) for key in (1,)}
    world.hardware.disconnect()
    held = world.hardware.entries
    for entries in (held.routes, held.router_interfaces, held.nexthops, held.policers, held.groups):
        entries.clear()
    world.software.writes.clear()
    world.hardware.connect()
    await world.until(lambda: world.pair._adopted)
    await world.settle()
    await world.pair.work()
    assert world.in_hardware() == before[1]
    assert not [batch for batch in world.software.writes if any(map(len, batch.routes))]


async def test_interfaces_keep_their_vlans_when_the_software_has_lost_everything():
    """Or one tenant's packets could meet the other's tables: the hardware still sends by the VLANs of before."""
    world = await made(router_config(1, (2,)))
    await world.settle(1)
    await world.shards.put_router(router_config(2, (1,)))
    await world.settle(2)
    links = {i: one.fallback for i, one in world.hardware.entries.router_interfaces.items()}
    again = PairWorld()
    again.hardware.entries = world.hardware.entries
    await again.start(router_config(1, (2,)), router_config(2, (1,)))
    await again.until(lambda: len(again.software.entries.router_interfaces) == 2)
    await again.settle(1)
    await again.settle(2)
    assert len(links) == 2
    there = again.software.entries.router_interfaces
    assert {i: FallbackLink(LINK, one.vlan) for i, one in there.items()} == links
    assert {i: one.fallback for i, one in again.hardware.entries.router_interfaces.items()} == links


async def test_a_new_controller_adopts_both_and_writes_nothing():
    world = await made()
    await learned(world)
    again = PairWorld()
    again.hardware.entries, again.software.entries = world.hardware.entries, world.software.entries
    held = dict(world.in_hardware())
    await started(again)
    await learned(again)
    assert not [batch for plane in (again.hardware, again.software) for batch in plane.writes if batch]
    assert again.in_hardware() == held


async def test_a_route_that_the_software_was_found_to_lack_and_nobody_wants_any_more_leaves_hardware(monkeypatch):
    world = await made()
    await learned(world)
    gone = prefix_key("20.1.0.0/16")
    assert gone in world.forwarding()
    del world.in_software()[gone]
    repairing = route_audit.repairing

    def withdrawing(*compared: Any) -> Iterator[None]:
        steps = repairing(*compared)
        yield next(steps)
        world.learn({"20.1.0.0/16": 0})  # in the turn that compares routes: it is not written before
        yield from steps

    monkeypatch.setattr(mirror, "repairing", withdrawing)
    monkeypatch.setattr(route_audit, "_BITS_A_KEY", 1 << 16)  # or it may be taken for read
    assert await world.shards.by_plane["s1"].mirror.audit() == {1: 1}
    await world.settle()
    await world.pair.work()
    assert gone not in world.forwarding()


async def test_a_route_that_the_software_was_found_to_lack_stays_in_hardware_until_the_guest_has_told_all(
    monkeypatch,
):
    world = await made()
    await learned(world)
    await world.close()
    again = PairWorld()
    again.hardware, again.software = world.hardware, world.software
    again.pair = FallbackPair(
        again.hardware, again.software, world.pair.link, HardwareRoutes({4: 0, 6: 0}), again.clock
    )
    await started(again)
    await again.settle()
    gone = prefix_key("20.1.0.0/16")
    del again.in_software()[gone]
    for _ in range(2):
        assert not await again.shards.by_plane["s1"].mirror.audit()
        await again.settle()
    assert not [event for event in again.events.recent() if event.kind == "repaired"]
    assert gone in again.forwarding()
    await learned(again, {name: way for name, way in FAR.items() if prefix_key(name) != gone})
    assert gone not in again.forwarding()


async def test_what_is_changed_by_hand_in_hardware_is_found_and_repaired():
    world = await made()
    await learned(world)
    held = world.in_hardware()
    changed, gone = prefix_key("20.3.0.0/16"), prefix_key("20.5.0.0/16")
    held[changed] = next(held[key] for key in sorted(world.forwarding()) if held[key] != held[changed])
    del held[gone]
    view = await verified(world)
    assert not view.equal
    assert {"20.3.0.0", "20.5.0.0"} <= {one.first for one in view.differences}
    await world.pair.work()
    assert (await verified(world)).equal
    (event,) = [event for event in world.events.recent() if event.kind == "repaired"]
    assert (event.subject, event.text) == ("s1", "2 routes differed in hardware")


async def test_what_is_under_way_is_no_damage(monkeypatch):
    monkeypatch.setattr("controller.fallback.staged_writes.STAGE_ROUTES", 1)
    world = await made()
    await learned(world)
    world.hardware.writes.clear()
    world.hardware.gate.clear()
    world.pair.routes.place(1, Placement.SOFTWARE)
    moving = asyncio.create_task(world.pair.work())
    await world.until(lambda: world.hardware.writes != [])
    assert world.forwarding()
    await world.pair.read()
    world.hardware.gate.set()
    await moving
    assert not world.forwarding()
    assert not [event for event in world.events.recent() if event.kind == "repaired"]


def test_a_write_may_end_after_the_hardware_was_read_anew():
    routes = HardwareRoutes({4: 0, 6: 0})
    routes.tables.open(1)
    stage = routes.next_stage()
    every(routes.adoption.adopt({}, {}, [1]))
    routes.confirm(stage, [])
    while stage := routes.next_stage():
        routes.confirm(stage, [])
    assert held(routes, 1) == {bytes(5): FALLBACK, bytes(17): FALLBACK}


async def test_after_a_write_that_an_unforeseen_error_ends_both_are_adopted_anew(monkeypatch):
    """Or nobody would know what of it the hardware has."""
    monkeypatch.setattr("controller.supervisor.RESTART_S", 0)
    world = await made()
    await learned(world, {"20.0.0.0/8": 1})
    follow = world.pair._writer.follow

    async def failing(*_):
        monkeypatch.setattr(world.pair._writer, "follow", follow)
        raise ValueError("nobody foresaw this")

    monkeypatch.setattr(world.pair._writer, "follow", failing)
    world.learn({"20.0.0.0/8": 2})
    await world.until(lambda: not world.pair._adopted)
    await world.until(lambda: world.pair._adopted)
    await world.settle()
    await world.pair.work()
    world.hardware.inject(1, packet("20.0.0.1"))
    assert [port for port, _ in world.sent] == [2]


async def test_a_router_that_is_removed_leaves_nothing_on_either():
    world = await made()
    await learned(world)
    await world.shards.remove_router(1)
    for plane in (world.hardware, world.software):
        assert not plane.entries.routes.get(1)
        assert not plane.entries.router_interfaces
        assert not plane.entries.policers
    assert not world.pair.routes.writes.installed, "each router that there ever was would be audited"
