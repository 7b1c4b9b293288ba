"""The VRC session service: gRPC over mTLS on one Unix socket, hard-linked into a directory of each router.

A guest sees only its own directory, bind-mounted; the link in it survives the controller's restart because the new
socket is linked under the same name. The certificate says which router a session is of: a message that names another
router, another's interface or anything malformed ends the session with one line in the event log, and what came
before it in the same message is not applied.

A guest may be hostile. Its messages cost the others no more than their share of the event loop: one that took long is
followed by a pause as long, a router that is far ahead of its plane is not read from, and streams beyond a rate are
refused. A refused stream stays open for a second, and a connection may have only a few.
"""

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncIterator, Coroutine
from pathlib import Path
from typing import Any, Protocol

import grpc
from google.protobuf.message import DecodeError

from controller.bucket import TokenBucket
from controller.core import Core
from controller.errors import SessionRefused
from controller.events import EventLog
from controller.model import RouterConfig
from controller.router import VirtualRouter
from controller.text import printable
from wire import (
    MAX_FRAMES_PER_MESSAGE,
    MAX_MESSAGE_BYTES,
    MAX_ROUTES_PER_MESSAGE,
    PROTOCOL_VERSION,
    splitplane_pb2,
)
from wire.columns import KEY_STRIDE, unpack_ids, unpack_prefixes

STREAMS_AT_ONCE, STREAMS_PER_S = 20, 1.0
"""Streams that a router may open; a session is two."""

REFUSAL_PAUSE_S = 1.0
"""How long a refused stream stays open: as long as it does, it is one of the few that a connection may have."""

LONG_MESSAGE_S, LONGEST_PAUSE_S = 0.02, 1.0
"""A message that took longer is followed by a pause as long, up to the latter."""

LAST_WORDS_S = 1.0
"""How long a VRC that does not read may hold up the end of its session."""

_OPTIONS = [
    ("grpc.max_receive_message_length", 2 * MAX_MESSAGE_BYTES),  # up to there it is refused by name
    ("grpc.max_concurrent_streams", 4),
    ("grpc.so_reuseport", 0),
]
_URI_PREFIX = "splitplane:router:"
_SERVICE = "splitplane.v1.VrcSession"


class Identities(Protocol):
    """What sessions need of the PKI."""

    def server_credentials(self) -> tuple[bytes, bytes, bytes]:
        """Return the server's key, its certificate and the authority's certificate, PEM."""

    def is_valid(self, serial: str, vrf_id: int) -> bool:
        """Tell whether a serial was issued to a router and not revoked."""


