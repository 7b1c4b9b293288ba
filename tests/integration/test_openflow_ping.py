"""Hosts reach each other through entries written through the plane: IPv4, IPv6, tagged, and back out of one port."""

import asyncio

import pytest
from openflow_net import DEADLINE_S, RATES, VRF, Net, interface, mac, mac_text, openflow_net, via

from controller.planes.base import Nexthop, Policer
from lab.namespaces import QUIETLY

pytestmark = pytest.mark.root


async def test_two_hosts_ping_over_both_families() -> None:
    async with openflow_net() as net:
        await ping_between(net, vlan=0)


async def test_a_tagged_host_pings_an_untagged_one() -> None:
    async with openflow_net() as net:
        await ping_between(net, vlan=33)


async def ping_between(net: Net, vlan: int) -> None:
    left = net.ovs.add_host("br", "02:00:00:00:00:01", "10.0.1.2/24", "2001:db8:1::2/64", vlan=vlan)
    right = net.ovs.add_host("br", "02:00:00:00:00:02", "10.0.2.2/24", "2001:db8:2::2/64")
    inner, outer = interface(1, left, vlan=vlan), interface(2, right)
    for host, near, number in ((left, inner, 1), (right, outer, 2)):
        host.ip("route", "add", "default", "via", f"10.0.{number}.1")
        host.ip("-6", "route", "add", "default", "via", f"2001:db8:{number}::1")
        host.neighbor(f"10.0.{number}.1", mac_text(near.mac))
        host.neighbor(f"2001:db8:{number}::1", mac_text(near.mac))
    refused = await net.write(
        *(Policer(VRF, RATES), inner, outer),
        *(Nexthop(1, 1, mac(left.mac)), Nexthop(2, 2, mac(right.mac))),
        routes={
            "10.0.1.2/32": via(1),
            "10.0.2.0/24": via(2),
            "2001:db8:1::/64": via(1),
            "2001:db8:2::2/128": via(2),
        },
    )
    assert refused == []
    assert await left.ping("10.0.2.2") == 3
    assert await right.ping("2001:db8:1::2") == 3
    assert await left.ping("10.0.2.2", 3, "-s", "1472", "-M", "do") == 3  # exactly the MTU
    _, output = await left.run("ping", "-c", "1", "10.0.2.2")
    assert "ttl=63" in output
    counters = await net.counted(lambda c: c.router_interfaces[1].rx_packets >= 10)
    assert counters.router_interfaces[2].tx_packets >= 7


async def test_a_packet_leaves_by_the_port_it_came_in() -> None:
    async with openflow_net() as net:
        left = net.ovs.add_host("br", "02:00:00:00:00:01", "10.0.1.2/24", "10.0.9.2/24")
        inner = interface(1, left)
        left.neighbor("10.0.1.1", mac_text(inner.mac))
        left.ip("route", "add", "10.0.8.0/24", "via", "10.0.1.1")
        await net.write(Policer(VRF, RATES), inner, Nexthop(1, 1, mac(left.mac)), routes={"10.0.8.0/24": via(1)})
        with left.packet_socket() as packets:
            await left.ping("10.0.8.8", 1, *QUIETLY)
            frames: list[bytes] = []
            async with asyncio.timeout(DEADLINE_S):
                while len(frames) < 2:
                    frame = await asyncio.get_running_loop().sock_recv(packets, 2000)
                    frames += [frame] if frame[12:14] == b"\x08\x00" else []
        sources = [frame[6:12] for frame in frames]
        assert sources == [mac(left.mac), inner.mac]
        assert frames[1][22] == frames[0][22] - 1  # TTL
