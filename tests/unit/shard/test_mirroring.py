"""From learned routes to entries on the plane."""

import asyncio

import pytest
from worlds import gateway, mac, router_config

from controller.errors import PlaneError, PlaneUnreachable
from controller.model import PuntRates, Quota
from controller.planes.base import (
    BLACKHOLE,
    GLEAN,
    LOCAL,
    UNREACHABLE,
    NexthopState,
    Op,
    PuntClass,
    Refused,
    RouteKind,
    action_kind,
)
from controller.planes.base import action_value as value
from controller.planes.fake import FakePlane
from controller.routing.rib import SetKind
from controller.shard import mirror
from controller.shard.mirror import SILENCE_LASTS_S
from wire.columns import prefix_key as key


async def ready(make_world, **options):
    world = await make_world(router_config(**options))
    vrc = world.connect()
    router = world.router()
    router.define_set(1, SetKind.FORWARD, [(1, gateway(1), 1)])
    router.define_set(2, SetKind.FORWARD, [(1, gateway(1), 1), (2, gateway(2), 3)])
    router.define_set(3, SetKind.CONNECTED, [(1, b"", 1)])
    router.define_set(4, SetKind.BLACKHOLE, [])
    router.define_set(5, SetKind.UNREACHABLE, [])
    router.define_set(6, SetKind.FORWARD, [(2, gateway(2), 1)])
    return world, vrc


async def test_every_kind_of_route(make_world):
    world, vrc = await ready(make_world)
    routes = {"20.1.0.0/16": 1, "20.2.0.0/16": 2, "10.0.1.0/24": 3, "20.4.0.0/16": 4, "2001:db8::/32": 5}
    sequence = world.learn(routes)
    await world.settle()
    installed = world.installed()
    assert installed[key("10.0.1.0/24")] == GLEAN
    assert installed[key("20.4.0.0/16")] == BLACKHOLE
    assert installed[key("2001:db8::/32")] == UNREACHABLE
    assert installed[key("10.0.1.1/32")] == LOCAL
    single, group = installed[key("20.1.0.0/16")], installed[key("20.2.0.0/16")]
    assert action_kind(single) is RouteKind.NEXTHOP
    assert world.plane.entries.nexthops[value(single)].mac == mac(101)
    members = world.plane.entries.groups[value(group)].members
    assert [(world.plane.entries.nexthops[m.nexthop_id].mac, m.weight, m.watch_port) for m in members] == [
        (mac(101), 1, 1),
        (mac(102), 3, 2),
    ]
    assert installed[key("10.0.1.2/32")] == single  # the neighbor itself
    assert vrc.acknowledged == sequence


async def test_classes_that_share_a_meter_have_the_largest_of_their_rates(make_world):
    plane = FakePlane("s1", shared_meters=(frozenset({PuntClass.GLEAN, PuntClass.TTL}),))
    world = await make_world(router_config(quota=Quota(punts_per_s=PuntRates(glean=7, ttl=9, mtu=3))), plane=plane)
    await world.settle()
    assert plane.entries.policers[1].rates == PuntRates(glean=9, ttl=9, mtu=3)
    world.router().configure(router_config(quota=Quota(punts_per_s=PuntRates(glean=20, ttl=9))))
    await world.settle()
    assert plane.entries.policers[1].rates == PuntRates(glean=20, ttl=20)


async def test_withdrawn_routes_and_their_objects_go(make_world):
    world, _ = await ready(make_world)
    world.learn({"20.2.0.0/16": 2})
    await world.settle()
    world.learn({"20.2.0.0/16": 0})
    await world.settle()
    world.router().release([2])
    await world.settle()
    assert key("20.2.0.0/16") not in world.installed()
    assert not world.plane.entries.groups


async def test_change_is_one_modify(make_world):
    world, _ = await ready(make_world)
    world.learn({"20.1.0.0/16": 1})
    await world.settle()
    world.forget_writes()
    world.learn({"20.1.0.0/16": 6})
    await world.settle()
    (updates,) = [u for batch in world.plane.writes for u in batch.routes]
    assert [op.name for op in updates.ops] == ["MODIFY"]


