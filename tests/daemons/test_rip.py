"""RIP (RFC 2453) and RIPng (RFC 2080) of FRR and BIRD."""

import pytest
from daemon_rig import Between, Net, both

pytestmark = pytest.mark.root

RIP = "router rip\n network eth0\n network eth1\n timers basic 5 15 10\n"
RIP_BOTH = both("router rip\n network eth0\n network 192.0.2.{N}/32\n timers basic 5 15 10\n")
RIPNG = "router ripng\n network eth0\n network eth1\n timers basic 5 15 10\n"
# Not by `redistribute connected`, which ripngd of FRR 10.3 now and then does not do as it starts.
RIPNG_BOTH = both("router ripng\n network eth0\n route 2001:db8:ff::{N}/128\n timers basic 5 15 10\n")
BIRD = """router id 10.0.0.2;
protocol device {}
protocol direct { ipv4; ipv6; interface "lo"; }
protocol kernel { ipv4 { export all; }; }
protocol kernel { ipv6 { export all; }; }
protocol rip { ipv4 { import all; export all; }; interface "eth0" { update time 5; timeout time 15; }; }
protocol rip ng { ipv6 { import all; export all; }; interface "eth0" { update time 5; timeout time 15; }; }
"""
NETS = {
    "rip": Net(RIP, *RIP_BOTH),
    "ripng": Net(RIPNG, *RIPNG_BOTH),
    "bird": Net(RIP + RIPNG, RIP_BOTH[0] + RIPNG_BOTH[0], BIRD),
}


@pytest.mark.parametrize(("name", "family"), [("rip", 4), ("ripng", 6), ("bird", 4), ("bird", 6)])
def test_neighbors_are_joined_through_the_plane(nets: dict[str, Between], name: str, family: int) -> None:
    net = nets[name]
    if family == 4:
        net.sees("ip rip status", "10.1.0.2", "10.2.0.2")
    else:
        net.sees("ipv6 ripng status", "fe80::", times=2)
    net.forwards(family)
