"""Frames that vr-forwarder's ports lose outside of the pipeline: the controller reads them by port and reason."""

import asyncio

import pytest
from device_net import DeviceNet, device_net
from openflow_net import via

from controller.planes.base import LostFrames
from lab.namespaces import sh

pytestmark = pytest.mark.root

_DEADLINE_S = 60.0


async def egress_losses(net: DeviceNet, frames: int) -> LostFrames:
    """Wait until as many were not sent, and return by which port and why."""
    async with asyncio.timeout(_DEADLINE_S):
        while sum((lost := await _not_sent(net)).values()) < frames:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    return lost


async def _not_sent(net: DeviceNet) -> LostFrames:
    told = (await net.plane.counters()).lost_frames
    return {key: count for key, count in told.items() if key[1] == "egress"}


async def test_what_a_port_does_not_send_is_told_by_port_and_reason() -> None:
    async with device_net() as net:
        await net.install({"10.9.0.0/16": via(2)})
        assert await _not_sent(net) == {}
        sh("ip", "-n", net.device.namespace or "", "link", "set", "p2", "down")
        net.send(1, *[net.packet(1, "10.9.0.1")] * 5)
        assert await egress_losses(net, 5) == {(2, "egress", "down"): 5}
        sh("ip", "-n", net.device.namespace or "", "link", "set", "p2", "up")
        net.send(1, net.packet(1, "10.9.0.1"))
        await net.received(2, b"data")
        assert await egress_losses(net, 5) == {(2, "egress", "down"): 5}, "what is sent is none of it"
