"""Two routers in virtual machines: OSPF and BGP converge through punted packets, and only the plane forwards.

    left 10.1.0.2 ── r1 (machine) 10.0.0.1 ══ 10.0.0.2 r2 (machine) ── right 10.2.0.2, FAR

OSPF tells r1 of 10.2.0.0/24; BGP tells it of FAR's prefix, and r2 of 10.1.0.0/24, with graceful restart. r2 is what
is killed, so r1 waits for its connection: FRR may drop what it keeps when both connect at once (docs/frr.md).
"""

import json
import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from e2e_world import FAR
from machines import BOOT_S, IMAGE, machine_of, needs_image
from rig import Rig, Traffic, interface, tenant, unbroken, until
from rig_switches import BRIDGE

from lab.namespaces import Host, sh
from lab.readings import NEIGHBOR_COMMANDS, forwarded_datagrams, neighbors

pytestmark = pytest.mark.root

HOLD_S = 120
ROUTERS = ("red/r1", "red/r2")
LINK = ("red-12", "red-21")
PINGS = 200
_FRR = """interface {ends}
 ip ospf area 0
 ip ospf network point-to-point
 ip ospf hello-interval 1
 ip ospf dead-interval 40
interface {lan}
 ip ospf area 0
 ip ospf passive
router ospf
 ospf router-id 10.255.0.{own}
router bgp 6500{own}
 bgp router-id 10.255.0.{own}
 no bgp ebgp-requires-policy
 bgp graceful-restart
 bgp graceful-restart preserve-fw-state
 neighbor 10.0.0.{other} remote-as 6500{other}
 neighbor 10.0.0.{other} timers connect 1
{passive} address-family ipv4 unicast
  redistribute {source}
"""
STATIC = "ip route 192.0.2.0/24 10.2.0.2\n"
PASSIVE = " neighbor 10.0.0.2 passive\n"


@dataclass
class Pair:
    """Both routers, and their hosts."""

    rig: Rig
    left: Host
    right: Host

    def tells(self, router: str, *command: str) -> str:
        """Return what a command prints inside a router's guest."""
        return self.rig.ok("exec", router, "--", *command, text="")

    def adjacent(self) -> bool:
        """Whether both routers have each other as neighbors, by both protocols."""
        return all(
            neighbors(protocol, self.tells(router, "vtysh", "-c", NEIGHBOR_COMMANDS[protocol])) == 1
            for router in ROUTERS
            for protocol in ("OSPFv2", "BGP")
        )

    def converge(self) -> None:
        """Wait until r1 has learned of what is behind r2, by OSPF and by BGP.

        The controller is asked first: each vtysh takes an emulated machine a second, in which nothing else happens.
        """
        until("routes", lambda: {"10.2.0.0/24", "192.0.2.0/24"} <= self.known("red/r1"), BOOT_S)
        until("routes back", lambda: "10.1.0.0/24" in self.known("red/r2"), BOOT_S)
        until("neighbors", self.adjacent, BOOT_S, every_s=1)
        until("each protocol's own", self.learned_by_each, BOOT_S, every_s=1)

    def learned_by_each(self) -> bool:
        """Whether r1 has each of the two from the protocol that is to tell it."""
        return self.learned("ospf") == {"10.2.0.0/24"} and self.learned("bgp") == {"192.0.2.0/24"}

    def known(self, router: str) -> set[str]:
        """The prefixes that a router has told since it is up."""
        return {route["prefix"] for route in self.rig.show("routes", router) if not route["stale"]}

    def learned(self, protocol: str) -> set[str]:
        routes = json.loads(self.tells("red/r1", "vtysh", "-c", f"show ip route {protocol} json"))
        return {prefix for prefix, (best, *_) in routes.items() if best.get("selected")}

    def forwarded(self, router: str) -> int:
        """Datagrams that the kernel of a router's guest has forwarded."""
        return forwarded_datagrams(self.tells(router, "sh", "-c", "cat /proc/net/snmp /proc/net/snmp6"))


