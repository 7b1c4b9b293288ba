"""The session with the controller: a Control stream over mTLS and a connection of frames, for ever tried again."""

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import grpc
import grpc.aio

from vrc.errors import BadIdentity, FramesLost, VrcError
from vrc.packets import FrameLink
from vrc.stream import ControlStream, Known, SessionOwner
from wire import MAX_MESSAGE_BYTES, OLDEST_PROTOCOL_VERSION, PROTOCOL_VERSION
from wire import splitplane_pb2 as pb
from wire import splitplane_pb2_grpc as pb_grpc

log = logging.getLogger(__name__)

SERVER_NAME = "vr-controller"
"""What the controller's certificate says."""

_FIRST_BACKOFF_S, _LAST_BACKOFF_S = 0.1, 2.0
_SOUND_S = 2.0


@dataclass(frozen=True, slots=True)
class Identity:
    """Who this router is, and whom it trusts: PEM."""

    certificate: bytes
    key: bytes
    ca: bytes

    @classmethod
    def read(cls, directory: str) -> "Identity":
        """Read cert.pem, key.pem and ca.pem; BadIdentity where one cannot be."""
        parts = []
        for name in ("cert.pem", "key.pem", "ca.pem"):
            try:
                with open(f"{directory}/{name}", "rb") as file:
                    parts.append(file.read())
            except OSError as error:
                raise BadIdentity(f"{directory}/{name}", error.strerror or str(error)) from error
        return cls(*parts)


class Session:
    """Connects, resyncs, reports; never gives up and never wipes anything."""

    def __init__(
        self,
        target: str,
        identity: Callable[[], Identity],
        router: str,
        source: str,
        known: Known,
        owner: SessionOwner,
    ) -> None:
        self.connected = asyncio.Event()  # a declaration was applied and the resync has begun
        self.attempts = 0
        self._target, self._identity, self._router, self._source = target, identity, router, source
        self._known, self._owner = known, owner
        self._instance = os.urandom(8).hex()
        self._wake = asyncio.Event()

    def wake(self) -> None:
        """Something in `Known` changed."""
        self._wake.set()

    async def run(self) -> None:
        """Keep a session until cancelled."""
        backoff, loop = _FIRST_BACKOFF_S, asyncio.get_running_loop()
        last_reason = ""
        while True:
            self.attempts += 1
            begun_s = loop.time()
            try:
                reason = await self._until_it_ends()
                was_sound = self.connected.is_set() and loop.time() - begun_s > _SOUND_S
            finally:
                self.connected.clear()  # whatever ended it: the next one has to resync
            log.log(logging.DEBUG if reason == last_reason else logging.WARNING, "no session: %s", reason)
            last_reason = reason
            if was_sound:
                backoff = _FIRST_BACKOFF_S  # a session that is refused at once is not asked for ten times a second
            await asyncio.sleep(backoff)
            backoff = min(2 * backoff, _LAST_BACKOFF_S)

    async def _until_it_ends(self) -> str:
        """Have one session; return why it ended."""
        try:
            await self._once()
        except grpc.aio.AioRpcError as error:
            return f"{error.code().name}: {error.details()}"
        except (VrcError, grpc.aio.UsageError, asyncio.InvalidStateError) as error:
            return str(error)  # of the latter two: the stream ended under a write
        return "the controller ended the stream"

    async def _once(self) -> None:
        identity = self._identity()  # it is renewed while this runs
        credentials = grpc.ssl_channel_credentials(identity.ca, identity.key, identity.certificate)
        options = [
            ("grpc.ssl_target_name_override", SERVER_NAME),
            ("grpc.default_authority", SERVER_NAME),
            ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
            ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
            ("grpc.use_local_subchannel_pool", 1),
            ("grpc.enable_http_proxy", 0),
        ]
        async with grpc.aio.secure_channel(self._target, credentials, options=options) as channel:
            stub = pb_grpc.VrcSessionStub(channel)  # type: ignore[no-untyped-call]
            stream = ControlStream(stub.Control(), self._known, self._owner, self._wake, self.connected)
            hello = pb.Hello(
                protocol=PROTOCOL_VERSION,
                oldest_protocol=OLDEST_PROTOCOL_VERSION,
                router=self._router,
                instance=self._instance,
                source=self._source,
            )
            await stream.write(hello=hello)
            await _first_of(stream.receive(), stream.apply(), stream.send(), self._frames(stream))

    async def _frames(self, stream: ControlStream) -> None:
        """Relay frames once there is a ticket; FramesLost when that ends."""
        ticket = await stream.ticket
        link = FrameLink(self._known.relay, ticket)
        try:
            await asyncio.get_running_loop().create_unix_connection(lambda: link, self._target.removeprefix("unix:"))
            reason = await link.lost
        except OSError as error:
            reason = error.strerror or str(error)
        finally:
            link.close()
        raise FramesLost(reason)


async def _first_of(*works: Awaitable[None]) -> None:
    """Run all until one ends or fails, then cancel the others; the first failure is raised."""
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    failure = next(filter(None, (task.exception() for task in done)), None)
    try:
        if failure is not None:
            raise failure
    finally:
        # A failure knows this frame, which must not know it: gRPC keeps the connection until garbage collection finds
        # such a circle, and a machine has no more than four.
        del tasks, done, task, failure
