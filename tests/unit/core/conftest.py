from collections.abc import AsyncIterator

import pytest
from worlds import World, WorldFactory


@pytest.fixture
async def make_world() -> AsyncIterator[WorldFactory]:
    made: list[World] = []

    async def make(*configs, plane=None) -> World:
        world = World(plane)
        made.append(world)
        await world.start(*configs)
        return world

    yield make
    for world in made:
        await world.close()
