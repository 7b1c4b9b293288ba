"""A router with `source: netlink` takes its routes from the guest's kernel, whoever put them there."""

import asyncio
import os
import re
import signal
from collections.abc import Iterator

import pytest
from e2e_single import FAR, ROUTER, Single, single
from rig import DEADLINE_S, until
from rig_switches import BRIDGE

from lab.namespaces import QUIETLY, Host

pytestmark = pytest.mark.root

MANY = 20_000


@pytest.fixture(scope="module")
def net() -> Iterator[Single]:
    with single(source="netlink") as found:
        yield found


def nexthops(net: Single, prefix: str) -> list[str]:
    found = (one["nexthops"] for one in net.rig.show("fib", ROUTER) if one["prefix"] == prefix)
    return next(found, [])


async def test_a_route_of_ip_route(net: Single) -> None:
    assert await net.left.ping(FAR, 1, *QUIETLY) == 0
    net.guest("ip", "route", "add", "192.0.2.0/24", "via", "10.2.0.2")
    until("the route", lambda: nexthops(net, "192.0.2.0/24"))
    assert await net.left.ping(FAR, 3) == 3
    net.guest("ip", "route", "del", "192.0.2.0/24")
    until("its end", lambda: not nexthops(net, "192.0.2.0/24"))
    assert await net.left.ping(FAR, 1, *QUIETLY) == 0


async def test_an_ipv4_route_over_an_ipv6_nexthop(net: Single) -> None:
    net.guest("ip", "route", "add", "192.0.2.0/24", "via", "inet6", "2001:db8:2::2", "dev", "right")
    mac = net.right.mac
    until("the route", lambda: nexthops(net, "192.0.2.0/24") == [f"right {mac} port trunk2 vlan 100 weight 1"])
    assert await net.left.ping(FAR, 3) == 3
    net.guest("ip", "route", "del", "192.0.2.0/24")


# By the same ports each time, so that the shares are the same each time.
_FLOWS = """
import socket
for number in range(200):
    with socket.socket() as flow:
        flow.setblocking(False)
        flow.bind(("", 20000 + number))
        flow.connect_ex(("198.51.100.1", 9))
"""
_WAYS = ("nexthop", "via", "10.2.0.2", "weight", "3", "nexthop", "via", "10.3.0.2", "weight", "1")


async def received(host: Host) -> int:
    _, text = await host.run("cat", "/sys/class/net/eth0/statistics/rx_packets")
    return int(text)


async def test_equal_cost_paths_with_weights(net: Single) -> None:
    """Flows are spread by the weights, and all take the other path when a port goes down."""
    ends = net.right, net.narrow
    for host in ends:
        host.ip("address", "add", "198.51.100.1/32", "dev", "lo")
    net.guest("ip", "route", "add", "198.51.100.0/24", *_WAYS)
    ways = [f"right {net.right.mac} port trunk2 vlan 100 weight 3", f"narrow {net.narrow.mac} port p3 weight 1"]
    until("both", lambda: nexthops(net, "198.51.100.0/24") == ways)
    before = [await received(host) for host in ends]
    assert await net.left.run("python3", "-c", _FLOWS) == (0, "")
    right = narrow = 0
    async with asyncio.timeout(DEADLINE_S):  # the last ones may be on their way
        while right + narrow < 200:
            right, narrow = [await received(host) - start for host, start in zip(ends, before, strict=True)]
    assert 0.15 < narrow / (right + narrow) < 0.35, (right, narrow)
    net.rig.ovs.ofctl("mod-port", BRIDGE, net.narrow.link, "down")
    until("one", lambda: len(nexthops(net, "198.51.100.0/24")) == 1)
    assert await net.left.ping("198.51.100.1", 5) == 5
    net.rig.ovs.ofctl("mod-port", BRIDGE, net.narrow.link, "up")
    net.guest("ip", "route", "replace", "198.51.100.0/24", *_WAYS)
    until("both again", lambda: nexthops(net, "198.51.100.0/24") == ways)
    net.rig.verified()
    net.guest("ip", "route", "del", "198.51.100.0/24")


def test_an_overrun_is_noticed_and_made_good(net: Single) -> None:
    """While the VRC is stopped more routes change than its socket holds messages."""
    rig = net.rig
    own = rig.router(ROUTER)["ipv4_routes"]
    vrc = rig.process(ROUTER, "vrc.agent")
    make = f"for i in $(seq 0 {MANY - 1}); do echo route add 20.$((i/256)).$((i%256)).0/24 via 10.2.0.2; done"
    os.kill(vrc, signal.SIGSTOP)
    try:
        net.guest("sh", "-c", f"{{ {make}; }} | ip -batch -")
        net.guest("ip", "route", "del", "20.0.0.0/24")
    finally:
        os.kill(vrc, signal.SIGCONT)
    rig.up(ROUTER, routes=own + MANY - 1)
    assert re.search(r"vrc-overrun red/r1: the kernel dropped route messages", rig.ok("events"))
    rig.verified()


def test_a_zebra_that_dies_is_back_and_what_it_writes_to_the_kernel_is_forwarded(net: Single) -> None:
    """With this source no daemon can be up and its routes stay away: there is no connection of its own to lose."""
    rig = net.rig
    before = rig.process(ROUTER, "/usr/lib/frr/zebra")
    os.kill(before, signal.SIGKILL)
    until("another zebra", lambda: rig.process(ROUTER, "/usr/lib/frr/zebra") not in (0, before))
    rig.up(ROUTER)
    route = ("vtysh", "-c", "configure terminal", "-c", "ip route 192.0.2.0/24 10.2.0.2")
    # While zebra is told its text again, mgmtd of FRR 10 lets nobody else change anything.
    until("a route can be configured", lambda: rig.vrctl("exec", ROUTER, "--", *route).returncode == 0, every_s=0.2)
    until("the route", lambda: nexthops(net, "192.0.2.0/24"))
    rig.verified()
