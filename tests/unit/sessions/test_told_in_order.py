"""What a VRC is told while it does not read: the latest of each kind, and in an order in which the latest counts."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

from worlds import World, interface, router_config

from controller.sessions.control_stream import ControlSession


class Context:
    """Keeps the states of ports as a VRC does."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.ports_up: dict[int, bool] = {}

    async def write(self, message: Any) -> None:
        self.told.append(message.WhichOneof("body"))
        if self.told[-1] == "declaration":
            self.ports_up = {one.id: one.port_up for one in message.declaration.interfaces}
        elif self.told[-1] == "port_states":
            self.ports_up.update((one.interface_id, one.up) for one in message.port_states.states)


async def test_states_of_ports_are_not_told_after_a_declaration_that_is_newer(
    make_world: Callable[..., Awaitable[World]],
) -> None:
    world = await make_world(router_config(1, (1, 2)))
    router, context = world.router(), Context()
    session = ControlSession(router, context, world.events, world.shards.loop_share)
    router.open(session)
    world.plane.set_port(1, "p1", False)
    await world.settle()
    assert router.ports_up() == {1: False, 2: True}
    router.configure(replace(router.config, interfaces=(interface(1, port="p4"), interface(2))))
    session.close("that was all")
    await asyncio.wait_for(session.write(), 10)
    assert context.ports_up == router.ports_up() == {1: True, 2: True}
