"""Whatever dies amid 20,000 route changes: what did not change loses no packet, and everything converges."""

import os
import signal
from collections.abc import Iterator

import pytest
from e2e_world import OWN_ROUTES, World, many, world
from rig import DEADLINE_S, Rig, unbroken, until
from rig_switches import SWITCHES

from lab.namespaces import sh

pytestmark = pytest.mark.root

ROUTES = 20_000
WITHDRAWN = 5_000
GONE = "60.0.0.0/8"
"""All that is withdrawn."""
KILL_AT = 6_000
TRIES = 5
ALL_S = 4 * DEADLINE_S
"""For all of them to be in force, on a machine with other things to do."""
HOLD_TIME_S = 30
"""bgpd installs 10,000 routes a second after a graceful restart; what it did not repeat in this time goes."""


@pytest.fixture(scope="module", params=SWITCHES)
def running(request: pytest.FixtureRequest) -> Iterator[World]:
    with world(
        switch=request.param, hold_time_s=HOLD_TIME_S, many=many(ROUTES), gone=many(WITHDRAWN, first=60)
    ) as found:
        yield found


def kill_controller(running: World) -> None:
    running.rig.kill_controller()
    running.bird.withdraw("gone")
    running.rig.start_controller()


def kill_vrc(running: World) -> None:
    """While what goes is withdrawn: of some of it nobody tells it."""
    guest, vrc = running.rig.guest_pid("red/r1"), running.rig.process("red/r1", "vrc.agent")
    left = ("nsenter", f"--net=/proc/{guest}/ns/net", "ip", "route", "show", "root", GONE)
    running.bird.withdraw("gone")
    until("the first withdrawals", lambda: sh(*left).count("\n") < WITHDRAWN, every_s=0.01)
    os.kill(vrc, signal.SIGKILL)


def kill_zebra(running: World) -> None:
    os.kill(running.rig.process("red/r1", "/usr/lib/frr/zebra"), signal.SIGKILL)
    running.bird.withdraw("gone")


def cut_switch(running: World) -> None:
    rig = running.rig
    rig.switch.cut()
    until("the plane gone", lambda: not rig.api.get("planes")[0]["connected"])
    running.bird.withdraw("gone")
    rig.switch.connect()


def installed(rig: Rig) -> int:
    """Return how many IPv4 routes the plane holds."""
    return int(rig.api.get("planes")[0]["entries"]["ipv4_route"])


def announce_some(running: World) -> None:
    """Announce all routes and return while they come; begins again where they came before it was seen."""
    rig, bird = running.rig, running.bird
    for _ in range(TRIES):
        bird.announce("many")
        until("some routes", lambda: rig.router("red/r1")["ipv4_routes"] > KILL_AT, every_s=0.01)
        if rig.router("red/r1")["ipv4_routes"] < ROUTES:
            return
        bird.withdraw("many")
        rig.up("red/r1", routes=OWN_ROUTES + 1 + WITHDRAWN, limit_s=ALL_S)
    raise AssertionError(f"all routes were there {TRIES} times before it was seen that they come")


@pytest.mark.parametrize("kill", [kill_controller, cut_switch, kill_vrc, kill_zebra])
def test_killed_in_the_middle_of_many_updates(running: World, kill) -> None:
    rig, bird = running.rig, running.bird
    bird.withdraw("many")
    rig.up("red/r1", routes=OWN_ROUTES + 1, limit_s=ALL_S)
    few = installed(rig)
    bird.announce("gone")
    rig.up("red/r1", routes=OWN_ROUTES + 1 + WITHDRAWN)
    with unbroken(rig, *running.ways):
        announce_some(running)
        kill(running)
        rig.up("red/r1", routes=OWN_ROUTES + 1 + ROUTES, limit_s=ALL_S)
    rig.up("blue/r1")
    # What was withdrawn while nobody listened stays until the daemons have settled, which the hold time bounds.
    limit_s = HOLD_TIME_S + DEADLINE_S
    # To verify 20,000 routes again and again would take a core meanwhile.
    until("what was withdrawn gone", lambda: installed(rig) == few + ROUTES, limit_s)
    rig.becomes_equal(limit_s, every_s=0.5)
    bird.withdraw("many")
    rig.up("red/r1", routes=OWN_ROUTES + 1, limit_s=ALL_S)
    rig.verified()
