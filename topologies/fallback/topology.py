"""The network of fallback: a switch with room for 1,000 IPv4 routes, and a forwarder that holds all 100,000.

    h1 ── [r1] ── n1 ── h2          r1 is on s1, an Open vSwitch, and on f1, a vr-forwarder, at once:

                                        h1 ── s1 ── n1
                                              │ cable, a VLAN for each router interface
                                              f1

n1 is a Mininet host with BIRD, which announces seeded prefixes such as the Internet's table has (see prefixes.py), as
many as `--routes` says; all lead on to h2, which answers for every address.
"""

import functools
from pathlib import Path

from lab.bird import Bird
from lab.network import Network, checked, inside
from lab.planes.fallback import FallbackPlanes
from lab.prefixes import Announcement, announcements
from lab.topology import Topology

_HERE = Path(__file__).parent
HARDWARE = "s1"
ROOM = 1000
"""IPv4 routes that fit into it."""
ROUTER = "red/r1"
H1, H2 = "10.1.0.10", "10.2.0.10"
R1, N1 = "10.0.1.1", "10.0.1.2"
OWN_ROUTES = 2
"""What r1 has besides: two connected prefixes."""
_R1_AS = 65101
_N1 = (
    "echo 1 > /proc/sys/net/ipv4/ip_forward",
    f"ip address add {N1}/24 dev eth1",
    f"ip route add 10.1.0.0/24 via {R1}",
)
_H2 = (
    "ip rule add pref 1 iif lo lookup main",
    "ip rule add pref 2 lookup local",
    "ip rule del pref 0",
    "ip route add local default dev lo table local",
)
"""Every address that comes in is its own; what it sends is routed before that is looked at."""


@functools.cache
def announced(routes: int) -> list[Announcement]:
    """Return so many prefixes for n1 to announce."""
    return announcements(routes, seed=1)


def planes() -> FallbackPlanes:
    """Return the two switches."""
    return FallbackPlanes({"ipv4_route": ROOM, "ipv6_route": ROOM})


def build(network: Network, routes: int) -> None:
    """Add switch and hosts to the network, start it, and let n1 announce so many routes."""
    s1 = network.switch(HARDWARE, 1)
    h1 = network.host("h1", f"{H1}/24", gateways=("10.1.0.1",))
    h2 = network.host("h2", f"{H2}/24", gateways=("10.2.0.1",))
    n1 = network.host("n1", "10.2.0.1/24", gateways=(H2,))
    network.wire(h1, "eth0", s1, "h1")
    network.wire(n1, "eth1", s1, "n1")
    network.wire(n1, "eth0", h2, "eth0")
    network.start()
    for host, lines in ((n1, _N1), (h2, _H2)):
        checked(inside(host, ["sh", "-ec", "\n".join(lines)]))
    bird = Bird(n1, [(N1, R1)], _R1_AS)
    bird.start(announced(routes))
    bird.announce()


def sized(routes: int) -> Topology:
    """Return the topology with so many routes of n1."""
    return Topology(
        name="fallback",
        spec=_HERE / "fallback.yaml",
        build=functools.partial(build, routes=routes),
        routers=(ROUTER,),
        sessions={ROUTER: {"BGP": 1}},
        machines=(),
        ends=(("h1", N1),),
        routes={ROUTER: OWN_ROUTES + routes},
        planes=planes,
        sized=sized,
    )


TOPOLOGY = sized(100_000)
