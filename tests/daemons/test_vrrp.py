"""VRRP (RFC 5798) of FRR: two virtual routers on one LAN, one of them the master, and the other when it has gone.

a host 10.1.0.2 ── bridge ┬── r1 10.1.0.251 ── n3 10.3.0.2, 203.0.113.1
                          └── r2 10.1.0.252 ── n4 10.4.0.2, 203.0.113.1
"""

import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from daemon_rig import forwarded_by
from rig import Rig, interface, tenant, until
from rig_switches import ForwarderSwitch

from lab.namespaces import Host

pytestmark = pytest.mark.root

VIRTUAL, MAC, FAR = "10.1.0.254", "00:00:5e:00:01:0a", "203.0.113.1"
ROUTERS = ("r1", "r2")
ADDRESSES = ("10.1.0.2/24", "10.1.0.3/24", "10.3.0.2/24", "10.4.0.2/24")
TEXT = f"""ip route {FAR}/32 10.{{far}}.0.2
interface eth0
 vrrp 10
 vrrp 10 advertisement-interval 200
 vrrp 10 priority {{priority}}
 vrrp 10 ip {VIRTUAL}
interface eth0-v1
 ip address {VIRTUAL}/32
"""


@dataclass
class Lan:
    """The routers, and the host whose gateway they are."""

    rig: Rig
    host: Host

    def masters(self) -> list[str]:
        """Return the routers that say that they are the master."""
        return [name for name in ROUTERS if "Master" in self._summary(name)]

    def reaches(self) -> bool:
        """Tell whether the host reaches what is behind both, through the virtual address."""
        ping = ("ping", "-n", "-c", "10", "-i", "0.01", "-W", "1", FAR)
        return self.rig.spawn(self.host, *ping, stdout=subprocess.DEVNULL).wait() == 0

    def goes_by_the_plane(self) -> bool:
        """Tell whether a round of pings is answered and no guest's kernel has forwarded one, as it does the first."""
        before = self._forwarded()
        return self.reaches() and self._forwarded() == before

    def _forwarded(self) -> int:
        return sum(forwarded_by(self.rig, f"red/{name}") for name in ROUTERS)

    def _summary(self, name: str) -> str:
        return self.rig.ok("exec", f"red/{name}", "--", "vtysh", "-c", "show vrrp summary")


@pytest.fixture
def lan() -> Iterator[Lan]:
    with Rig(switch=lambda: ForwarderSwitch(4)) as rig:
        hosts = [rig.switch.host(number, address) for number, address in enumerate(ADDRESSES, 1)]
        bridge(*hosts[:2])
        for number, host in ((3, hosts[2]), (4, hosts[3])):
            host.ip("address", "add", f"{FAR}/32", "dev", "lo")
            host.ip("route", "add", "10.1.0.0/24", "via", f"10.{number}.0.1")
        ports = {host.link: ["untagged"] for host in hosts}
        rig.apply(tenant("red", ports, *(router(at, hosts) for at in (0, 1))))
        rig.up(*(f"red/{name}" for name in ROUTERS))
        yield Lan(rig, hosts[0])


def bridge(first: Host, second: Host) -> None:
    """Join the ports of two hosts by a bridge in the first one, which gets its address."""
    second.ip("link", "set", "eth0", "netns", first.namespace, "name", "eth1")
    first.ip("address", "flush", "dev", "eth0")
    first.ip("link", "add", "lan", "type", "bridge")
    for member in ("eth0", "eth1"):
        first.ip("link", "set", member, "master", "lan", "up")
    first.ip("address", "add", "10.1.0.2/24", "dev", "lan")
    first.ip("link", "set", "lan", "up")
    first.ip("route", "add", "default", "via", VIRTUAL)


def router(at: int, hosts: list[Host]) -> dict[str, Any]:
    interfaces = [
        interface("eth0", hosts[at], f"10.1.0.{251 + at}/24", virtual_macs=[MAC]),
        interface("eth1", hosts[2 + at], f"10.{3 + at}.0.1/24"),
    ]
    return {"name": ROUTERS[at], "interfaces": interfaces, "frr": TEXT.format(far=3 + at, priority=200 - 50 * at)}


def test_the_backup_takes_over_when_the_master_has_gone(lan: Lan) -> None:
    until("the one of the higher priority is master", lambda: lan.masters() == ["r1"])
    until("answers through it", lan.reaches)
    assert MAC in lan.host.ip("neigh", "show", VIRTUAL)
    until("the plane forwards instead of a guest", lan.goes_by_the_plane)
    lan.host.ip("link", "set", "eth0", "down")
    until("the other one is master", lambda: "r2" in lan.masters())
    until("answers through the other", lan.reaches)
    until("the plane forwards after the takeover", lan.goes_by_the_plane)
    lan.host.ip("link", "set", "eth0", "up")
    until("the first is master again", lambda: lan.masters() == ["r1"])
    until("answers through it again", lan.reaches)
    until("the plane forwards by the first again", lan.goes_by_the_plane)
    lan.rig.verified()
    assert [event for event in lan.rig.show("events") if event["kind"] == "packet-out-refused"] == []