async def test_change_and_back_writes_nothing(make_world):
    world, _ = await ready(make_world)
    world.learn({"20.1.0.0/16": 1})
    await world.settle()
    world.forget_writes()
    world.learn({"20.1.0.0/16": 0})
    world.learn({"20.1.0.0/16": 1})
    await world.settle()
    assert world.route_writes() == 0


async def test_link_down_is_one_group_write_and_repoints_write_nothing(make_world):
    world, _ = await ready(make_world)
    many = {f"20.{i}.{j}.0/24": 2 for i in range(10) for j in range(100)}
    world.learn(many)
    await world.settle()
    world.forget_writes()
    world.plane.set_port(1, "p1", False)
    await world.settle()
    assert world.route_writes() == 0
    assert sum(len(batch.groups) + len(batch.nexthops) for batch in world.plane.writes) <= 3
    world.learn(dict.fromkeys(many, 6))  # zebra re-points every prefix to the nexthop that is left
    await world.settle()
    assert world.route_writes() == 0
    group = world.plane.entries.groups[value(world.installed()[key("20.1.1.0/24")])]
    assert [world.plane.entries.nexthops[m.nexthop_id].mac for m in group.members] == [mac(102)]


async def test_link_back_after_repoints_spreads_again(make_world):
    world, _ = await ready(make_world)
    many = {f"20.0.{j}.0/24": 2 for j in range(50)}
    world.learn(many)
    await world.settle()
    world.plane.set_port(1, "p1", False)
    world.learn(dict.fromkeys(many, 6))
    await world.settle()
    world.plane.set_port(1, "p1", True)
    world.learn(dict.fromkeys(many, 2))
    await world.settle()
    for text in many:
        members = world.plane.entries.groups[value(world.installed()[key(text)])].members
        assert len(members) == 2


async def test_second_failure_after_repoint_reaches_the_ridden_group(make_world):
    world, _ = await ready(make_world)
    router = world.router()
    router.define_set(7, SetKind.FORWARD, [(1, gateway(1), 1), (2, gateway(2), 1), (3, gateway(3), 1)])
    router.define_set(8, SetKind.FORWARD, [(2, gateway(2), 1), (3, gateway(3), 1)])
    world.learn({"20.1.0.0/16": 7})
    await world.settle()
    world.plane.set_port(1, "p1", False)
    world.learn({"20.1.0.0/16": 8})
    router.fib._rib.release([7])
    await world.settle()
    router.fib.collect()
    world.plane.set_port(2, "p2", False)
    await world.settle()
    members = world.plane.entries.groups[value(world.installed()[key("20.1.0.0/16")])].members
    assert [world.plane.entries.nexthops[m.nexthop_id].mac for m in members] == [mac(103)]


async def test_unresolved_member_is_left_out_and_none_gleans(make_world):
    world, _ = await ready(make_world)
    router = world.router()
    world.learn({"20.2.0.0/16": 2})
    list(router.neighbors([(1, gateway(1), b"", False)]))
    await world.settle()
    group = world.plane.entries.groups[value(world.installed()[key("20.2.0.0/16")])]
    assert len(group.members) == 1
    list(router.neighbors([(2, gateway(2), b"", False)]))
    await world.settle()
    group = world.plane.entries.groups[value(world.installed()[key("20.2.0.0/16")])]
    assert [world.plane.entries.nexthops[m.nexthop_id].state for m in group.members] == [NexthopState.GLEAN]


async def test_failed_neighbor_drops_for_a_bounded_time(make_world):
    world, _ = await ready(make_world)
    router = world.router()
    world.learn({"20.1.0.0/16": 1})
    list(router.neighbors([(1, gateway(1), b"", True)]))
    await world.settle()
    nexthop = value(world.installed()[key("20.1.0.0/16")])
    assert world.plane.entries.nexthops[nexthop].state is NexthopState.DROP
    world.clock.now += 10
    router.tick()
    await world.settle()
    assert world.plane.entries.nexthops[nexthop].state is NexthopState.GLEAN


