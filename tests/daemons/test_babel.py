"""Babel (RFC 8966) of FRR and BIRD."""

import pytest
from daemon_rig import Between, Net, both

pytestmark = pytest.mark.root

LINK = "interface {}\n babel wired\n babel hello-interval 1000\n babel update-interval 2000\n"
OURS = "router babel\n network eth0\n network eth1\n" + LINK.format("eth0") + LINK.format("eth1")
THEIRS = both(
    "router babel\n network eth0\n redistribute ipv4 connected\n redistribute ipv6 connected\n" + LINK.format("eth0")
)
BIRD = """router id 10.0.0.2;
protocol device {}
protocol direct { ipv4; ipv6; interface "lo"; }
protocol kernel { ipv4 { export all; }; }
protocol kernel { ipv6 { export all; }; }
protocol babel {
  ipv4 { import all; export all; };
  ipv6 { import all; export all; };
  interface "eth0" { type wired; hello interval 1 s; update interval 2 s; };
}
"""
# babeld announces its own addresses as hosts, also on the link that they are on. A zebra that has taken that one
# before the routes by it looks for the gateway there, and has these `inactive` from then on.
BABELD_TEXT = """interface eth0 type wired hello-interval 1
interface eth1 type wired hello-interval 1
redistribute local deny
"""
BABELD = {
    "files": {"babeld.conf": BABELD_TEXT},
    "daemons": [
        {"argv": ["/usr/sbin/babeld", "-c", "/run/command/etc/babeld.conf", "-I", "", "-S", "/run/command/run/state"]}
    ],
}
NETS = {
    "frr": Net(OURS, *THEIRS),
    "bird": Net(OURS, THEIRS[0], BIRD),
    "babeld": Net("", THEIRS[0], BIRD, router={"command": BABELD}),
}


def adjacent(net: Between, name: str) -> None:
    """Wait until each pair of routers hears each other; the virtual router's babeld by itself tells nobody."""
    net.n1.sees("babel neighbor", "dev eth0")
    if name == "frr":
        net.n2.sees("babel neighbor", "dev eth0")
    else:
        net.n2.sees("babel neighbors", "eth0")
    if name != "babeld":
        net.sees("babel neighbor", "dev eth0", "dev eth1")


@pytest.mark.parametrize("name", NETS)
def test_neighbors_are_joined_through_the_plane(nets: dict[str, Between], name: str) -> None:
    adjacent(nets[name], name)
    nets[name].forwards(4, 6)
