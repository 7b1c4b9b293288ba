"""Reconnects, restarts, resyncs: nothing is wiped, nothing stale stays."""

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from worlds import World, gateway, interface, mac, router_config

from controller.errors import PlaneError, PlaneUnreachable, SessionRefused
from controller.planes.base import LOCAL, Op, action_value
from controller.planes.fake import FakePlane
from controller.routing import fib, prefixes
from controller.routing.rib import SetKind
from controller.shard import loop_share, mirror, unclaimed
from controller.shard.router import REFUSED_RETRY_S
from wire.columns import prefix_key as key

LINK_LOCAL = bytes.fromhex("fe80000000000000000000000000aa01")
ONE_LESS = router_config(1, (1, 2))


def teach(world: World, vrf_id: int = 1) -> None:
    router = world.router(vrf_id)
    router.define_set(1, SetKind.FORWARD, [(1, gateway(1), 1)])
    router.define_set(2, SetKind.FORWARD, [(1, gateway(1), 1), (2, gateway(2), 1)])
    world.learn({"20.1.0.0/16": 1, "20.2.0.0/16": 2, "20.3.0.0/16": 2}, vrf_id)


async def adopted(world: World) -> None:
    """Wait for what a VRC waits for: before the plane was read back, ids are not known."""
    await world.until(lambda: world.shards.by_plane["s1"].mirror.adopted)


async def test_what_changes_while_a_large_table_is_adopted_is_right_at_the_end(make_world, monkeypatch):
    world = await make_world(router_config())
    world.connect()
    teach(world)
    world.learn({f"30.{i}.0.0/16": 1 for i in range(40)})
    world.router().resync_end(True)
    await world.settle()
    monkeypatch.setattr(loop_share, "TURN_S", 0.0)
    monkeypatch.setattr(fib, "SLICE_COST", 1)
    for module in (prefixes, unclaimed):
        monkeypatch.setattr(module, "READ_AT_ONCE", 1)
    world.plane.disconnect()
    wanted = dict(world.installed())
    lost = [f"30.{i}.0.0/16" for i in range(0, 40, 3)]
    for text in lost:
        del world.installed()[key(text)]
    world.plane.connect()
    vrc, step = world.router().vrc, 0
    while not world.router().fib.idle or step < 40:
        if step < 40:
            world.learn({f"30.{step}.0.0/16": step % 3})
            if step % 7 == 0:
                world.plane.set_port(1, "p1", step % 2 == 1)
        step += 1
        await asyncio.sleep(0)
    world.plane.set_port(1, "p1", True)
    await world.settle()
    actions = [None, wanted[key("20.1.0.0/16")], wanted[key("20.2.0.0/16")]]
    assert [world.installed().get(key(f"30.{i}.0.0/16")) for i in range(40)] == [actions[i % 3] for i in range(40)]
    assert vrc.acknowledged == world.sequence


def noted(turns: list[int], vrf_id: int, adopt: Callable[..., Iterator[None]]) -> Callable[..., Iterator[None]]:
    """Return an `adopt` that notes whose turn it is."""

    def steps(*arguments: object) -> Iterator[None]:
        turns.append(vrf_id)
        yield from adopt(*arguments)

    return steps


async def test_plane_reconnect_writes_nothing(make_world):
    world = await make_world(router_config())
    world.connect()
    teach(world)
    await world.settle()
    world.forget_writes()
    world.plane.disconnect()
    world.plane.connect()
    await world.settle()
    assert world.plane.writes == []


@pytest.mark.parametrize("meanwhile", ["another router", "a removal", "another connection"])
async def test_routers_take_turns_to_adopt_what_their_plane_has(make_world, monkeypatch, meanwhile):
    """Of thousands, all at once would hold up everybody else for seconds."""
    monkeypatch.setattr(loop_share, "TURN_S", 0.0)
    world = await make_world(*(router_config(vrf_id, (vrf_id,)) for vrf_id in range(1, 5)))
    for vrf_id in range(1, 5):
        world.connect(vrf_id)
        await world.settle(vrf_id)
    turns: list[int] = []
    for vrf_id in range(1, 5):
        fib = world.router(vrf_id).fib
        monkeypatch.setattr(fib, "adopt", noted(turns, vrf_id, fib.adopt))
    world.plane.disconnect()
    world.plane.connect()
    await world.until(lambda: turns != [])
    assert turns == [1]
    if meanwhile == "another router":
        await world.shards.put_router(router_config(5, (5,)))
    elif meanwhile == "a removal":
        await world.shards.remove_router(4)
    else:
        world.plane.disconnect()
        world.plane.connect()
    await adopted(world)
    assert turns == {"another router": [1, 2, 3, 4], "a removal": [1, 2, 3, 4]}.get(meanwhile, [1, 1, 2, 3, 4])
    for vrf_id in world.shards.routers:
        world.connect(vrf_id)
        await world.settle(vrf_id)
        assert world.installed(vrf_id)
    assert set(world.plane.entries.policers) == set(world.shards.routers)


