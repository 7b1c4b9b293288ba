"""A plane under test: a private Open vSwitch connected to an OpenFlowPlane, and entries to write to it."""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

from controller.planes.base import (
    Counters,
    Nexthop,
    NexthopGroup,
    Op,
    Plane,
    Policer,
    PortState,
    PuntReason,
    Refused,
    RouteKind,
    RouterInterface,
    RouteUpdates,
    Update,
    WriteBatch,
    route_action,
    same_rate,
)
from controller.planes.openflow.plane import OpenFlowPlane
from controller.planes.openflow.server import OpenFlowListener
from lab.namespaces import Host
from lab.private.ovs import PrivateOvs
from wire.columns import family_of, prefix_key

BRIDGE = "br"
DATAPATH_ID = 0x5350_0001
VRF = 7
RATES = same_rate(1000)
DEADLINE_S = 60.0
Entry = Policer | RouterInterface | Nexthop | NexthopGroup


@dataclass
class Recorder:
    """A PlaneListener that keeps what it is told and lets tests wait for it."""

    connects: int = 0
    disconnects: list[str] = field(default_factory=list)
    ports: dict[int, PortState] = field(default_factory=dict)
    packets: list[tuple[int, PuntReason, bytes]] = field(default_factory=list)
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    def plane_connected(self, plane: Plane) -> None:
        self.connects += 1
        self._changed.set()

    def plane_disconnected(self, plane: Plane, reason: str) -> None:
        self.disconnects.append(reason)
        self._changed.set()

    def port_changed(self, plane: Plane, port: PortState) -> None:
        self.ports[port.number] = port
        self._changed.set()

    def packet_in(self, plane: Plane, router_interface_id: int, reason: PuntReason, frame: bytes) -> None:
        self.packets.append((router_interface_id, reason, frame))
        self._changed.set()

    async def until(self, condition: Callable[[], object], timeout_s: float = DEADLINE_S) -> None:
        """Wait until something that was told makes ``condition`` true."""
        async with asyncio.timeout(timeout_s):
            while not condition():
                self._changed.clear()
                await self._changed.wait()


@dataclass
class Net:
    """The switch, its plane and what the plane told."""

    ovs: PrivateOvs
    server: OpenFlowListener
    plane: OpenFlowPlane
    heard: Recorder

    async def write(self, *entries: Entry, op: Op = Op.INSERT, routes: dict[str, int] | None = None) -> list[Refused]:
        """Write entries and routes of one kind of update."""
        batch = WriteBatch(routes=columns(routes or {}, op))
        for entry in entries:
            rows = {
                Policer: batch.policers,
                RouterInterface: batch.router_interfaces,
                Nexthop: batch.nexthops,
                NexthopGroup: batch.groups,
            }[type(entry)]
            rows.append(Update(op, entry))
        return await self.plane.write(batch)

    async def counted(self, condition: Callable[[Counters], bool], timeout_s: float = DEADLINE_S) -> Counters:
        """Return the counters as soon as they meet ``condition``: the switch adds them up once or twice a second."""
        async with asyncio.timeout(timeout_s):
            while not condition(counters := await self.plane.counters()):  # noqa: ASYNC110
                await asyncio.sleep(0.1)
        return counters

    async def eventually(self, condition: Callable[[], object], timeout_s: float = DEADLINE_S) -> None:
        """Wait for something that nobody tells."""
        async with asyncio.timeout(timeout_s):
            while not condition():  # noqa: ASYNC110
                await asyncio.sleep(0.05)


def columns(routes: dict[str, int], op: Op = Op.INSERT, vrf_id: int = VRF) -> list[RouteUpdates]:
    """Return routes given as text as columns, one per family."""
    families = {4: RouteUpdates(vrf_id, 4), 6: RouteUpdates(vrf_id, 6)}
    for text, action in routes.items():
        key = prefix_key(text)
        updates = families[family_of(key)]
        updates.ops.append(op)
        updates.keys.append(key)
        updates.actions.append(action)
    return [updates for updates in families.values() if updates.keys]


def via(nexthop_id: int) -> int:
    """Return the route action of a nexthop."""
    return route_action(RouteKind.NEXTHOP, nexthop_id)


def via_group(group_id: int) -> int:
    """Return the route action of a nexthop group."""
    return route_action(RouteKind.GROUP, group_id)


def mac(text: str) -> bytes:
    return bytes.fromhex(text.replace(":", ""))


def interface(interface_id: int, host: Host, **changes: object) -> RouterInterface:
    """Return a router interface at a host's port; its MAC ends in its id."""
    fields: dict[str, object] = {
        "id": interface_id,
        "vrf_id": VRF,
        "port": host.port,
        "vlan": 0,
        "mac": bytes((2, 0, 0, 0, 0xFF, interface_id)),
        "mtu": 1500,
    }
    return RouterInterface(**{**fields, **changes})  # type: ignore[arg-type]


def mac_text(octets: bytes) -> str:
    return octets.hex(":")


@contextlib.asynccontextmanager
async def openflow_net(
    tls: ssl.SSLContext | None = None, certificate_name: str | None = None, connect: bool = True
) -> AsyncIterator[Net]:
    """Start a switch with one bridge and connect it to a plane."""
    with PrivateOvs() as ovs:
        ovs.add_bridge(BRIDGE, DATAPATH_ID)
        server = OpenFlowListener(sock=ovs.listening_socket(), ssl_context=tls, echo_interval_s=0.5, dead_after_s=3.0)
        plane = OpenFlowPlane("edge", DATAPATH_ID, server, certificate_name)
        net = Net(ovs, server, plane, Recorder())
        await server.start()
        try:
            await plane.start(net.heard)
            if connect:
                ovs.set_controller(BRIDGE, f"tcp:127.0.0.1:{server.port}")
                await net.heard.until(lambda: plane.connected)
            yield net
        finally:
            await plane.close()
            await server.close()
