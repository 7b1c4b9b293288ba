"""A host that floods by one port takes nothing from the router's other one; what it loses is told by interface."""

import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
from rig import Rig, interface, tenant, until
from rig_switches import ForwarderSwitch

from lab.namespaces import Host

pytestmark = pytest.mark.root

ROUTER = "red/r1"
FLOOD = """
import socket, time
ping = bytes((8, 0, 0xF7, 0xFF)) + bytes(4)
with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP) as sender:
    while True:
        for _ in range(10):
            sender.sendto(ping, ("10.1.0.1", 0))
        time.sleep(0.002)
"""
"""Some thousand pings a second: `icmp` has 500 for both interfaces."""


class Net:
    """A router with two hosts on vr-forwarder."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self.left, self.right = (rig.host(n, f"10.{n}.0.2/24", f"10.{n}.0.1") for n in (1, 2))
        interfaces = [
            interface(host.link, host, f"10.{n}.0.1/24") for n, host in enumerate((self.left, self.right), 1)
        ]
        ports = {host.link: ["untagged"] for host in (self.left, self.right)}
        rig.apply(tenant("red", ports, {"name": "r1", "interfaces": interfaces, "ip": ""}))
        rig.up(ROUTER)

    def lost(self, host: Host) -> int:
        """Return how many pings of a host the plane's policer has dropped."""
        rows: list[dict[str, Any]] = self.rig.show("top", "--once", "--interval", "0.5")["lost_punts"]
        whose = (host.link, "icmp", "policer")
        return sum(row["packets"] for row in rows if (row["interface"], row["punt_class"], row["place"]) == whose)


@pytest.fixture(scope="module")
def net() -> Iterator[Net]:
    with Rig(switch=ForwarderSwitch) as rig:
        yield Net(rig)


async def test_a_flood_by_one_port_takes_nothing_from_the_other(net: Net) -> None:
    assert await net.right.ping("10.2.0.1", 1) == 1
    flood = net.rig.spawn(net.left, "python3", "-c", FLOOD, stdout=subprocess.DEVNULL)
    try:
        until("the flood is too much", lambda: net.lost(net.left) > 1000)
        before = net.lost(net.left)
        for _ in range(3):  # all of them fewer than its share has at once: 25 of 250 a second
            assert await net.right.ping("10.2.0.1", 8), "on a busy machine some answers are lost elsewhere"
        assert net.lost(net.right) == 0
        assert net.lost(net.left) > before, "the flood went on"
    finally:
        flood.kill()
        flood.wait()
