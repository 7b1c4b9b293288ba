"""Whatever happens in whatever order: once idle, the plane holds exactly what is desired, and desired is right."""

import asyncio
from collections import Counter, deque
from dataclasses import replace
from itertools import chain, product

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from worlds import World, gateway, mac, router_config

from controller.diagnostics.verify import Verification
from controller.planes.base import NexthopState, RouteKind, action_kind, action_value, route_action
from controller.routing import fib, prefixes
from controller.routing.rib import SetKind
from controller.shard import unclaimed
from wire.columns import prefix_key as key

PREFIXES = [f"20.{i}.0.0/16" for i in range(6)] + ["0.0.0.0/0", "10.0.2.2/32", "2001:db8::/32"]
SETS = {
    1: [(1, gateway(1), 1)],
    2: [(2, gateway(2), 1)],
    3: [(1, gateway(1), 1), (2, gateway(2), 1)],
    4: [(1, gateway(1), 1), (2, gateway(2), 2), (3, gateway(3), 1)],
    5: [(2, gateway(2), 1), (3, gateway(3), 1)],
}

ROUTES = list(product(["route"], PREFIXES, range(6)))
PORTS = list(product(["port"], (1, 2, 3), (False, True)))
NEIGHBORS = list(product(["neighbor"], (1, 2, 3), ("up", "failed", "gone", "moved")))
KINDS = ["reconnect", "restart", "resync", "collect", "later", "audit", "settle", "refuse", "retry", "fault"]
OTHERS = list(product(KINDS))
# Each step is one choice of hypothesis, half of them routes and some sixth each of the others: 108, 36, 36, 40.
steps = st.lists(st.sampled_from(ROUTES * 2 + PORTS * 6 + NEIGHBORS * 3 + OTHERS * 4), min_size=10, max_size=50)


def define_sets(world: World) -> None:
    for set_id, members in SETS.items():
        world.router().define_set(set_id, SetKind.FORWARD, members)


async def play(world: World, script: list[tuple]) -> dict[str, int]:
    await world.start(router_config())
    world.connect()
    define_sets(world)
    truth: dict[str, int] = {}
    for step in script:
        await one_step(world, step, truth)
    world.plane.fault = lambda *_: None
    world.router().fib.retry_refused()
    await settled(world)
    agree(world)
    tidy(world)
    for number in (1, 2, 3):
        await one_step(world, ("port", number, True), truth)
        await one_step(world, ("neighbor", number, "up"), truth)
    await settled(world)
    return truth


async def settled(world: World) -> None:
    """Where nothing is written of the router, it waits for its plane to be read anew."""
    if world.shards.by_plane["s1"].mirror.fault(1):
        world.plane.disconnect()
        world.plane.connect()
    await world.settle()


async def one_step(world: World, step: tuple, truth: dict[str, int]) -> None:  # noqa: C901 - one case a line
    router = world.router()
    match step:
        case "route", prefix, set_id:
            world.learn({prefix: set_id})
            truth[prefix] = set_id
        case "port", number, up:
            world.plane.set_port(number, f"p{number}", up)
        case "neighbor", number, state:
            address = mac({"up": 100, "moved": 200}.get(state, 0) + number) if state in ("up", "moved") else b""
            list(router.neighbors([(number, gateway(number), address, state == "failed")]))
        case ("reconnect",):
            world.plane.disconnect()
            world.plane.connect()
        case ("restart",):
            world.plane.disconnect()
            world.plane.entries = type(world.plane.entries)()
            world.plane.connect()
        case ("resync",):
            world.connect(neighbors=False)
            define_sets(world)
            world.learn({prefix: set_id for prefix, set_id in truth.items() if set_id})
            router.resync_end(True)
        case ("collect",):
            router.release(set(router.fib.named_sets) - {1, 2})
            if router.fib.idle:
                router.fib.collect()
            define_sets(world)
        case ("later",):
            world.clock.now += 5
            router.tick()
        case ("audit",):
            await settled(world)
            await world.shards.by_plane["s1"].mirror.audit()
        case ("settle",):
            await settled(world)
        case ("refuse",):
            world.plane.fault = lambda table, key, op: "told to" if key == b"\x14\x01\x00\x00\x10" else None
        case ("retry",):
            router.fib.retry_refused()
        case ("fault",):
            with world.shards.by_plane["s1"].mirror._work.slice(router.fib, "a fault"):
                raise RuntimeError


