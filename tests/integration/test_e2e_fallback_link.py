"""The link between Open vSwitch and vr-forwarder is proved to carry the longest frames, or said not to."""

from collections.abc import Iterator

import pytest
from rig import Rig, interface, tenant, until
from rig_switches import FallbackSwitch

from controller.planes.base import PuntClass
from lab.namespaces import sh

pytestmark = pytest.mark.root

ROUTER = "red/r1"
NARROW = "the fallback link s1:br-f1 – f1:p1 loses frames of 1518 octets; raise its MTU to 1504"


@pytest.fixture(scope="module")
def rig() -> Iterator[Rig]:
    """One router with static routes alone, MTU 1500."""
    with Rig(switch=FallbackSwitch) as found:
        left, right = found.host(1, "10.1.0.2/24"), found.host(2, "10.2.0.2/24")
        declared = {
            "name": "r1",
            "ip": "route add 192.0.2.0/24 via 10.2.0.2",
            "interfaces": [interface("left", left, "10.1.0.1/24"), interface("right", right, "10.2.0.1/24")],
        }
        found.apply(tenant("red", {left.link: ["untagged"], right.link: ["untagged"]}, declared))
        found.up(ROUTER)
        yield found


def told(rig: Rig, kind: str) -> list[str]:
    return [event["text"] for event in rig.api.get("events") if event["kind"] == kind]


def link(rig: Rig, *change: str) -> None:
    """Change the switch's end of the link."""
    sh("ip", "-n", rig.switch.namespace, "link", "set", FallbackSwitch.LINK, *change)


def flap(rig: Rig) -> None:
    link(rig, "down")
    until("the loss is seen", lambda: "is down" in rig.router(ROUTER)["reason"])
    link(rig, "up")


def test_a_link_of_a_small_mtu_is_named_until_it_is_mended(rig: Rig) -> None:
    link(rig, "mtu", "1400")
    flap(rig)
    until("the loss of long frames", lambda: rig.router(ROUTER)["reason"] == NARROW)
    assert rig.router(ROUTER)["state"] == "degraded"
    views = {one["name"]: one["reason"] for one in rig.show("get", "planes")}
    assert views["f1"] == f"fallback of s1: {NARROW}"
    assert told(rig, "link-problem") == [NARROW]
    link(rig, "mtu", "1504")
    rig.up(ROUTER)
    assert told(rig, "link-proved") == ["the fallback link carries the longest frames"]


def test_nothing_of_a_proof_is_left(rig: Rig) -> None:
    def remains() -> list[str]:
        meters = rig.ovs.ofctl("dump-meters", "br").count("meter=") - len(PuntClass)  # one router's
        return [line for line in rig.flows() if "dl_vlan=4094" in line] + ["a meter"] * meters

    until("nothing of it", lambda: not remains())
    rig.verified()