@pytest.mark.parametrize("adopted_before", [True, False])
async def test_a_nexthop_that_is_let_go_while_routers_take_turns_to_adopt_goes(
    make_world, monkeypatch, adopted_before
):
    monkeypatch.setattr(loop_share, "TURN_S", 0.0)
    world = await make_world(router_config(1, (1,)), router_config(2, (2,)))
    for vrf_id in (1, 2):
        world.connect(vrf_id)
        router = world.router(vrf_id)
        for set_id, last in ((1, 77), (2, 2)):
            router.define_set(set_id, SetKind.FORWARD, [(vrf_id, bytes((10, 0, vrf_id, last)), 1)])
            world.learn({"20.0.0.0/8": set_id}, vrf_id)
            router.resync_end(True)
            await world.settle(vrf_id)
    turns: list[int] = []
    for vrf_id in (1, 2):
        fib = world.router(vrf_id).fib
        monkeypatch.setattr(fib, "adopt", noted(turns, vrf_id, fib.adopt))
    world.plane.disconnect()
    world.plane.connect()
    await world.until(lambda: turns != [])
    world.router(1 if adopted_before else 2).release([1])
    assert turns == [1]
    await adopted(world)
    await world.settle(1)
    await world.settle(2)
    await world.shards.by_plane["s1"].mirror.delete_unclaimed()
    assert len(world.plane.entries.nexthops) == 3
    assert world.plane.entries.nexthops.keys() == world.shards.by_plane["s1"].mirror.objects._used


async def test_plane_restarted_empty_is_refilled(make_world):
    world = await make_world(router_config())
    world.connect()
    teach(world)
    await world.settle()
    before = world.plane.entries
    world.plane.disconnect()
    world.plane.entries = type(before)()
    world.plane.connect()
    await world.settle()
    assert world.plane.entries == before


async def test_controller_restart_adopts_and_writes_no_route(make_world):
    first = await make_world(router_config())
    first.connect()
    teach(first)
    first.router().resync_end(True)
    await first.settle()
    await first.close()
    first.plane.writes = []
    second = await make_world(router_config(), plane=first.plane)
    before = dict(second.installed())
    await adopted(second)
    second.connect()
    teach(second)
    second.router().resync_end(True)
    await second.settle()
    assert second.route_writes() == 0
    assert not any(batch.groups or batch.nexthops or batch.router_interfaces for batch in second.plane.writes)
    assert second.installed() == before


async def test_equal_nexthops_are_claimed_by_whose_they_were(make_world):
    def teach_both(world, gateway_first):
        world.connect(neighbors=False)
        router = world.router()
        if gateway_first:
            list(router.neighbors([(1, gateway(1), mac(101), False)]))
        list(router.neighbors([(1, LINK_LOCAL, mac(101), False)]))
        router.define_set(1, SetKind.FORWARD, [(1, LINK_LOCAL, 1)])
        world.learn({"2001:db8::/32": 1, "20.1.0.0/16": 1})
        list(router.neighbors([(1, gateway(1), mac(101), False)]))
        router.resync_end(True)

    first = await make_world(router_config())
    teach_both(first, True)
    await first.settle()
    await first.close()
    first.plane.writes = []
    second = await make_world(router_config(), plane=first.plane)
    await adopted(second)
    teach_both(second, False)
    await second.settle()
    assert second.route_writes() == 0


async def left_by_two(make_world):
    """Return a world of two routers, with a route each, whose controller has ended."""
    world = await make_world(router_config(1, (1,)), router_config(2, (2,)))
    for vrf_id in (1, 2):
        world.connect(vrf_id)
        world.router(vrf_id).define_set(1, SetKind.FORWARD, [(vrf_id, gateway(vrf_id), 1)])
        world.learn({"20.1.0.0/16": 1}, vrf_id)
        await world.settle(vrf_id)
    await world.close()
    return world


