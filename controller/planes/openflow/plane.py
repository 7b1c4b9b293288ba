"""The OpenFlow 1.3 plane: one switch, by its datapath id, as a `Plane`."""

import asyncio
import contextlib
import logging
from collections.abc import Iterator

from controller.errors import PlaneUnreachable
from controller.planes.base import (
    PUNT_OF_CODE,
    ROUTE_TABLE_NAME,
    Capability,
    Counters,
    Installed,
    PlaneListener,
    PortState,
    Refused,
    RouteCounts,
    RouterInterface,
    RoutesInto,
    RouteTraffic,
    Sampler,
    SharedMeters,
    WriteBatch,
    routes_to_read,
)
from controller.planes.openflow import codec, messages
from controller.planes.openflow import program as prog
from controller.planes.openflow.channel import Channel, ChannelClosed, RequestRefused
from controller.planes.openflow.codec import BundleControl, Multipart
from controller.planes.openflow.messages import MeterCounts
from controller.planes.openflow.policers import MeterLayout
from controller.planes.openflow.readback import Readback, count, read_route_counts, read_route_traffic, read_sent
from controller.planes.openflow.sender import Sender
from controller.planes.openflow.server import OpenFlowListener
from controller.planes.shares import WithoutShares

log = logging.getLogger(__name__)

_SET_UP_S = 60.0