async def test_silence_while_the_plane_was_away_fails_no_neighbor(make_world):
    world, _ = await ready(make_world)
    router = world.router()
    world.learn({"20.1.0.0/16": 1, "20.2.0.0/16": 6})
    await world.settle()
    world.plane.disconnect("cut")
    for number in (1, 2, 99):
        list(router.neighbors([(1 if number == 99 else number, gateway(number), b"", True)]))
    world.plane.connect()
    await world.settle()
    list(router.neighbors([(2, gateway(2), b"", True)]))

    def states() -> list[NexthopState]:
        nexthops = {one.router_interface_id: one.state for one in world.plane.entries.nexthops.values()}
        return [nexthops[1], nexthops[2]]

    assert states() == [NexthopState.FORWARD, NexthopState.FORWARD]
    list(router.neighbors([(1, gateway(1), mac(101), False)]))
    world.clock.now += SILENCE_LASTS_S
    router.tick()
    await world.settle()
    assert states() == [NexthopState.FORWARD, NexthopState.GLEAN]  # the silent one is looked for


async def test_routes_over_a_dead_link_leave_for_a_shorter_prefix_and_come_back(make_world):
    world, _ = await ready(make_world)
    world.learn({"20.1.0.0/16": 1, "0.0.0.0/0": 6})
    await world.settle()
    world.plane.set_port(1, "p1", False)
    await world.settle()
    assert key("20.1.0.0/16") in world.installed()  # the daemons may move it yet
    world.clock.now += 10
    world.router().tick()
    await world.settle()
    assert key("20.1.0.0/16") not in world.installed()
    world.plane.set_port(1, "p1", True)
    await world.settle()
    assert key("20.1.0.0/16") in world.installed()


async def test_no_port_is_said_to_be_missing_before_the_plane_is_known(make_world):
    world = await make_world(plane=FakePlane("s1"))
    await world.shards.add_plane(away := FakePlane("s2"))
    await world.shards.put_router(router_config(9, plane="s2"))
    world.router(9).tick()
    assert "router-degraded" not in [event.kind for event in world.events.recent()]
    await world.until(lambda: away._listener is not None)
    away.connect()
    await world.until(world.router(9).host.ready.is_set)
    world.router(9).tick()
    assert world.router(9).state == ("degraded", "port p1 is not on plane s2")
    assert "router-degraded" in [event.kind for event in world.events.recent()]


async def test_quota_refuses_by_name_and_readmits(make_world):
    world, _ = await ready(make_world, quota=Quota(ipv4_routes=8))
    world.learn({f"20.{i}.0.0/16": 1 for i in range(10)})
    await world.settle()
    assert len(world.installed()) == 8
    assert world.router().state == ("resync", "the VRC is repeating what it knows")
    world.router().resync_end(True)
    assert world.router().state == ("degraded", "quota ipv4_routes of 8")
    world.router().tick()
    world.router().tick()
    events = [event for event in world.events.recent() if event.kind == "router-degraded"]
    assert [event.text for event in events] == ["quota ipv4_routes of 8"]
    world.learn({f"20.{i}.0.0/16": 0 for i in range(5)})
    await world.settle()
    world.router().fib.retry_refused()
    await world.settle()
    assert len(world.installed()) == 8
    world.learn({f"20.{i}.0.0/16": 0 for i in range(5, 9)})
    await world.settle()
    world.router().fib.retry_refused()
    await world.settle()
    assert not world.router().fib.refused_routes
    assert key("20.9.0.0/16") in world.installed()
    world.learn({f"20.{i}.0.0/16": 1 for i in range(10)})
    await world.settle()
    assert len(world.installed()) == 8
    await world.shards.put_router(router_config(quota=Quota(ipv4_routes=20)))
    await world.settle()
    assert not world.router().fib.refused_routes


async def test_what_a_refused_change_leaves_keeps_its_group(make_world):
    """The plane may still route by it; without it, it would drop, or follow whoever gets its id."""
    world, _ = await ready(make_world)
    router = world.router()
    router.define_set(7, SetKind.FORWARD, [(1, gateway(1), 1), (2, gateway(2), 1)])
    router.define_set(8, SetKind.BLACKHOLE, [])
    world.learn({"20.1.0.0/16": 7})
    await world.settle()
    groups = dict(world.plane.entries.groups)
    world.plane.fault = lambda table, key, op: "no" if table == "ipv4_route" else None
    world.learn({"20.1.0.0/16": 8})
    router.release([7])
    await world.settle()
    assert world.plane.entries.groups == groups
    world.plane.fault = lambda *_: None
    router.fib.retry_refused()
    world.learn({})
    await world.settle()
    assert len(world.plane.entries.groups) == len(groups) - 1


