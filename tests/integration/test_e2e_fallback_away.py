"""An Open vSwitch that has room for everything, while the vr-forwarder behind it is away: it follows what changes."""

import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
from e2e_world import FAR, World, many, world
from rig import Rig, unbroken, until
from rig_switches import FallbackSwitch

pytestmark = pytest.mark.root

FEED = many(100)[::2]


@pytest.fixture(scope="module")
def running() -> Iterator[World]:
    with world(switch=FallbackSwitch, feed=FEED) as found:
        rig = found.rig
        until("all of red in hardware", lambda: "192.0.2.0/24" in in_hardware(rig))
        rig.switch.forwarder.kill()
        until("the loss is seen", lambda: not planes(rig)["s1"]["connected"])
        yield found


def planes(rig: Rig) -> dict[str, dict[str, Any]]:
    """The states of both planes."""
    return {one["name"]: one for one in rig.show("get", "planes")}


def in_hardware(rig: Rig) -> set[str]:
    """The prefixes of red that the switch routes itself."""
    return {row["prefix"] for row in rig.show("fib", "red/r1", "--where", "hardware")}


def ping(running: World, address: str) -> str:
    """What ping says of one packet from red's left host."""
    command = ("ip", "netns", "exec", running.red.left.namespace, "ping", "-n", "-c", "1", "-W", "1", address)
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout


def configure(rig: Rig, line: str) -> None:
    """Have red's zebra take a line."""
    rig.ok("exec", "red/r1", "--", "vtysh", "-c", "configure terminal", "-c", line)


def test_routers_that_are_wholly_in_hardware_stay_up(running: World) -> None:
    rig = running.rig
    assert planes(rig)["s1"]["reason"] == "plane f1 is not connected"
    assert planes(rig)["f1"]["reason"] == "fallback of s1: not connected"
    for name in ("red/r1", "blue/r1"):
        view = rig.router(name)
        assert (view["state"], view["reason"]) == ("up", "")


def test_routes_come_and_go_in_the_switch(running: World) -> None:
    rig = running.rig
    with unbroken(rig, *running.ways):
        running.bird.announce("feed")
        until("the feed in hardware", lambda: set(FEED) <= in_hardware(rig))
        assert rig.router("red/r1")["pending"] == 0
        running.bird.withdraw("feed")
        until("the feed gone", lambda: not set(FEED) & in_hardware(rig))
        until("no way to it, though the forwarder has one", lambda: "Unreachable" in ping(running, "20.0.0.1"))


def test_a_route_that_changes_leads_elsewhere_at_once(running: World) -> None:
    """The far network moves behind the other host, which takes packets to it from the switch alone."""
    rig = running.rig
    feeder = running.feeder
    feeder.ip("address", "add", "203.0.113.1/32", "dev", "lo")
    configure(rig, "ip route 203.0.113.0/24 10.2.0.2")
    until("the route in hardware", lambda: "203.0.113.0/24" in in_hardware(rig))
    assert "1 received" not in ping(running, "203.0.113.1")
    configure(rig, "no ip route 203.0.113.0/24 10.2.0.2")
    configure(rig, "ip route 203.0.113.0/24 10.3.0.2")
    until("the way to the feeder", lambda: "1 received" in ping(running, "203.0.113.1"))
    configure(rig, "no ip route 203.0.113.0/24 10.3.0.2")


def test_the_forwarder_gets_what_it_missed(running: World) -> None:
    rig = running.rig
    with unbroken(rig, *running.ways):
        running.bird.announce("feed")
        until("the feed in hardware", lambda: set(FEED) <= in_hardware(rig))
        rig.switch.forwarder.start()
        until("both planes", lambda: planes(rig)["s1"]["connected"])
        rig.up("red/r1", "blue/r1")
        rig.verified()
        rig.ok("move", "red/r1", "--to", "software")
    steps = rig.show("trace", "red/r1", FAR, "-i", "left")
    assert [step["table"] for step in steps].count("ipv4_route") == 2
    running.bird.withdraw("feed")
    until("the feed gone", lambda: not [line for line in rig.switch.flows() if "nw_dst=20." in line])
