"""BGP (RFC 4271) of FRR and BIRD: external and internal, over link-local addresses, secured, with many paths."""

import os
import signal

import pytest
from daemon_rig import BURST, Between, Net, both
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
    more = "".join(f" neighbor {group} {line}\n" for group in ("V4", "V6"))
    return [text.replace(" address-family ipv4", more + " address-family ipv4") for text in TEXTS]


def internal() -> list[str]:
    reflects = " neighbor {0} activate\n  neighbor {0} route-reflector-client\n  neighbor {0} next-hop-self force"
    ours = OURS
    for group in ("V4", "V6"):
        ours = ours.replace(f" neighbor {group} activate", reflects.format(group))
    texts = (ours, *both(THEIRS, AS=("65009", "65009")))
    return [text.replace("external", "internal") for text in texts]


def link_local() -> list[str]:
    """Sessions by the interface's name, and IPv4 with an IPv6 next hop (RFC 8950)."""
    active = "neighbor V6 activate"
    template = TEXT.replace("neighbor V4 activate", active)
    ours = template.replace("{PEERS}", "".join(f" neighbor eth{at} interface peer-group V6\n" for at in (0, 1)))
    theirs = both(template.replace("{PEERS}", " neighbor eth0 interface peer-group V6\n"), **EXTERNAL)
    return [ours.replace("{AS}", "65009").replace("{N}", "9"), *theirs]


HOPS = {f"path{last}": f"10.2.0.{last}" for last in range(11, 27)}
STATIC = "".join(f"protocol static {name} {{ ipv4; route 198.51.100.0/24 blackhole; }}\n" for name in HOPS)
EXPORT = "".join(f'if proto = "{name}" then bgp_next_hop = {hop}; ' for name, hop in HOPS.items())
BIRD = f"""router id 10.0.0.2;
protocol device {{}}
{STATIC}protocol bgp {{
  local 10.2.0.2 as 65002;
  neighbor 10.2.0.1 as 65009;
  connect delay time 1;
  ipv4 {{ add paths tx; import none; export filter {{ {EXPORT}accept; }}; }};
}}
"""
NETS = {
    "external": Net(*TEXTS),
    "internal": Net(*internal()),
    "link-local": Net(*link_local(), unnumbered=True),
    "secured": Net(*with_line("password swordfish")),
    "ttl-security": Net(*with_line("ttl-security hops 1")),
    "paths": Net(OURS.replace("  neighbor V4", "  maximum-paths 16\n  neighbor V4", 1), TEXTS[1], BIRD),
}
WHOLE = [name for name in NETS if name != "paths"]


@pytest.mark.parametrize("name", WHOLE)
def test_neighbors_are_joined_through_the_plane(nets: dict[str, Between], name: str) -> None:
    nets[name].forwards(4, 6)
    assert '"state":"Established"' in nets[name].show("bgp summary json")


def test_a_route_by_sixteen_paths(nets: dict[str, Between]) -> None:
    net = nets["paths"]
    for hop in HOPS.values():
        net.n2.run("ip", "address", "add", f"{hop}/24", "dev", "eth0")
    until("16 next hops", lambda: len(net.route("198.51.100.0/24").get("nexthops", ())) == len(HOPS))
    net.rig.verified()


def test_a_neighbor_that_restarts_gracefully_is_forwarded_to_meanwhile(nets: dict[str, Between]) -> None:
    net = nets["external"]
    net.forwards(4, 6)
    net.n1.run("pkill", "-KILL", "bgpd")
    net.sees("bgp summary", "Active", times=2)
    net.forwards(4, 6)


def test_a_bgpd_that_dies_is_back_with_its_sessions_and_routes(nets: dict[str, Between]) -> None:
    net = nets["secured"]
    net.forwards(4, 6)
    old = net.rig.process(net.name, "bgpd")
    os.kill(old, signal.SIGKILL)
    until("another bgpd", lambda: net.rig.process(net.name, "bgpd") not in (0, old))
    net.sees("bgp summary json", '"state":"Established"', times=4)
    # FRR gives up what it kept when bgpd is back, and not when all its neighbors are (docs/frr.md).
    until("all packets again", lambda: all(net.answered(family) == BURST for family in (4, 6)))
    net.forwards(4, 6)