async def test_a_router_that_comes_while_what_had_its_id_is_deleted_has_nothing_of_it(make_world):
    first = await left_by_two(make_world)
    first.forget_writes()
    first.plane.gate.clear()
    second = await make_world(router_config(1, (1,)), plane=first.plane)
    await second.until(lambda: second.plane.writes != [])
    await second.shards.put_router(router_config(2, (3,)))
    second.plane.gate.set()
    await second.settle(2)
    assert second.installed(2) == {}
    assert [one.subject for one in second.events.recent() if one.kind == "entry-refused"] == []


async def test_a_router_that_comes_before_all_of_an_adoption_is_done_adopts_what_had_its_id(make_world, monkeypatch):
    """Or what is there stays, and nobody knows of it."""
    first = await left_by_two(make_world)
    steps, adopts = [], unclaimed.UnclaimedObjects.adopt_left

    def adopt_left(*given):
        for _ in adopts(*given):
            if not steps:
                second.shards.routers[2] = second.shards.by_plane["s1"].add_router(router_config(2, (3,)))
            steps.append(None)
            yield

    monkeypatch.setattr(unclaimed.UnclaimedObjects, "adopt_left", adopt_left)
    second = await make_world(router_config(1, (1,)), plane=first.plane)
    await adopted(second)
    await second.settle(2)
    assert steps
    assert set(second.plane.entries.router_interfaces) == {1, 3}
    second.connect(2)
    second.learn_links(2)
    second.router(2).resync_end(True)
    await second.settle(2)
    assert set(second.installed(2)) == {key("10.0.3.0/24"), key("10.0.3.1/32"), key("10.0.3.2/32")}


async def test_stale_routes_stay_until_the_daemons_settled(make_world):
    world = await make_world(router_config())
    world.connect()
    teach(world)
    world.router().resync_end(True)
    await world.settle()
    world.connect()
    world.router().define_set(1, SetKind.FORWARD, [(1, gateway(1), 1)])
    world.learn({"20.1.0.0/16": 1})
    world.router().resync_end(False)
    await world.settle()
    assert key("20.2.0.0/16") in world.installed()
    world.clock.now += 101
    world.router().tick()
    await world.settle()
    assert key("20.2.0.0/16") not in world.installed()
    assert key("20.1.0.0/16") in world.installed()


async def test_a_guest_that_stays_away_loses_its_routes_after_the_hold_time(make_world):
    world = await make_world(router_config())
    vrc = world.connect()
    teach(world)
    world.router().resync_end(True)
    await world.settle()
    world.router().lost(vrc)
    world.clock.now += 50
    world.router().tick()
    await world.settle()
    assert key("20.1.0.0/16") in world.installed()
    world.clock.now += 51
    world.router().tick()
    await world.settle()
    assert key("20.1.0.0/16") not in world.installed()


async def test_a_session_waits_for_the_plane_that_took_the_place_of_one_that_never_connected(make_world):
    world = await make_world()
    await world.shards.add_plane(FakePlane("s2"))
    await world.shards.put_router(router_config(1, plane="s2"))
    known = asyncio.create_task(world.router().plane_known())
    await asyncio.sleep(0)
    await world.shards.remove_plane("s2")
    plane = FakePlane("s2")
    await world.shards.add_plane(plane)
    await asyncio.sleep(0)
    assert not known.done()
    plane.connect()
    await asyncio.wait_for(known, 10)
    assert world.shards.by_plane["s2"].mirror.adopted


async def test_a_plane_that_connects_after_the_hold_time_keeps_what_its_guests_have(make_world):
    first = await make_world(router_config(plane="s2"), plane=FakePlane("s2"))
    first.connect()
    teach(first)
    first.router().resync_end(True)
    await first.settle()
    await first.close()
    before = dict(first.installed())
    second = await make_world()
    await second.shards.add_plane(first.plane)
    await second.shards.put_router(router_config(plane="s2"))
    shard = second.shards.by_plane["s2"]
    for _ in range(3):
        second.clock.now += 101
        await shard.tick()
    assert second.router().holds
    second.clock.now += 100  # nearly so long again: the hold time begins when the plane is read
    first.plane.connect()
    await second.router().plane_known()
    second.clock.now += 99
    await shard.tick()
    second.connect()
    await second.settle()
    assert first.installed() == before
    second.router().lost(second.router().vrc)
    second.clock.now += 101
    await shard.tick()
    await second.settle()
    assert key("20.1.0.0/16") not in first.installed()


