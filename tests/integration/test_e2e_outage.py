"""The controller or the plane's channel is away so long that a guest's kernel gives its neighbors up."""

from collections.abc import Iterator

import pytest
from e2e_world import World, world
from rig import unbroken, until
from rig_switches import SWITCHES

from lab.namespaces import sh

pytestmark = pytest.mark.root

GATEWAYS = {"10.2.0.2": "right", "10.3.0.2": "feed"}


@pytest.fixture(scope="module", params=SWITCHES)
def running(request: pytest.FixtureRequest) -> Iterator[World]:
    with world(switch=request.param) as found:
        yield found


def away_controller(running: World) -> None:
    running.rig.kill_controller()
    wait_until_given_up(running)
    running.rig.start_controller()


def away_switch(running: World) -> None:
    rig = running.rig
    rig.switch.cut()
    until("the plane gone", lambda: not rig.api.get("planes")[0]["connected"])  # or they would still answer
    wait_until_given_up(running)
    rig.switch.connect()


def in_guest(running: World, *command: str) -> str:
    return sh("nsenter", "--target", str(running.rig.guest_pid("red/r1")), "--net", "--mount", "--", *command)


def wait_until_given_up(running: World) -> None:
    """Have the kernel probe them now, as it does after half a minute or so, and find them silent.

    It takes no state together with `managed`, and takes `managed` away where it is not said.
    """
    for (address, device), host in zip(GATEWAYS.items(), (running.red.right, running.feeder), strict=True):
        for said in (("nud", "probe"), ("managed",)):
            in_guest(running, "ip", "neigh", "replace", address, "dev", device, "lladdr", host.mac, *said)
    until("neighbors failed", lambda: all(one in failed(running) for one in GATEWAYS), every_s=0.2)


def failed(running: World) -> str:
    return in_guest(running, "ip", "neigh", "show", "nud", "failed", "nud", "incomplete")


@pytest.mark.parametrize("away", [away_controller, away_switch])
def test_the_plane_forwards_on_to_neighbors_the_guest_has_given_up(running: World, away) -> None:
    rig = running.rig
    with unbroken(rig, *running.ways, *((running.red.left, gateway) for gateway in GATEWAYS)):
        away(running)
        rig.up("red/r1", "blue/r1")
        until("neighbors there again", lambda: not any(one in failed(running) for one in GATEWAYS))
    rig.verified()