class ControlSession:
    """One VRC's Control stream. Implements `VrcPort`; what is to be sent is kept as the latest of each kind."""

    def __init__(self, router: VirtualRouter, context: Any, events: EventLog) -> None:
        self._router = router
        self._context = context
        self._events = events
        self._sequence = 0
        self._outbound: dict[str, Any] = {}
        self._ready = asyncio.Event()
        self._closing: str | None = None

    # VrcPort

    def declare(self, config: RouterConfig, ports_up: dict[int, bool]) -> None:
        """Send the declaration."""
        declaration = splitplane_pb2.Declaration(
            interfaces=[
                splitplane_pb2.Interface(
                    id=one.id,
                    name=one.name,
                    mac=one.mac,
                    mtu=one.mtu,
                    addresses=one.addresses,
                    virtual_macs=one.virtual_macs,
                    port_up=ports_up.get(one.id, False),
                    admin_up=one.admin_up,
                )
                for one in config.interfaces
            ],
            neighbor_limit=config.quota.neighbors,
            hold_time_s=config.hold_time_s,
        )
        self._send("declaration", splitplane_pb2.ControllerMessage(declaration=declaration))

    def acknowledge(self, sequence: int) -> None:
        """Send an acknowledgement."""
        self._send("ack", splitplane_pb2.ControllerMessage(ack=splitplane_pb2.Ack(sequence=sequence)))

    def ports_changed(self, ports_up: dict[int, bool]) -> None:
        """Send the states of all ports."""
        states = [splitplane_pb2.PortState(interface_id=i, up=up) for i, up in ports_up.items()]
        message = splitplane_pb2.ControllerMessage(port_states=splitplane_pb2.PortStates(states=states))
        self._send("port_states", message)

    def request_snapshot(self, request_id: int) -> None:
        """Ask for a snapshot."""
        request = splitplane_pb2.SnapshotRequest(id=request_id)
        self._send(f"snapshot {request_id}", splitplane_pb2.ControllerMessage(snapshot_request=request))

    def close(self, reason: str) -> None:
        """Send a refusal and end the stream."""
        self._closing = reason
        refusal = splitplane_pb2.Refusal(reason=reason, fatal=True)
        self._send("refusal", splitplane_pb2.ControllerMessage(refusal=refusal))

    # The stream

    async def read(self, requests: AsyncIterator[bytes]) -> None:
        """Apply what the VRC says. SessionRefused where it is not its to say."""
        async for octets in requests:
            if self._closing is not None:
                continue  # what another session says now is what counts
            began = time.perf_counter()
            message = _decoded(splitplane_pb2.VrcMessage, octets)
            if message.sequence != self._sequence + 1:
                raise SessionRefused(f"message {message.sequence} after {self._sequence}")
            self._sequence = message.sequence
            body = message.WhichOneof("body")
            if (self._sequence == 1) != (body == "hello"):
                raise SessionRefused(f"message {self._sequence} is a {body}; Hello comes first, and once")
            if body is None:
                raise SessionRefused(f"message {self._sequence} has no known body")
            if body == "hello":
                await self._router.plane_known()
                began = time.perf_counter()
            self._apply(body, message)
            await _give_way(began)
            await self._router.caught_up()

    def _apply(self, body: str, message: Any) -> None:
        try:
            getattr(self, f"_on_{body}")(getattr(message, body))
        except ValueError as problem:
            raise SessionRefused(str(problem)) from None
        self._router.processed(self._sequence)

    async def write(self) -> None:
        """Send what is due, until closed."""
        while True:
            await self._ready.wait()
            self._ready.clear()
            messages, self._outbound = self._outbound, {}
            for message in messages.values():
                await _whole(self._context.write(message))
            if self._closing is not None:
                return

    def _send(self, kind: str, message: Any) -> None:
        self._outbound[kind] = message
        self._ready.set()

    # What a VRC says

    def _on_hello(self, hello: Any) -> None:
        name = self._router.config.full_name
        if hello.protocol != PROTOCOL_VERSION:
            raise SessionRefused(f"protocol {hello.protocol}; this controller speaks {PROTOCOL_VERSION}")
        if hello.router != name:
            raise SessionRefused(f"Hello of router {hello.router[:64]!r} with the certificate of {name}")
        self._router.open(self)
        self._events.report("info", "vrc-connected", name, f"source {hello.source[:16]}")

    def _on_interfaces(self, interfaces: Any) -> None:
        self._router.interface_states((one.id, one.up, one.addresses) for one in interfaces.states)

    def _on_neighbors(self, neighbors: Any) -> None:
        self._router.neighbors((one.interface_id, one.address, one.mac, one.failed) for one in neighbors.neighbors)

    def _on_nexthop_sets(self, sets: Any) -> None:
        for one in sets.sets:
            self._router.define_set(one.id, one.kind, [(m.interface_id, m.gateway, m.weight) for m in one.members])
        self._router.fib.rib.release(sets.released)

    def _on_routes(self, routes: Any) -> None:
        family, keys, ids = _columns(routes)
        self._router.routes(family, keys, ids)

    def _on_resync_end(self, end: Any) -> None:
        self._router.resync_end(end.daemons_settled)

    def _on_snapshot(self, snapshot: Any) -> None:
        if snapshot.routes.prefixes:
            family, keys, ids = _columns(snapshot.routes)
            self._router.snapshot_chunk(snapshot.id, family, keys, ids)
        if snapshot.end:
            self._router.snapshot_end(snapshot.id, snapshot.error[:200])

    def _on_notice(self, notice: Any) -> None:
        kind, text = f"vrc-{printable(notice.kind, 32)}", printable(notice.text, 200)
        self._events.report("warning", kind, self._router.config.full_name, text, share="vrc-notice")