async def test_what_a_refused_change_leaves_in_a_group_keeps_its_nexthops(make_world):
    """The plane still forwards to all members; without one, it would drop, or follow whoever gets its id."""
    world, _ = await ready(make_world)
    router = world.router()
    for number, other in ((7, 2), (8, 3)):
        router.define_set(number, SetKind.FORWARD, [(1, gateway(1), 1), (other, gateway(other), 1)])
    world.learn({"20.1.0.0/16": 7})
    await world.settle()
    group = value(world.installed()[key("20.1.0.0/16")])
    members = {one.nexthop_id for one in world.plane.entries.groups[group].members}
    world.plane.fault = lambda table, _, op: "no" if (table, op) == ("nexthop_group", Op.MODIFY) else None
    list(router.neighbors([(number, gateway(number), b"", False) for number in (2, 3)]))
    await world.settle()
    world.learn({"20.1.0.0/16": 8})  # which forwards as the other does, whose group it takes over
    router.release([2, 6, 7])
    await world.settle()
    assert value(world.installed()[key("20.1.0.0/16")]) == group
    assert members <= world.plane.entries.nexthops.keys()
    assert not router.fib.untidy
    world.plane.fault = lambda *_: None
    router.fib.retry_refused()
    world.learn({})
    await world.settle()
    assert len(world.plane.entries.groups[group].members) == 1
    assert len(members & world.plane.entries.nexthops.keys()) == 1


@pytest.mark.parametrize("removed", [False, True])
async def test_what_the_plane_does_not_delete_keeps_its_id_and_is_deleted_later(make_world, removed):
    world, _ = await ready(make_world)
    router = world.router()
    router.resync_end(True)
    router.define_set(7, SetKind.FORWARD, [(1, gateway(1), 1), (2, gateway(2), 1)])
    world.learn({"20.1.0.0/16": 7})
    await world.settle()
    groups, used = set(world.plane.entries.groups), world.shards.by_plane["s1"].mirror.objects._used
    world.plane.fault = lambda table, _, op: "no" if (table, op) == ("nexthop_group", Op.DELETE) else None
    if removed:
        with pytest.raises(PlaneError, match="plane s1 refused nexthop_group: no"):
            await asyncio.wait_for(world.shards.remove_router(1), 30)
    else:
        world.learn({"20.1.0.0/16": 0})
        router.release([2, 7])
        await world.settle()
        assert router.state == ("degraded", "plane s1 refused nexthop_group: no")
    assert set(world.plane.entries.groups) == groups
    assert groups <= used
    world.plane.fault = lambda *_: None
    router.fib.retry_refused()
    if removed:
        await asyncio.wait_for(world.shards.remove_router(1), 30)
    else:
        await world.settle()
        assert router.state == ("up", "")
    assert not world.plane.entries.groups
    assert not groups & used


async def test_a_port_is_not_left_where_a_change_and_then_the_deletion_were_refused(make_world):
    """Else another tenant would get it while the interface is still there."""
    world, _ = await ready(make_world)
    await world.settle()
    world.plane.fault = lambda table, key, _: "no" if (table, key) == ("router_interface", 3) else None
    world.router().interface_states([(3, False, [])])
    world.learn({})
    await world.settle()
    with pytest.raises(PlaneError, match="plane s1 refused router_interface: no"):
        await asyncio.wait_for(world.shards.put_router(router_config(interfaces=(1, 2))), 30)
    assert 3 in world.plane.entries.router_interfaces
    world.plane.fault = lambda *_: None
    world.router().fib.retry_refused()
    await asyncio.wait_for(world.shards.ports_left(1, {3}), 30)
    assert 3 not in world.plane.entries.router_interfaces