async def test_a_guest_that_stays_away_loses_its_routes_also_on_a_plane_that_was_attached_again(make_world):
    world = await make_world(router_config(1), router_config(2, (4,), tenant="blue"))
    vrc = world.connect()
    teach(world)
    world.router().resync_end(True)
    world.connect(2)
    world.router(2).resync_end(True)
    await world.settle()
    await world.settle(2)
    blue = dict(world.installed(2))
    world.plane.disconnect()
    world.router().lost(vrc)
    world.clock.now += 101
    await world.shards.by_plane["s1"].tick()
    assert not world.router().holds
    await world.shards.remove_plane("s1")
    await world.shards.add_plane(world.plane)
    world.plane.connect()
    await world.settle()
    assert key("20.1.0.0/16") in world.installed()
    world.clock.now += 101
    await world.shards.by_plane["s1"].tick()
    await world.settle()
    assert world.installed() == {}
    await world.settle(2)
    assert world.installed(2) == blue  # whose session has not ended yet


async def test_entries_of_unknown_routers_go(make_world):
    first = await make_world(router_config(1, (1, 2)), router_config(2, (3, 4)))
    first.connect(1)
    first.connect(2)
    await first.settle(2)
    await first.close()
    second = await make_world(router_config(1, (1, 2)), plane=first.plane)
    await second.until(lambda: not second.plane.entries.routes.get(2))
    assert {one.vrf_id for one in second.plane.entries.router_interfaces.values()} == {1}
    assert second.installed(1)


@pytest.mark.parametrize("gone", ["the router", "the interface", "its port", "what is known of both"])
async def test_what_is_damaged_and_not_desired_any_more_goes(make_world, gone):
    """As of a write that was cut off."""
    world = await make_world(router_config(), router_config(2, (4,)))
    await world.settle()
    await world.settle(2)
    world.plane.disconnect()
    entries = world.plane.entries
    del entries.policers[1], entries.router_interfaces[3]
    entries.damaged |= {("policer", 1), ("router_interface", 3)}
    left = ({2}, {4}) if gone in ("the router", "what is known of both") else ({1, 2}, {1, 2, 4})
    if gone == "what is known of both":
        await world.close()
        world = await make_world(router_config(2, (4,)), plane=world.plane)
    elif gone == "its port":
        world.plane.set_port(3, "p3", False, present=False)
    else:
        with contextlib.suppress(PlaneUnreachable):
            await (world.shards.remove_router(1) if gone == "the router" else world.shards.put_router(ONE_LESS))
    world.plane.connect()
    if gone == "the router":
        await world.shards.remove_router(1)
    for vrf_id in world.shards.routers:
        await world.settle(vrf_id)
    assert not entries.damaged
    assert (entries.policers.keys(), entries.router_interfaces.keys()) == left


async def test_remove_router_leaves_nothing(make_world):
    world = await make_world(router_config())
    world.connect()
    teach(world)
    await world.settle()
    await world.shards.remove_router(1)
    await world.shards.by_plane["s1"].mirror.delete_unclaimed()
    entries = world.plane.entries
    assert not entries.routes.get(1)
    assert not entries.router_interfaces
    assert not entries.policers
    assert not entries.groups
    assert not entries.nexthops


async def test_a_router_with_a_neighbor_that_has_its_own_address_is_removed(make_world):
    world = await make_world(router_config())
    world.connect()
    list(world.router().neighbors([(1, bytes((10, 0, 2, 1)), mac(77), False)]))
    await world.settle()
    async with asyncio.timeout(30):
        await world.shards.remove_router(1)
    assert not world.installed()


async def test_a_vrc_that_comes_back_does_not_hold_up_a_removal(make_world):
    world = await make_world(router_config())
    world.connect()
    teach(world)
    await world.settle()
    removal = asyncio.create_task(world.shards.remove_router(1))
    await asyncio.sleep(0)
    with pytest.raises(SessionRefused, match="being removed"):
        world.connect()
    await asyncio.wait_for(removal, 10)
    assert not world.plane.entries.routes.get(1)


