"""A VRC as it could be written by anybody, for tests of the session service."""

from pathlib import Path

import grpc
from worlds import World

from controller.sessions.server import SessionServer
from wire import PROTOCOL_VERSION, splitplane_pb2_grpc
from wire import splitplane_pb2 as pb
from wire.columns import pack_ids, pack_prefixes, prefix_key


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
        path = server.directory_for(vrf_id) / "session.sock"
        self.channel = grpc.aio.secure_channel(f"unix:{path}", credentials, options)
        self.stub = splitplane_pb2_grpc.VrcSessionStub(self.channel)
        self.control = self.stub.Control()
        self.sequence = 0

    async def say(self, **body: object) -> None:
        self.sequence += 1
        await self.control.write(pb.VrcMessage(sequence=self.sequence, **body))

    async def hello(self, router: str = "red/r1", protocol: int = PROTOCOL_VERSION) -> None:
        await self.say(hello=pb.Hello(protocol=protocol, router=router, instance="x", source="fpm"))

    async def begin(self, router: str = "red/r1") -> pb.Declaration:
        await self.hello(router)
        return (await self.control.read()).declaration

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
