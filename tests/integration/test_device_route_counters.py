"""Packets and octets by route, which vr-forwarder counts by samples where it is told to."""

import asyncio
from functools import partial

import pytest
from device_net import DeviceNet, device_net
from openflow_net import VRF, via
from scapy.layers.inet import IP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Ether

from controller.planes.base import BLACKHOLE, Capability
from lab.private.forwarder import PrivateForwarder
from wire.columns import prefix_key

pytestmark = pytest.mark.root

EACH = ("--route-counters", "--samples", "one_in=1", "--samples", "per_s=1000000")
"""Each packet is a sample, so that nothing is left to chance."""
ROUTES = {"10.9.0.0/16": via(2), "10.9.1.0/24": via(2), "2001:db8:9::/48": via(2), "10.8.0.0/16": BLACKHOLE}
WIDE, NARROW, IPV6, DARK = map(prefix_key, ROUTES)


def packet(net: DeviceNet, to: str, ending: bytes) -> bytes:
    ip = IPv6(src="2001:db8:1::2", dst=to) if ":" in to else IP(src="10.0.1.2", dst=to, ttl=9)
    frame = Ether(src=net.device.hosts[0].mac, dst=net.interfaces[0].mac)
    return bytes(frame / ip / UDP(sport=1000, dport=9) / ending)


async def send(net: DeviceNet, to: str, count: int) -> int:
    """Send packets one by one, and wait for each until it has arrived; returns their octets."""
    octets = 0
    for number in range(count):
        ending = b"packet %4d" % number
        frame = packet(net, to, ending)
        octets += len(frame)
        net.send(1, frame)
        await net.received(2, ending)
    return octets


async def counted(net: DeviceNet, packets: int) -> dict[bytes, tuple[int, int]]:
    """Wait until so many packets are counted, the last of which may be on their way from the kernel."""
    async with asyncio.timeout(60):
        while True:
            traffic = await net.plane.route_traffic(VRF)
            if sum(met for met, _ in traffic.values()) >= packets:
                return traffic


async def test_packets_and_octets_are_counted_by_route() -> None:
    async with device_net(partial(PrivateForwarder, options=EACH)) as net:
        assert Capability.SAMPLED_ROUTE_COUNTERS in net.plane.capabilities
        assert not {Capability.ROUTE_COUNTERS, Capability.SAMPLES} & net.plane.capabilities
        await net.install(ROUTES)
        assert await net.plane.route_traffic(VRF) == dict.fromkeys((WIDE, NARROW, IPV6, DARK), (0, 0))
        octets = {WIDE: await send(net, "10.9.0.7", 5), NARROW: await send(net, "10.9.1.7", 3)}
        octets[IPV6] = await send(net, "2001:db8:9::7", 2)
        net.send(1, packet(net, "10.8.0.1", b"lost"))
        assert await counted(net, 10) == {
            WIDE: (5, octets[WIDE]),
            NARROW: (3, octets[NARROW]),
            IPV6: (2, octets[IPV6]),
            DARK: (0, 0),
        }


async def test_who_does_not_ask_is_not_sampled() -> None:
    async with device_net(PrivateForwarder) as net:
        assert not {Capability.ROUTE_COUNTERS, Capability.SAMPLED_ROUTE_COUNTERS} & net.plane.capabilities
        await net.install(ROUTES)
        await send(net, "10.9.0.7", 50)
        assert await net.plane.route_traffic(VRF) == {}
        assert isinstance(net.device, PrivateForwarder)
        assert not any(net.device.show("status")["samples"].values())


async def test_what_is_policed_counts_for_what_is_not() -> None:
    """Ten samples at once and then ten a second: of 200 packets most are not seen, and all are counted."""
    slow = ("--route-counters", "--samples", "one_in=1", "--samples", "per_s=10")
    async with device_net(partial(PrivateForwarder, options=slow)) as net:
        await net.install(ROUTES)
        for _ in range(200):
            net.send(1, packet(net, "10.9.0.7", b"one of many"))
        async with asyncio.timeout(60):
            while (await net.plane.sent())[2] < 200:  # noqa: ASYNC110  another process counts
                await asyncio.sleep(0.01)
            while (met := (await net.plane.route_traffic(VRF))[WIDE][0]) < 200:  # those of the end wait for the next
                net.send(1, packet(net, "10.9.0.7", b"one more"))
                await asyncio.sleep(0.05)
        sent = (await net.plane.sent())[2]
        assert 200 <= met <= sent


async def test_a_count_is_near_what_was_sent_where_chance_decides() -> None:
    """Of 4,000 packets a quarter is sampled, for which the ring has room; six standard deviations are 16 %."""
    options = ("--route-counters", "--samples", "one_in=4", "--samples", "per_s=1000000")
    async with device_net(partial(PrivateForwarder, options=options)) as net:
        await net.install(ROUTES)
        frame = packet(net, "10.9.1.7", b"one of many")
        for _ in range(4000):
            net.send(1, frame)
        async with asyncio.timeout(60):
            while (sent := (await net.plane.sent())[2]) < 3000:  # noqa: ASYNC110  some may be lost before the switch
                await asyncio.sleep(0.01)
        before = -1
        while sent != before:  # until the last has gone by
            before, sent = sent, (await net.plane.sent())[2]
        assert isinstance(net.device, PrivateForwarder)
        samples = net.device.show("status")["samples"]
        assert samples == {"taken": samples["taken"], "policed": 0, "ring_full": 0}
        packets, octets = (await counted(net, 4 * samples["taken"]))[NARROW]
        assert packets == 4 * samples["taken"]
        assert abs(packets / sent - 1) < 0.2, (packets, sent)
        assert abs(octets - packets * len(frame)) <= len(frame)