@settings(
    max_examples=5 * settings.default.max_examples // 2, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
@given(steps)
def test_idle_means_equal(script):
    run(script)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(steps)
def test_idle_means_equal_where_every_pass_takes_many_slices(script):
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(fib, "SLICE_COST", 1)
        for module in (prefixes, unclaimed):
            patched.setattr(module, "READ_AT_ONCE", 1)
        run(script)


def run(script):
    async def scenario() -> None:
        world = World()
        try:
            truth = await play(world, script)
            check(world, truth)
        finally:
            await world.close()

    asyncio.run(scenario())


def agree(world: World) -> None:
    fib, entries = world.router().fib, world.plane.entries
    found = Verification(fib, dict(fib.learned), replace(entries, routes={1: dict(entries.routes.get(1, {}))}))
    deque(chain(found.describing(), found.comparing()), 0)
    assert found.view("red/r1", 0).equal, (found.differences, found.damaged)


def tidy(world: World) -> None:
    """What a pass over everything would find unused has been found already."""
    fib = world.router().fib
    while fib.untidy:
        fib.collect()
    resolution, uses = fib._resolution, fib._prefixes.uses
    assert not [one for one in fib._rib.sets if not one.routes and one not in fib._rib.names.values()]
    groups = resolution.groups.values()
    assert not [one for one in groups if one.owner is None and not uses(route_action(RouteKind.GROUP, one.id))]
    in_groups = Counter(nexthop_id for group in groups for nexthop_id, _ in group.content)
    assert resolution._in_groups == in_groups
    for known in resolution.nexthops.values():
        neighbor = (known.interface_id, known.gateway) in resolution.neighbors.states
        route = uses(route_action(RouteKind.NEXTHOP, known.id))
        assert known.sets or known.id in in_groups or neighbor or route
    for one, owned in resolution.owned.items():
        assert all(group.owner is one for group in owned)
    orphans = {i for alike in resolution._orphans.values() for i in alike}
    assert orphans == {group.id for group in groups if group.owner is None}


def check(world: World, truth: dict[str, int]) -> None:
    agree(world)
    entries = world.plane.entries
    for prefix, set_id in truth.items():
        action = entries.routes[1].get(key(prefix))
        if set_id:
            assert forwards(world, action) == {(m[0], mac(100 + m[0]), m[2]) for m in normal(SETS[set_id])}
        elif prefix != "10.0.2.2/32":
            assert action is None
    entries = world.shards.by_plane["s1"].route_counts
    assert (entries["ipv4_route"], entries["ipv6_route"]) == tuple(
        sum(len(one) == length for one in world.installed()) for length in (5, 17)
    )


def normal(members: list[tuple[int, bytes, int]]) -> list[tuple[int, bytes, int]]:
    return members if len(members) > 1 else [(members[0][0], members[0][1], 1)]


def forwards(world: World, action: int) -> set[tuple[int, bytes, int]]:
    entries = world.plane.entries
    if action_kind(action) is RouteKind.NEXTHOP:
        pairs = [(action_value(action), 1)]
    else:
        pairs = [(member.nexthop_id, member.weight) for member in entries.groups[action_value(action)].members]
    found = set()
    for nexthop_id, weight in pairs:
        nexthop = entries.nexthops[nexthop_id]
        assert nexthop.state is NexthopState.FORWARD
        found.add((nexthop.router_interface_id, nexthop.mac, weight))
    return found