async def test_audit_repairs_what_was_changed_by_hand(make_world):
    world = await make_world(router_config())
    world.connect()
    teach(world)
    await world.settle()
    routes = world.installed()
    wanted = dict(routes)
    del routes[key("20.1.0.0/16")]
    routes[key("20.2.0.0/16")] = LOCAL
    routes[key("30.0.0.0/8")] = LOCAL
    nexthop = next(iter(world.plane.entries.nexthops))
    del world.plane.entries.nexthops[nexthop]
    repaired = 0
    # Where its bit is another's, one audit in sixteen at most takes a route for read; the next looks at other bits.
    for _ in range(100):
        repaired += sum((await world.shards.by_plane["s1"].mirror.audit()).values())
        await world.settle()
        if repaired == 4:
            break
    assert repaired == 4
    assert world.installed() == wanted
    assert nexthop in world.plane.entries.nexthops
    assert await world.shards.by_plane["s1"].mirror.audit() == {}


async def test_session_superseded(make_world):
    world = await make_world(router_config())
    old = world.connect()
    world.connect()
    assert old.closed
    world.router().lost(old)  # its stream ends later: the new session stays
    assert world.router().vrc is not None


async def test_acknowledgement_waits_for_the_plane(make_world):
    world = await make_world(router_config())
    vrc = world.connect()
    await world.settle()
    world.plane.gate.clear()
    world.router().define_set(1, SetKind.FORWARD, [(1, gateway(1), 1)])
    sequence = world.learn({"20.1.0.0/16": 1})
    await world.until(lambda: key("20.1.0.0/16") in world.installed())
    assert vrc.acknowledged < sequence
    world.plane.gate.set()
    await world.settle()
    assert vrc.acknowledged == sequence


async def test_a_batch_is_not_acknowledged_with_a_later_one_that_its_plane_has_done_first(make_world, monkeypatch):
    monkeypatch.setattr(mirror, "BATCH_ROUTES", 2)
    world = await make_world(router_config())
    vrc = world.connect()
    await world.settle()
    world.router().define_set(1, SetKind.BLACKHOLE, [])
    world.learn({})
    await world.settle()
    write, ends = world.plane.write, [asyncio.Event(), asyncio.Event()]
    begun, ended = iter(ends), []

    async def write_until_told(batch):
        end = next(begun)
        refused = await write(batch)
        await end.wait()
        ended.append(end)
        return refused

    monkeypatch.setattr(world.plane, "write", write_until_told)
    fib = world.router().fib
    before = vrc.acknowledged, fib.batches_confirmed
    sequence = world.learn({f"20.{number}.0.0/16": 1 for number in range(4)})
    await world.until(lambda: key("20.3.0.0/16") in world.installed())
    ends[1].set()
    await world.until(lambda: ended == [ends[1]])
    for _ in range(3):
        await asyncio.sleep(0)
    assert (vrc.acknowledged, fib.batches_confirmed) == before
    ends[0].set()
    await world.settle()
    assert (vrc.acknowledged, fib.batches_confirmed) == (sequence, before[1] + 2)


async def test_acknowledgement_lost_with_the_channel_comes_after_adoption(make_world):
    world = await make_world(router_config())
    vrc = world.connect()
    await world.settle()
    world.plane.gate.clear()
    world.router().define_set(1, SetKind.FORWARD, [(1, gateway(1), 1)])
    sequence = world.learn({"20.1.0.0/16": 1})
    await world.until(lambda: key("20.1.0.0/16") in world.installed())
    world.plane.disconnect()
    del world.plane.entries.routes[1][key("20.1.0.0/16")]
    world.plane.gate.set()
    await world.until(lambda: world.router().fib.in_flight == 0)
    assert vrc.acknowledged < sequence
    world.plane.connect()
    await world.settle()
    assert vrc.acknowledged == sequence
    assert key("20.1.0.0/16") in world.installed()


@pytest.mark.parametrize("vlan", [0, 100])
async def test_port_handed_over_is_given_up_first(make_world, vlan):
    world = await make_world(router_config(1, (1, 2)), router_config(2, (3,)))
    world.connect(1)
    await world.settle(1)
    world.forget_writes()
    await world.shards.put_router(router_config(1, (1,)))
    assert all(one.port != 2 for one in world.plane.entries.router_interfaces.values())


async def test_a_port_is_not_given_up_where_the_connection_ended_under_the_write(make_world, monkeypatch):
    world = await make_world(router_config())
    await world.settle()
    began, go, write = asyncio.Event(), asyncio.Event(), world.plane.write

    async def slow(batch):
        began.set()
        await go.wait()
        return await write(batch)

    monkeypatch.setattr(world.plane, "write", slow)
    change = asyncio.create_task(world.shards.put_router(router_config(interfaces=(1, 2))))
    await began.wait()
    world.plane.disconnect()
    go.set()
    with pytest.raises(PlaneUnreachable):
        await change
    assert 3 in world.plane.entries.router_interfaces


