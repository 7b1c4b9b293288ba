"""The VRC session service: gRPC over mTLS on one Unix socket, hard-linked into a directory of each router.

A guest sees only its own directory, bind-mounted; the link in it survives the controller's restart because the new
socket is linked under the same name. The certificate says which router a session is of: a message that names another
router, another's interface or anything malformed ends the session with one line in the event log, and what came
before it in the same message is not applied.
"""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Coroutine
from pathlib import Path
from typing import Any, Protocol

import grpc

from controller.core import Core
from controller.errors import SessionRefused
from controller.events import EventLog
from controller.model import RouterConfig
from controller.router import VirtualRouter
from wire import (
    MAX_FRAMES_PER_MESSAGE,
    MAX_MESSAGE_BYTES,
    MAX_ROUTES_PER_MESSAGE,
    PROTOCOL_VERSION,
    splitplane_pb2,
    splitplane_pb2_grpc,
)
from wire.columns import KEY_STRIDE, unpack_ids, unpack_prefixes

NOTICES_PER_SESSION = 100
"""Notices of one session that become events; the rest is only counted."""

REFUSALS_LOGGED = 8
"""Refused packet-outs of one session, by reason, that become events; all are counted."""

LAST_WORDS_S = 1.0
"""How long a VRC that does not read may hold up the end of its session."""

_OPTIONS = [
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_concurrent_streams", 4),
    ("grpc.so_reuseport", 0),
]
_URI_PREFIX = "splitplane:router:"


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
        self._notices = 0
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

    async def read(self, requests: AsyncIterator[Any]) -> None:
        """Apply what the VRC says. SessionRefused where it is not its to say."""
        async for message in requests:
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
            raise SessionRefused(f"Hello of router {hello.router!r} with the certificate of {name}")
        self._router.open(self)
        self._events.emit("info", "vrc-connected", name, f"source {hello.source[:16]}")

    def _on_interfaces(self, interfaces: Any) -> None:
        for one in interfaces.states:
            self._router.interface_state(one.id, one.up, one.addresses)

    def _on_neighbors(self, neighbors: Any) -> None:
        for one in neighbors.neighbors:
            self._router.neighbor(one.interface_id, one.address, one.mac, one.failed)

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
        self._notices += 1
        if self._notices <= NOTICES_PER_SESSION:
            text = _printable(notice.text)
            self._events.emit("warning", f"vrc-{_printable(notice.kind)[:32]}", self._router.config.full_name, text)


class SessionServer:
    """Listens for VRCs. Implements wire's VrcSession."""

    def __init__(self, core: Core, identities: Identities, directory: Path, events: EventLog) -> None:
        self._core = core
        self._identities = identities
        self._directory = directory
        self._events = events
        self._server: grpc.aio.Server | None = None
        self._admitted: dict[int, asyncio.Event] = {}  # set: revoked

    async def start(self) -> None:
        """Listen and link the socket into the directories of all admitted routers."""
        self._directory.mkdir(mode=0o711, parents=True, exist_ok=True)
        key, certificate, authority = self._identities.server_credentials()
        credentials = grpc.ssl_server_credentials([(key, certificate)], authority, require_client_auth=True)
        server = grpc.aio.server(options=_OPTIONS)
        splitplane_pb2_grpc.add_VrcSessionServicer_to_server(self, server)  # type: ignore[no-untyped-call]
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
        self.directory_for(vrf_id).mkdir(mode=0o755, parents=True, exist_ok=True)
        if self._server is not None:
            self._link(vrf_id)

    def revoke(self, vrf_id: int) -> None:
        """Remove a router's socket and cut its sessions."""
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

    async def Control(self, requests: AsyncIterator[Any], context: Any) -> None:
        """Serve a Control stream."""
        router = await self._identify(context)
        session = ControlSession(router, context, self._events)
        try:
            await self._serve(router, session.read(requests), session.write())
        except SessionRefused as refused:
            router.lost(session)
            refusal = splitplane_pb2.ControllerMessage(
                refusal=splitplane_pb2.Refusal(reason=str(refused), fatal=True)
            )
            await self._refuse(router, context, refused, refusal)
        finally:
            router.lost(session)

    async def Packets(self, requests: AsyncIterator[Any], context: Any) -> None:
        """Serve a Packets stream."""
        router = await self._identify(context)
        try:
            await self._serve(router, self._take_packets(router, requests), self._relay(router, context))
        except SessionRefused as refused:
            await self._refuse(router, context, refused)

    async def _refuse(self, router: VirtualRouter, context: Any, refused: SessionRefused, *words: Any) -> None:
        """End a stream with an error, after some last words."""
        self._events.emit("error", "session-refused", router.config.full_name, str(refused))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LAST_WORDS_S):
                for word in words:
                    await context.write(word)
                await context.abort(grpc.StatusCode.PERMISSION_DENIED, str(refused))

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

    async def _take_packets(self, router: VirtualRouter, requests: AsyncIterator[Any]) -> None:
        logged: dict[str, int] = {}
        async for message in requests:
            if len(message.packets) > MAX_FRAMES_PER_MESSAGE:
                raise SessionRefused(f"{len(message.packets)} frames in one message of the Packets stream")
            for packet in message.packets:
                reason = self._core.packet_out(router, packet.interface_id, packet.frame)
                if reason is None:
                    continue
                logged[reason] = logged.get(reason, 0) + 1
                if logged[reason] <= REFUSALS_LOGGED:
                    text = f"{reason} on interface {packet.interface_id}, {len(packet.frame)} octets"
                    self._events.emit("error", "packet-out-refused", router.config.full_name, text)

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
            self._events.emit("error", "session-refused", f"router {vrf_id}", "its certificate is revoked or unknown")
            break
        else:
            self._events.emit("error", "session-refused", "unknown", "a certificate that names no router")
        await context.abort(grpc.StatusCode.UNAUTHENTICATED, "this certificate is not valid for any router")
        raise AssertionError("abort raises")


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


def _printable(text: str) -> str:
    return "".join(c if c.isprintable() else "?" for c in text[:200])
