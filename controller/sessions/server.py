"""The VRC session service: gRPC over mTLS on one Unix socket, reached over a socket in a directory of each router.

A guest sees only its own directory, bind-mounted; after a restart of the controller it finds the new socket there
under the same name (sockets.py). The certificate says which router a session is of, and is good on that router's own
socket alone: a key that was stolen is of no use in another guest. A message that names another router, another's
interface or anything malformed ends the session with one line in the event log, and what came before it in the same
message is not applied.

A guest may be hostile. Connections beyond a few are closed; streams beyond a rate are refused; a refused stream stays
open for a second, and a connection may have only a few: one whose guest ends such a stream before is cut. What its
messages may cost is bounded by control_stream.py.

Frames have a connection of their own over the same socket, which a ticket of the session opens and which ends with it
(frame_connection.py): a router has one, the latest.
"""

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import grpc

from controller.errors import SessionRefused
from controller.events.log import EventLog
from controller.events.token_bucket import TokenBucket
from controller.events.untrusted_text import printable
from controller.sessions.control_stream import LAST_WORDS_S, PROTOCOLS, ControlSession
from controller.sessions.frame_connection import FrameConnection
from controller.sessions.sockets import CONNECTIONS, SessionSockets
from controller.shard.loop_share import LoopShare
from controller.shard.router import VirtualRouter
from controller.shard.shards import Shards
from wire import MAX_MESSAGE_BYTES, splitplane_pb2

STREAMS_AT_ONCE, STREAMS_PER_S = 20, 1.0
"""Streams and connections of frames that a router may open; a session is one of each."""

REFUSAL_PAUSE_S = 1.0
"""How long a refused stream stays open: as long as it does, it is one of the few that a connection may have."""

_OPTIONS = [
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES + (64 << 10)),  # up to there it is refused by name
    ("grpc.per_message_decompression", 0),  # a thousandfold, before its length is looked at again; no VRC compresses
    ("grpc.http2.bdp_probe", 0),  # it widens windows to megabytes, of streams that are not read as well
    ("grpc.max_concurrent_streams", 2),  # a session, and the one after it
    ("grpc.so_reuseport", 0),
]
_URI_PREFIX = "splitplane:router:"
_SERVICE = "splitplane.v1.VrcSession"


class Identities(Protocol):
    """What sessions need of the PKI."""

    def server_credentials(self) -> tuple[bytes, bytes, bytes]:
        """Return the server's key, its certificate and the authorities of routers, PEM; any thread may ask."""

    def is_valid(self, serial: str, vrf_id: int) -> bool:
        """Tell whether a serial was issued to a router and not revoked."""