@pytest.mark.parametrize("interfaces", [(interface(1), interface(2)), (interface(1, vlan=7), interface(3))])
async def test_a_port_is_given_up_while_the_guest_keeps_changing_what_it_says(make_world, monkeypatch, interfaces):
    world = await make_world(router_config())
    world.connect()
    await world.settle()
    router, write, said = world.router(), world.plane.write, 0

    async def more(batch):
        nonlocal said
        said += 1
        list(router.neighbors([(1, gateway(1), mac(said), False)]))
        router.interface_states([(1, said % 2 == 0, [bytes((10, 0, 1, 1))])])
        router.processed(said)
        return await write(batch)

    monkeypatch.setattr(world.plane, "write", more)
    router.processed(0)
    await asyncio.wait_for(world.shards.put_router(replace(router_config(), interfaces=interfaces)), 10)
    installed = {one.id: one.vlan for one in world.plane.entries.router_interfaces.values()}
    assert installed == {one.id: one.vlan for one in interfaces}
    await asyncio.wait_for(world.shards.ports_left(1, {1, 2, 3}), 10)
    assert router.fib.busy or router.fib.in_flight
    monkeypatch.undo()
    await world.settle()


async def test_an_interface_that_its_plane_refused_to_delete_is_not_given_up_before_it_is_gone(make_world):
    world = await make_world(router_config(1, (1, 2, 3)))
    await world.settle()
    refusing = {3}
    world.plane.fault = lambda _table, key, op: "busy" if key in refusing and op is Op.DELETE else None
    with pytest.raises(PlaneError, match="plane s1 refused router_interface: busy"):
        await asyncio.wait_for(world.shards.put_router(router_config(1, (1, 2))), 10)
    with pytest.raises(PlaneError, match="busy"):
        await asyncio.wait_for(world.shards.ports_left(1, {3}), 10)
    refusing.clear()
    assert sorted(world.plane.entries.router_interfaces) == [1, 2, 3]
    await retried(world)
    await asyncio.wait_for(world.shards.ports_left(1, {3}), 10)
    assert sorted(world.plane.entries.router_interfaces) == [1, 2]
    assert world.router().fib.refusal == ""


async def test_an_interface_of_which_its_plane_has_a_part_left_is_not_given_up_before_that_is_gone(make_world):
    world = await make_world(router_config())
    await world.settle()
    world.plane.fault = lambda _table, key, op: "busy" if key == 3 and op is Op.DELETE else None
    with pytest.raises(PlaneError, match="busy"):
        await asyncio.wait_for(world.shards.put_router(ONE_LESS), 10)
    world.plane.fault = lambda *_: None
    entries = world.plane.entries
    del entries.router_interfaces[3]
    entries.damaged.add(("router_interface", 3))
    await world.shards.by_plane["s1"].mirror.audit()
    await asyncio.wait_for(world.shards.ports_left(1, {3}), 10)
    assert (entries.damaged, entries.router_interfaces.keys()) == (set(), {1, 2})


@pytest.mark.parametrize("table", ["router_interface", "policer"])
async def test_a_router_whose_plane_refused_to_delete_of_it_is_not_removed_before_that_is_gone(make_world, table):
    world = await make_world(router_config(1, (1, 2)))
    world.connect()
    await world.settle()
    world.plane.fault = lambda of, _key, op: "busy" if of == table and op is Op.DELETE else None
    with pytest.raises(PlaneError, match=f"plane s1 refused {table}: busy"):
        await asyncio.wait_for(world.shards.remove_router(1), 10)
    world.plane.fault = lambda *_: None
    await retried(world)
    await asyncio.wait_for(world.shards.remove_router(1), 10)
    assert (world.plane.entries.router_interfaces, world.plane.entries.policers) == ({}, {})
    assert not world.shards.routers


async def retried(world: World) -> None:
    """Let so much time pass that what was refused is tried again."""
    shard = world.shards.by_plane["s1"]
    await shard.tick()
    world.clock.now += REFUSED_RETRY_S
    await shard.tick()


