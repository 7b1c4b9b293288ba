"""The network of two_tenants, the same for each tenant, addresses included.

    h1 ── n1 ──(red: VLAN 100 of a trunk)── [r1 ── r2] ══ two links ══ n2 ── h2

n1 and n2 are Mininet hosts with FRR, r1 and r2 virtual routers on switch s1, the link between them a pair of its
ports. 203.0.113.1 and 2001:db8:99::1 exist in red alone; n2 announces them to r2 by BGP, all else there is OSPF's.
Only one link has that session: FRR 8.4 does not see a link fail whose group OSPF and BGP share.

Hellos and keepalives go every second, but neighbors give up only after 40 s: longer than a restart of the
controller on a busy host, during which nobody relays what is punted. A cut link is noticed by its carrier.
"""

from pathlib import Path

from lab.network import Network, checked
from lab.topology import Topology

_HERE = Path(__file__).parent
TENANTS = ("red", "blue")
H1, H2 = ("10.1.0.10", "2001:db8:1::10"), ("10.2.0.10", "2001:db8:2::10")
LAN = ("10.2.0.0/24", "2001:db8:2::/64")
"""Where H2 is."""
RED_ALONE = ("203.0.113.1", "2001:db8:99::1")
_DAEMONS = {"red": ("ospfd", "ospf6d", "bgpd"), "blue": ("bgpd", "bfdd", "staticd")}
_LINKS = {"n1": 1, "n2": 2, "r1": 2, "r2": 3}


def build(network: Network) -> None:
    """Add both tenants' hosts to the network and start it."""
    s1, s2 = network.switch("s1", 1), network.bridge("s2")
    for tenant in TENANTS:
        n1, n2 = (
            network.neighbor(f"{tenant}-{n}", _HERE / f"{tenant}-{n}.conf", *_DAEMONS[tenant]) for n in ("n1", "n2")
        )
        h1 = network.host(f"{tenant}-h1", f"{H1[0]}/24", f"{H1[1]}/64", gateways=("10.1.0.1", "2001:db8:1::1"))
        h2 = network.host(f"{tenant}-h2", f"{H2[0]}/24", f"{H2[1]}/64", gateways=("10.2.0.1", "2001:db8:2::1"))
        network.wire(h1, "eth0", n1, "eth0")
        network.wire(h2, "eth0", n2, "eth0")
        network.wire(n1, "eth1", s2 if tenant == "red" else s1, f"{tenant}-n1")
        network.wire(n2, "eth1", s1, f"{tenant}-n2-a")
        network.wire(n2, "eth2", s1, f"{tenant}-n2-b")
        network.join(s1, f"{tenant}-r1-r2", f"{tenant}-r2-r1")
    network.wire(s1, "trunk", s2, "s2-trunk")
    network.start()
    checked(["ovs-vsctl", "set", "Port", "red-n1", "tag=100"])


def _sessions() -> dict[str, dict[str, int]]:
    found = {}
    for node, links in _LINKS.items():
        separator = "/" if node.startswith("r") else "-"
        found[f"red{separator}{node}"] = {"OSPFv2": links, "OSPFv3": links}
        found[f"blue{separator}{node}"] = {"BGP": 2 * links}
    for node in ("red/r2", "red-n2"):
        found[node]["BGP"] = 2
    return found


TOPOLOGY = Topology(
    name="two_tenants",
    spec=_HERE / "two_tenants.yaml",
    build=build,
    routers=tuple(f"{tenant}/{router}" for tenant in TENANTS for router in ("r1", "r2")),
    sessions=_sessions(),
    machines=("red",),
    paths={f"{tenant}/r2": dict.fromkeys(LAN, 2) for tenant in TENANTS},
    ends=tuple((f"{tenant}-h1", address) for tenant in TENANTS for address in H2),
)
