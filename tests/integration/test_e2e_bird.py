"""A router whose guest runs BIRD: it learns by BGP, forwards, takes changes and survives the death of its daemon."""

import json
import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest
from e2e_world import FAR, OWN_ROUTES, RED_BIRD, World, many, world
from rig import document, unbroken, until

pytestmark = pytest.mark.root

ROUTES = 10_000
ALL = OWN_ROUTES + 1 + ROUTES


@pytest.fixture(scope="module")
def running() -> Iterator[World]:
    with world(red_text=RED_BIRD, hold_time_s=60, many=many(ROUTES)) as found:
        found.bird.announce("many")
        found.rig.up("red/r1", routes=ALL)
        yield found


def declared(running: World, **text: str) -> dict[str, Any]:
    """The tenant with another text of its router."""
    red = running.declared["red"]
    kept = {key: value for key, value in red["routers"][0].items() if key != "bird"}
    return red | {"routers": [kept | text]}


def birdc(running: World, *command: str) -> str:
    return running.rig.ok("exec", "red/r1", "--", "birdc", *command)


def test_routes_of_bird_are_forwarded_by_the_plane(running: World) -> None:
    rig = running.rig
    rig.verified()
    assert "Established" in birdc(running, "show", "protocols", "feeder")
    assert rig.api.get("routers", "red", "r1", "daemons") == {"vrc": "up", "bird": "up"}
    assert {view["router"]: view["suite"] for view in rig.show("get", "routers")} == {
        "red/r1": "bird",
        "blue/r1": "frr",
    }
    with unbroken(rig, *running.ways):
        birdc(running, "show", "status")
        assert rig.process("red/r1", "zebra") == 0


def test_a_changed_text_is_in_force_and_nothing_else_notices(running: World) -> None:
    rig, before = running.rig, running.rig.process("red/r1", "/usr/sbin/bird")
    more = RED_BIRD["bird"] + "protocol static more { ipv4; route 203.0.113.0/24 via 10.2.0.2; }\n"
    with unbroken(rig, *running.ways):
        assert rig.apply(declared(running, bird=more)) == "change router red/r1\n    BIRD configuration changed\n"
        rig.up("red/r1", routes=ALL + 1)
        rig.apply(declared(running, **RED_BIRD))
        rig.up("red/r1", routes=ALL)
    assert rig.process("red/r1", "/usr/sbin/bird") == before
    rig.verified()


def test_bird_killed_under_traffic_loses_no_packet(running: World) -> None:
    rig = running.rig
    before = rig.process("red/r1", "/usr/sbin/bird")
    with unbroken(rig, *running.ways):
        os.kill(before, signal.SIGKILL)
        until("BIRD again", lambda: rig.process("red/r1", "/usr/sbin/bird") not in (0, before))
        until("its neighbor", lambda: "Established" in rig.vrctl("exec", "red/r1", "--", "birdc", "s", "p").stdout)
        until("every route", lambda: f"{ROUTES + 1} imported" in birdc(running, "show", "protocols", "all", "feeder"))
        log = rig.state / "guests/1/guest.log"
        until("the end of its recovery", lambda: "Graceful restart done" in log.read_text())
        rig.up("red/r1", routes=ALL)
    assert not any(route["stale"] for route in rig.show("routes", "red/r1"))
    rig.verified()


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ({"bird": "router id 10.3.0.1;\nprotocol nonsense {}\n"}, "red/r1: bird line 2: syntax error, unexpected"),
        ({"bird": 'router id 10.3.0.1;\ninclude "/etc/passwd";\n'}, "red/r1: bird line 2: the text is the whole"),
        ({"bird": "protocol device {}\n"}, "red/r1: bird has no router id"),
        ({"bird": RED_BIRD["bird"], "frr": ""}, "router red/r1: give frr or bird, not both"),
        ({"bird": RED_BIRD["bird"], "source": "fpm"}, "router red/r1: fpm is FRR's; leave source out"),
        ({"ip": "route add 203.0.113.0/24 dev lift\n"}, "router red/r1: ip line 1: it has no interface lift (known"),
    ],
)
def test_a_bad_text_is_one_line_and_changes_nothing(running: World, text: dict[str, str], problem: str) -> None:
    rig = running.rig
    refused = document(declared(running, **text), plane=rig.switch.declared)
    assert problem in rig.complaint("apply", "-f", "-", text=refused)
    assert rig.router("red/r1")["ipv4_routes"] == ALL


def test_another_suite_starts_the_guest_anew_and_the_plane_forwards_meanwhile(running: World) -> None:
    rig, before = running.rig, running.rig.guest_pid("red/r1")
    wanted = declared(running, ip="route add 192.0.2.0/24 via 10.2.0.2\n")
    shown = rig.vrctl("diff", "-f", "-", "-o", "json", text=document(wanted, plane=rig.switch.declared))
    (change,) = json.loads(shown.stdout)
    assert change["details"] == ["bird → ip: its guest starts anew"]
    with unbroken(rig, (running.red.left, FAR)):
        rig.apply(wanted)
        until("the new daemons", lambda: rig.api.get("routers", "red", "r1", "daemons") == {"vrc": "up", "ip": "up"})
        rig.up("red/r1")
        until("its route", lambda: not route(running, "192.0.2.0/24")["stale"])
    assert rig.guest_pid("red/r1") != before


def route(running: World, prefix: str) -> dict[str, Any]:
    """A route as the VRC told it."""
    return next(one for one in running.rig.show("routes", "red/r1") if one["prefix"] == prefix)