class SessionServer:
    """Listens for VRCs: wire's VrcSession, on octets, so that what is no message is refused by name too."""

    def __init__(
        self,
        shards: Shards,
        identities: Identities,
        directory: Path,
        events: EventLog,
        protocols: range = PROTOCOLS,
    ) -> None:
        self._shards = shards
        self._protocols = protocols
        self._identities = identities
        self._directory = directory
        self._events = events
        self._server: grpc.aio.Server | None = None
        self._shown = (b"", b"", b"")  # key, certificate, authorities
        self._frame_share = LoopShare(run_s=0.0)  # not that of route work: each frame is for itself
        self._sessions: dict[int, ControlSession] = {}  # that have said Hello, the latest of each router
        self._frames: dict[int, FrameConnection] = {}  # whose ticket is that of the session
        self._admitted: dict[int, asyncio.Event] = {}  # set: revoked
        self._users: dict[int, int] = {}  # whose a router's socket is
        self._streams: dict[int, TokenBucket] = {}  # that a router may still open
        self._sockets = SessionSockets(directory, self._socket, self._new_frames, self._note_refused_connection)

    async def start(self) -> None:
        """Listen, for all admitted routers."""
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._directory.chmod(0o700)
        self._shown = self._identities.server_credentials()
        credentials = grpc.dynamic_ssl_server_credentials(
            _configuration(*self._shown),
            self._present,  # type: ignore[arg-type]  # None is documented, the stubs lack it
            require_client_authentication=True,
        )
        server = grpc.aio.server(options=_OPTIONS)
        server.add_generic_rpc_handlers((_Methods(self),))
        self._socket.unlink(missing_ok=True)
        server.add_secure_port(f"unix:{self._socket}", credentials)
        await server.start()
        self._socket.chmod(0o600)
        self._server = server
        for vrf_id in self._admitted:
            self._sockets.open(vrf_id, self._users[vrf_id])

    def _present(self) -> grpc.ServerCertificateConfiguration | None:
        """Return what is to be shown and believed from now on, None for what was; gRPC's threads ask at each
        handshake."""
        present = self._identities.server_credentials()
        if present == self._shown:
            return None
        self._shown = present
        return _configuration(*present)

    async def close(self) -> None:
        """End all sessions and stop listening."""
        self._sockets.close_all()
        if self._server is not None:
            await self._server.stop(grace=None)  # streams never end by themselves
            self._server = None

    def directory_for(self, vrf_id: int) -> Path:
        """Return the directory that holds this router's socket, to be bind-mounted into its guest."""
        return self._directory / str(vrf_id)

    def admit(self, vrf_id: int, uid: int) -> None:
        """Make a router's socket, for this user; OSError where that fails, and then it is as before."""
        if self._users.get(vrf_id) == uid:
            return
        self.directory_for(vrf_id).mkdir(mode=0o700, parents=True, exist_ok=True)
        if self._server is not None:
            self._sockets.open(vrf_id, uid)
        self._users[vrf_id] = uid
        if vrf_id not in self._admitted:
            self._admitted[vrf_id] = asyncio.Event()
            self._streams[vrf_id] = TokenBucket(STREAMS_PER_S, STREAMS_AT_ONCE)

    def revoke(self, vrf_id: int) -> None:
        """Remove a router's socket and cut its sessions."""
        self._streams.pop(vrf_id, None)
        self._users.pop(vrf_id, None)
        self._frame_share.forget(vrf_id)
        revoked = self._admitted.pop(vrf_id, None)
        if revoked is not None:
            revoked.set()
        self._sockets.close(vrf_id)
        with contextlib.suppress(FileNotFoundError):
            self.directory_for(vrf_id).rmdir()

    @property
    def _socket(self) -> Path:
        return self._directory / "session.sock"

    def _note_refused_connection(self, vrf_id: int) -> None:
        if (router := self._shards.routers.get(vrf_id)) is not None:
            router.punts.counters["connections_refused"] += 1
            text = f"more than {CONNECTIONS} connections at once on its session socket"
            self._events.report("error", "session-refused", router.config.full_name, text, share="connections")

    # The service

    async def control(self, requests: AsyncIterator[bytes], context: Any) -> None:
        """Serve a Control stream."""
        router = await self._identify(context)
        began = partial(self._began, router.config.vrf_id)
        session = ControlSession(router, context, self._events, self._shards.loop_share, began, self._protocols)
        try:
            self._admit_stream(router)
            await self._serve(router, session.read(requests), session.write())
        except SessionRefused as refused:
            router.lost(session)
            refusal = splitplane_pb2.ControllerMessage(
                refusal=splitplane_pb2.Refusal(reason=printable(str(refused)), fatal=True)
            )
            await self._refuse(router, context, refused, refusal)
        finally:
            router.lost(session)
            self._ended(router.config.vrf_id, session)

    async def unknown(self, _requests: AsyncIterator[bytes], context: Any) -> None:
        """Refuse a stream of any other name."""
        router = await self._identify(context)
        await self._refuse(router, context, SessionRefused("a stream that is not Control"))

    async def _refuse(self, router: VirtualRouter, context: Any, refused: SessionRefused, *words: Any) -> None:
        """End a stream with an error, after some last words and a pause."""
        text = printable(str(refused))
        router.punts.counters["streams_refused"] += 1
        self._events.report("error", "session-refused", router.config.full_name, text)
        with self._cut_if_ended(context.peer()):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LAST_WORDS_S):
                    for word in words:
                        await context.write(word)
            await asyncio.sleep(REFUSAL_PAUSE_S)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LAST_WORDS_S):
                    await context.abort(grpc.StatusCode.PERMISSION_DENIED, text)

    @contextlib.contextmanager
    def _cut_if_ended(self, peer: str) -> Iterator[None]:
        """Cut a connection whose guest ends a stream meanwhile: it would have the next one at once."""
        try:
            yield
        except asyncio.CancelledError:
            self._sockets.cut(peer)
            raise

    async def _serve(self, router: VirtualRouter, *directions: Coroutine[Any, Any, None]) -> None:
        """Run both directions of a stream until one ends or the router is revoked."""
        cut = self._admitted[router.config.vrf_id].wait()
        tasks = [asyncio.create_task(one) for one in (*directions, cut)]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _identify(self, context: Any) -> VirtualRouter:
        """Return the router of a stream: that of its certificate, and of the socket that it came by."""
        by = self._sockets.router_of(context.peer())
        owner = self._shards.routers.get(by) if by is not None else None
        text, answer = "a certificate that names no router", "this certificate is not valid for any router"
        for name in context.auth_context().get("x509_subject_alternative_name", []):
            uri = name.decode(errors="replace")
            if not uri.startswith(_URI_PREFIX):
                continue
            vrf_id, _, serial = uri.removeprefix(_URI_PREFIX).partition(":")
            number = int(vrf_id) if vrf_id.isdecimal() else 0
            router = self._shards.routers.get(number)
            valid = number in self._admitted and self._identities.is_valid(serial, number)
            if valid and router is None and number == by:
                await self._refuse_early(context)
            elif valid and router is not None:
                if router is owner:
                    return router
                socket = "unknown" if owner is None else owner.config.full_name
                text = f"the certificate of {router.config.full_name} on the session socket of {socket}"
                answer = "this certificate is of another router"
            else:
                text = f"the certificate of router {vrf_id} is revoked or unknown"
            break
        await self._refuse_stranger(context, owner, text, answer)
        raise AssertionError("abort raises")

    async def _refuse_early(self, context: Any) -> None:
        """End a stream of a router that runs on no plane yet, such as one that was detached at the start: no fault of
        its guest, which tries again."""
        with self._cut_if_ended(context.peer()):
            await asyncio.sleep(REFUSAL_PAUSE_S)
            await context.abort(grpc.StatusCode.UNAVAILABLE, "the router's plane is not in use")

    async def _refuse_stranger(self, context: Any, owner: VirtualRouter | None, text: str, answer: str) -> None:
        """End a stream whose certificate is not that of the socket's router, ``owner``, after a pause."""
        if owner is not None:
            owner.punts.counters["streams_refused"] += 1
        name = "unknown" if owner is None else owner.config.full_name
        self._events.report("error", "session-refused", name, text)
        with self._cut_if_ended(context.peer()):
            await asyncio.sleep(REFUSAL_PAUSE_S)
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, answer)

    # Frames

    def _began(self, vrf_id: int, session: ControlSession) -> None:
        self._cut_frames(vrf_id)
        self._sessions[vrf_id] = session

    def _ended(self, vrf_id: int, session: ControlSession) -> None:
        if self._sessions.get(vrf_id) is session:
            del self._sessions[vrf_id]
            self._cut_frames(vrf_id)

    def _cut_frames(self, vrf_id: int) -> None:
        if (connection := self._frames.pop(vrf_id, None)) is not None:
            connection.cut()

    def _new_frames(self, vrf_id: int, gone: Callable[[], object]) -> FrameConnection:
        def ended(connection: FrameConnection) -> None:
            if self._frames.get(vrf_id) is connection:
                del self._frames[vrf_id]
            gone()

        return FrameConnection(vrf_id, self, self._shards, self._events, self._frame_share, ended)

    def present(self, connection: FrameConnection, ticket: bytes) -> VirtualRouter:
        """Take frames from a connection that has the ticket of its socket's session, and from the one before no more;
        SessionRefused where it is another's."""
        vrf_id = connection.vrf_id
        session, router = self._sessions.get(vrf_id), self._shards.routers.get(vrf_id)
        if session is None or router is None or not secrets.compare_digest(ticket, session.ticket):
            raise SessionRefused("a connection of frames without the ticket of its session")
        self._admit_stream(router)
        self._cut_frames(vrf_id)
        self._frames[vrf_id] = connection
        return router

    def refuse(self, connection: FrameConnection, refused: SessionRefused) -> None:
        """Cut a connection after a pause, in which it is one of the few that its router may have."""
        if (router := self._shards.routers.get(connection.vrf_id)) is not None:
            router.punts.counters["streams_refused"] += 1
            self._events.report("error", "session-refused", router.config.full_name, printable(str(refused)))
        asyncio.get_running_loop().call_later(REFUSAL_PAUSE_S, connection.cut)

    def _admit_stream(self, router: VirtualRouter) -> None:
        """SessionRefused where a router opens a stream too soon after too many others."""
        if not self._streams[router.config.vrf_id].take():
            raise SessionRefused(f"more than {STREAMS_AT_ONCE} streams at once, then {STREAMS_PER_S:g} a second")


def _configuration(key: bytes, certificate: bytes, authorities: bytes) -> grpc.ServerCertificateConfiguration:
    return grpc.ssl_server_certificate_configuration([(key, certificate)], authorities)


class _Methods(grpc.GenericRpcHandler):  # type: ignore[type-arg]  # is no generic class when it runs
    """The methods of the service, on octets, and one for every other name."""

    def __init__(self, server: SessionServer) -> None:
        self._known = {f"/{_SERVICE}/Control": server.control}
        self._unknown = server.unknown

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
        """Return what serves a call."""
        serve = self._known.get(handler_call_details.method, self._unknown)
        return grpc.stream_stream_rpc_method_handler(serve, response_serializer=_serialized)


def _serialized(message: Any) -> bytes:
    octets: bytes = message.SerializeToString()
    return octets
