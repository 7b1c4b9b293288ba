"""A VRC as it could be written by anybody, for tests of the session service."""

import asyncio
import contextlib
from pathlib import Path
from typing import ClassVar

import grpc
from worlds import World

from controller.sessions.server import SessionServer
from wire import PROTOCOL_VERSION, splitplane_pb2_grpc
from wire import splitplane_pb2 as pb
from wire.columns import pack_ids, pack_prefixes, prefix_key
from wire.frames import MAGIC, Frame, FrameReader, pack_frame


class Peer:
    """Says what the test wants."""

    def __init__(self, server: SessionServer, identity: Path, vrf_id: int) -> None:
        cert, key, ca = (identity.joinpath(name).read_bytes() for name in ("cert.pem", "key.pem", "ca.pem"))
        credentials = grpc.ssl_channel_credentials(ca, key, cert)
        options = [
            ("grpc.ssl_target_name_override", "vr-controller"),
            ("grpc.max_send_message_length", -1),
            ("grpc.use_local_subchannel_pool", 1),
        ]
        self.path = server.directory_for(vrf_id) / "session.sock"
        self.channel = grpc.aio.secure_channel(f"unix:{self.path}", credentials, options)
        self.stub = splitplane_pb2_grpc.VrcSessionStub(self.channel)
        self.control = self.stub.Control()
        self.sequence = 0

    async def say(self, **body: object) -> None:
        self.sequence += 1
        await self.control.write(pb.VrcMessage(sequence=self.sequence, **body))

    async def hello(self, router: str = "red/r1", protocol: int = PROTOCOL_VERSION, oldest: int = 0) -> None:
        spoken = {"protocol": protocol, "oldest_protocol": oldest}
        await self.say(hello=pb.Hello(**spoken, router=router, instance="x", source="fpm"))

    async def begin(self, router: str = "red/r1") -> pb.Declaration:
        await self.hello(router)
        self.declared = (await self.control.read()).declaration
        return self.declared

    async def frames(self, ticket: bytes | None = None) -> "Frames":
        """Open a connection of frames with the ticket of the session that has begun, or with another."""
        return await Frames.open(self.path, self.declared.frame_ticket if ticket is None else ticket)

    async def routes(self, prefixes: list[str], set_id: int, family: int = 4) -> None:
        column = pack_prefixes([prefix_key(text) for text in prefixes])
        ids = pack_ids([set_id] * len(prefixes))
        await self.say(routes=pb.Routes(family=family, prefixes=column, sets=ids))

    async def refusal(self) -> str:
        """Read to the end of the stream; returns the refusal's reason, or the status' details."""
        try:
            while (message := await self.control.read()) is not grpc.aio.EOF:
                if message.WhichOneof("body") == "refusal":
                    return message.refusal.reason
        except grpc.aio.AioRpcError as error:
            return error.details() or str(error.code())
        return await self.control.details()


class Frames:
    """A connection of frames; all that are ``open`` are closed after a test."""

    all_open: ClassVar[list["Frames"]] = []

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._octets, self.writer, self._reader = reader, writer, FrameReader()
        self.all_open.append(self)

    @classmethod
    async def open(cls, path: Path, ticket: bytes) -> "Frames":
        made = cls(*await asyncio.open_unix_connection(str(path)))
        made.writer.write(MAGIC + ticket)
        return made

    async def send(self, *frames: tuple[int, bytes]) -> None:
        self.writer.write(b"".join(pack_frame(*one) for one in frames))
        await self.writer.drain()

    async def read(self, count: int = 1) -> list[Frame]:
        """Read so many frames."""
        taken = self._reader.frames(count)
        while len(taken) < count:
            octets = await self._octets.read(1 << 16)
            assert octets, "the connection has ended"
            self._reader.feed(octets)
            taken += self._reader.frames(count - len(taken))
        return taken

    async def ended(self) -> None:
        """Read to its end."""
        try:
            while await self._octets.read(1 << 16):
                pass
        except ConnectionError:
            pass

    @classmethod
    async def close_all(cls) -> None:
        while cls.all_open:
            writer = cls.all_open.pop().writer
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()


async def end_of(call: "grpc.aio.StreamStreamCall") -> str:
    """Read a stream to its end; returns the details of its status."""
    try:
        while await call.read() is not grpc.aio.EOF:
            pass
    except grpc.aio.AioRpcError as error:
        return error.details() or str(error.code())
    return await call.details()


def refusals(world: World, kind: str = "session-refused") -> list[str]:
    return [event.text for event in world.events.recent() if event.kind == kind]
