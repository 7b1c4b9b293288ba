"""Hardware that has lost what it had: in which order it gets that again."""

import pairs
import pytest
from pairs import PairWorld, every, held

from controller.fallback.hardware_routes import HardwareRoutes
from controller.fallback.plane import FallbackPair
from controller.model import Placement, Quota
from controller.planes.base import (
    FALLBACK,
    Op,
    Refused,
    RouteKind,
    RouteUpdates,
    action_kind,
    action_value,
    route_action,
)
from wire.columns import prefix_key


async def learned() -> PairWorld:
    """A router with routes by two nexthops, in hardware and in software."""
    world = await pairs.made()
    await pairs.learned(world)
    return world


async def test_an_empty_hardware_gets_what_its_routes_lead_to_before_them():
    """A switch refuses routes to what it has not, so that goes first also where the placement is first to write."""
    world = await learned()
    held, wanted = world.hardware.entries, dict(world.in_hardware())
    for entries in (held.routes, held.router_interfaces, held.nexthops, held.policers, held.groups):
        entries.clear()
    pair = FallbackPair(world.hardware, world.software, world.pair.link, HardwareRoutes({4: 0, 6: 0}))
    write = world.hardware.write

    async def strict(batch):
        for columns in batch.routes:
            nexthops = [action_value(one) for one in columns.actions if action_kind(one) is RouteKind.NEXTHOP]
            assert all(nexthop in held.nexthops for nexthop in nexthops)
        return await write(batch)

    world.hardware.write = strict
    pair.connected = True
    read = await pair.read()
    assert {("nexthop", each) for each in world.software.entries.nexthops} <= read.damaged
    while await pair.work():
        pass
    assert world.in_hardware() == wanted
    assert not pair.refusals


def test_the_default_entry_is_the_first_in_an_empty_hardware():
    """Or what is not in hardware yet would be nowhere until all is."""
    routes = HardwareRoutes({4: 0, 6: 0})
    for vrf_id in (1, 2):
        routes.place(vrf_id, Placement.HARDWARE)
        routes.tables.open(vrf_id)
    keys = [prefix_key("0.0.0.0/0"), *(prefix_key(f"20.{n}.0.0/16") for n in range(9))]
    action = route_action(RouteKind.NEXTHOP, 1)
    actions = [action, *(route_action(RouteKind.NEXTHOP, 2 + n % 2) for n in range(9))]
    routes.tables.change(RouteUpdates(1, 4, [Op.INSERT] * 10, keys, actions))
    first = [routes.next_stage()]
    while first[-1]:
        routes.confirm(first[-1], [])
        first.append(routes.next_stage())
    defaults = [(1, 4, bytes(5)), (1, 6, bytes(17)), (2, 4, bytes(5)), (2, 6, bytes(17))]
    assert sorted((one.vrf_id, one.family, *one.keys) for (one,) in first[:4]) == defaults
    assert all(one.actions == [FALLBACK] for (one,) in first[:4])
    assert held(routes, 1)[bytes(5)] == action
    assert routes.writes.idle


def test_a_default_entry_that_is_refused_is_not_tried_for_ever():
    routes = HardwareRoutes({4: 0, 6: 0})
    routes.tables.open(1)
    key, action = prefix_key("20.0.0.0/8"), route_action(RouteKind.NEXTHOP, 1)
    routes.tables.change(RouteUpdates(1, 4, [Op.INSERT], [key], [action]))
    for _ in range(20):
        if not (stage := routes.next_stage()):
            break
        (columns,) = stage
        refused = [Refused("ipv4_route", 1, key, Op.INSERT, "no") for key in columns.keys if key == bytes(5)]
        routes.confirm(stage, refused)
    assert routes.writes.idle
    assert [(one.table, one.key) for one in routes.tables.failed()] == [("policer", 1)]


def test_a_write_that_ends_after_a_read_leaves_nothing_that_is_not_wanted_any_more():
    """Or an entry would stay for as long as nobody looks, and be wrong when its route changes."""
    routes = HardwareRoutes({4: 0, 6: 0})
    routes.place(1, Placement.HARDWARE)
    routes.tables.open(1)
    while stage := routes.next_stage():
        routes.confirm(stage, [])
    key, action = prefix_key("20.0.0.0/8"), route_action(RouteKind.NEXTHOP, 1)
    routes.tables.change(RouteUpdates(1, 4, [Op.INSERT], [key], [action]))
    stage = routes.next_stage()
    assert stage[0].keys == [key]
    default = {bytes(5): FALLBACK, bytes(17): FALLBACK}
    # Read before the write was done; and the software has lost the route.
    every(routes.adoption.adopt({1: default}, {}, [1]))
    routes.confirm(stage, [])
    while stage := routes.next_stage():
        routes.confirm(stage, [])
    assert held(routes, 1) == default


def test_the_default_entry_of_a_router_that_is_opened_again_does_not_leave() -> None:
    """Its room would be taken twice, for good."""
    routes = HardwareRoutes({4: 0, 6: 0})
    default = {bytes(5): FALLBACK, bytes(17): FALLBACK}
    every(routes.adoption.adopt({1: default}, {}, []))
    assert all(fast.is_leaving(1) for fast in routes.tables.fast.values())
    routes.tables.open(1)
    assert not any(fast.is_leaving(1) for fast in routes.tables.fast.values())


@pytest.mark.parametrize(("room", "quota"), [(0, 3), (7, None)])
def test_a_new_cover_waits_until_what_does_not_stay_has_left(room: int, quota: int | None) -> None:
    """What changed while nobody was there may take more entries than there are beside all that the hardware has."""
    most = room or quota or 0
    routes = HardwareRoutes({4: room, 6: 0})
    routes.tables.share(1, "red", Quota(hardware_ipv4_routes=quota))
    routes.place(1, Placement.HARDWARE)
    outer = {prefix_key(f"{n}.0.0.0/8"): route_action(RouteKind.NEXTHOP, 1) for n in range(20, 20 + 2 * most - 2, 2)}
    inner = {prefix_key(f"{key[0]}.1.0.0/16"): route_action(RouteKind.NEXTHOP, 2) for key in outer}
    held = {bytes(5): FALLBACK} | outer
    every(routes.adoption.adopt({1: held | {bytes(17): FALLBACK}}, {1: outer | inner}, [1]))
    for now in range(5):
        while stage := routes.next_stage():
            (columns,) = stage
            assert len(held.keys() | columns.keys) <= most  # the plane may insert first
            for op, key, action in zip(columns.ops, columns.keys, columns.actions, strict=True):
                held.pop(key, None)
                if op is not Op.DELETE:
                    held[key] = action
            routes.confirm(stage, [])
        routes.rebalance(now)
    assert len(held) > 1
    assert routes.writes.idle