class OpenFlowPlane(WithoutShares):
    """A switch that connects to `server` under ``datapath_id``; with ``certificate_name`` it has to show a TLS
    certificate of that common or DNS name. Punt classes share meters as ``shared_meters`` says."""

    capabilities = frozenset(
        {
            Capability.MTU,
            Capability.LOCAL_FAILOVER,
            Capability.ROUTE_COUNTERS,
            Capability.LOST_PUNTS,
        }
    )

    def __init__(
        self,
        name: str,
        datapath_id: int,
        server: OpenFlowListener,
        certificate_name: str | None = None,
        shared_meters: SharedMeters = (),
    ) -> None:
        self.name, self.datapath_id, self.certificate_name = name, datapath_id, certificate_name
        self.shared_meters, self._meters = shared_meters, MeterLayout(shared_meters)
        self.connected = False
        self.ports: dict[int, PortState] = {}
        self.table_sizes: dict[str, int] = {}
        self.channel: Channel | None = None
        self.packet_outs_dropped = 0
        self.stray_packet_ins = 0  # of flows that are not ours
        self._server = server
        self._listener: PlaneListener | None = None
        self._sender: Sender | None = None

    # -- life --------------------------------------------------------------------------------------------------------
    def sample_to(self, sampler: Sampler | None) -> None:
        """Do nothing: OpenFlow has no samples of what is routed."""

    async def start(self, listener: PlaneListener) -> None:
        """Let the switch connect; Conflict where its datapath id is another plane's."""
        self._listener = listener
        self._server.register(self)

    async def close(self) -> None:
        """Close the channel and leave everything installed as it is."""
        self._server.unregister(self)
        if self.channel is not None:
            self.channel.close("closed by the controller")

    async def serve(self, channel: Channel, ended: "asyncio.Task[str]") -> None:
        """Use a connection until it ends."""
        if self.channel is not None:
            self._gone(self.channel)
        self.channel = channel
        channel.listen(self._packet_in, self._port_status)
        try:
            async with asyncio.timeout(_SET_UP_S):
                self._sender = await self._set_up(channel)
            self.connected = True
            log.info("plane %s: connected from %s", self.name, channel.peer)
            if self._listener is not None:
                self._listener.plane_connected(self)
                for port in list(self.ports.values()):
                    self._listener.port_changed(self, port)
            await ended
        except TimeoutError:
            channel.close(f"the switch did not finish its set-up within {_SET_UP_S:g} s")
        except RequestRefused as error:
            channel.close(f"the switch refused its set-up: {error}")
        finally:
            self._gone(channel)

    def _gone(self, channel: Channel) -> None:
        channel.close("closed by this side")
        if self.channel is not channel:
            return  # it was replaced, and that was told
        told, reason = self.connected, channel.closed or ""
        self.connected, self.channel, self._sender = False, None, None
        self.ports.clear()
        log.warning("plane %s: disconnected: %s", self.name, reason)
        if told and self._listener is not None:
            self._listener.plane_disconnected(self, reason)

    async def _set_up(self, channel: Channel) -> Sender:
        """Bring a new connection to where batches can be written."""
        channel.send(messages.set_config(channel.take_xids()) + messages.set_async(channel.take_xids()))
        role = await channel.ask(lambda xid: messages.role_request(xid, None))
        generation = (int.from_bytes(role[8:16], "big") + 1) & codec.ALL_BITS
        await channel.ask(lambda xid: messages.role_request(xid, generation))
        self.ports.clear()
        await channel.list(Multipart.PORT_DESC, b"", self._add_ports)
        self.table_sizes = await _table_sizes(channel)
        bundles = await _offers_bundles(channel)
        readback = Readback(self._meters)
        await readback.read_small(channel)
        sender = Sender(channel, await readback.inventory(), bundles)
        await self._repair_static_flows(channel, sender, readback)
        return sender

    async def _repair_static_flows(self, channel: Channel, sender: Sender, readback: Readback) -> None:
        missing, unexpected = await readback.pipeline_changes()
        unused = await readback.unused_meters(sender.inventory)
        if not missing and not unexpected and not unused:
            return
        log.info(
            "plane %s: %d flows of the pipeline to write, %d to remove, %d meters that nothing uses",
            *(self.name, len(missing), len(unexpected), len(unused)),
        )
        errors = await sender.send_flows(missing, unexpected, unused)
        if errors:
            channel.close(f"the switch refuses the pipeline: {errors[0].text}")
            raise ChannelClosed(channel.closed or "")

    # -- what the switch says ----------------------------------------------------------------------------------------
    def _add_ports(self, body: bytes) -> None:
        for port in messages.decode_ports(body):
            self.ports[port.number] = port

    def _port_status(self, body: bytes) -> None:
        port = messages.decode_port_status(body)
        if port is None:
            return
        known = self.ports.get(port.number)
        if port.present:
            self.ports[port.number] = port
        else:
            self.ports.pop(port.number, None)
        if self.connected and self._listener is not None and port != known:
            self._listener.port_changed(self, port)

    def _packet_in(self, packet: codec.PacketIn) -> None:
        reason = PUNT_OF_CODE.get(prog.cookie_reason(packet.cookie))
        ours = prog.cookie_is_ours(packet.cookie) and prog.cookie_kind(packet.cookie) == prog.Kind.POLICER
        if not ours or reason is None:
            self.stray_packet_ins += 1
        elif self.connected and self._listener is not None:
            self._listener.packet_in(self, packet.metadata & 0xFFFFFFFF, reason, packet.frame)

    # -- what the switch is asked ------------------------------------------------------------------------------------
    async def read(self, only: int | None = None, into: RoutesInto | None = None) -> Installed:
        """Read back what is installed, and put the pipeline's own flows right where somebody changed them."""
        with self._reachable() as (channel, sender):
            readback = Readback(self._meters, routes_to_read(only, into))
            async with sender.turn:
                await readback.read_small(channel)
                sender.inventory = await readback.inventory()
                await self._repair_static_flows(channel, sender, readback)
            await readback.read_routes(channel)
            return await readback.installed()

    async def write(self, batch: WriteBatch) -> list[Refused]:
        """Send a batch and wait until the switch has confirmed it."""
        with self._reachable() as (_, sender):
            return await sender.write(batch)

    async def counters(self) -> Counters:
        """Read all counters."""
        with self._reachable() as (channel, _):
            readback = Readback(self._meters)
            await readback.read_small(channel)
            return await count(readback.flows, await readback.inventory(), await self._metered(channel))

    async def _metered(self, channel: Channel) -> dict[int, MeterCounts]:
        """Read what meters have met; nothing where the switch does not count that."""
        metered: dict[int, MeterCounts] = {}
        try:
            await channel.list(
                Multipart.METER, messages.METER_ALL, lambda body: metered.update(messages.decode_meter_counts(body))
            )
        except RequestRefused:
            self.capabilities -= {Capability.LOST_PUNTS}
        else:
            self.capabilities |= {Capability.LOST_PUNTS}
        return metered

    async def route_counts(self) -> RouteCounts:
        """Read what each route has met; it lags by about a second."""
        with self._reachable() as (channel, _):
            return await read_route_counts(channel)

    async def route_traffic(self, vrf_id: int) -> RouteTraffic:
        """Read what each route of a router has met; it lags by about a second."""
        with self._reachable() as (channel, _):
            return await read_route_traffic(channel, vrf_id)

    async def sent(self) -> dict[int, int]:
        """Read how many packets each router interface has sent."""
        with self._reachable() as (channel, _):
            return await read_sent(channel)

    def packet_out(self, interface: RouterInterface, frame: bytes) -> bool:
        """Send an untagged frame out of a router interface; False (and counted) where too many of its router wait."""
        channel = self.channel
        if channel is not None and self.connected:
            actions = b"".join(prog.frame_out(interface))
            if channel.send_packet(interface.vrf_id, codec.packet_out(actions, frame, channel.take_xids())):
                return True
        self.packet_outs_dropped += 1
        return False

    @contextlib.contextmanager
    def _reachable(self) -> Iterator[tuple[Channel, Sender]]:
        """Give the channel to use; one that fails is closed, so that a new one finds out what is true."""
        channel, sender = self.channel, self._sender
        if channel is None or sender is None:
            raise PlaneUnreachable(self.name, "the switch is not connected")
        try:
            yield channel, sender
        except ChannelClosed as error:
            raise self._given_up(channel, str(error)) from error
        except RequestRefused as error:
            raise self._given_up(channel, f"the switch refused a request: {error}") from error

    def _given_up(self, channel: Channel, reason: str) -> PlaneUnreachable:
        """Close a channel and tell so at once: whoever meets the error must not find the plane connected."""
        channel.close(reason)
        self._gone(channel)
        return PlaneUnreachable(self.name, reason)


async def _table_sizes(channel: Channel) -> dict[str, int]:
    """Return the sizes of the route tables, none where the switch does not know the question."""
    sizes: dict[int, int] = {}
    try:
        await channel.list(
            Multipart.TABLE_FEATURES, b"", lambda body: sizes.update(messages.decode_table_sizes(body))
        )
    except RequestRefused:
        return {}
    numbers = {ROUTE_TABLE_NAME[family]: table for family, table in prog.ROUTE_TABLE.items()}
    return {name: sizes[table] for name, table in numbers.items() if table in sizes}


async def _offers_bundles(channel: Channel) -> bool:
    """Whether the switch takes ONF bundles."""
    try:
        await channel.ask(lambda xid: codec.bundle_control(BundleControl.OPEN_REQUEST, xid))
        await channel.ask(lambda xid: codec.bundle_control(BundleControl.DISCARD_REQUEST, xid))
    except RequestRefused:
        return False
    return True
