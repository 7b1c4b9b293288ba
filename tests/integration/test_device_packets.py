"""Packets through a P4Runtime device: forwarded, punted with their router interface, sent for the guest; counted."""

import pytest
from device_net import DEVICES, device_net
from openflow_net import VRF, mac, via
from scapy.layers.inet import IP
from scapy.layers.l2 import Ether

from controller.planes.base import LOCAL, Capability, PuntReason
from wire.columns import prefix_key

pytestmark = [pytest.mark.root, pytest.mark.parametrize("make", DEVICES)]


async def test_a_packet_is_forwarded_and_counted_on_both_sides(make) -> None:
    async with device_net(make) as net:
        await net.install({"10.9.0.0/16": via(2)})
        sent = net.packet(1, "10.9.0.1")
        net.send(1, sent)
        arrived = Ether(await net.received(2, b"data"))
        assert (mac(arrived.src), mac(arrived.dst)) == (net.interfaces[1].mac, mac(net.device.hosts[1].mac))
        assert arrived[IP].ttl == Ether(sent)[IP].ttl - 1
        counted = (await net.plane.counters()).router_interfaces
        assert counted[1].rx_packets >= 1
        assert (counted[2].tx_packets, counted[2].tx_bytes) == (1, len(sent))


async def test_a_punt_comes_with_its_router_interface_and_reason(make) -> None:
    async with device_net(make) as net:
        await net.install({"10.0.2.1/32": LOCAL})
        sent = net.packet(2, "10.0.2.1")
        net.send(2, sent)
        await net.heard.until(lambda: (2, PuntReason.LOCAL, sent) in net.heard.packets)
        assert (await net.plane.counters()).punts[VRF, PuntReason.LOCAL][0] == 1


async def test_a_frame_of_the_guest_leaves_as_it_is(make) -> None:
    async with device_net(make) as net:
        await net.install({})
        frame = bytes.fromhex("0200000000020200000000ff0806") + b"a frame of the guest, as it is"
        assert net.plane.packet_out(net.interfaces[1], frame)
        assert await net.received(2, frame) == frame


async def test_packets_are_counted_by_route_where_the_device_can(make) -> None:
    async with device_net(make) as net:
        await net.install({"10.9.0.0/16": via(2), "10.9.1.0/24": via(2), "10.8.0.0/16": via(2)})
        for _ in range(3):
            net.send(1, net.packet(1, "10.9.0.1"))
            await net.received(2, b"data")
        counts = (await net.plane.route_counts()).routes.get(VRF, {})
        assert (await net.plane.sent())[2] == 3
        if Capability.ROUTE_COUNTERS in net.plane.capabilities:
            assert {key: count for key, count in counts.items() if count} == {prefix_key("10.9.0.0/16"): 3}
            assert len(counts) == 3
        else:
            assert not counts