class SessionServer:
    """Listens for VRCs: wire's VrcSession, on octets, so that what is no message is refused by name too."""

    def __init__(self, core: Core, identities: Identities, directory: Path, events: EventLog) -> None:
        self._core = core
        self._identities = identities
        self._directory = directory
        self._events = events
        self._server: grpc.aio.Server | None = None
        self._admitted: dict[int, asyncio.Event] = {}  # set: revoked
        self._streams: dict[int, TokenBucket] = {}  # that a router may still open

    async def start(self) -> None:
        """Listen and link the socket into the directories of all admitted routers."""
        self._directory.mkdir(mode=0o711, parents=True, exist_ok=True)
        key, certificate, authority = self._identities.server_credentials()
        credentials = grpc.ssl_server_credentials([(key, certificate)], authority, require_client_auth=True)
        server = grpc.aio.server(options=_OPTIONS)
        server.add_generic_rpc_handlers((_Methods(self),))
        self._socket.unlink(missing_ok=True)
        server.add_secure_port(f"unix:{self._socket}", credentials)
        await server.start()
        self._socket.chmod(0o666)
        self._server = server
        for vrf_id in self._admitted:
            self._link(vrf_id)

    async def close(self) -> None:
        """End all sessions and stop listening."""
        if self._server is not None:
            await self._server.stop(grace=None)  # streams never end by themselves
            self._server = None

    def directory_for(self, vrf_id: int) -> Path:
        """Return the directory that holds this router's socket, to be bind-mounted into its guest."""
        return self._directory / str(vrf_id)

    def admit(self, vrf_id: int) -> None:
        """Make a router's socket."""
        self._admitted.setdefault(vrf_id, asyncio.Event())
        self._streams.setdefault(vrf_id, TokenBucket(STREAMS_PER_S, STREAMS_AT_ONCE))
        self.directory_for(vrf_id).mkdir(mode=0o755, parents=True, exist_ok=True)
        if self._server is not None:
            self._link(vrf_id)

    def revoke(self, vrf_id: int) -> None:
        """Remove a router's socket and cut its sessions."""
        self._streams.pop(vrf_id, None)
        revoked = self._admitted.pop(vrf_id, None)
        if revoked is not None:
            revoked.set()
        directory = self.directory_for(vrf_id)
        (directory / "session.sock").unlink(missing_ok=True)
        with contextlib.suppress(FileNotFoundError):
            directory.rmdir()

    @property
    def _socket(self) -> Path:
        return self._directory / "session.sock"

    def _link(self, vrf_id: int) -> None:
        directory = self.directory_for(vrf_id)
        fresh = directory / ".session.sock"
        fresh.unlink(missing_ok=True)
        os.link(self._socket, fresh)
        fresh.rename(directory / "session.sock")
        fresh.unlink(missing_ok=True)  # renaming a link onto another link of the same socket leaves both

    # The service

    async def control(self, requests: AsyncIterator[bytes], context: Any) -> None:
        """Serve a Control stream."""
        router = await self._identify(context)
        session = ControlSession(router, context, self._events)
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

    async def packets(self, requests: AsyncIterator[bytes], context: Any) -> None:
        """Serve a Packets stream."""
        router = await self._identify(context)
        try:
            self._admit_stream(router)
            await self._serve(router, self._take_packets(router, requests), self._relay(router, context))
        except SessionRefused as refused:
            await self._refuse(router, context, refused)

    async def unknown(self, _requests: AsyncIterator[bytes], context: Any) -> None:
        """Refuse a stream of any other name."""
        router = await self._identify(context)
        await self._refuse(router, context, SessionRefused("a stream that is neither Control nor Packets"))

    async def _refuse(self, router: VirtualRouter, context: Any, refused: SessionRefused, *words: Any) -> None:
        """End a stream with an error, after some last words and a pause."""
        text = printable(str(refused))
        router.punts.counters["streams_refused"] += 1
        self._events.report("error", "session-refused", router.config.full_name, text)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LAST_WORDS_S):
                for word in words:
                    await context.write(word)
        await asyncio.sleep(REFUSAL_PAUSE_S)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LAST_WORDS_S):
                await context.abort(grpc.StatusCode.PERMISSION_DENIED, text)

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

    async def _take_packets(self, router: VirtualRouter, requests: AsyncIterator[bytes]) -> None:
        name = router.config.full_name
        async for octets in requests:
            message = _decoded(splitplane_pb2.PacketOuts, octets)
            if len(message.packets) > MAX_FRAMES_PER_MESSAGE:
                raise SessionRefused(f"{len(message.packets)} frames in one message of the Packets stream")
            for packet in message.packets:
                reason = self._core.packet_out(router, packet.interface_id, packet.frame)
                if reason is not None:
                    text = f"{reason} on interface {packet.interface_id}, {len(packet.frame)} octets"
                    self._events.report("error", "packet-out-refused", name, text, share=f"packet-out {reason}")

    async def _relay(self, router: VirtualRouter, context: Any) -> None:
        while True:
            packets = [
                splitplane_pb2.PacketIn(interface_id=interface_id, punt_reason=int(reason), frame=frame)
                for interface_id, reason, frame in await router.punts.take()
            ]
            await _whole(context.write(splitplane_pb2.PacketIns(packets=packets)))
            await asyncio.sleep(0)

    async def _identify(self, context: Any) -> VirtualRouter:
        names = context.auth_context().get("x509_subject_alternative_name", [])
        for name in names:
            text = name.decode(errors="replace")
            if not text.startswith(_URI_PREFIX):
                continue
            vrf_id, _, serial = text.removeprefix(_URI_PREFIX).partition(":")
            router = self._core.routers.get(int(vrf_id)) if vrf_id.isdecimal() else None
            admitted = router is not None and int(vrf_id) in self._admitted
            if router is not None and admitted and self._identities.is_valid(serial, int(vrf_id)):
                return router
            text = "its certificate is revoked or unknown"
            self._events.report("error", "session-refused", f"router {vrf_id}", text)
            break
        else:
            self._events.report("error", "session-refused", "unknown", "a certificate that names no router")
        await context.abort(grpc.StatusCode.UNAUTHENTICATED, "this certificate is not valid for any router")
        raise AssertionError("abort raises")

    def _admit_stream(self, router: VirtualRouter) -> None:
        """SessionRefused where a router opens a stream too soon after too many others."""
        if not self._streams[router.config.vrf_id].take():
            raise SessionRefused(f"more than {STREAMS_AT_ONCE} streams at once, then {STREAMS_PER_S:g} a second")


