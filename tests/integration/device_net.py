"""A plane under test on a private P4Runtime device, with a router interface and a nexthop at each host's port."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

import pytest
from marks import needs_bmv2
from openflow_net import RATES, VRF, Recorder, columns, interface, mac
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether

from controller.model import PlaneConfig, PlaneKind, PlanePort
from controller.planes.base import Nexthop, NexthopGroup, Op, Policer, RouterInterface, Update, WriteBatch
from controller.planes.p4runtime.channel import Timing
from controller.planes.p4runtime.plane import P4RuntimePlane
from lab.private.bmv2 import PrivateBmv2
from lab.private.forwarder import PrivateForwarder

_ARRIVES_S = 60.0


Device = PrivateForwarder | PrivateBmv2

DEVICES = (
    pytest.param(PrivateForwarder, id="forwarder"),
    pytest.param(PrivateBmv2, id="bmv2", marks=needs_bmv2),
)
"""For tests that must hold on each."""


@dataclass
class DeviceNet:
    """The device, its plane, what the plane told, and a socket at each host. Ids are the ports' numbers."""

    device: Device
    plane: P4RuntimePlane
    heard: Recorder
    sockets: list[socket.socket]
    interfaces: list[RouterInterface]

    async def install(self, routes: dict[str, int], *groups: NexthopGroup) -> None:
        """Install the router with these routes."""
        hosts = self.device.hosts
        batch = WriteBatch(
            policers=[Update(Op.INSERT, Policer(VRF, RATES))],
            router_interfaces=[Update(Op.INSERT, one) for one in self.interfaces],
            nexthops=[Update(Op.INSERT, Nexthop(host.port, host.port, mac(host.mac))) for host in hosts],
            groups=[Update(Op.INSERT, group) for group in groups],
            routes=columns(routes),
        )
        assert await self.plane.write(batch) == []

    def packet(self, port: int, target: str, source_port: int = 1000) -> bytes:
        """A UDP packet from the host behind a port to the router and further to a target."""
        frame = Ether(src=self.device.hosts[port - 1].mac, dst=self.interfaces[port - 1].mac)
        return bytes(frame / IP(src=f"10.0.{port}.2", dst=target, ttl=9) / UDP(sport=source_port, dport=9) / b"data")

    def send(self, port: int, *frames: bytes) -> None:
        """Send frames from the host behind a port."""
        for frame in frames:
            self.sockets[port - 1].send(frame)

    async def received(self, port: int, ending: bytes) -> bytes:
        """Wait for a frame with this ending at the host behind a port."""
        async with asyncio.timeout(_ARRIVES_S):
            while True:
                frame = await asyncio.get_running_loop().sock_recv(self.sockets[port - 1], 1 << 16)
                if frame.endswith(ending):
                    return frame


@contextlib.asynccontextmanager
async def device_net(make: Callable[[], Device] = PrivateForwarder) -> AsyncIterator[DeviceNet]:
    """Start a device with two hosts and connect a plane to it."""
    with make() as device, contextlib.ExitStack() as stack:
        ports = tuple(PlanePort(host.link, host.port) for host in device.hosts)
        config = PlaneConfig("edge", PlaneKind.P4RUNTIME, address=device.address, device_id=1, ports=ports)
        plane, heard = P4RuntimePlane(config, timing=Timing(retry_s=0.02)), Recorder()
        sockets = [stack.enter_context(host.packet_socket()) for host in device.hosts]
        await plane.start(heard)
        try:
            await heard.until(lambda: plane.connected)
            yield DeviceNet(device, plane, heard, sockets, [interface(host.port, host) for host in device.hosts])
        finally:
            await plane.close()