async def test_a_router_that_never_ends_its_resync_keeps_only_its_own(make_world):
    """After a restart of the controller, blue's VRC repeats for ever; red has changed and is cleaned up after."""
    first = await make_world(router_config(1, (1, 2)), router_config(2, (3, 4), tenant="blue"))
    for vrf_id, (one, other) in ((1, (1, 2)), (2, (3, 4))):
        first.connect(vrf_id)
        router = first.router(vrf_id)
        router.define_set(1, SetKind.FORWARD, [(one, gateway(one), 1), (other, gateway(other), 1)])
        first.learn({"20.1.0.0/16": 1}, vrf_id)
        await first.settle(vrf_id)
    await first.close()
    second = await make_world(router_config(1, (1, 2)), router_config(2, (3, 4), tenant="blue"), plane=first.plane)
    entries = second.plane.entries
    assert (len(entries.groups), len(entries.nexthops)) == (2, 4)
    red, blue = second.router(1), second.router(2)
    await adopted(second)
    second.connect(1, neighbors=False)
    red.resync_end(True)
    second.connect(2)
    await second.settle(1)
    serving = second.shards.by_plane["s1"].mirror
    await serving.delete_unclaimed()
    assert {one.router_interface_id for one in entries.nexthops.values()} == {3, 4}
    assert len(entries.groups) == 1
    assert entries.routes[2]
    blue.define_set(1, SetKind.FORWARD, [(3, gateway(3), 1), (4, gateway(4), 1)])
    second.learn({"20.2.0.0/16": 1}, 2)
    await second.settle(2)
    assert (len(entries.groups), len(entries.nexthops)) == (1, 2)  # claimed
    blue.resync_end(True)
    await second.settle(2)
    await serving.delete_unclaimed()
    assert (len(entries.groups), len(entries.nexthops)) == (1, 2)
    assert set(map(len, entries.routes[2])) == {5}


@pytest.mark.parametrize("how", ["damaged", "not there"])
@pytest.mark.parametrize("table", ["nexthop", "nexthop_group"])
async def test_what_routes_lead_to_and_is_lost_is_replaced_by_no_other_s(make_world, table, how):
    """After a restart of the controller red's VRC says nothing yet, and blue needs many new nexthops and groups."""
    first = await make_world(router_config(1, (1, 2)), router_config(2, (3, 4), tenant="blue"))
    first.connect(1)
    first.router(1).define_set(1, SetKind.FORWARD, [(1, gateway(1), 1), (2, bytes((10, 0, 2, 9)), 1)])
    first.router(1).define_set(2, SetKind.FORWARD, [(2, bytes((10, 0, 2, 9)), 1)])
    first.learn({"20.1.0.0/16": 1, "20.2.0.0/16": 2})
    await first.settle(1)
    await first.close()
    entries = first.plane.entries
    red, held = dict(entries.routes[1]), entries.nexthops if table == "nexthop" else entries.groups
    lost = action_value(red[key("20.2.0.0/16" if table == "nexthop" else "20.1.0.0/16")])
    del held[lost]
    if how == "damaged":
        entries.damaged.add((table, lost))
    second = await make_world(router_config(1, (1, 2)), router_config(2, (3, 4), tenant="blue"), plane=first.plane)
    await adopted(second)
    mirrored = second.shards.by_plane["s1"].mirror
    second.connect(2)
    for number in range(1, 10):
        members = [(3, bytes((10, 0, 3, 10 + number)), 1), (4, gateway(4), 1)]
        second.router(2).define_set(number, SetKind.FORWARD, members)
        second.learn({f"30.{number}.0.0/16": number}, 2)
    await second.settle(2)
    await mirrored.delete_unclaimed()
    assert (lost in held, entries.routes[1] == red, second.router(2).fib.refusal) == (False, True, "")
    second.connect(1, neighbors=False)
    second.router(1).resync_end(True)
    await second.settle(1)
    await mirrored.delete_unclaimed()
    assert (entries.damaged, lost in mirrored.objects._used) == (set(), False)


async def test_time_does_not_wait_for_the_clean_up(make_world):
    first = await make_world(router_config())
    first.connect()
    teach(first)
    await first.settle()
    await first.close()
    second = await make_world(router_config(), plane=first.plane)
    await adopted(second)
    second.connect(neighbors=False)
    second.router().resync_end(True)
    await second.settle()
    serving = second.shards.by_plane["s1"]
    second.plane.gate.clear()
    await asyncio.wait_for(serving.tick(), 5)
    second.plane.gate.set()
    await serving.mirror.delete_unclaimed()
    assert not second.plane.entries.nexthops


