"""What a refusal has taught of the room of hardware is kept while that is the same device with what it had."""

from collections.abc import Callable

import pytest
from pairs import PairWorld, learned, made, verified
from worlds import router_config

from controller.model import Placement
from controller.planes.base import Capability


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

    def known() -> tuple[int | None, str]:
        one = world.views.plane_views()[0].tables["ipv4_route"]
        return one.capacity, one.source

    before = known()
    assert before[1] == "learned"
    world.hardware.disconnect()
    world.hardware.capacity = 1000
    come_back(world)
    world.hardware.connect()
    await world.until(lambda: world.pair._adopted)
    await world.settle()
    await world.pair.work()
    if come_back is same:
        assert known() == before
    else:
        assert known()[1] == ("given" if room else "reported" if come_back is other_sizes else "")
        assert world.pair.routes.usage.whole(1)
    assert (await verified(world)).equal
