"""A router of many routes on its way between Open vSwitch and the vr-forwarder behind it, under traffic."""

import contextlib
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from e2e_world import FAR, World, many, world
from rig import Rig, unbroken, until
from rig_switches import FallbackSwitch

from controller.vrctl.client import Refused

pytestmark = pytest.mark.root

FEED = many(40_000)[::2]  # with holes between them, or they would be one entry
ROUTES = 5 + len(FEED)
ATTEMPTS = 10
"""A move of so many routes takes a second or less where the machine is fast, and may be over before it is met."""


@pytest.fixture(scope="module")
def running() -> Iterator[World]:
    with world(switch=FallbackSwitch, feed=FEED) as found:
        found.bird.announce("feed")
        found.rig.up("red/r1", routes=ROUTES, limit_s=180)
        rests(found.rig)
        yield found


def moving(rig: Rig) -> dict[str, Any] | None:
    """How far red/r1 is, None where it rests."""
    move: dict[str, Any] | None = rig.router("red/r1")["move"]
    return move


def rests(rig: Rig) -> None:
    """Wait until no move is under way."""
    until("no move under way", lambda: rig.router("red/r1")["state"] == "up" and moving(rig) is None, 180)


def met_half_way(rig: Rig, to: str) -> dict[str, Any] | None:
    """Begin a move and return how far it is once a part is done; None where all is."""
    rig.api.call("POST", "/v1/routers/red/r1/move", {"to": to})
    found: list[dict[str, Any] | None] = []

    def met() -> bool:
        move = moving(rig)
        if move is None or move["done"]:
            found.append(move)
        return bool(found)

    until("a part of it", met, every_s=0.01)
    return found[0]


def test_it_waits_shows_how_far_it_is_and_ends_with_what_holds(running: World) -> None:
    rig = running.rig
    rig.ok("move", "red/r1", "--to", "hardware")
    with unbroken(rig, *running.ways):
        command = rig.command("move", "red/r1", "--to", "f1")
        seen = []
        with subprocess.Popen(command, env=rig.environment, stdout=subprocess.PIPE, text=True) as waiting:
            while waiting.poll() is None:
                seen.append(moving(rig))
            assert waiting.stdout is not None
            said = waiting.stdout.read().splitlines()
        assert waiting.returncode == 0
    view = rig.router("red/r1")
    assert (view["placement"], view["move"]) == ("software", None)
    assert said[:2] == ["change router red/r1", "    placement hardware → software"]
    assert said[2].endswith(" routes in software; own addresses stay in hardware")
    under_way = [move for move in seen if move is not None]
    assert {(move["to"], move["before"]) for move in under_way} <= {("software", "hardware")}
    done = [move["done"] for move in under_way]
    assert done == sorted(done)
    rig.verified()


def restart_controller(rig: Rig) -> None:
    """Kill it and wait until the new one knows what is on the planes: where routes came from is stored meanwhile."""
    rig.kill_controller()
    rig.start_controller()
    until("the planes", lambda: moving(rig) or rig.router("red/r1")["state"] == "up")


@pytest.mark.parametrize("before", [lambda _rig: None, restart_controller], ids=["at once", "after kill -9"])
def test_an_abort_brings_everything_back_without_a_lost_packet(running: World, before: Callable[[Rig], None]) -> None:
    rig = running.rig
    rig.ok("move", "red/r1", "--to", "hardware")
    for _ in range(ATTEMPTS):
        aborted = None
        with unbroken(rig, *running.ways):
            met_half_way(rig, "software")
            before(rig)
            with contextlib.suppress(Refused):  # it was over already
                aborted = rig.api.call("DELETE", "/v1/routers/red/r1/move")
                assert rig.router("red/r1")["placement"] == "hardware"
            rests(rig)
        if aborted:
            break
        rig.ok("move", "red/r1", "--to", "hardware")
    assert aborted
    assert rig.ok("move", "red/r1", "--to", "s1").splitlines()[1].endswith(" routes in hardware")
    rig.verified()
    assert "is not being moved" in rig.complaint("move", "red/r1", "--abort")


def test_a_move_that_waits_for_the_forwarder_says_so(running: World) -> None:
    rig = running.rig
    rig.ok("move", "red/r1", "--to", "hardware")
    rig.switch.forwarder.kill()
    until("the loss is seen", lambda: not all(one["connected"] for one in rig.show("get", "planes")))
    done = rig.vrctl("move", "red/r1", "--to", "software", "--no-wait")
    assert done.stderr == "vrctl: warning: red/r1: plane f1 is not connected; the move waits until it is back\n"
    assert rig.vrctl("move", "red/r1", "--abort", "--no-wait").stderr == ""
    rig.switch.forwarder.start()
    rig.up("red/r1", routes=ROUTES)
    rests(rig)


def test_the_newest_move_wins(running: World) -> None:
    rig = running.rig
    rig.ok("move", "red/r1", "--to", "hardware")
    with unbroken(rig, *running.ways):
        for _ in range(ATTEMPTS):
            if met_half_way(rig, "software"):
                outcome = rig.api.call("POST", "/v1/routers/red/r1/move", {"to": "auto"})
                details = outcome["changes"][0]["details"]
                if len(details) == 2:
                    break
            rig.ok("move", "red/r1", "--to", "hardware")
        else:
            raise AssertionError("no move was ever met half-way")
        rests(rig)
    assert details[1].startswith("it was on its way to software: ")
    assert rig.router("red/r1")["placement"] == "auto"
    rig.verified()


def kill_forwarder(rig: Rig) -> None:
    """It dies and comes back."""
    rig.switch.forwarder.kill()
    until("the loss is seen", lambda: rig.router("red/r1")["state"] == "degraded")
    rig.switch.forwarder.start()


def kill_controller(rig: Rig) -> None:
    """It dies and comes back, and still knows where the router is to be."""
    rig.kill_controller()
    rig.start_controller()
    assert rig.router("red/r1")["placement"] == "software"


@pytest.mark.parametrize("kill", [kill_forwarder, kill_controller])
def test_it_goes_on_whoever_is_killed(running: World, kill: Callable[[Rig], None]) -> None:
    rig = running.rig
    rig.ok("move", "red/r1", "--to", "hardware")
    with unbroken(rig, *running.ways):
        met_half_way(rig, "software")
        kill(rig)
        rig.up("red/r1", routes=ROUTES)
        rests(rig)
    left = {row["prefix"] for row in rig.show("fib", "red/r1", "--where", "hardware")}
    assert left == {f"10.{number}.0.1/32" for number in (1, 2, 3)}
    rig.verified()
    steps = rig.show("trace", "red/r1", FAR, "-i", "left")
    assert [step["table"] for step in steps].count("ipv4_route") == 2
