"""Samples of what a device routes: by the list, where they are wanted, beside the packets, and beyond a restart."""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial

import pytest
from device_net import DeviceNet, device_net
from marks import needs_bmv2
from openflow_net import VRF, via
from scapy.layers.inet import IP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Ether

from controller.planes.base import Capability, PuntReason, Sample
from lab.private.bmv2 import PrivateBmv2
from lab.private.forwarder import PrivateForwarder
from wire.columns import prefix_key

pytestmark = pytest.mark.root

ALL = ("--samples", "one_in=1", "--samples", "per_s=1000000")
ROUTES = {"10.9.0.0/16": via(2), "2001:db8:9::/48": via(2)}
TO_IPV4, TO_IPV6 = "10.9.0.7", "2001:db8:9::7"
IPV4, IPV6 = (1, prefix_key(f"{TO_IPV4}/32")), (1, prefix_key(f"{TO_IPV6}/128"))
"""Their samples."""
MANY = 400
"""Packets: that of so many none is sampled where one of 25 is, by chance, happens once in ten million times."""


class Taken:
    """What a plane's sampler was given."""

    def __init__(self) -> None:
        self.samples: list[Sample] = []
        self.lists = 0
        self._came = asyncio.Event()

    def take(self, samples: Sequence[Sample]) -> None:
        self.samples += samples
        self.lists += 1
        self._came.set()

    async def until(self, reached: Callable[[], bool]) -> None:
        """Wait for samples until it is."""
        async with asyncio.timeout(60):
            while not reached():
                self._came.clear()
                await self._came.wait()

    async def all(self, count: int) -> None:
        """Wait until so many have come."""
        await self.until(lambda: len(self.samples) >= count)


def packet(net: DeviceNet, ending: bytes, to_ipv6: bool = False) -> bytes:
    ip = IPv6(src="2001:db8:1::2", dst=TO_IPV6) if to_ipv6 else IP(src="10.0.1.2", dst=TO_IPV4, ttl=9)
    frame = Ether(src=net.device.hosts[0].mac, dst=net.interfaces[0].mac)
    return bytes(frame / ip / UDP(sport=1000, dport=9) / ending)


async def send(net: DeviceNet, count: int, to_ipv6: bool = False) -> None:
    """Send packets one by one, and wait for each until it has arrived."""
    for number in range(count):
        ending = b"packet %4d" % number
        net.send(1, packet(net, ending, to_ipv6))
        await net.received(2, ending)


async def wanted(net: DeviceNet) -> Taken:
    """Have the device take samples."""
    taken = Taken()
    net.plane.sample_to(taken.take)
    await net.plane.read()
    assert Capability.SAMPLES in net.plane.capabilities
    return taken


async def test_each_sample_tells_where_a_packet_goes_that_arrives() -> None:
    async with device_net(partial(PrivateForwarder, options=ALL)) as net:
        taken = await wanted(net)
        await net.install(ROUTES)
        await send(net, 5)
        await send(net, 3, to_ipv6=True)
        await taken.all(8)
        assert taken.samples == [IPV4] * 5 + [IPV6] * 3
        assert net.plane.stray_samples == 0
        counters = await net.plane.counters()
        punted = {reason for (vrf_id, reason), count in counters.punts.items() if vrf_id == VRF and count[0]}
        told = {reason for _, reason, _ in net.heard.packets}
        assert punted | told <= {PuntReason.CONTROL}, "the hosts' own multicast, and no samples"
        assert (await net.plane.sent())[2] == 8


@needs_bmv2
async def test_those_of_bmv2_come_the_same_way() -> None:
    """It takes one of 25, at random: so says the program that it runs."""
    async with device_net(PrivateBmv2) as net:
        taken = await wanted(net)
        await net.install(ROUTES)
        await send(net, MANY)
        await taken.until(lambda: IPV4 in taken.samples)
        await send(net, MANY, to_ipv6=True)
        await taken.until(lambda: IPV6 in taken.samples)
        assert set(taken.samples) == {IPV4, IPV6}
        assert net.plane.stray_samples == 0
        await net.plane.read()
        assert Capability.SAMPLES in net.plane.capabilities, "it is known again"


async def test_they_are_taken_beyond_a_restart_and_until_nobody_wants_them() -> None:
    async with device_net(partial(PrivateForwarder, options=ALL)) as net:
        await net.install(ROUTES)
        await send(net, 3)
        assert not net.device.show("status")["samples"]["taken"]
        taken = await wanted(net)
        net.device.kill()
        net.device.start()
        await net.heard.until(lambda: net.heard.connects > 1 and net.plane.connected)
        await send(net, 3)
        await taken.all(3)
        assert net.device.show("status")["samples"] == {"taken": 3, "policed": 0, "ring_full": 0}
        net.plane.sample_to(None)
        await net.plane.read()
        await send(net, 3)
        assert net.device.show("status")["samples"]["taken"] == 3
        assert len(taken.samples) == 3


async def test_what_is_over_the_rate_is_counted_and_arrives() -> None:
    slow = ("--samples", "one_in=1", "--samples", "per_s=1")
    async with device_net(partial(PrivateForwarder, options=slow)) as net:
        taken = await wanted(net)
        await net.install(ROUTES)
        await send(net, 40)  # ten at once, and one a second
        samples = net.device.show("status")["samples"]
        assert samples["taken"] + samples["policed"] == 40
        await taken.all(samples["taken"])
        assert len(taken.samples) >= 10


async def test_many_come_by_the_list() -> None:
    async with device_net(partial(PrivateForwarder, options=ALL)) as net:
        taken = await wanted(net)
        await net.install(ROUTES)
        net.send(1, *[packet(net, b"one of many")] * 30, packet(net, b"last"))
        await net.received(2, b"last")
        await taken.all(net.device.show("status")["samples"]["taken"])
        assert taken.samples[0] == IPV4
        assert taken.lists < len(taken.samples) / 4
