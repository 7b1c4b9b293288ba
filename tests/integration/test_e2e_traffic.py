"""Which routes a small switch holds follows the traffic by itself, and no packet is lost while they come and go."""

from collections.abc import Iterator

import pytest
from e2e_world import World, many, world
from rig import DEADLINE_S, unbroken, until
from rig_switches import FallbackSwitch

pytestmark = pytest.mark.root

ROOM = 24
FEED = many(200)[::2]  # with holes between them, or they would be one entry
ROUTES = 5 + len(FEED)
FIRST, SECOND = FEED[10], FEED[70]
SETTLED_S = 2 * DEADLINE_S
"""Packets are counted every 5 s, twice before anything moves; a busy machine takes longer."""


def switch() -> FallbackSwitch:
    return FallbackSwitch(samples=("one_in=4",), ipv4_route=ROOM, ipv6_route=ROOM)


@pytest.fixture(scope="module")
def running() -> Iterator[World]:
    with world(switch=switch, feed=FEED) as found:
        for prefix in (FIRST, SECOND):
            found.feeder.ip("address", "add", f"{address(prefix)}/32", "dev", "lo")
        found.bird.announce("feed")
        found.rig.up("red/r1", routes=ROUTES)
        yield found


def address(prefix: str) -> str:
    """The first address of a prefix, which the feeder answers for."""
    return prefix.removesuffix("0/24") + "1"


def in_hardware(running: World, prefix: str) -> bool:
    return prefix in {row["prefix"] for row in running.rig.show("fib", "red/r1", "--where", "hardware")}


def connected(running: World, plane: str) -> bool:
    return any(one["connected"] for one in running.rig.show("get", "planes") if one["name"] == plane)


def test_what_is_asked_for_enters_hardware_by_itself(running: World) -> None:
    rig = running.rig
    assert rig.router("red/r1")["placement"] == "auto"
    assert not in_hardware(running, FIRST)
    with unbroken(rig, (running.red.left, address(FIRST)), (running.red.left, address(SECOND))):
        for prefix in (FIRST, SECOND):
            until(f"{prefix} in hardware", lambda p=prefix: in_hardware(running, p), SETTLED_S, 0.5)  # type: ignore[misc]
    rig.verified()
    view = {one["name"]: one for one in rig.show("get", "planes")}
    assert view["s1"]["entries"]["hardware ipv4_route"] <= ROOM


def test_it_stays_and_is_fed_again_when_the_controller_is_killed(running: World) -> None:
    rig = running.rig
    with unbroken(rig, (running.red.left, address(FIRST))):
        until("it is in hardware", lambda: in_hardware(running, FIRST), SETTLED_S, 0.5)
        rig.kill_controller()
        rig.start_controller()
        rig.up("red/r1", routes=ROUTES)
        assert in_hardware(running, FIRST)
    rig.verified()


def test_a_forwarder_that_restarts_goes_on_sampling(running: World) -> None:
    rig, forwarder = running.rig, running.rig.switch.forwarder
    forwarder.kill()
    until("the loss is seen", lambda: not connected(running, "f1"))
    forwarder.start()
    rig.up("red/r1", routes=ROUTES)
    rig.ok("move", "red/r1", "--to", "software")
    until("all in software", lambda: not in_hardware(running, FIRST))
    rig.ok("move", "red/r1", "--to", "auto")
    before = forwarder.show("status")["samples"]["taken"]
    with unbroken(rig, (running.red.left, address(FIRST))):
        until("samples", lambda: forwarder.show("status")["samples"]["taken"] > before)
        until("it is in hardware again", lambda: in_hardware(running, FIRST), SETTLED_S, 0.5)
    rig.verified()


def test_a_switch_that_lost_everything_gets_back_what_was_asked_for(running: World) -> None:
    rig = running.rig
    until("it is in hardware", lambda: in_hardware(running, FIRST), SETTLED_S, 0.5)
    rig.switch.restart()
    rig.up("red/r1", "blue/r1")
    until("it is there again", lambda: in_hardware(running, FIRST), SETTLED_S, 0.5)
    rig.verified()
