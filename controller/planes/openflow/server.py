"""The listener that all OpenFlow planes share: a switch says which it is by its datapath id.

A datapath id is no secret. With TLS a plane's switch has to show a certificate of the plane's name. Without, what can
be told is looked at: a peer on this host has to be a process of root or of the controller's user, and where somebody
else took the place of a switch that was away, it is given back once the switch returns from the address that it is
known by.
"""

import asyncio
import contextlib
import ipaddress
import logging
import os
import socket
import ssl
from collections.abc import Iterator
from typing import Protocol

from controller.errors import Conflict
from controller.planes.openflow.channel import Channel, ChannelClosed
from controller.planes.openflow.claims import Claim, SilentPeers
from controller.planes.openflow.peer_user import PeerGone, peer_uid

log = logging.getLogger(__name__)

GREETING_S = 2.0
"""From the connection's begin, TLS included, until a peer has said who it is."""

ACCEPT_EVERY_S = 0.005
"""How long after one connection the next is accepted: each costs the event loop several turns and some 0.2 ms, and
who says nothing can make 2,500 a second."""
WAITING_TO_BE_ACCEPTED = 128
"""How many the kernel keeps until then."""
_RETRY_S = 0.1

_PROBE_S = 3.0


class Attachable(Protocol):
    """A plane that a switch can connect to."""

    name: str
    datapath_id: int
    certificate_name: str | None

    @property
    def channel(self) -> Channel | None:
        """The present connection."""

    async def serve(self, channel: Channel, ended: "asyncio.Task[str]") -> None:
        """Use a connection until it ends."""


