"""BFD (RFC 5880, 5881) of FRR at 300 ms times 3, for OSPF, IS-IS and BGP, on each kind of plane."""

import pytest
from daemon_rig import PLANES, Between, Net, both
from rig import until

from wire.scheduling import SHORT_TURN_NS, turn_ns

pytestmark = [pytest.mark.root, pytest.mark.parametrize("nets", PLANES, indirect=True)]

OSPF = "interface {}\n ip ospf area 0\n ip ospf network point-to-point\n ip ospf bfd\n"
OSPF += " ip ospf hello-interval 2\n ip ospf dead-interval 40\n"
OSPF_LINKS = OSPF.format("eth0"), OSPF.format("eth1")
ISIS = "interface {}\n ip router isis X\n isis network point-to-point\n isis bfd\n"
ISIS_LINKS = ISIS.format("eth0"), ISIS.format("eth1")
ISIS_HEAD = "router isis X\n net 49.0001.0000.0000.000{N}.00\n lsp-gen-interval 1\n"
BGP = """router bgp {AS}
 no bgp ebgp-requires-policy
 neighbor P peer-group
 neighbor P remote-as external
 neighbor P timers connect 1
 neighbor P bfd
{PEERS} address-family ipv4 unicast
  network 192.0.2.{N}/32
 exit-address-family
"""
PEER = " neighbor {} peer-group P\n"
NETS = {
    "ospf": Net(
        "router ospf\n ospf router-id 10.0.0.9\n" + "".join(OSPF_LINKS),
        *both("router ospf\n ospf router-id 10.0.0.{N}\ninterface lo\n ip ospf area 0\n" + OSPF_LINKS[0]),
    ),
    "isis": Net(
        ISIS_HEAD.replace("{N}", "9") + "".join(ISIS_LINKS),
        *both(ISIS_HEAD + "interface lo\n ip router isis X\n isis passive\n" + ISIS_LINKS[0]),
    ),
    "bgp": Net(
        both(BGP, N=("9", ""), AS=("65009", ""), PEERS=(PEER.format("10.1.0.2") + PEER.format("10.2.0.2"), ""))[0],
        *both(BGP, AS=("65001", "65002"), PEERS=(PEER.format("10.1.0.1"), PEER.format("10.2.0.1"))),
    ),
}
ADJACENT = {
    "ospf": ("ip ospf neighbor", "Full"),
    "isis": ("isis neighbor", " Up "),
    "bgp": ("bgp summary json", '"state":"Established"'),
}
AGREED = ("Detect-multiplier: 3\n", "Receive interval: 300ms\n", "Transmission interval: 300ms\n")
SOONER_S = 20.0
"""Than the 30 s and more after which each protocol misses a neighbor by itself."""


@pytest.mark.parametrize("name", NETS)
def test_a_neighbor_that_falls_silent_is_missed_at_once(nets: dict[str, Between], name: str) -> None:
    net = nets[name]
    net.sees(*ADJACENT[name], times=2)
    net.sees("bfd peers", "Status: up", times=2)
    net.sees("bfd peers", *AGREED, times=4)  # ours and theirs, of two peers
    net.forwards(4)
    net.n1.stop()
    if name == "isis":  # FRR 10.3 then keeps the route (docs/frr.md)
        until("the adjacency goes", lambda: net.show("isis neighbor").count(" Up ") == 1, SOONER_S)
    else:
        until("the route goes", lambda: not net.route("192.0.2.1/32"), SOONER_S)
    net.n1.go_on()
    net.sees("bfd peers", "Status: up", times=2)
    net.forwards(4)


def test_who_passes_on_what_bfd_says_takes_short_turns(nets: dict[str, Between]) -> None:
    net = nets["ospf"]
    turns = {program: turn_ns(net.rig.process(net.name, program)) for program in ("bfdd", "vrc.agent", "ospfd")}
    usual = turns.pop("ospfd")
    assert set(turns.values()) == ({SHORT_TURN_NS} if usual else {0})  # 0: before Linux 6.12
    assert usual != SHORT_TURN_NS
