"""OSPFv2 (RFC 2328) of FRR: two areas on LANs with an election, point to point, unnumbered; and with BIRD."""

import pytest
from daemon_rig import Between, Net, both

pytestmark = pytest.mark.root

QUICK = " ip ospf hello-interval 1\n ip ospf dead-interval 8\n"
TEXT = f"""router ospf
 ospf router-id 10.0.0.9
interface eth0
{QUICK} ip ospf area 0
interface eth1
{QUICK} ip ospf area 0.0.0.1
"""
THEIRS = f"""router ospf
 ospf router-id 10.0.0.{{N}}
interface lo
 ip ospf area {{AREA}}
interface eth0
{QUICK} ip ospf area {{AREA}}
"""
BIRD = """router id 10.0.0.2;
protocol device {}
protocol kernel { ipv4 { export all; }; }
protocol ospf v2 { ipv4 { import all; }; area 0.0.0.1 {
  interface "lo" { stub; };
  interface "eth0" { hello 1; dead 8; };
}; }
"""


NEIGHBORS = both(THEIRS, AREA=("0", "0.0.0.1"))


def point_to_point(*texts: str) -> list[str]:
    return [text.replace(QUICK, " ip ospf network point-to-point\n" + QUICK) for text in texts]


UNNUMBERED = "".join(f"interface {name}\n ip address 192.0.2.9/32\n" for name in ("lo", "eth0", "eth1"))
NETS = {
    "lan": Net(TEXT, *NEIGHBORS),
    "point-to-point": Net(*point_to_point(TEXT, *NEIGHBORS)),
    "unnumbered": Net(*point_to_point(UNNUMBERED + TEXT, *NEIGHBORS), in_text=True, unnumbered=True),
    "bird": Net(TEXT, NEIGHBORS[0], BIRD),
}


@pytest.mark.parametrize("name", NETS)
def test_two_areas_are_joined_through_the_plane(nets: dict[str, Between], name: str) -> None:
    net = nets[name]
    net.sees("ip ospf neighbor", "Full", times=2)
    net.forwards(4)


def test_a_lan_elects_a_designated_router(nets: dict[str, Between]) -> None:
    nets["lan"].sees("ip ospf interface", "Designated Router (ID)", "Backup Designated Router (ID)", times=2)
