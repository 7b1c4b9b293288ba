"""What a message costs a router's tables depends on its size, not on what they hold."""

import contextlib
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from worlds import World, gateway, mac, router_config

from controller.model import Quota
from controller.planes.base import GroupMember, Installed, Nexthop, NexthopGroup, NexthopState
from controller.routing import rib
from controller.routing.objects import PlaneObjects
from controller.routing.rib import SetKind

FEW, MANY = 100, 1000
QUOTA = Quota(nexthops=100_000, groups=100_000)


class Lines:
    """Counts the lines of `controller.routing` that run; a comprehension's line counts in each round."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, frame: Any, event: str, _argument: object) -> Any:
        if Path(frame.f_code.co_filename).parent.name != "routing":
            return None
        self.count += event == "line"
        return self


@contextlib.contextmanager
def counted() -> Iterator[Lines]:
    lines, before = Lines(), sys.gettrace()
    sys.settrace(lines)
    try:
        yield lines
    finally:
        sys.settrace(before)


def connected(router: Any, count: int) -> None:
    for set_id in range(1, count + 1):
        router.define_set(set_id, SetKind.CONNECTED, [(1, (10 << 24 | set_id).to_bytes(4, "big"), 1)])


async def redefine_while_crowded(world: World, size: int) -> Callable[[], object]:
    router = world.router()
    connected(router, size)
    return lambda: router.define_set(1, SetKind.CONNECTED, [(1, (10 << 24 | 1).to_bytes(4, "big"), 1)])


async def release_what_is_not_there(world: World, size: int) -> Callable[[], object]:
    router = world.router()
    connected(router, size)
    return lambda: router.release([100_000])


async def release_a_group_that_routes_stay_on(world: World, size: int) -> Callable[[], object]:
    router = world.router()
    for set_id, dead in enumerate((8, 9), 1):  # of one content, as the last member is not resolved
        members = [(1, gateway(1), 1), (2, gateway(2), 1), (3, gateway(dead), 1)]
        router.define_set(set_id, SetKind.FORWARD, members)
    routes = {f"20.{i >> 8}.{i & 255}.0/24": 1 for i in range(size)}
    world.learn(routes)
    await world.settle()
    world.learn(dict.fromkeys(routes, 2))
    await world.settle()
    assert router.fib.group_count == 2
    return lambda: router.release([1])


async def repeat_an_interface_s_state(world: World, size: int) -> Callable[[], object]:
    router = world.router()
    connected(router, size)
    return lambda: router.interface_states([(1, True, [bytes((10, 0, 1, 1))])])


async def say_an_interface_s_state(world: World, size: int) -> Callable[[], object]:
    router = world.router()
    connected(router, size)
    return lambda: router.interface_states([(2, False, [bytes((10, 0, 2, 1))])])


async def repeat_a_neighbor(world: World, size: int) -> Callable[[], object]:
    router = world.router()
    for set_id in range(1, size + 1):
        members = [(1, gateway(1), 1), (2, (11 << 24 | set_id).to_bytes(4, "big"), 1)]
        router.define_set(set_id, SetKind.FORWARD, members)
    await world.settle()
    return lambda: router.neighbors([(1, gateway(1), mac(101), False)])


@pytest.mark.parametrize(
    "prepare",
    [
        redefine_while_crowded,
        release_what_is_not_there,
        release_a_group_that_routes_stay_on,
        repeat_an_interface_s_state,
        say_an_interface_s_state,
        repeat_a_neighbor,
    ],
)
async def test_a_message_costs_the_same_however_much_there_is(
    make_world: Callable[..., Awaitable[World]],
    monkeypatch: pytest.MonkeyPatch,
    prepare: Callable[[World, int], Awaitable[Callable[[], object]]],
) -> None:
    costs = []
    for size in (FEW, MANY):
        monkeypatch.setattr(rib, "MAX_KEPT_SETS", size)  # crowded, where the work needs that
        world = await make_world(router_config(1, quota=QUOTA))
        world.connect()
        await world.settle()
        say = await prepare(world, size)
        await world.settle()
        while world.router().fib.next_due == 0.0:
            world.router().tick()  # what was left to look at
        with counted() as lines:
            say()
        costs.append(lines.count)
    assert costs[1] <= costs[0] + 10, costs


async def test_one_confirmed_route_costs_the_same_however_many_sets_there_are(
    make_world: Callable[..., Awaitable[World]],
) -> None:
    costs = []
    for size in (FEW, MANY):
        world = await make_world(router_config(1, quota=QUOTA))
        world.connect()
        connected(world.router(), size)
        world.learn({"20.0.0.0/8": 1})
        await world.settle()
        with counted() as lines:
            world.learn({"20.0.0.0/8": 0})
            await world.settle()
        costs.append(lines.count)
    assert costs[1] <= costs[0] + 50, costs


def test_a_look_up_of_what_is_unclaimed_costs_the_same_however_much_that_is() -> None:
    costs = []
    for size in (FEW, MANY):
        groups = {
            i: NexthopGroup(i, tuple(GroupMember(member, 1, 0) for member in (i + 2, i + 1)))
            for i in range(1, size + 1)
        }
        nexthops = {i: Nexthop(i, 1, bytes(6), NexthopState.GLEAN) for i in range(10_000, 10_000 + size)}
        plane = PlaneObjects("s1")
        plane.adopt(Installed(groups=groups, nexthops=nexthops), known=[])
        with counted() as lines:
            assert plane.claim_group(((1, 1), (9, 9))) is None
            assert plane.claim_group(((size + 1, 1), (size + 2, 1))) is not None
            assert plane.claim_nexthop(1, gateway(1), bytes(6), NexthopState.FORWARD) is None
            assert plane.claim_nexthop(1, gateway(1), bytes(6), NexthopState.GLEAN) is not None
        costs.append(lines.count)
    assert costs[1] == costs[0], costs


async def test_many_released_sets_are_looked_at_in_shares(
    make_world: Callable[..., Awaitable[World]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rib, "COLLECT_AT_ONCE", FEW)
    world = await make_world(router_config(1, quota=QUOTA))
    world.connect()
    await world.settle()
    router = world.router()
    connected(router, MANY)
    router.release(range(1, MANY + 1))
    left = len(list(router.fib._rib.sets))
    assert left >= MANY - FEW
    while router.fib.next_due == 0.0:
        router.tick()
        left, before = len(list(router.fib._rib.sets)), left
        assert before - left <= FEW
    assert not left
