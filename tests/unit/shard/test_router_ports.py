"""Thousands of routers follow a port in turns, and a change costs the same however many other ports there are."""

import asyncio
from dataclasses import replace

import pytest
from worlds import interface, router_config

from controller.planes.base import PortState
from controller.planes.fake import FakePlane
from controller.shard import router_ports
from controller.shard.router_ports import RouterPorts


class CountingPlane(FakePlane):
    """Counts how often all its ports are looked at."""

    looks = 0

    def __getattribute__(self, name: str) -> object:
        if name == "ports":
            type(self).looks += 1
        return super().__getattribute__(name)


def test_a_change_of_a_port_looks_at_no_other() -> None:
    plane = CountingPlane("s1")
    plane.ports.update({number: PortState(number, f"p{number}", True) for number in range(1, 10)})
    ports = RouterPorts(plane, lambda _: None)
    assert ports.states()["p9"] == (9, True)
    CountingPlane.looks = 0
    for change in (
        PortState(1, "p1", False),
        PortState(2, "p2", True, present=False),
        PortState(3, "other", True),
        PortState(20, "p4", True),  # which a moment later is no more the one before
        PortState(4, "p4", True, present=False),
        PortState(21, "p21", False),
    ):
        ports.changed(change)
    states = ports.states()
    assert CountingPlane.looks == 0
    assert states == {
        "p1": (1, False),
        "other": (3, True),
        "p4": (20, True),
        "p21": (21, False),
        **{f"p{number}": (number, True) for number in range(5, 10)},
    }
    ports.read_anew()
    assert ports.states()["p1"] == (1, True)
    assert CountingPlane.looks == 1


def test_a_router_is_told_of_the_ports_that_it_uses_now() -> None:
    told: list[list[int]] = []
    ports = RouterPorts(FakePlane("s1"), told.append)
    ports.use(1, frozenset(("p1", "p2")))
    ports.use(2, frozenset(("p1",)))
    ports.use(1, frozenset(("p2",)))
    ports.changed(PortState(1, "p1", True))
    ports.changed(PortState(2, "p2", True))
    ports.use(2, frozenset())
    ports.changed(PortState(1, "p1", False))
    assert told == [[2], [1]]


async def test_thousands_of_routers_at_a_port_follow_it_in_turns(make_world, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(router_ports, "FOLLOW_AT_ONCE", 3)
    trunk = [replace(interface(number), port="p1", vlan=number) for number in range(1, 21)]
    world = await make_world(*(replace(router_config(i, ()), interfaces=(trunk[i - 1],)) for i in range(1, 21)))
    await asyncio.gather(*(world.settle(vrf_id) for vrf_id in range(1, 21)))

    def up() -> list[bool]:
        return [world.router(i).fib.interfaces[i].port_up for i in sorted(world.shards.routers)]

    world.plane.set_port(1, "p1", False)
    assert up().count(False) == 3
    await world.until(lambda: up().count(False) > 5)
    world.plane.set_port(1, "p1", True)
    await world.shards.remove_router(20)
    await world.until(lambda: all(up()))
    world.plane.set_port(1, "p1", False)
    await world.until(lambda: not any(up()))
