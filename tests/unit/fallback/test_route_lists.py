"""Lists of a router's routes are sorted in parts, while others have the loop, who may change the routes meanwhile."""

import asyncio
from collections.abc import Awaitable

import pytest
from pairs import FAR, PairWorld, learned, made, packet, started
from worlds import router_config

from controller.diagnostics import describe, fallback_views, route_counters
from controller.model import Placement
from wire.columns import prefix_key

IPV6 = {f"2001:db8:{n}::/48": 1 for n in (3, 1, 2)}
ROUTES = {f"20.{n}.0.0/16": 1 for n in (7, 1, 4, 2)} | IPV6 | {"20.1.0.0/24": 1, "0.0.0.0/0": 1}
IN_ORDER = [
    *("0.0.0.0/0", "20.1.0.0/16", "20.1.0.0/24", "20.2.0.0/16", "20.4.0.0/16", "20.7.0.0/16"),
    *("2001:db8:1::/48", "2001:db8:2::/48", "2001:db8:3::/48"),
]


@pytest.fixture
def in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(describe, "KEYS_AT_ONCE", 2)


async def turns_of(work: Awaitable[object]) -> int:
    """Count the turns that others have of the loop while something is done."""
    doing, turns = asyncio.ensure_future(work), 0
    while not doing.done():
        await asyncio.sleep(0)
        turns += 1
    return turns


async def test_routes_are_sorted_in_parts(in_parts: None) -> None:
    world = await made()
    await learned(world, ROUTES)
    assert [one.prefix for one in await world.views.routes(1)] == IN_ORDER
    installed = [one.prefix for one in await world.views.fib(1)]
    assert [one for one in installed if one in ROUTES] == IN_ORDER
    assert sorted(map(prefix_key, installed), key=lambda key: (len(key), key)) == [*map(prefix_key, installed)]
    assert await turns_of(world.views.routes(1)) > len(ROUTES) // 2
    assert await turns_of(world.views.fib(1)) > len(installed) // 2


async def test_a_route_is_listed_once_and_only_where_it_is_there_in_its_turn(in_parts: None) -> None:
    world = await made()
    await learned(world, ROUTES)
    listing = asyncio.ensure_future(world.views.routes(1))
    for _ in range(3):
        await asyncio.sleep(0)
    world.learn({"20.1.0.0/16": 0, "20.7.0.0/16": 0, "2001:db8:1::/48": 0})
    world.learn({"20.7.0.0/16": 1, "20.9.0.0/16": 1})  # what was met before moves to the end
    routes = await listing
    assert not listing.done() or next(routes).prefix == "0.0.0.0/0"
    world.learn({"20.2.0.0/16": 0})
    left = {"20.1.0.0/16", "2001:db8:1::/48", "20.2.0.0/16", "0.0.0.0/0"}
    shown = [one.prefix for one in routes]
    assert shown == [one for one in [*IN_ORDER[:6], "20.9.0.0/16", *IN_ORDER[6:]] if one not in left]


async def test_where_routes_are_is_told_of_their_turn(in_parts: None) -> None:
    world = await made()
    await learned(world)
    entries = await world.views.fib(1)
    there = {one.prefix for one in await world.views.fib(1) if one.where == "hardware"}
    assert FAR.keys() <= there
    first = next(one for one in entries if one.prefix in FAR)
    await world.shards.put_router(router_config(1, (1, 2), placement=Placement.SOFTWARE))
    await world.pair.work()
    after = {one.prefix: one.where for one in entries}
    assert first.where == "hardware"
    assert {after[prefix] for prefix in FAR if prefix != first.prefix} == {"software"}
    await world.shards.put_router(router_config(1, (1, 2)))
    entries = await world.views.fib(1)  # no entry around them is in hardware by now, but for that of all addresses
    await world.pair.work()
    assert {one.where for one in entries if one.prefix in FAR} == {"hardware"}


async def test_the_placement_is_counted_in_parts(in_parts: None, monkeypatch: pytest.MonkeyPatch) -> None:
    world = await started(PairWorld(room=8))
    await learned(world)
    installed, whole = world.router().fib.installed_routes, await world.views.placement(1)
    in_hardware = [one for one in await world.views.fib(1) if one.where == "hardware"]
    assert (whole.routes, whole.hardware) == (len(installed), len(in_hardware))
    assert 0 < whole.hardware < whole.routes
    assert await turns_of(world.views.placement(1)) > len(installed) // 2
    few = await turns_of(world.views.placement(1))
    monkeypatch.setattr(fallback_views, "PAGE", 1)
    assert await turns_of(world.views.placement(1)) == few + len(installed)


async def test_what_routes_have_met_is_sorted_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    world = await made()
    await learned(world)
    for number in range(8):
        for _ in range(number % 3 + 1):
            world.hardware.inject(1, packet(f"20.{number}.0.1"))
    whole, few = list(await world.views.route_counters(1)), await turns_of(world.views.route_counters(1))
    assert [one.packets for one in whole] == [7, 3, 2, 2, 1]  # of both planes
    monkeypatch.setattr(route_counters, "ROUTES_AT_ONCE", 1)
    assert list(await world.views.route_counters(1)) == whole
    both = [plane.route_traffic(1) for plane in (world.hardware, world.software)]
    of_both = [len(one) for one in await asyncio.gather(*both)]
    assert await turns_of(world.views.route_counters(1)) == few + sum(of_both) - 2