class OpenFlowListener:
    """Accepts switches on one TCP port, with TLS where a context is given; ``sock`` is a listening socket to use
    instead of host and port."""

    def __init__(
        self,
        host: str = "127.0.0.1",
        port: int = 6653,
        ssl_context: ssl.SSLContext | None = None,
        *,
        sock: socket.socket | None = None,
        echo_interval_s: float = 5.0,
        dead_after_s: float = 15.0,
    ) -> None:
        self._address = host, port
        self._ssl, self._sock = ssl_context, sock
        self._echo_interval_s, self._dead_after_s = echo_interval_s, dead_after_s
        self._planes: dict[int, Attachable] = {}
        self._server: asyncio.Server | None = None
        self._taking: dict[socket.socket, asyncio.Task[None]] = {}
        self._connections: set[asyncio.Task[None]] = set()
        self._silent = SilentPeers()
        self._claims: dict[int, Claim] = {}  # by datapath id
        self.refused: dict[str, int] = {}  # connections turned away, by reason

    @property
    def port(self) -> int:
        """The port it listens on."""
        if self._server is None:
            return self._address[1]
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    def register(self, plane: Attachable) -> None:
        """Let the switch of a plane connect; Conflict where its datapath id is another plane's."""
        other = self._planes.setdefault(plane.datapath_id, plane)
        if other is not plane:
            raise Conflict(f"datapath id {plane.datapath_id:016x} of plane {plane.name} is plane {other.name}'s")

    def unregister(self, plane: Attachable) -> None:
        """Turn the switch of a plane away from now on."""
        self._planes.pop(plane.datapath_id, None)
        self._claims.pop(plane.datapath_id, None)

    async def start(self) -> None:
        """Begin to accept; OSError where the address cannot be used."""
        if self._sock is not None:
            self._server = await asyncio.start_server(self._accept, sock=self._sock, start_serving=False)
        else:
            self._server = await asyncio.start_server(self._accept, *self._address, start_serving=False)
        for bound in self._server.sockets:
            listening = socket.socket(fileno=os.dup(bound.fileno()))
            listening.setblocking(False)
            listening.listen(WAITING_TO_BE_ACCEPTED)
            self._taking[listening] = asyncio.create_task(self._take(listening))

    async def _take(self, listening: socket.socket) -> None:
        """Accept one connection after the other; asyncio's own server takes all that there are in one turn."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                accepted, _ = await loop.sock_accept(listening)
                await loop.connect_accepted_socket(self._stream, accepted)
            except OSError as error:  # no descriptor is left, or the peer has gone again
                log.warning("openflow: a connection is not accepted: %s", error.strerror)
                await asyncio.sleep(_RETRY_S)
            await asyncio.sleep(ACCEPT_EVERY_S)

    def _stream(self) -> asyncio.StreamReaderProtocol:
        return asyncio.StreamReaderProtocol(asyncio.StreamReader(), self._accept)

    async def close(self) -> None:
        """Close the listener and every connection."""
        if self._server is not None:
            self._server.close()
        tasks = [*self._taking.values(), *self._connections]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for listening in self._taking:
            listening.close()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is None:
            return
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)
        loop = asyncio.get_running_loop()
        until_s = loop.time() + GREETING_S
        with self._silence(writer) as address:
            if not self._is_trusted(writer) or not await self._secure(writer, until_s):
                return
            channel = Channel(reader, writer, self._echo_interval_s, self._dead_after_s)
            ended = asyncio.create_task(channel.run(), name=f"openflow {channel.peer}")
            try:
                plane = await self._identify(channel, until_s)
            except BaseException:
                _end(channel, ended)
                writer.transport.abort()
                raise
        claim: Claim | None = None
        try:
            if plane is not None and (claim := await self._admit(plane, channel, address)) is not None:
                await plane.serve(channel, ended)
        except ChannelClosed as error:
            log.warning("openflow %s: %s", channel.peer, error)
        finally:
            _end(channel, ended)
            if claim is not None:
                claim.settle(loop.time())
            else:
                writer.transport.abort()  # what it does not read is not kept for it

    @contextlib.contextmanager
    def _silence(self, writer: asyncio.StreamWriter) -> Iterator[str]:
        """Count a peer as silent meanwhile, and give its address."""
        peer = writer.get_extra_info("peername")
        address = _network(peer[0]) if isinstance(peer, tuple) and len(peer) > 1 else ""

        def make_way() -> None:
            self._count(str(peer), "silent", "it has not said who it is, and others want to")
            writer.transport.abort()

        key = self._silent.enter(address, make_way)
        try:
            yield address
        finally:
            self._silent.leave(address, key)

    def _is_trusted(self, writer: asyncio.StreamWriter) -> bool:
        """Whether a peer without a certificate may speak; where not, the reason is logged and counted."""
        theirs = writer.get_extra_info("peername")
        if self._ssl is not None:
            return True
        try:
            uid = peer_uid(writer.get_extra_info("socket"))
        except PeerGone:
            self._count(str(theirs), "gone", "it has closed the connection")
        except OSError as error:
            self._count(str(theirs), "unknown_user", f"the kernel does not tell whose it is: {error.strerror}")
        else:
            if uid in (None, 0, os.geteuid()):
                return True
            self._count(
                str(theirs), "untrusted_user", f"a process of user {uid} of this host; switches here are root's"
            )
        writer.transport.abort()
        return False

    async def _secure(self, writer: asyncio.StreamWriter, until_s: float) -> bool:
        """Agree on TLS, where it is spoken; where that fails, the reason is logged and counted."""
        if self._ssl is None:
            return True
        try:
            async with asyncio.timeout_at(until_s):
                await writer.start_tls(self._ssl, ssl_handshake_timeout=GREETING_S)
        except (ssl.SSLError, OSError, TimeoutError) as error:
            reason = str(error) or f"not done within {GREETING_S:g} s"
            self._count(str(writer.get_extra_info("peername")), "tls", f"TLS handshake failed: {reason}")
            writer.transport.abort()
            return False
        return True

    async def _identify(self, channel: Channel, until_s: float) -> Attachable | None:
        """Return the plane a new connection belongs to; for none, the reason is logged and counted."""
        try:
            features = await channel.greet(until_s - asyncio.get_running_loop().time())
        except ChannelClosed as error:
            return self._refuse(channel, "greeting", str(error))
        plane = self._planes.get(features.datapath_id)
        if plane is None:
            return self._refuse(channel, "unknown_datapath", f"datapath id {features.datapath_id:016x} is no plane's")
        if plane.certificate_name is not None and plane.certificate_name not in _names(channel.peer_certificate):
            return self._refuse(
                channel, "wrong_certificate", f"plane {plane.name} needs a certificate of {plane.certificate_name}"
            )
        return plane

    async def _admit(self, plane: Attachable, channel: Channel, address: str) -> Claim | None:
        """Let a plane's new connection take its place; None where it may not: the reason is logged and counted."""
        loop = asyncio.get_running_loop()
        claim = self._claims.setdefault(plane.datapath_id, Claim(address))
        while (present := plane.channel) is not None and present.closed is None:  # also who came meanwhile
            if claim.comes_back(address, loop.time()):
                self._count(present.peer, "displaced", f"the switch of plane {plane.name} is back at {channel.peer}")
            elif await present.answers(_PROBE_S):
                self._refuse(channel, "already_connected", f"plane {plane.name} is connected from {present.peer}")
                return None
            present.close("replaced by a new connection")
        if self._planes.get(plane.datapath_id) is not plane:
            self._refuse(channel, "unknown_datapath", f"plane {plane.name} was detached meanwhile")
            return None
        claim.serve(address, loop.time())
        return claim

    def _count(self, peer: str, reason: str, text: str) -> None:
        self.refused[reason] = self.refused.get(reason, 0) + 1
        log.warning("openflow %s refused: %s", peer, text)

    def _refuse(self, channel: Channel, reason: str, text: str) -> Attachable | None:
        self._count(channel.peer, reason, text)
        channel.close(text)
        return None


def _end(channel: Channel, ended: "asyncio.Task[str]") -> None:
    channel.close("closed by this side")
    ended.cancel()


def _network(host: str) -> str:
    """Return what stands for one peer's address: of IPv6 the /64, of which a host may have any."""
    address = ipaddress.ip_address(host.partition("%")[0])
    return str(ipaddress.ip_network((address, 64), strict=False)) if address.version == 6 else host


def _names(certificate: dict[str, object] | None) -> set[str]:
    """Return the common and DNS names of a certificate as `ssl` describes it."""
    names: set[str] = set()
    subject = (certificate or {}).get("subject", ())
    alternatives = (certificate or {}).get("subjectAltName", ())
    if isinstance(subject, tuple):
        names.update(value for part in subject for key, value in part if key == "commonName")
    if isinstance(alternatives, tuple):
        names.update(value for key, value in alternatives if key == "DNS")
    return names
