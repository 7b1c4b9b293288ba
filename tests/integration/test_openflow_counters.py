"""Counters say what happened, also where Open vSwitch credits flows on both sides of a length check."""

import asyncio

import pytest
from openflow_net import RATES, VRF, interface, mac, openflow_net, via
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether
from scapy.packet import Raw

from controller.planes.base import FALLBACK, FallbackLink, Nexthop, Policer, PuntReason
from wire.columns import prefix_key

pytestmark = pytest.mark.root

HOST, ROUTER = "02:00:00:00:00:01", "02:00:00:00:ff:01"


async def test_only_packets_that_are_too_long_count_as_mtu_exceeded() -> None:
    async with openflow_net() as net:
        left, right = net.ovs.add_host("br", HOST), net.ovs.add_host("br", "02:00:00:00:00:02")
        for host in (left, right):  # whose router solicitations would be counted with the packets
            await host.run("sysctl", "-qw", "net.ipv6.conf.eth0.disable_ipv6=1")
        assert not await net.write(
            Policer(VRF, RATES),
            interface(1, left),
            interface(2, right, mtu=1400),
            Nexthop(1, 2, mac(right.mac)),
            routes={"10.4.0.0/16": via(1)},
        )
        frame = Ether(src=HOST, dst=ROUTER) / IP(src="10.0.1.2", dst="10.4.0.1", ttl=9)
        with left.packet_socket() as packets:
            for payload in (100, 100, 100, 1381, 100, 1381):
                packets.send(bytes(frame / Raw(bytes(payload))))
        await net.heard.until(lambda: len(net.heard.packets) >= 2)
        counters = await net.counted(lambda c: c.router_interfaces[1].rx_packets >= 6)
        assert counters.punts[VRF, PuntReason.MTU_EXCEEDED][0] == 2


async def test_packets_are_counted_by_route_and_by_the_interface_that_sends_them() -> None:
    async with openflow_net() as net:
        left, right = net.ovs.add_host("br", HOST), net.ovs.add_host("br", "02:00:00:00:00:02")
        assert not await net.write(
            Policer(VRF, RATES),
            interface(1, left, fallback=FallbackLink(right.port, 300)),
            interface(2, right),
            Nexthop(1, 2, mac(right.mac)),
            routes={"10.4.0.0/16": via(1), "10.4.1.0/24": FALLBACK, "10.5.0.0/16": via(1), "0.0.0.0/0": FALLBACK},
        )
        frame = Ether(src=HOST, dst=ROUTER) / IP(src="10.0.1.2", ttl=9) / UDP()
        with left.packet_socket() as packets:
            for destination in ("10.4.0.1", "10.4.0.1", "10.4.0.2", "10.4.1.1", "10.4.1.1", "10.6.0.1"):
                frame[IP].dst = destination
                packets.send(bytes(frame))
        async with asyncio.timeout(60):  # Open vSwitch adds up once or twice a second
            while sum((await net.plane.route_counts()).covers[VRF].values()) < 3:  # noqa: ASYNC110
                await asyncio.sleep(0.1)
            while (await net.plane.sent()).get(2, 0) < 3:  # noqa: ASYNC110
                await asyncio.sleep(0.1)
        counts = await net.plane.route_counts()
        assert counts.routes[VRF] == {prefix_key("10.4.0.0/16"): 3, prefix_key("10.5.0.0/16"): 0}
        assert counts.covers[VRF] == {prefix_key("10.4.1.0/24"): 2, prefix_key("0.0.0.0/0"): 1}
        assert (await net.plane.sent())[2] == 3
