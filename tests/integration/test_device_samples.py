"""Samples of what vr-forwarder routes: only where they are wanted, beside the packet itself, and beyond a restart."""

import asyncio
from functools import partial

import pytest
from device_net import DeviceNet, device_net
from openflow_net import VRF, via
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether
from vr_forwarder import PrivateForwarder

from controller.planes.base import SAMPLE_OCTETS, Capability

pytestmark = pytest.mark.root

ALL = ("--samples", "one_in=1", "--samples", "per_s=1000000")
LONG = bytes(400) + b"end"


async def send(net: DeviceNet, count: int, payload: bytes) -> None:
    """Send packets, and wait until the last has arrived."""
    frame = Ether(src=net.device.hosts[0].mac, dst="02:00:00:00:ff:01") / IP(src="10.0.1.2", dst="10.9.0.7", ttl=9)
    for number in range(count):
        ending = b"%4d" % number + payload
        net.send(1, bytes(frame / UDP(sport=1000, dport=9) / ending))
        await net.received(2, ending)


async def test_each_sample_is_the_head_of_a_packet_that_arrives() -> None:
    taken: asyncio.Queue[tuple[int, bytes]] = asyncio.Queue()
    async with device_net(partial(PrivateForwarder, options=ALL)) as net:
        net.plane.sampler = lambda interface, frame: taken.put_nowait((interface, frame))
        await net.plane.read()
        assert Capability.SAMPLES in net.plane.capabilities
        await net.install({"10.9.0.0/16": via(2)})
        await send(net, 5, LONG)
        async with asyncio.timeout(60):
            for _ in range(5):
                interface, frame = await taken.get()
                assert (interface, len(frame)) == (1, SAMPLE_OCTETS)
                assert Ether(frame)[IP].dst == "10.9.0.7"
                assert Ether(frame)[IP].ttl == 8, "as it leaves"
        counters = await net.plane.counters()
        assert not [count for (vrf_id, _), count in counters.punts.items() if vrf_id == VRF and count[0]]
        assert (await net.plane.sent())[2] == 5


async def test_a_session_is_kept_over_a_restart_and_taken_away_when_nobody_wants_it() -> None:
    taken: list[int] = []
    async with device_net(partial(PrivateForwarder, options=ALL)) as net:
        assert not net.device.show("status")["samples"]["taken"]
        net.plane.sampler = lambda interface, _frame: taken.append(interface)
        await net.plane.read()
        await net.install({"10.9.0.0/16": via(2)})
        net.device.kill()
        net.device.start()
        await net.heard.until(lambda: net.heard.connects > 1 and net.plane.connected)
        await send(net, 3, b"data")
        await until(lambda: len(taken) == 3)
        assert net.device.show("status")["samples"] == {"taken": 3, "policed": 0, "ring_full": 0}
        net.plane.sampler = None
        await net.plane.read()
        await send(net, 3, b"data")
        assert net.device.show("status")["samples"]["taken"] == 3


async def test_what_is_over_the_rate_is_counted_and_arrives() -> None:
    taken: list[int] = []
    slow = ("--samples", "one_in=1", "--samples", "per_s=1")
    async with device_net(partial(PrivateForwarder, options=slow)) as net:
        net.plane.sampler = lambda interface, _frame: taken.append(interface)
        await net.plane.read()
        await net.install({"10.9.0.0/16": via(2)})
        await send(net, 40, b"data")  # ten at once, and one a second
        samples = net.device.show("status")["samples"]
        assert samples["taken"] + samples["policed"] == 40
        await until(lambda: len(taken) == samples["taken"])
        assert samples["taken"] >= 10


async def until(reached) -> None:
    async with asyncio.timeout(60):
        while not reached():  # noqa: ASYNC110
            await asyncio.sleep(0.02)
