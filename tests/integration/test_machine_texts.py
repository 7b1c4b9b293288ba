"""A router in a virtual machine: what FRR refuses of its text shows, zebra is brought back, interfaces are whole."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from machines import BOOT_S, IMAGE, needs_image, remember_accelerator
from rig import Rig, document, interface, tenant, until

from lab.namespaces import Host

pytestmark = pytest.mark.root

ROUTER = "red/r1"
GOOD = "ip route 192.0.2.0/24 10.1.0.2\n"
BAD = "router bgp 65000\n neighbor 10.9.0.2 password x\n"
REFUSED = r"frr line 2: Specify remote-as .*\(bgpd\): neighbor 10\.9\.0\.2 password x"
MAC = "02:00:5e:10:00:07"


@dataclass
class Machine:
    """The router's rig and its hosts."""

    rig: Rig
    hosts: list[Host]

    def red(self, frr: str, *more: dict[str, Any]) -> dict[str, Any]:
        """The tenant with a text, and with more interfaces."""
        interfaces = [interface("eth0", self.hosts[0], "10.1.0.1/24"), *more]
        guest = {"kind": "kvm", "image": str(IMAGE)}
        ports = {host.link: ["untagged"] for host in self.hosts}
        return tenant("red", ports, {"name": "r1", "interfaces": interfaces, "frr": frr, "guest": guest})

    def complaint(self, frr: str) -> str:
        """What apply says of a text that it cannot bring about."""
        return self.rig.complaint("apply", "-f", "-", text=document(self.red(frr), plane=self.rig.switch.declared))

    def guest(self, *command: str) -> str:
        """What a command prints inside."""
        return self.rig.ok("exec", ROUTER, "--", *command, text="")


@pytest.fixture(scope="module")
def machine() -> Iterator[Machine]:
    needs_image()
    with Rig() as rig:
        remember_accelerator(rig.state)
        rig.apply()
        until("the plane", lambda: rig.show("get", "planes")[0]["connected"])
        yield Machine(rig, [rig.host(number, f"10.{number}.0.2/24") for number in (1, 2)])


def test_what_frr_refuses_of_the_first_text_is_told_and_stays_until_it_is_mended(machine: Machine) -> None:
    rig = machine.rig
    assert re.match(f"vrctl: red/r1: {REFUSED}", machine.complaint(BAD))

    def told() -> bool:
        # A machine may take so long to come up that it is degraded for that first, and it is told before it connects.
        view = rig.router(ROUTER)
        return view["state"] == "degraded" and re.match(REFUSED, view["reason"]) is not None

    until("it is told", told, BOOT_S)
    rig.apply(machine.red(GOOD))
    rig.up(ROUTER, limit_s=BOOT_S)


def test_a_zebra_without_fpm_is_degraded_and_told_to_connect_again(machine: Machine) -> None:
    rig = machine.rig
    before = rig.router(ROUTER)["ipv4_routes"]
    machine.guest("vtysh", "-c", "configure terminal", "-c", "no fpm address")
    machine.guest("vtysh", "-c", "configure terminal", "-c", "ip route 198.51.100.0/24 10.1.0.2")
    until("it shows", lambda: rig.router(ROUTER)["state"] == "degraded")
    assert rig.router(ROUTER)["reason"].startswith("fpm: zebra does not send routes (no FPM connection)")
    rig.up(ROUTER, routes=before + 1)


def test_an_interface_that_a_later_apply_adds_is_whole_when_it_appears(machine: Machine) -> None:
    log = "/tmp/links"
    machine.guest("sh", "-c", f"setsid ip -o monitor link >{log} 2>&1 </dev/null &")
    until("it listens", lambda: machine.guest("sh", "-c", f"ip link set lo down; ip link set lo up; cat {log}"))
    added = interface("eth1", machine.hosts[1], "10.2.0.1/24", mac=MAC, mtu=1400)
    machine.rig.apply(machine.red(GOOD, added))
    machine.rig.up(ROUTER)
    seen = [line for line in machine.guest("cat", log).splitlines() if ": eth1:" in line]
    assert seen
    assert [line for line in seen if "mtu 1400" not in line or MAC not in line] == []
    (link,) = json.loads(machine.guest("ip", "-j", "address", "show", "eth1"))
    assert "10.2.0.1" in [address["local"] for address in link["addr_info"]]
