"""A full table, a used-up quota and a switch that is not there: named, and the trouble of one router alone."""

from collections.abc import Iterator

import pytest
from e2e_world import OWN_ROUTES, World, many, world
from rig import PLANE, document, unbroken, until
from rig_switches import BRIDGE

pytestmark = pytest.mark.root

ROUTES = 300
ROOM = 100


@pytest.fixture(scope="module")
def running() -> Iterator[World]:
    with world(many=many(ROUTES)) as found:
        yield found


def limit_table(running: World, flows: int) -> None:
    table = ("--id=@t", "create", "Flow_Table", f"flow_limit={flows}", "overflow_policy=refuse")
    running.rig.ovs.vsctl("--", *table, "--", "set", "Bridge", BRIDGE, "flow_tables:3=@t")


def test_a_full_table_degrades_the_router_that_fills_it(running: World) -> None:
    rig, bird = running.rig, running.bird
    with unbroken(rig, *running.ways):
        limit_table(running, len(rig.flows("table=3")) + ROOM)
        bird.announce("many")
        until("the refusal", lambda: rig.router("red/r1")["state"] == "degraded")
        until("all refused", lambda: rig.router("red/r1")["refused"] == ROUTES - ROOM)
        assert rig.router("red/r1")["reason"] == "plane s1: ipv4_route is full"
        assert rig.router("blue/r1")["state"] == "up"
        assert "table-full red/r1" in rig.ok("events")
        rig.verified("blue/r1")
        limit_table(running, 1_000_000)
        rig.ok("verify", "--repair", "red/r1")  # at once; by itself it is tried again after half a minute
        rig.up("red/r1", routes=OWN_ROUTES + 1 + ROUTES)
        rig.verified()
    bird.withdraw("many")
    rig.up("red/r1", routes=OWN_ROUTES + 1)


def test_a_used_up_quota_is_named_and_raised(running: World) -> None:
    """The quota counts all entries of the table, those of own addresses and neighbors too."""
    rig, bird = running.rig, running.bird
    declared = running.declared["red"]
    declared["slices"][0]["quota"] = {"ipv4_routes": ROOM}
    with unbroken(rig, *running.ways):
        rig.apply(declared)
        bird.announce("many")
        until("the refusal", lambda: rig.router("red/r1")["refused"] > ROUTES - ROOM)
        view = rig.router("red/r1")
        assert (view["state"], view["reason"]) == ("degraded", f"quota ipv4_routes of {ROOM}")
        until("the event", lambda: f"router-degraded red/r1: quota ipv4_routes of {ROOM}" in rig.ok("events"))
        red = "table=3,metadata=0x100000000/0xffffffff00000000"
        until("all that may be is written", lambda: not rig.router("red/r1")["pending"])
        assert len(rig.flows(red)) == ROOM
        rig.up("blue/r1")
        rig.verified()  # what is refused by name is no difference
        del declared["slices"][0]["quota"]
        rig.apply(declared)
        rig.up("red/r1", routes=OWN_ROUTES + 1 + ROUTES)
    rig.verified()


def test_a_switch_that_never_connects(running: World) -> None:
    rig = running.rig
    rig.ok("plane", "attach", "s2", "--datapath-id", "0x2")
    green = {
        "name": "green",
        "slices": [{"plane": "s2", "ports": {"p9": ["untagged"]}}],
        "routers": [{"name": "r1", "plane": "s2", "interfaces": [{"name": "eth0", "port": "p9"}]}],
    }
    done = rig.vrctl("apply", "-f", "-", text=document(green))
    assert (done.returncode, done.stderr.count("\n")) == (0, 1)
    assert done.stderr.startswith("vrctl: warning: plane s2 is not connected; its routers are programmed when it")
    view = rig.router("green/r1")
    assert (view["state"], view["reason"]) == ("no-plane", "plane s2: not connected yet")
    assert rig.router("red/r1")["state"] == "up"
    assert "plane s2 is not reachable" in rig.complaint("verify", "green/r1")
    rig.vrctl("delete", "tenant", "green")
    assert {view["router"]: view["state"] for view in rig.api.get("routers")}["green/r1"] == "deleting"
    rig.ok("delete", "plane", "s2", "--force")
    until("green gone", lambda: len(rig.api.get("routers")) == 2)
    assert PLANE in rig.ok("get", "planes")