async def test_table_full_is_reported_and_the_rest_is_in_force(make_world):
    world, _ = await ready(make_world)
    world.plane.fault = lambda table, key, op: "no room" if key == b"\x14\x01\x00\x00\x10" else None
    sequence = world.learn({"20.1.0.0/16": 1, "20.2.0.0/16": 1})
    await world.settle()
    assert key("20.2.0.0/16") in world.installed()
    assert world.router().fib.refused_routes == {key("20.1.0.0/16"): "plane s1 refused ipv4_route: no room"}
    assert world.router().vrc.acknowledged == sequence
    (event,) = [event for event in world.events.recent() if event.kind == "entry-refused"]
    assert event.text == "plane s1 ipv4_route 20.1.0.0/16: no room"


async def test_a_route_that_is_refused_and_has_changed_meanwhile_leaves_nothing_behind(make_world, monkeypatch):
    world, _ = await ready(make_world)
    await world.settle()
    monkeypatch.setattr(mirror, "BATCH_ROUTES", 2)
    changed, refusing = key("20.1.0.0/16"), [True]
    world.plane.fault = lambda _table, key, op: "no" if key == changed and op is Op.INSERT and refusing else None
    world.plane.gate.clear()
    world.learn({"20.1.0.0/16": 1, "20.2.0.0/16": 1, "20.3.0.0/16": 1})
    fib = world.router().fib
    await world.until(lambda: fib.in_flight == 1)
    world.learn({"20.1.0.0/16": 4})
    await world.until(lambda: key("20.3.0.0/16") in world.installed())
    refusing.clear()
    world.plane.gate.set()
    await world.settle()
    assert world.installed()[changed] == BLACKHOLE
    world.learn({"20.1.0.0/16": 0})
    await world.settle()
    assert world.installed() == fib.installed_routes
    assert changed not in world.installed()


async def test_a_route_that_changes_under_way_is_written_once_that_is_confirmed(make_world):
    world, _ = await ready(make_world)
    await world.settle()
    world.plane.gate.clear()
    world.learn({"20.1.0.0/16": 4, "20.2.0.0/16": 4})
    fib = world.router().fib
    await world.until(lambda: key("20.2.0.0/16") in world.installed())
    batches = fib.batches
    world.learn({"20.3.0.0/16": 5, "20.2.0.0/16": 5, "20.5.0.0/16": 5})
    world.plane.gate.set()
    await world.settle()
    assert [world.installed()[key(f"20.{i}.0.0/16")] for i in (1, 2, 3, 5)] == [BLACKHOLE, *[UNREACHABLE] * 3]
    assert fib.batches - batches <= 2


async def test_what_a_plane_lacks_of_another_router_than_was_written_is_told_of_that_one(make_world, monkeypatch):
    world = await make_world(router_config(1, (1,)), router_config(2, (2,)))
    for vrf_id in (1, 2):
        world.connect(vrf_id)
        world.router(vrf_id).resync_end(True)
        await world.settle(vrf_id)
    write = world.plane.write

    async def losing(batch):
        return [*await write(batch), Refused("policer", 2, 2, Op.INSERT, "no room left")]

    monkeypatch.setattr(world.plane, "write", losing)
    world.router().define_set(1, SetKind.FORWARD, [(1, gateway(1), 1)])
    world.learn({"20.1.0.0/16": 1})
    await world.settle()
    assert world.router(2).state == ("degraded", "plane s1 refused policer: no room left")
    assert world.router(1).state == ("up", "")


async def test_a_new_interface_is_declared_with_its_ports_state(make_world):
    world, vrc = await ready(make_world, interfaces=(1, 2))
    await world.shards.put_router(router_config(1, (1, 2, 3)))
    assert vrc.ports == {1: True, 2: True, 3: True}


async def test_a_plane_that_fails_without_waiting_leaves_the_loop_to_others(make_world):
    world = await make_world(router_config())
    await world.settle()
    failures = 0

    async def lost():
        nonlocal failures
        failures += 1
        if failures > 1000:
            pytest.fail("nobody else had a turn")
        raise PlaneUnreachable("s1", "gone, but not told yet")

    world.plane.read, read = lost, world.plane.read
    world.plane.disconnect()
    world.plane.connect()
    await world.until(lambda: failures)
    world.plane.read = read
    await world.until(lambda: world.shards.by_plane["s1"].mirror.adopted)