async def test_what_nobody_claims_is_deleted_again_where_the_plane_refused_that(make_world):
    first = await make_world(router_config(1, (1, 2)))
    first.connect()
    teach(first)
    await first.settle()
    await first.close()
    second = await make_world(router_config(1, (1, 2)), plane=first.plane)
    await adopted(second)
    second.connect(neighbors=False)
    second.router().resync_end(True)
    await second.settle()
    entries, mirrored = second.plane.entries, second.shards.by_plane["s1"].mirror
    before = len(entries.nexthops), len(entries.groups)
    assert all(before)
    second.plane.fault = lambda table, _key, op: "busy" if table.startswith("nexthop") and op is Op.DELETE else None
    for _ in range(2):
        await mirrored.audit()
    assert (len(entries.nexthops), len(entries.groups)) == before
    second.plane.fault = lambda *_: None
    await mirrored.audit()
    assert (entries.nexthops, entries.groups, mirrored.objects._used) == ({}, {}, set())


async def test_clean_up_is_bounded_by_batch_and_by_turn(make_world, monkeypatch):
    monkeypatch.setattr(mirror, "BATCH_ROUTES", 10)
    monkeypatch.setattr(unclaimed, "LOOKS", 1)
    first = await make_world(router_config(1, (1,)), router_config(2, (2,)))
    for vrf_id in (1, 2):
        first.connect(vrf_id)
        first.learn_links(vrf_id)
        addresses = [bytes((10, 0, vrf_id, number)) for number in range(10, 40)]
        list(first.router(vrf_id).neighbors([(vrf_id, address, mac(address[3]), False) for address in addresses]))
        members = [(vrf_id, address, 1) for address in addresses[:15]]
        first.router(vrf_id).define_set(1, SetKind.FORWARD, members)
        first.learn({"20.1.0.0/16": 1}, vrf_id)
        await first.settle(vrf_id)
    await first.close()
    second = await make_world(router_config(1, (1,)), router_config(2, (2,)), plane=first.plane)
    await adopted(second)
    for vrf_id in (1, 2):
        second.connect(vrf_id, neighbors=False)
        second.router(vrf_id).resync_end(True)
        await second.settle(vrf_id)
    second.forget_writes()
    serving = second.shards.by_plane["s1"].mirror
    for _ in range(6):
        await serving.delete_unclaimed()
    assert not second.plane.entries.nexthops
    assert not second.plane.entries.groups
    small = [batch for batch in second.plane.writes if not batch.groups]
    assert len(small) >= 6
    assert all(len(batch.nexthops) <= 10 for batch in small)


@pytest.mark.parametrize("table", ["ipv4_route", "router_interface"])
async def test_what_a_plane_does_not_delete_of_a_router_that_is_gone_goes_later_with_what_it_leads_to(
    make_world, table
):
    """Meanwhile its routes would follow whoever gets the id of their nexthop."""
    first = await make_world(router_config(1, (1,)), router_config(2, (2,)))
    first.connect(1)
    first.router(1).define_set(1, SetKind.FORWARD, [(1, gateway(1), 1), (1, gateway(3), 1)])
    first.router(1).define_set(2, SetKind.FORWARD, [(1, gateway(1), 1)])
    first.learn({"20.1.0.0/16": 1, "20.2.0.0/16": 2}, 1)
    await first.settle(1)
    await first.close()
    entries = first.plane.entries
    routes = dict(entries.routes[1])
    first.plane.fault = lambda name, _key, op: "busy" if name == table and op is Op.DELETE else None
    second = await make_world(router_config(2, (2,)), plane=first.plane)
    await adopted(second)
    mirrored = second.shards.by_plane["s1"].mirror
    for _ in range(2):
        await mirrored.audit()
    if table == "ipv4_route":
        assert entries.routes[1] == routes
        led_to = {action_value(routes[key(text)]) for text in ("20.1.0.0/16", "20.2.0.0/16")}
        assert {*entries.nexthops, *entries.groups} == mirrored.objects._used == led_to
    assert (1 in entries.router_interfaces) == (table == "router_interface")
    first.plane.fault = lambda *_: None
    for _ in range(2):
        await mirrored.audit()
    assert (entries.routes[1], entries.nexthops, entries.groups, mirrored.objects._used) == ({}, {}, {}, set())
    assert entries.router_interfaces.keys() == {2}
