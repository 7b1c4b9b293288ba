"""OSPFv3 (RFC 5340) of FRR in two areas, LANs, point to point, unnumbered; on each kind of plane."""

import pytest
from daemon_rig import PLANES, Between, Net, both

pytestmark = [pytest.mark.root, pytest.mark.parametrize("nets", PLANES, indirect=True)]

QUICK = " ipv6 ospf6 hello-interval 1\n ipv6 ospf6 dead-interval 8\n"
TEXT = f"""router ospf6
 ospf6 router-id 10.0.0.9
exit
interface eth0
{QUICK} ipv6 ospf6 area 0
interface eth1
{QUICK} ipv6 ospf6 area 0.0.0.1
"""
THEIRS = f"""router ospf6
 ospf6 router-id 10.0.0.{{N}}
exit
interface lo
 ipv6 ospf6 area {{AREA}}
interface eth0
{QUICK} ipv6 ospf6 area {{AREA}}
"""
NEIGHBORS = both(THEIRS, AREA=("0", "0.0.0.1"))


def point_to_point(*texts: str) -> list[str]:
    return [text.replace(QUICK, " ipv6 ospf6 network point-to-point\n" + QUICK) for text in texts]


POINT_TO_POINT = point_to_point(TEXT, *NEIGHBORS)
NETS = {
    "lan": Net(TEXT, *NEIGHBORS),
    "point-to-point": Net(*POINT_TO_POINT),
    "unnumbered": Net(*POINT_TO_POINT, in_text=True, unnumbered=True),
}


@pytest.mark.parametrize("name", NETS)
def test_two_areas_are_joined_through_the_plane(nets: dict[str, Between], name: str) -> None:
    net = nets[name]
    net.sees("ipv6 ospf6 neighbor", "Full", times=2)
    net.forwards(6)


def test_a_lan_elects_a_designated_router(nets: dict[str, Between]) -> None:
    # Once in each row: "Full/BDR ", the neighbor's part, and "eth0[DR]", the virtual router's.
    nets["lan"].sees("ipv6 ospf6 neighbor", "DR ", "DR]", times=2)
