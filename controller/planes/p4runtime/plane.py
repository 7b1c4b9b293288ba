"""The P4Runtime plane: one device that runs the pipeline of p4src, as a `Plane`."""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Collection, Iterator, Mapping

from finsy.proto import p4r

from controller.errors import PlaneUnreachable
from controller.model import PlaneConfig
from controller.planes.base import (
    PUNT_OF_CODE,
    SIZED_TABLES,
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
from controller.planes.p4runtime import shares
from controller.planes.p4runtime.channel import (
    Channel,
    ChannelClosed,
    ElectionId,
    RequestRefused,
    Target,
    Timing,
    TlsFiles,
)
from controller.planes.p4runtime.features import TOLD, read_features
from controller.planes.p4runtime.links import LinkWatch
from controller.planes.p4runtime.lost_frames import read_lost_frames
from controller.planes.p4runtime.lost_punts import read_lost_punts
from controller.planes.p4runtime.p4info import Pipeline, golden_pipeline
from controller.planes.p4runtime.program import Program
from controller.planes.p4runtime.readback import (
    Readback,
    counts_routes,
    read_counters,
    read_route_counts,
    read_route_traffic,
    read_sent,
)
from controller.planes.p4runtime.samples import SampleDigest, keep_samples
from controller.planes.p4runtime.sender import Sender
from controller.planes.shares import ShareEntries, ShareEntry, ShareKey, ShareUse

log = logging.getLogger(__name__)

_DEFAULT_TIMING = Timing()


_CAPABILITIES = frozenset(
    {
        Capability.MTU,
        Capability.IPV4_CHECKSUM,
        Capability.IP_OPTIONS,
        Capability.HOP_BY_HOP,
        Capability.EXACT_WEIGHTS,
    }
)


class P4RuntimePlane:
    """A device at an address that this side connects to, again and again. It has to make us primary; with TLS it has
    to show a certificate of the plane's name."""

    def __init__(
        self,
        config: PlaneConfig,
        tls: TlsFiles | None = None,
        *,
        timing: Timing = _DEFAULT_TIMING,
        pipeline: Callable[[], Pipeline] = golden_pipeline,
    ) -> None:
        self.name, self.config, self._pipeline = config.name, config, pipeline()
        schema = self._pipeline.schema
        self.capabilities = _CAPABILITIES  # and what the connected device has besides
        self.shared_meters: SharedMeters = ()  # each class has a meter of its own, in table `policer`
        self.connected = False
        self._sampler: Sampler | None = None
        self.ports: dict[int, PortState] = {}
        self.table_sizes = {name: schema.table(name).size for name in SIZED_TABLES}
        self.channel: Channel | None = None
        self.packet_outs_dropped = 0
        self.stray_packet_ins = 0  # without what our pipeline says of them
        self.stray_samples = 0  # that are none of our pipeline's, or that nobody wants
        self._target = Target(config.address, config.device_id, config.name, tls)
        self._timing = timing
        self._program, self._samples = Program(schema), SampleDigest(schema)
        self._packet_in_parts = {field.id: name for name, field in schema.header("packet_in").items()}
        self._egress_part = schema.header("packet_out")["router_interface_id"]
        self._listener: PlaneListener | None = None
        self._sender: Sender | None = None
        self._links: LinkWatch | None = None
        self._task: asyncio.Task[None] | None = None
        self._served = False  # by the present connection
        self._held = ElectionId(0, 0)  # the largest with which a connection was primary
        self._told = ""  # why it is disconnected
        self._no_samples = ""  # why the device takes none, as it was told last
        self._shares: set[ShareKey] = set()  # that the device holds, as far as one knows

    # -- life --------------------------------------------------------------------------------------------------------
    def sample_to(self, sampler: Sampler | None) -> None:
        """Give samples to ``sampler``, from the next connect or read on."""
        self._sampler = sampler

    async def start(self, listener: PlaneListener) -> None:
        """Begin to connect and keep at it. PlaneError where a port's host interface cannot be watched."""
        self._listener = listener
        devices = [port.device for port in self.config.ports if port.device]
        if devices:
            self._links = LinkWatch(devices)
            self._links.start(self._link_changed)
        self._task = asyncio.create_task(self._run(), name=f"p4runtime {self.name}")
        self._task.add_done_callback(self._stopped)

    async def close(self) -> None:
        """Close the channel and leave everything installed as it is."""
        if self._links is not None:
            self._links.close()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self._gone("closed by the controller")

    def _stopped(self, task: "asyncio.Task[None]") -> None:
        """Report that the task has ended: only a bug ends it."""
        if not task.cancelled():
            log.error("plane %s: stopped for good", self.name, exc_info=task.exception())
            self._gone("the plane's task failed; see the log of the controller")

    async def _run(self) -> None:
        """Connect, serve and connect again. The wait doubles with each connection that came to nothing."""
        started_ms, connection, delay_s = time.time_ns() // 1_000_000, 0, self._timing.retry_s
        while True:
            connection += 1
            served = await self._serve(ElectionId(started_ms, connection))
            delay_s = self._timing.retry_s if served else min(delay_s * 2, self._timing.retry_max_s)
            await asyncio.sleep(delay_s)

    async def _serve(self, election_id: ElectionId) -> bool:
        """Use a connection until it ends; returns whether it ever got as far as to write."""
        try:
            channel = Channel(
                self._target,
                election_id,
                self._timing,
                self._held,
                packet_in_seen=self._packet_in,
                digest_seen=self._digests,
                backup_seen=self._gone,
            )
        except ChannelClosed as error:
            self._gone(str(error))
            return False
        self.channel, self._served = channel, False
        try:
            async with asyncio.TaskGroup() as tasks:
                using = tasks.create_task(self._use(channel), name=f"p4runtime {self.name} set-up")
                reason = await channel.run()
                using.cancel()
                self._gone(reason)
        finally:
            self.channel, self._held = None, channel.held
        return self._served

    async def _use(self, channel: Channel) -> None:
        """Whenever the device makes us primary, bring it to where batches can be written."""
        try:
            while True:
                await channel.until_primary()
                demotions = channel.demotions
                sender = await self._set_up(channel)
                if channel.is_primary and channel.demotions == demotions:  # else what was read may have changed
                    self._connected(sender)
                    await self._attend(channel)
        except ChannelClosed as error:
            channel.close(str(error))
        except RequestRefused as error:
            channel.close(f"the device refused a request: {error}")

    async def _set_up(self, channel: Channel) -> Sender:
        """Have the device run our pipeline, with nothing lost where it does already, and see what it holds."""
        if await channel.pipeline_cookie() != self._pipeline.cookie:
            log.info("plane %s: pushing the pipeline", self.name)
            try:
                await channel.push_pipeline(self._pipeline.message)
            except RequestRefused as error:
                raise ChannelClosed(f"the device refuses the pipeline: {error}") from error
        readback = Readback(self._program)
        await readback.read_small(channel)
        sender = Sender(channel, self._program, readback.inventory)
        await self._keep_own_rows(channel, sender)
        told = await read_lost_punts(channel) is not None
        self._note(Capability.LOST_PUNTS, told)
        self._note(Capability.PUNT_SHARES, told)
        features = await read_features(channel)
        for capability in TOLD.values():
            self._note(capability, capability in features)
        exact = Capability.SAMPLED_ROUTE_COUNTERS not in features and await counts_routes(channel, self._program)
        self._note(Capability.ROUTE_COUNTERS, exact)
        return sender

    async def _keep_own_rows(self, channel: Channel, sender: Sender) -> None:
        refused = await sender.keep_own_rows()
        if refused:
            raise ChannelClosed(f"the device refuses the plane's own entries: {refused[0].reason}")
        problem = await keep_samples(channel, self._samples, self._sampler is not None)
        if self._sampler is not None and problem not in ("", self._no_samples):
            log.warning("plane %s: the device takes no samples: %s", self.name, problem)
        self._no_samples = problem
        self._note(Capability.SAMPLES, self._sampler is not None and not problem)

    def _note(self, capability: Capability, there: bool) -> None:
        """Follow what the device that is connected now has: it may be another one than before."""
        self.capabilities = self.capabilities | {capability} if there else self.capabilities - {capability}

    async def _attend(self, channel: Channel) -> None:
        """Ask now and then whether the device is there and runs our pipeline, until it had another primary."""
        while self.connected and not await channel.demoted_within(self._timing.alive_s):
            if await channel.pipeline_cookie() != self._pipeline.cookie:
                raise ChannelClosed("the device runs another pipeline now")

    def _connected(self, sender: Sender) -> None:
        self._sender, self.connected, self._served, self._told = sender, True, True, ""
        up = {} if self._links is None else self._links.up
        self.ports = {
            port.number: PortState(port.number, port.name, up.get(port.device, True)) for port in self.config.ports
        }
        log.info("plane %s: connected to %s", self.name, self.config.address)
        if self._listener is not None:
            self._listener.plane_connected(self)
            for port in list(self.ports.values()):
                self._listener.port_changed(self, port)

    def _gone(self, reason: str) -> None:
        """Tell that the plane is out of reach, once for each reason."""
        self.connected, self._sender = False, None
        self.ports.clear()
        if reason == self._told:
            return
        self._told = reason
        log.warning("plane %s: disconnected: %s", self.name, reason)
        if self._listener is not None:
            self._listener.plane_disconnected(self, reason)

    # -- what the device and the host say ----------------------------------------------------------------------------
    def _link_changed(self, device: str, up: bool) -> None:
        for port in self.config.ports:
            if port.device == device and self.connected and self._listener is not None:
                self.ports[port.number] = PortState(port.number, port.name, up)
                self._listener.port_changed(self, self.ports[port.number])

    def _packet_in(self, packet: p4r.PacketIn) -> None:
        parts = {self._packet_in_parts.get(part.metadata_id): part.value for part in packet.metadata}
        reason = PUNT_OF_CODE.get(int.from_bytes(parts.get("punt_reason", b""), "big"))
        interface_id = parts.get("router_interface_id")
        if reason is None or interface_id is None:
            self.stray_packet_ins += 1
        elif self.connected and self._listener is not None:
            self._listener.packet_in(self, int.from_bytes(interface_id, "big"), reason, packet.payload)

    def _digests(self, digests: p4r.DigestList) -> None:
        samples = [] if self._sampler is None else self._samples.decode(digests)
        self.stray_samples += len(digests.data) - len(samples)
        if samples and self.connected and self._sampler is not None:
            self._sampler(samples)

    # -- what the device is asked ------------------------------------------------------------------------------------
    async def read(self, only: int | None = None, into: RoutesInto | None = None) -> Installed:
        """Read back what is installed, and put the plane's own rows right."""
        with self._reachable() as (channel, sender):
            readback = Readback(self._program)
            async with sender.turn:
                await readback.read_small(channel)
                sender.inventory = readback.inventory
                await self._keep_own_rows(channel, sender)
                installed = await readback.installed()
                installed.routes = routes_to_read(only, into)
            await readback.read_routes(channel, installed)
            return installed

    async def write(self, batch: WriteBatch) -> list[Refused]:
        """Send a batch and wait until the device has confirmed it."""
        with self._reachable() as (_, sender):
            return await sender.write(batch)

    async def counters(self) -> Counters:
        """Read all counters."""
        with self._reachable() as (channel, _):
            counters = await read_counters(channel, self._program)
            if Capability.LOST_PUNTS in self.capabilities:
                counters.lost_punts = await read_lost_punts(channel) or {}
                counters.lost_frames = await read_lost_frames(channel)
            if Capability.SHARES in self.capabilities:
                counters.share_use = await shares.read_share_use(channel)
            return counters

    async def read_shares(self) -> ShareEntries | None:
        """Read back the shares that are installed; None from a device that has none."""
        with self._reachable() as (channel, _):
            if Capability.SHARES not in self.capabilities:
                return None
            read = await shares.read_shares(channel)
            self._shares = set(read)
            return read

    async def write_shares(
        self, put: Mapping[ShareKey, ShareEntry], gone: Collection[ShareKey]
    ) -> dict[ShareKey, str]:
        """Put and delete shares; returns why any was refused."""
        with self._reachable() as (channel, _):
            return await shares.write_shares(channel, put, gone, self._shares)

    async def share_use(self) -> dict[int, ShareUse]:
        """Read what routers have had."""
        with self._reachable() as (channel, _):
            return await shares.read_share_use(channel) if Capability.SHARES in self.capabilities else {}

    async def route_counts(self) -> RouteCounts:
        """Read what each route has met."""
        with self._reachable() as (channel, _):
            if Capability.ROUTE_COUNTERS not in self.capabilities:
                return RouteCounts()
            return await read_route_counts(channel, self._program)

    async def route_traffic(self, vrf_id: int) -> RouteTraffic:
        """Read what each route of a router has met."""
        counted = {Capability.ROUTE_COUNTERS, Capability.SAMPLED_ROUTE_COUNTERS}
        with self._reachable() as (channel, _):
            if not counted & self.capabilities:
                return {}
            return await read_route_traffic(channel, self._program, vrf_id)

    async def sent(self) -> dict[int, int]:
        """Read how many packets each router interface has sent."""
        with self._reachable() as (channel, _):
            return await read_sent(channel, self._program)

    def packet_out(self, interface: RouterInterface, frame: bytes) -> bool:
        """Send an untagged frame out of a router interface; False (and counted) where too many of its router wait."""
        part = self._egress_part
        metadata = p4r.PacketMetadata(metadata_id=part.id, value=part.octets(interface.id))
        packet = p4r.PacketOut(payload=frame, metadata=[metadata])
        if self.channel is not None and self.connected and self.channel.send_packet(interface.vrf_id, packet):
            return True
        self.packet_outs_dropped += 1
        return False

    @contextlib.contextmanager
    def _reachable(self) -> Iterator[tuple[Channel, Sender]]:
        """Give the channel to use; one that fails is closed, so that a new one finds out what is true."""
        channel, sender = self.channel, self._sender
        if channel is None or sender is None:
            raise PlaneUnreachable(self.name, self._told or "the device is not connected")
        try:
            yield channel, sender
        except ChannelClosed as error:
            raise self._given_up(channel, str(error)) from error
        except RequestRefused as error:
            raise self._given_up(channel, f"the device refused a request: {error}") from error

    def _given_up(self, channel: Channel, reason: str) -> PlaneUnreachable:
        """Close a channel and tell so at once: whoever meets the error must not find the plane connected."""
        channel.close(reason)
        if self.channel is channel:
            self._gone(reason)
        return PlaneUnreachable(self.name, reason)
