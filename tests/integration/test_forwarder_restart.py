"""Whatever happens to the daemon, the kernel forwards on; and what comes after it has every entry."""

import os
import signal
from collections.abc import Iterator

import pytest
from e2e_world import OWN_ROUTES, World, many, world
from rig import unbroken, until
from rig_switches import ForwarderSwitch

from lab.namespaces import QUIETLY
from lab.private.forwarder import PrivateForwarder

pytestmark = pytest.mark.root

ROUTES = 5_000


@pytest.fixture(scope="module")
def running() -> Iterator[World]:
    with world(switch=ForwarderSwitch, many=many(ROUTES)) as found:
        found.bird.announce("many")
        found.rig.up("red/r1", routes=OWN_ROUTES + 1 + ROUTES)
        found.rig.up("blue/r1")
        yield found


def device(running: World) -> PrivateForwarder:
    assert isinstance(running.rig.switch, ForwarderSwitch)
    return running.rig.switch.forwarder


def controlled(forwarder: PrivateForwarder) -> None:
    """Wait until the controller has found the process that runs now."""
    until("a primary controller", lambda: forwarder.show("status")["controllers"]["primary"])


def killed(forwarder: PrivateForwarder) -> None:
    forwarder.kill()


def stopped(forwarder: PrivateForwarder) -> None:
    assert forwarder.stop() == 0


@pytest.mark.parametrize("end", [killed, stopped])
def test_a_restart_loses_no_packet_and_no_entry(running: World, end) -> None:
    rig, forwarder = running.rig, device(running)
    held = rig.switch.holdings()
    received = forwarder.show("status")["interfaces"]
    with unbroken(rig, *running.ways):
        for _ in range(3):
            end(forwarder)
            forwarder.start()
        controlled(forwarder)
        rig.up("red/r1", routes=OWN_ROUTES + 1 + ROUTES)
        rig.up("blue/r1")
    assert rig.switch.holdings() == held
    after = forwarder.show("status")["interfaces"]
    assert all(after[one]["received"]["packets"] >= received[one]["received"]["packets"] for one in received)
    rig.verified()


def test_routes_that_change_while_it_is_killed_are_right_in_the_end(running: World) -> None:
    rig, forwarder = running.rig, device(running)
    running.bird.withdraw("many")
    rig.up("red/r1", routes=OWN_ROUTES + 1)
    with unbroken(rig, *running.ways):
        running.bird.announce("many")
        until("some routes", lambda: rig.router("red/r1")["ipv4_routes"] > ROUTES // 10, every_s=0.01)
        os.kill(forwarder.pid, signal.SIGKILL)
        forwarder.kill()
        forwarder.start()
        controlled(forwarder)
        rig.up("red/r1", routes=OWN_ROUTES + 1 + ROUTES)
    rig.verified()


async def test_detached_it_forwards_nothing(running: World) -> None:
    host, address = running.ways[0]
    forwarder = device(running)
    assert forwarder.stop() == 0
    assert await host.ping(address, 3) == 3
    assert forwarder.run("detach").stdout == "detached from 5 interfaces\n"
    assert await host.ping(address, 3, *QUIETLY) == 0
    forwarder.start()
    assert await host.ping(address, 3) == 3
