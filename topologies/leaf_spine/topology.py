"""The network of leaf_spine: four switches with one virtual router each; every line is a veth pair.

    h1 ── leaf1 ──── spine1 ──── leaf2 ── h2
               ╲                ╱
                ──── spine2 ────

BGP unnumbered: the links have link-local addresses only, and IPv4 routes have IPv6 next hops (RFC 8950).
"""

from pathlib import Path

from lab.network import Network
from lab.topology import Topology

_HERE = Path(__file__).parent
LEAVES, SPINES = ("leaf1", "leaf2"), ("spine1", "spine2")
H2 = ("10.2.0.10", "2001:db8:2::10")
_DATAPATH_IDS = {"leaf1": 0x1, "leaf2": 0x2, "spine1": 0x11, "spine2": 0x12}


def build(network: Network) -> None:
    """Add switches and hosts to the network and start it."""
    switches = {name: network.switch(name, number) for name, number in _DATAPATH_IDS.items()}
    for number, leaf in enumerate(LEAVES, 1):
        addresses = (f"10.{number}.0.10/24", f"2001:db8:{number}::10/64")
        host = network.host(f"h{number}", *addresses, gateways=(f"10.{number}.0.1", f"2001:db8:{number}::1"))
        network.wire(host, "eth0", switches[leaf], host.name)
        for spine in SPINES:
            network.wire(switches[leaf], f"{leaf}-{spine}", switches[spine], f"{spine}-{leaf}")
    network.start()


TOPOLOGY = Topology(
    name="leaf_spine",
    spec=_HERE / "leaf_spine.yaml",
    build=build,
    routers=tuple(f"fabric/{name}" for name in LEAVES + SPINES),
    sessions={f"fabric/{name}": {"BGP": 4} for name in LEAVES + SPINES},
    machines=("fabric",),
    paths={
        f"fabric/{leaf}": dict.fromkeys((f"10.{far}.0.0/24", f"2001:db8:{far}::/64"), len(SPINES))
        for leaf, far in zip(LEAVES, (2, 1), strict=True)
    },
    ends=tuple(("h1", address) for address in H2),
)
