"""A plane that is connected to a device in this process."""

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass

from openflow_net import Recorder

from controller.model import PlaneConfig, PlaneKind, PlanePort
from controller.planes.p4runtime.channel import Timing
from controller.planes.p4runtime.plane import P4RuntimePlane
from tests.unit.p4runtime.server import DEVICE_ID, Device

QUICK = Timing(retry_s=0.01, retry_max_s=0.04)


def config_of(one: Device, *ports: PlanePort) -> PlaneConfig:
    return PlaneConfig("edge", PlaneKind.P4RUNTIME, address=one.address, device_id=DEVICE_ID, ports=ports)


@dataclass
class Edge:
    """A plane, its device and what it told."""

    plane: P4RuntimePlane
    device: Device
    heard: Recorder

    async def connected_again(self, connects: int = 1) -> None:
        """Wait until it has connected more often than so."""
        await self.heard.until(lambda: self.heard.connects > connects and self.plane.connected)


@contextlib.asynccontextmanager
async def attached(one: Device, timing: Timing = QUICK, connect: bool = True) -> AsyncIterator[Edge]:
    """A plane of a device with ports 1 and 2."""
    ports = PlanePort("p1", 1), PlanePort("p2", 2)
    edge = Edge(P4RuntimePlane(config_of(one, *ports), timing=timing), one, Recorder())
    await edge.plane.start(edge.heard)
    try:
        if connect:
            await edge.heard.until(lambda: edge.plane.connected)
        yield edge
    finally:
        await edge.plane.close()
