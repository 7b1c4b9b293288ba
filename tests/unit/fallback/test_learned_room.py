"""What a refusal has taught of the room of hardware is kept for a while, and while that is the same device."""

from collections.abc import Callable

import pytest
from pairs import PairWorld, learned, made, verified
from worlds import plane_view, router_config

from controller.model import Placement
from controller.planes.base import Capability
from controller.route_cache import rebalance
from controller.route_cache.capacity import FIRST_WAIT_S, LONGEST_WAIT_S


def other_capabilities(world: PairWorld) -> None:
    world.hardware.capabilities -= {Capability.MTU}


def other_sizes(world: PairWorld) -> None:
    world.hardware.table_sizes = {"ipv4_route": 30, "ipv6_route": 30}


def empty(world: PairWorld) -> None:
    held = world.hardware.entries
    for entries in (held.routes, held.router_interfaces, held.nexthops, held.policers, held.groups):
        entries.clear()


def same(world: PairWorld) -> None:
    pass


@pytest.mark.parametrize("come_back", [other_capabilities, other_sizes, empty, same])
@pytest.mark.parametrize("room", [0, 20])
async def test_it_is_forgotten_with_the_device(come_back: Callable[[PairWorld], None], room: int) -> None:
    """Another one in its place, or one that starts anew, may take more; it is learned again at little cost."""
    world = await made(router_config(1, (1, 2), placement=Placement.HARDWARE), room=room, capacity=7)
    await learned(world)

    async def known() -> tuple[int | None, str]:
        one = (await plane_view(world, "s1")).tables["ipv4_route"]
        return one.capacity, one.source

    before = await known()
    assert before[1] == "learned"
    world.hardware.disconnect()
    world.hardware.capacity = 1000
    come_back(world)
    world.hardware.connect()
    await world.until(lambda: world.pair._adopted)
    await world.settle()
    await world.pair.work()
    if come_back is same:
        assert await known() == before
    else:
        assert (await known())[1] == ("given" if room else "reported" if come_back is other_sizes else "")
        assert world.pair.routes.usage.whole(1)
    assert (await verified(world)).equal


async def test_what_is_missing_is_found_though_nothing_else_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    """A search takes several rounds, of which some find nothing."""
    monkeypatch.setattr(rebalance, "SEARCH_SLICE", 1)
    world = await made(router_config(1, (1, 2), placement=Placement.HARDWARE), capacity=7)
    await learned(world)
    world.hardware.capacity = 1000
    world.pair.routes.tables.forget_learned()
    rounds = 0
    while not world.pair.routes.usage.whole(1):
        rounds += 1
        assert rounds < 100
        await world.pair.work()
    assert rounds > 1


async def test_hardware_that_has_more_room_than_it_had_is_asked_again() -> None:
    world = await made(router_config(1, (1, 2), placement=Placement.HARDWARE), capacity=7)
    await learned(world)
    before = len(world.in_hardware())
    world.hardware.capacity = 1000
    await world.pair.work()
    assert len(world.in_hardware()) == before
    refusals = dict(world.pair.refusals)
    world.clock.now += FIRST_WAIT_S
    await world.pair.work()
    assert world.pair.routes.usage.whole(1)
    assert world.pair.refusals == refusals
    assert (await verified(world)).equal


async def test_hardware_that_has_no_more_room_goes_on_with_what_it_has() -> None:
    world = await made(router_config(1, (1, 2), placement=Placement.HARDWARE), capacity=7)
    await learned(world)
    before = world.in_hardware()
    for _ in range(3):
        world.clock.now += LONGEST_WAIT_S
        await world.pair.work()
        assert len(world.in_hardware()) == len(before)
        assert (await verified(world)).equal