class _Methods(grpc.GenericRpcHandler):  # type: ignore[type-arg]  # is no generic class when it runs
    """The methods of the service, on octets, and one for every other name."""

    def __init__(self, server: SessionServer) -> None:
        self._known = {f"/{_SERVICE}/Control": server.control, f"/{_SERVICE}/Packets": server.packets}
        self._unknown = server.unknown

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
        """Return what serves a call."""
        serve = self._known.get(handler_call_details.method, self._unknown)
        return grpc.stream_stream_rpc_method_handler(serve, response_serializer=_serialized)


def _serialized(message: Any) -> bytes:
    octets: bytes = message.SerializeToString()
    return octets


def _decoded(kind: Any, octets: bytes) -> Any:
    """Return a message; SessionRefused where it is too long or none of this kind."""
    if len(octets) > MAX_MESSAGE_BYTES:
        raise SessionRefused(f"a message of {len(octets)} octets; at most {MAX_MESSAGE_BYTES} are taken")
    try:
        return kind.FromString(octets)
    except DecodeError:
        raise SessionRefused(f"{len(octets)} octets that are no {kind.DESCRIPTOR.name}") from None


async def _give_way(began: float) -> None:
    """After a message that took long, leave the event loop to others for as long."""
    took = time.perf_counter() - began
    if took > LONG_MESSAGE_S:
        await asyncio.sleep(min(took, LONGEST_PAUSE_S))


async def _whole(write: Coroutine[Any, Any, None]) -> None:
    """Await a write to its end, also where this task is cancelled.

    gRPC never ends a stream that had a write cancelled under way (grpcio 1.81): its VRC would wait for ever.
    """
    writing = asyncio.ensure_future(write)
    try:
        await asyncio.shield(writing)
    except asyncio.CancelledError:
        await asyncio.wait([writing], timeout=LAST_WORDS_S)
        writing.cancel()
        await asyncio.gather(writing, return_exceptions=True)
        raise


def _columns(routes: Any) -> tuple[int, list[bytes], Any]:
    stride = KEY_STRIDE.get(routes.family)
    if stride is None or len(routes.prefixes) > stride * MAX_ROUTES_PER_MESSAGE:
        raise ValueError(f"Routes of family {routes.family} with {len(routes.prefixes)} octets of prefixes")
    keys = unpack_prefixes(routes.family, routes.prefixes)
    ids = unpack_ids(routes.sets)
    if len(ids) != len(keys):
        raise ValueError(f"{len(keys)} prefixes with {len(ids)} nexthop set ids")
    return routes.family, keys, ids