def _router(number: int, lan: Host, source: str, more: str = "", passive: str = "") -> dict[str, object]:
    other = 3 - number
    text = _FRR.format(own=number, other=other, ends=f"r{other}", lan=lan.link, source=source, passive=passive)
    ends = {"name": f"r{other}", "addresses": [f"10.0.0.{number}/30"]}
    return {
        "name": f"r{number}",
        "interfaces": [interface(lan.link, lan, f"10.{number}.0.1/24"), ends],
        "frr": more + text,
        "hold_time_s": HOLD_S,
        "guest": {"kind": "kvm"},
    }


@pytest.fixture(scope="module")
def pair() -> Iterator[Pair]:
    needs_image()
    with Rig("--guest-image", str(IMAGE)) as rig:
        left, right = (rig.host(number, f"10.{number}.0.2/24", f"10.{number}.0.1") for number in (1, 2))
        right.ip("address", "add", f"{FAR}/32", "dev", "lo")
        for port, peer in (LINK, reversed(LINK)):
            patch = ("type=patch", f"options:peer={peer}")
            rig.ovs.vsctl("add-port", BRIDGE, port, "--", "set", "interface", port, *patch)
        routers = _router(1, left, "connected", passive=PASSIVE), _router(2, right, "static", STATIC)
        red = tenant("red", {host.link: ["untagged"] for host in (left, right)}, *routers)
        ends = [{"router": f"r{n}", "interface": f"r{3 - n}", "port": port} for n, port in enumerate(LINK, 1)]
        rig.apply(red | {"links": [{"ends": ends}]})
        found = Pair(rig, left, right)
        try:
            rig.up(*ROUTERS, limit_s=BOOT_S)
            found.converge()
            yield found
        finally:
            rig.ok("delete", "tenant", "red")


def test_protocols_converge_through_punted_packets(pair: Pair) -> None:
    for router in ROUTERS:
        punts = pair.rig.show("counters", router)["punts"]
        assert punts["control"] > 0  # OSPF, ARP
        assert punts["local"] > 0  # BGP
    pair.rig.verified()


@pytest.mark.parametrize("address", [FAR, "10.2.0.2"], ids=["by BGP", "by OSPF"])
def test_only_the_plane_forwards(pair: Pair, address: str) -> None:
    ping = ("ip", "netns", "exec", pair.left.namespace, "ping", "-q")
    sh(*ping, "-c", "3", address)  # the first ones are gleaned
    before = [pair.forwarded(router) for router in ROUTERS]
    with unbroken(pair.rig, (pair.left, address)):
        sh(*ping, "-c", str(PINGS), "-i", "0.02", address)
    assert [pair.forwarded(router) for router in ROUTERS] == before
    traced = sh("ip", "netns", "exec", pair.left.namespace, "traceroute", "-n", "-q", "1", "-w", "20", address)
    assert [line.split()[1] for line in traced.splitlines()[1:]] == ["10.1.0.1", "10.0.0.2", address]


def _history(pair: Pair) -> str:
    """What the controller, both guests and both routers' protocols have to say of what happened."""
    said = [pair.rig.ok("events"), pair.rig.log.read_text()[-4000:]]
    for router in ROUTERS:
        said += [router, pair.rig.ok("counters", router), pair.rig.ok("logs", router)[-6000:]]
    return "\n".join(said)


def test_a_killed_qemu_comes_back_and_forwarding_goes_on(pair: Pair) -> None:
    rig = pair.rig
    before = machine_of(rig.state, "red/r2")
    traffic = Traffic(rig, pair.left, FAR)
    os.kill(before, signal.SIGKILL)
    until("it is noticed", lambda: "guest-died red/r2" in rig.ok("events"))
    rig.up("red/r2", limit_s=BOOT_S)
    pair.converge()
    until("nothing is stale", lambda: not any(route["stale"] for route in rig.show("routes", "red/r2")), HOLD_S)
    seen = traffic.stop()
    assert not seen.lost, f"{seen}\n{_history(pair)}"
    assert machine_of(rig.state, "red/r2") not in (0, before)
    rig.verified()
