"""BGP (RFC 4271) of FRR: external and internal, over link-local addresses alone, secured by MD5 and by GTSM."""

import pytest
from daemon_rig import LIMIT_S, Between, Net, both
from rig import until

pytestmark = pytest.mark.root

TEXT = """router bgp {AS}
 bgp router-id 10.0.0.{N}
 bgp graceful-restart
 bgp graceful-restart preserve-fw-state
 no bgp ebgp-requires-policy
 no bgp default ipv4-unicast
 neighbor V4 peer-group
 neighbor V6 peer-group
 neighbor V4 remote-as external
 neighbor V6 remote-as external
 neighbor V4 timers 3 9
 neighbor V6 timers 3 9
 neighbor V4 timers connect 1
 neighbor V6 timers connect 1
{PEERS} address-family ipv4 unicast
  network 192.0.2.{N}/32
  neighbor V4 activate
 exit-address-family
 address-family ipv6 unicast
  network 2001:db8:ff::{N}/128
  neighbor V6 activate
 exit-address-family
"""
EXTERNAL = {"AS": ("65001", "65002")}
NUMBERED = " neighbor 10.{N}.0.%d peer-group V4\n neighbor 2001:db8:{N}::%d peer-group V6\n"
THEIRS = TEXT.replace("{PEERS}", NUMBERED % (1, 1))
OURS = TEXT.replace("{PEERS}", "".join(both(NUMBERED % (2, 2)))).replace("{AS}", "65009").replace("{N}", "9")
TEXTS = (OURS, *both(THEIRS, **EXTERNAL))


def with_line(line: str) -> list[str]:
    """Add what is said of both groups of neighbors, everywhere."""
    more = "".join(f" neighbor {group} {line}\n" for group in ("V4", "V6"))
    return [text.replace(" address-family ipv4", more + " address-family ipv4") for text in TEXTS]


def internal(ours: str, *theirs: str) -> list[str]:
    """Have the virtual router reflect the routes of its own AS."""
    reflects = " neighbor {0} activate\n  neighbor {0} route-reflector-client\n  neighbor {0} next-hop-self force"
    for group in ("V4", "V6"):
        ours = ours.replace(f" neighbor {group} activate", reflects.format(group))
    texts = [text.replace("external", "internal") for text in (ours, *theirs)]
    return [text.replace("bgp 65001", "bgp 65009").replace("bgp 65002", "bgp 65009") for text in texts]


def link_local() -> list[str]:
    """Sessions by the interface's name, and IPv4 with an IPv6 next hop (RFC 8950)."""
    active = "neighbor V6 activate"
    template = TEXT.replace("neighbor V4 activate", active)
    ours = template.replace("{PEERS}", "".join(f" neighbor eth{at} interface peer-group V6\n" for at in (0, 1)))
    theirs = both(template.replace("{PEERS}", " neighbor eth0 interface peer-group V6\n"), **EXTERNAL)
    return [ours.replace("{AS}", "65009").replace("{N}", "9"), *theirs]


ESTABLISHED = '"state":"Established"'
SECURED = {"md5": "password swordfish", "ttl-security": "ttl-security hops 1"}
NETS = {
    "external": Net(*TEXTS),
    "internal": Net(*internal(*TEXTS)),
    "link-local": Net(*link_local(), in_text=True, unnumbered=True),
    "link-local-internal": Net(*internal(*link_local()), in_text=True, unnumbered=True),
    **{name: Net(*with_line(line)) for name, line in SECURED.items()},
}
REFUSED = {"md5": "TCPMD5NotFound", "ttl-security": "TCPMinTTLDrop"}


def established(net: Between) -> None:
    """Wait until all sessions are up: to each neighbor one a family, or one with both."""
    net.sees("bgp summary json", ESTABLISHED, times=4)


@pytest.mark.parametrize("name", NETS)
def test_neighbors_are_joined_through_the_plane(nets: dict[str, Between], name: str) -> None:
    established(nets[name])
    nets[name].forwards(4, 6)


@pytest.mark.parametrize("name", SECURED)
def test_a_neighbor_without_the_same_security_is_not_heard(nets: dict[str, Between], name: str) -> None:
    net, line = nets[name], f"neighbor V4 {SECURED[name]}"
    established(net)
    before = refused(net, REFUSED[name])
    says(net, f"no {line}")
    until("its segments are dropped", lambda: refused(net, REFUSED[name]) > before, LIMIT_S)
    until("its session ends", lambda: net.show("bgp summary json").count(ESTABLISHED) == 3, LIMIT_S)
    says(net, line)
    established(net)
    net.forwards(4)


def refused(net: Between, counter: str) -> int:
    """Return how many segments the guest's kernel has dropped for this reason."""
    said = net.rig.ok("exec", net.name, "--", "cat", "/proc/net/netstat")
    names, values = (line.split() for line in said.splitlines()[:2])
    return int(dict(zip(names, values, strict=True))[counter])


def says(net: Between, line: str) -> None:
    """Change the first neighbor's running configuration."""
    net.n1.run("vtysh", "-c", "configure terminal", "-c", "router bgp 65001", "-c", line)
