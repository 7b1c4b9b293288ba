"""One OpenFlow connection: frames messages, keeps it alive, and matches replies and errors to what was asked."""

import asyncio
import contextlib
import logging
import struct
from collections.abc import Callable

from controller.planes.openflow import codec, messages
from controller.planes.openflow.codec import MalformedMessage, Multipart, Type
from controller.planes.openflow.messages import Features, SwitchError
from controller.planes.openflow.packet_outs import PacketOuts

log = logging.getLogger(__name__)

_READ_OCTETS = 1 << 16
_MAX_UNSENT_OCTETS = 16 << 20  # beyond what drained writers leave: a peer that asks and never reads
_LAST_XID = 0xFFFFFFF0
_SLICE_S, _SLICE_MESSAGES = 0.002, 32  # of the event loop, between two looks at the clock

# Of a peer that has not said who it is. A switch may punt meanwhile: such messages are dropped unread.
_UNIDENTIFIED_MESSAGES, _UNIDENTIFIED_OCTETS = 1 << 14, 4 << 20
_UNIDENTIFIED_ANSWERS = 8  # messages that are answered or logged: echo requests, errors

LISTINGS = 64
"""Most multipart requests that are under way; more wait."""

PartReader = Callable[[bytes], None]


class ChannelClosed(Exception):
    """The connection is gone; the text says why."""


class RequestRefused(Exception):
    """The switch answered a request with an error."""

    def __init__(self, error: SwitchError) -> None:
        self.error = error
        super().__init__(error.text)


class Watch:
    """Collects the errors of messages with consecutive transaction ids."""

    def __init__(self, first: int, count: int) -> None:
        self.first, self.end = first, first + count
        self.errors: dict[int, SwitchError] = {}  # by position


