"""The network that most end-to-end tests use: two tenants with the same addresses, one of them with a BGP feed.

    red/r1                                              blue/r1
      left   10.1.0.1/24 ── red.left   10.1.0.2           left  10.1.0.1/24 ── blue.left  10.1.0.2
      right  10.2.0.1/24 ── red.right  10.2.0.2           right 10.2.0.1/24 ── blue.right 10.2.0.2
      feed   10.3.0.1/24 ── feeder     10.3.0.2 (BIRD)

`right` also has FAR, to which a static route leads, and in red NEAR_FEED, which the feeder announces over BGP. What a
test counts does not go by the feeder's own link: Open vSwitch drops packets there while a whole table comes at once
(docs/planes.md).
"""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from machines import remember_accelerator
from rig import DEADLINE_S, Bird, Rig, interface, tenant, until
from rig_switches import OvsSwitch, RigSwitch

from lab.namespaces import Host, sh

FAR = "192.0.2.1"
NEAR_FEED = "198.51.100.1"
NEIGHBORS = {"red/r1": {"10.1.0.2", "10.2.0.2", "10.3.0.2"}, "blue/r1": {"10.1.0.2", "10.2.0.2"}}
OWN_ROUTES = 4
"""IPv4 routes of red/r1 with nothing but `near` announced: three connected, one static, NEAR_FEED's."""

STATIC = "ip route 192.0.2.0/24 10.2.0.2\n"
BGP = """router bgp 65000
 bgp router-id 10.3.0.1
 no bgp ebgp-requires-policy
 bgp graceful-restart
 bgp graceful-restart preserve-fw-state
 neighbor 10.3.0.2 remote-as 65001
 neighbor 10.3.0.2 timers connect 1
exit
"""
RED_FRR = {"frr": STATIC + BGP}
RED_BIRD = {
    "bird": """router id 10.3.0.1;
protocol device {}
protocol kernel { persist; graceful restart on; ipv4 { export all; }; }
protocol static { ipv4; route 192.0.2.0/24 via 10.2.0.2; }
protocol bgp feeder {
    local as 65000;
    neighbor 10.3.0.2 as 65001;
    graceful restart on;
    connect delay time 1; connect retry time 1; error wait time 1, 2;
    ipv4 { import all; export none; };
}
"""
}


@dataclass
class Ends:
    """The hosts of one tenant."""

    left: Host
    right: Host


@dataclass
class World:
    """Everything of it, running."""

    rig: Rig
    red: Ends
    blue: Ends
    feeder: Host
    bird: Bird
    declared: dict[str, dict[str, Any]]  # the tenants as they were applied

    @property
    def ways(self) -> tuple[tuple[Host, str], ...]:
        """Where traffic goes that no test may lose: by static and by BGP route, and in the other tenant."""
        return (self.red.left, FAR), (self.red.left, NEAR_FEED), (self.blue.left, FAR)


def many(count: int, first: int = 20) -> list[str]:
    """Return that many prefixes of /24."""
    return [f"{first + (i >> 16)}.{i >> 8 & 255}.{i & 255}.0/24" for i in range(count)]


def _ends(rig: Rig, number: int) -> Ends:
    left = rig.host(number, "10.1.0.2/24", "10.1.0.1")
    right = rig.host(number + 1, "10.2.0.2/24", "10.2.0.1")
    right.ip("address", "add", f"{FAR}/32", "dev", "lo")
    return Ends(left, right)


def _tenant(
    name: str, ends: Ends, text: dict[str, str], hold_s: int, *more: dict[str, object], **guest: object
) -> dict[str, object]:
    interfaces = [interface("left", ends.left, "10.1.0.1/24"), interface("right", ends.right, "10.2.0.1/24"), *more]
    ports = {str(one["port"]): ["untagged"] for one in interfaces}
    router = {"name": "r1", "interfaces": interfaces, "hold_time_s": hold_s, "guest": guest} | text
    return tenant(name, ports, router)


@contextlib.contextmanager
def world(
    *options: str,
    switch: Callable[[], RigSwitch] = OvsSwitch,
    hold_time_s: int = 15,
    red_guest: dict[str, object] | None = None,
    red_text: dict[str, str] = RED_FRR,
    limit_s: float = DEADLINE_S,
    **feeds: list[str],
) -> Iterator[World]:
    """Bring it up, converged, with BIRD ready to announce ``feeds``."""
    with Rig(*options, switch=switch) as rig:
        if red_guest:
            remember_accelerator(rig.state)
        red, blue = _ends(rig, 1), _ends(rig, 3)
        feeder = rig.host(5, "10.3.0.2/24", "10.3.0.1")
        red.right.ip("address", "add", f"{NEAR_FEED}/32", "dev", "lo")
        feed = interface("feed", feeder, "10.3.0.1/24")
        tenants = (
            _tenant("red", red, red_text, hold_time_s, feed, **(red_guest or {})),
            _tenant("blue", blue, {"frr": STATIC}, hold_time_s),
        )
        rig.apply(*tenants)
        near = "198.51.100.0/24"
        bird = Bird(rig, feeder, "10.3.0.2", "10.3.0.1", {near: "10.2.0.2"}, near=[near], **feeds)
        bird.announce("near")
        rig.up("blue/r1", routes=3)
        rig.up("red/r1", routes=OWN_ROUTES + 1, limit_s=limit_s)
        found = World(rig, red, blue, feeder, bird, {str(one["name"]): one for one in tenants})
        for host, address in found.ways:  # hosts and guests get to know each other
            sh("ip", "netns", "exec", host.namespace, "ping", "-q", "-c", "5", "-i", "0.2", address)
        until("neighbors", lambda: all(_met(rig, router) for router in NEIGHBORS))
        rig.up(*NEIGHBORS)
        yield found


def _met(rig: Rig, router: str) -> bool:
    """Whether the controller knows the neighbors of a router: from then on transit does not go by its guest."""
    known = rig.api.get("routers", *router.split("/"), "neighbors")
    return NEIGHBORS[router] <= {one["address"] for one in known if one["state"] == "resolved"}
