"""The planes that the contract suite runs against, each with two ports that are up."""

import asyncio
import contextlib
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from openflow_net import BRIDGE, Recorder, openflow_net

from controller.model import PlaneConfig, PlaneKind, PlanePort
from controller.planes.base import Plane
from controller.planes.fake import FakePlane
from controller.planes.p4runtime.channel import Timing
from controller.planes.p4runtime.plane import P4RuntimePlane
from lab.private.bmv2 import PrivateBmv2
from lab.private.device import PrivateDevice
from lab.private.forwarder import PrivateForwarder
from tests.unit.p4runtime.server import device


@dataclass
class PlaneUnderTest:
    """A connected plane, what it told, and the means to cut its channel and to empty it."""

    plane: Plane
    heard: Recorder
    ports: tuple[int, int]
    reconnect: Callable[[], Awaitable[None]]
    restart_empty: Callable[[], Awaitable[None]]


@contextlib.asynccontextmanager
async def fake_plane() -> AsyncIterator[PlaneUnderTest]:
    plane, heard = FakePlane("fake"), Recorder()
    await plane.start(heard)
    for number in (1, 2):
        plane.set_port(number, f"p{number}", True)
    plane.connect()

    async def reconnect() -> None:
        plane.disconnect()
        plane.connect()

    async def restart_empty() -> None:
        plane.entries = type(plane.entries)()
        plane.shares.clear()
        await reconnect()

    yield PlaneUnderTest(plane, heard, (1, 2), reconnect, restart_empty)
    await plane.close()


@contextlib.asynccontextmanager
async def openflow_plane() -> AsyncIterator[PlaneUnderTest]:
    async with openflow_net() as net:
        ports = tuple(net.ovs.add_host(BRIDGE, f"02:00:00:00:00:0{n}").port for n in (1, 2))
        await net.heard.until(lambda: set(ports) <= net.heard.ports.keys())

        async def reconnect() -> None:
            connects = net.heard.connects
            assert net.plane.channel is not None
            net.plane.channel.close("the test cut it")
            await net.heard.until(lambda: net.heard.connects > connects and net.plane.connected)

        async def restart_empty() -> None:
            net.ovs.ofctl("del-flows", BRIDGE)
            net.ovs.ofctl("del-groups", BRIDGE)
            net.ovs.ofctl("del-meters", BRIDGE)
            await reconnect()

        yield PlaneUnderTest(net.plane, net.heard, ports, reconnect, restart_empty)


@contextlib.asynccontextmanager
async def p4runtime_plane(address: str, restart: Callable[[], Awaitable[None]]) -> AsyncIterator[PlaneUnderTest]:
    """A plane of a P4Runtime device; ``restart`` has it start again without a pipeline."""
    config = PlaneConfig(
        "edge",
        PlaneKind.P4RUNTIME,
        address=address,
        device_id=1,
        ports=(PlanePort("p1", 1), PlanePort("p2", 2)),
    )
    plane, heard = P4RuntimePlane(config, timing=Timing(retry_s=0.02)), Recorder()

    async def reconnect() -> None:
        connects = heard.connects
        assert plane.channel is not None
        plane.channel.close("the test cut it")
        await heard.until(lambda: heard.connects > connects and plane.connected)

    async def restart_empty() -> None:
        connects = heard.connects
        await restart()
        await heard.until(lambda: heard.connects > connects and plane.connected)

    await plane.start(heard)
    try:
        await heard.until(lambda: plane.connected)
        yield PlaneUnderTest(plane, heard, (1, 2), reconnect, restart_empty)
    finally:
        await plane.close()


@contextlib.asynccontextmanager
async def p4runtime_server_plane() -> AsyncIterator[PlaneUnderTest]:
    """A device that is only a server in this process."""
    with tempfile.TemporaryDirectory(prefix="sp-p4rt-") as directory:
        async with device(Path(directory)) as one, p4runtime_plane(one.address, one.restart_empty) as under_test:
            yield under_test


@contextlib.asynccontextmanager
async def device_plane(make: Callable[[], PrivateDevice]) -> AsyncIterator[PlaneUnderTest]:
    with make() as private:

        async def restart() -> None:
            await asyncio.to_thread(private.restart)

        async with p4runtime_plane(private.address, restart) as under_test:
            yield under_test


PLANES = {
    "fake": fake_plane,
    "openflow": openflow_plane,
    "p4runtime": p4runtime_server_plane,
    "forwarder": partial(device_plane, PrivateForwarder),
    "bmv2": partial(device_plane, PrivateBmv2),
}
