"""What is wrong in a document is said in one line that names it and its line, and nothing of it is applied."""

import os
import re
import signal
from collections.abc import Iterator

import pytest
from e2e_world import World, world
from rig import Rig, until

pytestmark = pytest.mark.root

GOOD = """version: 1
tenants:
  - name: green
    slices:
      - plane: s1
        ports: {p9: [untagged, 100]}
    routers:
      - name: r1
        plane: s1
        interfaces:
          - {name: eth0, port: p9, addresses: [10.9.0.1/24]}
"""
_SECOND = "          - {name: eth1, port: p9, addresses: [10.9.1.1/24]"

APPLY = ("apply", "-f", "-")

MISTAKES = {
    "broken YAML": ("[10.9.0.1/24]}\n", "[10.9.0.1/24]\n", ":12: not YAML"),
    "unknown key": ("        interfaces:", "        colour: green\n        interfaces:", ":10: unknown key 'colour'"),
    "wrong type": ("ports: {p9: [untagged, 100]}", "ports: p9", ":6: ports"),
    "unknown plane of a slice": (
        "      - plane: s1",
        "      - plane: s9",
        ":5: plane s9 is not declared (known: s1)",
    ),
    "unknown plane of a router": (
        "        plane: s1\n        i",
        "        plane: s9\n        i",
        ":8: plane s9 is not declared",
    ),
    "port used twice": (
        "/24]}\n",
        f"/24]}}\n{_SECOND}}}\n",
        "port p9 untagged of plane s1 is used by interface eth0",
    ),
    "VLAN used twice": (
        "port: p9, addresses: [10.9.0.1/24]}\n",
        f"port: p9, vlan: 100}}\n{_SECOND}, vlan: 100}}\n",
        "port p9 VLAN 100 of plane s1 is used by interface eth0 of green/r1 and by interface eth1",
    ),
    "VLAN not in the slice": ("port: p9, a", "port: p9, vlan: 7, a", "VLAN 7 of plane s1 is not in the slice"),
    "port of another tenant": ("{p9: [untagged, 100]", "{p1: [untagged]", "in the slices of tenants red and green"),
    "share on a switch without any": (
        "      - plane: s1",
        "      - plane: s1\n        share: {weight: 2}",
        ":5: plane s1 has no shares, and so none for slice green@s1; leave share out, or use a plane that has them",
    ),
    "share of a weight of nothing": (
        "        interfaces:",
        "        share: {weight: 0}\n        interfaces:",
        ":10: weight: 0 should be greater than or equal to 1",
    ),
    "ceiling below the guarantee": (
        "        interfaces:",
        "        share: {guarantee: 20 %, ceiling: 10 %}\n        interfaces:",
        ":10: share: its ceiling of 10 % is below its guarantee of 20 %; raise the ceiling, or lower the guarantee",
    ),
    "not an address": ("10.9.0.1/24", "10.9.0.300/24", "'10.9.0.300/24' is no address with a prefix length"),
    "bad FRR configuration": (
        "        interfaces:",
        '        frr: "router bgp 65000\\n neighbour 10.9.0.2\\n"\n        interfaces:',
        "green/r1: frr line 2: unknown command: neighbour 10.9.0.2",
    ),
    "FRR configuration with a word cut short": (
        "        interfaces:",
        '        frr: "ro bgp 65000\\n neighbor 10.9.0.2 remote-as 65001\\n"\n        interfaces:',
        "green/r1: frr line 1: `ro` is cut short; write the whole word: ro bgp 65000",
    ),
    "FRR of somebody else": (
        "        interfaces:",
        '        frr: "fpm address 127.0.0.1 port 1"\n        interfaces:',
        "green/r1: frr line 1: fpm is Splitplane's own",
    ),
}


@pytest.fixture(scope="module")
def running() -> Iterator[World]:
    with world() as found:
        yield found


def everything(running: World) -> tuple[object, ...]:
    rig = running.rig
    guests = sorted(rig.state.glob("guests/*"))
    tenants = rig.api.get("tenants")
    for part in (part for tenant in tenants for part in tenant["slices"]):
        del part["used"]  # neighbors come and go by themselves
    return rig.switch.holdings(), tenants, rig.api.get("interfaces"), guests


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_named_and_nothing_is_applied(running: World, mistake: str) -> None:
    good, bad, said = MISTAKES[mistake]
    assert good in GOOD
    before = everything(running)
    text = GOOD.replace(good, bad, 1)
    line = running.rig.complaint("apply", "-f", "-", text=text)
    assert said in line
    assert everything(running) == before


def test_a_missing_file_and_a_missing_controller(running: World) -> None:
    assert "/nonexistent.yaml" in running.rig.complaint("apply", "-f", "/nonexistent.yaml")
    said = running.rig.complaint("--socket", "/nonexistent.sock", "get", "routers", status=3)
    assert said.startswith("vrctl: no controller at /nonexistent.sock; start vr-controller")


def test_frr_missing(running: World) -> None:
    before = everything(running)
    with running.rig.without("/usr/lib/frr"):
        line = running.rig.complaint("apply", "-f", "-", text=GOOD)
    assert line == "vrctl: FRR is not installed: /usr/lib/frr/zebra not found; apt-get install frr"
    assert everything(running) == before


def test_a_line_that_a_daemon_refuses_is_told_by_apply_and_stays_in_the_router_s_state(running: World) -> None:
    rig = running.rig
    text = "router bgp 65000\\n neighbor 10.9.0.2 password x\\n"
    bad = GOOD.partition("        interfaces:")[0] + f'        frr: "{text}"\n'
    good = bad.replace("password x", "remote-as 65001")
    said = r"frr line 2: Specify remote-as .*\(bgpd\): neighbor 10\.9\.0\.2 password x"
    try:
        assert re.fullmatch(f"vrctl: green/r1: {said}; see vrctl logs green/r1", rig.complaint(*APPLY, text=bad))
        until("it shows", lambda: rig.router("green/r1")["state"] == "degraded")
        assert re.match(said, rig.router("green/r1")["reason"])
        told = [event for event in rig.show("events") if event["subject"] == "green/r1" and "line 2" in event["text"]]
        assert len(told) == 1
        another_staticd(rig)
        assert daemons(rig)["config"].startswith("failed: line 2: ")  # what bgpd refused is not forgotten
        rig.ok(*APPLY, text=good)
        rig.up("green/r1")
        assert re.match(f"vrctl: green/r1: {said}", rig.complaint(*APPLY, text=bad))  # this time by a reload
        until("it shows again", lambda: rig.router("green/r1")["state"] == "degraded")
        rig.ok(*APPLY, text=good)
        rig.up("green/r1")
    finally:
        rig.ok("delete", "-f", "-", text=GOOD)


def another_staticd(rig: Rig) -> None:
    """Kill staticd and wait until another one is up."""
    old = rig.process("green/r1", "staticd")
    os.kill(old, signal.SIGKILL)
    until("another process", lambda: rig.process("green/r1", "staticd") not in (0, old))
    until("it is up", lambda: daemons(rig)["staticd"] == "up")


def daemons(rig: Rig) -> dict[str, str]:
    found: dict[str, str] = rig.api.get("routers", "green", "r1", "daemons")
    return found
