"""The switch's end of an OpenFlow connection, for tests: it answers what every switch answers and keeps the rest."""

import asyncio
import contextlib
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Callable

from os_ken.ofproto import ofproto_v1_3 as of13

from controller.planes.openflow import codec, messages
from controller.planes.openflow.channel import Channel
from controller.planes.openflow.codec import Type, message

DATAPATH_ID = 0xABC


class SwitchEnd:
    """Reads messages until the other side closes. `refuse` says which messages get an error."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self.silent = False
        self.deaf: set[int] = set()  # types of requests that are never answered
        self.bundles = True
        self.features = struct.pack("!QIBB2xII", DATAPATH_ID, 0, 254, 0, 0, 0)
        self.lists: dict[int, bytes] = {}  # bodies of multipart replies, by type
        self.received: list[tuple[int, int, bytes]] = []  # type, xid, body
        self._arrived = asyncio.Event()
        self.refuse: Callable[[int, bytes], tuple[int, int] | None] = lambda kind, body: None

    def send(self, octets: bytes) -> None:
        self.writer.write(octets)

    async def run(self) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, OSError):
            while True:
                _, kind, length, xid = struct.unpack("!BBHI", await self.reader.readexactly(8))
                body = await self.reader.readexactly(length - 8)
                self.received.append((kind, xid, body))
                self._arrived.set()
                if not self.silent and kind not in self.deaf:
                    self.answer(kind, xid, body)

    def answer(self, kind: int, xid: int, body: bytes) -> None:
        error = self.refuse(kind, body)
        if error is not None:
            self.send(message(Type.ERROR, xid, struct.pack("!HH", *error) + body[:64]))
        elif kind == Type.ECHO_REQUEST:
            self.send(message(Type.ECHO_REPLY, xid, body))
        elif kind == Type.FEATURES_REQUEST:
            self.send(message(Type.FEATURES_REPLY, xid, self.features))
        elif kind == Type.BARRIER_REQUEST:
            self.send(message(Type.BARRIER_REPLY, xid))
        elif kind == of13.OFPT_ROLE_REQUEST:
            self.send(message(Type.ROLE_REPLY, xid, struct.pack("!I4xQ", 2, codec.ALL_BITS)))
        elif kind == Type.MULTIPART_REQUEST:
            (asked,) = struct.unpack_from("!H", body)
            reply = struct.pack("!HH4x", asked, 0) + self.lists.get(asked, b"")
            self.send(message(Type.MULTIPART_REPLY, xid, reply))
        elif kind == Type.EXPERIMENTER and body[4:8] == struct.pack("!I", 2300):
            if self.bundles:
                self.send(message(Type.EXPERIMENTER, xid, body))
            else:
                self.send(message(Type.ERROR, xid, struct.pack("!HH", of13.OFPET_BAD_REQUEST, 2) + body))

    async def until(self, kind: int, count: int = 1) -> None:
        """Wait until ``count`` messages of a type arrived."""
        async with asyncio.timeout(30):
            while len(self.sent(kind)) < count:
                self._arrived.clear()
                await self._arrived.wait()

    def sent(self, kind: int) -> list[bytes]:
        """Return the bodies of the messages of a type that arrived."""
        return [body for each, _, body in self.received if each == kind]


End = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def plain() -> tuple[End, End]:
    """The controller's and the switch's end of a connection."""
    ours, theirs = socket.socketpair()
    return await asyncio.open_connection(sock=ours), await asyncio.open_connection(sock=theirs)


async def secured() -> tuple[End, End]:
    """The same of one with TLS."""
    ours, theirs = socket.socketpair()
    context, loop = anonymous(ssl.PROTOCOL_TLS_SERVER), asyncio.get_running_loop()
    protocol = asyncio.StreamReaderProtocol(reader := asyncio.StreamReader())
    (transport, _), far = await asyncio.gather(
        loop.connect_accepted_socket(lambda: protocol, ours, ssl=context),
        asyncio.open_connection(sock=theirs, ssl=anonymous(ssl.PROTOCOL_TLS_CLIENT), server_hostname="near"),
    )
    return (reader, asyncio.StreamWriter(transport, protocol, reader, loop)), far


def anonymous(side: int) -> ssl.SSLContext:
    """TLS of which nobody needs a certificate, for one side of it."""
    context = ssl.SSLContext(side)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers("aNULL:@SECLEVEL=0")
    return context


@contextlib.asynccontextmanager
async def connected(
    echo_s: float = 60.0, dead_s: float = 60.0, stalled_s: float = 60.0, identified: bool = True, tls: bool = False
) -> AsyncIterator[tuple[Channel, SwitchEnd]]:
    """Yield a running channel and the switch at its other end, which is known already where it is ``identified``."""
    near, far = await (secured() if tls else plain())
    channel = Channel(*near, echo_s, dead_s, stalled_s)
    switch = SwitchEnd(*far)
    if identified:
        channel.features = messages.decode_features(switch.features)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(channel.run())
        serving = tasks.create_task(switch.run())
        try:
            yield channel, switch
        finally:
            channel.close("the test is over")
            switch.writer.close()
            serving.cancel()