class Channel:
    """The controller's end of one connection.

    `run` reads until the connection ends; everything else may be used while it runs. ChannelClosed is raised to
    whoever waits when the connection ends.
    """

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        echo_interval_s: float = 5.0,
        dead_after_s: float = 15.0,
        stalled_after_s: float = 120.0,
    ) -> None:
        """It ends where nothing comes for ``dead_after_s``, or no answer to a request for ``stalled_after_s``."""
        self._reader, self._writer = reader, writer
        self._echo_interval_s, self._dead_after_s = echo_interval_s, dead_after_s
        self._loop = asyncio.get_running_loop()
        self._stalled_after_s = stalled_after_s
        self._heard_s = self._loop.time()
        self._answers = 0  # to requests, parts of lists included
        self._xid = 0
        self._replies: dict[int, asyncio.Future[bytes]] = {}
        self._listings: dict[int, tuple[int, PartReader, asyncio.Future[None]]] = {}
        self._room_to_list = asyncio.Semaphore(LISTINGS)
        self._watches: list[Watch] = []
        self._packet_outs = PacketOuts(writer, self._mark)
        self._hello: asyncio.Future[None] = self._loop.create_future()
        self._closed: str | None = None
        self.features: Features | None = None
        self._early_messages = self._early_octets = self._early_answers = 0  # before there were features
        self.stray_errors = 0  # errors about nothing that is watched
        self._packet_in_seen: Callable[[codec.PacketIn], None] = lambda packet: None
        self._port_seen: Callable[[bytes], None] = lambda body: None

    def listen(self, packet_in_seen: Callable[[codec.PacketIn], None], port_seen: Callable[[bytes], None]) -> None:
        """Have `run` pass packet-ins and the bodies of port-status messages on; before this call they are dropped."""
        self._packet_in_seen, self._port_seen = packet_in_seen, port_seen

    @property
    def peer(self) -> str:
        """Where the connection comes from, for the log."""
        name = self._writer.get_extra_info("peername")
        return f"{name[0]}:{name[1]}" if isinstance(name, tuple) else str(name or "unix socket")

    @property
    def peer_certificate(self) -> dict[str, object] | None:
        """The peer's verified certificate, None without TLS."""
        certificate: dict[str, object] | None = self._writer.get_extra_info("peercert")
        return certificate

    @property
    def closed(self) -> str | None:
        """Why the connection ended, None while it lives."""
        return self._closed

    # -- life --------------------------------------------------------------------------------------------------------
    async def run(self) -> str:
        """Read until the connection ends and return why it did."""
        keepalive = asyncio.create_task(self._keep_alive(), name="openflow echo")
        packets = asyncio.create_task(self._send_packets(), name="openflow packet-outs")
        try:
            await self._read()
        except (OSError, EOFError) as error:
            self.close(f"connection lost: {error}")
        except MalformedMessage as error:
            self.close(f"malformed message: {error}")
        finally:
            keepalive.cancel()
            packets.cancel()
            self.close("closed by this side")
        return self._closed or ""

    def close(self, reason: str) -> None:
        """End the connection; the first reason stays."""
        if self._closed is not None:
            return
        self._closed = reason
        self._writer.close()
        # It has so long to take what is unsent, and may be dead.
        self._loop.call_later(self._echo_interval_s, self._writer.transport.abort)
        lists = [future for _, _, future in self._listings.values()]
        waiting: list[asyncio.Future[None] | asyncio.Future[bytes]] = [self._hello, *self._replies.values(), *lists]
        for future in waiting:
            if not future.done():
                future.set_exception(ChannelClosed(reason))
                future.exception()  # whoever waits is told; nobody need wait
        self._replies.clear()
        self._listings.clear()

    async def _read(self) -> None:
        buffer = bytearray()
        while self._closed is None:
            octets = await self._reader.read(_READ_OCTETS)
            if not octets:
                raise EOFError("the switch closed it")
            self._heard_s = self._loop.time()
            buffer += octets
            at, total = 0, len(buffer)
            count, slice_s = 0, self._loop.time()
            while total - at >= 8:
                count += 1
                if count % _SLICE_MESSAGES == 0 and self._loop.time() - slice_s > _SLICE_S:
                    await asyncio.sleep(0)
                    slice_s = self._loop.time()
                    if self._closed is not None:
                        return
                version, kind, length, xid = struct.unpack_from("!BBHI", buffer, at)
                if length < 8 or (version != codec.VERSION and kind not in (Type.HELLO, Type.ERROR)):
                    raise MalformedMessage(f"version {version}, type {kind}, length {length}")
                if total - at < length:
                    break
                if self.features is not None or self._is_early(kind, length):
                    self._dispatch(version, kind, xid, bytes(buffer[at + 8 : at + length]))
                if self._closed is not None:
                    return
                at += length
            del buffer[:at]

    async def _keep_alive(self) -> None:
        # Only time in which an echo was asked for counts: this process may be held up, and then asks nothing.
        unanswered_s, looked_s = 0.0, self._loop.time()
        stalled_s, answers = 0.0, self._answers
        while self._closed is None:
            await asyncio.sleep(self._echo_interval_s)
            unanswered_s = 0.0 if self._heard_s > looked_s else unanswered_s + self._echo_interval_s
            looked_s = self._loop.time()
            if unanswered_s > self._dead_after_s:
                self.close(f"no answer for {looked_s - self._heard_s:.0f} s")
                self._writer.transport.abort()
                return
            asked = len(self._replies) + len(self._listings)
            stalled_s = stalled_s + self._echo_interval_s if asked and self._answers == answers else 0.0
            answers = self._answers
            if stalled_s > self._stalled_after_s:
                self.close(f"it answers echoes, and none of {asked} requests for {stalled_s:g} s")
                self._writer.transport.abort()
                return
            if self._closed is None:
                self.send(codec.message(Type.ECHO_REQUEST, self.take_xids()))

    async def answers(self, timeout_s: float) -> bool:
        """Whether the switch answers an echo within ``timeout_s``."""
        try:
            async with asyncio.timeout(timeout_s):  # wait_for of Python 3.11 may lose that it is cancelled
                await self.request(Type.ECHO_REQUEST)
        except (TimeoutError, ChannelClosed):
            return False
        return True

    # -- sending -----------------------------------------------------------------------------------------------------
    def take_xids(self, count: int = 1) -> int:
        """Return the first of ``count`` consecutive transaction ids."""
        if self._xid + count > _LAST_XID:
            self._xid = 0
        first = self._xid + 1
        self._xid += count
        return first

    def send(self, octets: bytes) -> None:
        """Queue octets; ChannelClosed where the connection ended. Bulk senders `drain` in between."""
        if self._closed is not None:
            raise ChannelClosed(self._closed)
        if self._writer.transport.get_write_buffer_size() > _MAX_UNSENT_OCTETS:
            self.close("the switch does not read what is sent to it")
            self._writer.transport.abort()
            raise ChannelClosed(self._closed or "")
        self._writer.write(octets)

    def send_packet(self, vrf_id: int, octets: bytes) -> bool:
        """Send a packet-out of a router, or keep it until those before it have gone; False where too many wait."""
        return self._closed is None and self._packet_outs.send(vrf_id, octets)

    async def _send_packets(self) -> None:
        with contextlib.suppress(OSError):  # of which whoever reads hears as well
            await self._packet_outs.run()

    def _mark(self) -> asyncio.Future[bytes]:
        """Return what is done once the switch has taken all that was sent; where the connection has ended, it has."""
        try:
            return self.ask(lambda xid: codec.message(Type.ECHO_REQUEST, xid))
        except ChannelClosed as closed:
            ended: asyncio.Future[bytes] = self._loop.create_future()
            ended.set_exception(closed)
            return ended

    async def drain(self) -> None:
        """Wait until the connection takes more; ChannelClosed where it ended."""
        try:
            await self._writer.drain()
        except OSError as error:
            raise ChannelClosed(self._closed or f"connection lost: {error}") from error

    # -- asking ------------------------------------------------------------------------------------------------------
    def ask(self, encode: Callable[[int], bytes]) -> asyncio.Future[bytes]:
        """Send a request encoded for its transaction id; the future has the reply's body, or raises RequestRefused
        or ChannelClosed."""
        xid = self.take_xids()
        self.send(encode(xid))
        future: asyncio.Future[bytes] = self._loop.create_future()
        self._replies[xid] = future
        future.add_done_callback(lambda _: self._replies.pop(xid, None))
        return future

    async def request(self, kind: Type, body: bytes = b"") -> bytes:
        """Send a request and return the reply's body."""
        return await self.ask(lambda xid: codec.message(kind, xid, body))

    def barrier(self) -> asyncio.Future[bytes]:
        """Send a barrier; the future is done when everything before it is."""
        return self.ask(lambda xid: codec.message(Type.BARRIER_REQUEST, xid))

    async def list(self, kind: Multipart, body: bytes, part: PartReader) -> None:
        """Send a multipart request when its turn comes; ``part`` is called with each part of the reply, nothing of it
        is kept here. RequestRefused or ChannelClosed where it does not come to its end."""
        async with self._room_to_list:
            xid = self.take_xids()
            self.send(codec.message(Type.MULTIPART_REQUEST, xid, struct.pack("!HH4x", kind, 0) + body))
            future: asyncio.Future[None] = self._loop.create_future()
            self._listings[xid] = kind, part, future
            try:
                await future
            finally:
                self._listings.pop(xid, None)

    def watch(self, count: int) -> Watch:
        """Take ``count`` transaction ids and collect the errors they get until `unwatch`."""
        watch = Watch(self.take_xids(count), count)
        self._watches.append(watch)
        return watch

    def unwatch(self, watch: Watch) -> None:
        """Stop collecting."""
        if watch in self._watches:
            self._watches.remove(watch)

    # -- receiving ---------------------------------------------------------------------------------------------------
    def _is_early(self, kind: int, length: int) -> bool:
        """Whether a message is looked at before its sender has said who it is; too many end the connection."""
        self._early_messages += 1
        self._early_octets += length
        self._early_answers += kind in (Type.ECHO_REQUEST, Type.ERROR)
        many = self._early_messages > _UNIDENTIFIED_MESSAGES or self._early_octets > _UNIDENTIFIED_OCTETS
        if many or self._early_answers > _UNIDENTIFIED_ANSWERS:
            self.close("it says too much before it says who it is")
            self._writer.transport.abort()
            return False
        return kind not in (Type.PACKET_IN, Type.PORT_STATUS, Type.MULTIPART_REPLY)

    def _dispatch(self, version: int, kind: int, xid: int, body: bytes) -> None:
        match kind:
            case Type.PACKET_IN:
                self._packet_in_seen(codec.decode_packet_in(body))
            case Type.ECHO_REQUEST:
                self.send(codec.message(Type.ECHO_REPLY, xid, body))
            case Type.ERROR:
                self._take_error(xid, messages.decode_error(body))
            case Type.MULTIPART_REPLY:
                self._take_part(xid, body)
            case Type.PORT_STATUS:
                self._port_seen(body)
            case Type.HELLO:
                self._take_hello(version, body)
            case _:
                future = self._replies.get(xid)
                if future is not None and not future.done():
                    self._answers += 1
                    future.set_result(body)

    def _take_hello(self, version: int, body: bytes) -> None:
        if self._hello.done():
            return
        if messages.hello_has_version(version, body):
            self._hello.set_result(None)
            return
        self.send(messages.hello_failed(self.take_xids(), "only OpenFlow 1.3 is spoken here"))
        self.close("the switch does not speak OpenFlow 1.3; allow it with protocols=OpenFlow13")

    def _take_error(self, xid: int, error: SwitchError) -> None:
        for watch in self._watches:
            if watch.first <= xid < watch.end:
                watch.errors.setdefault(xid - watch.first, error)
                return
        future: asyncio.Future[bytes] | asyncio.Future[None] | None = self._replies.get(xid)
        if future is None and xid in self._listings:
            future = self._listings[xid][2]
        if future is not None and not future.done():
            future.set_exception(RequestRefused(error))
            return
        self.stray_errors += 1
        log.warning("%s: error about message %d: %s", self.peer, xid, error.text)

    def _take_part(self, xid: int, body: bytes) -> None:
        if len(body) < 8:
            raise MalformedMessage("a multipart reply is cut off")
        kind, flags = struct.unpack_from("!HH", body)
        listing = self._listings.get(xid)
        if listing is None:
            return  # whoever asked has given up
        wanted, part, future = listing
        if kind != wanted:
            raise MalformedMessage(f"a multipart reply of type {kind} to a request of type {wanted}")
        self._answers += 1
        part(body[8:])
        if not flags & 1 and not future.done():
            future.set_result(None)

    async def greet(self, timeout_s: float) -> Features:
        """Exchange Hello and features; ChannelClosed where the switch cannot or does not within ``timeout_s``."""
        try:
            async with asyncio.timeout(timeout_s):
                self.send(messages.hello(self.take_xids()))
                await self._hello
                self.features = messages.decode_features(await self.request(Type.FEATURES_REQUEST))
        except TimeoutError:
            self.close(f"no OpenFlow greeting within {timeout_s:.2g} s")
        except (MalformedMessage, RequestRefused) as error:
            self.close(f"greeting refused: {error}")
        if self.features is None:
            raise ChannelClosed(self._closed or "")
        return self.features
