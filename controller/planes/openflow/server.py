"""The listener that all OpenFlow planes share: a switch says which it is by its datapath id."""

import asyncio
import logging
import socket
import ssl
from typing import Protocol

from controller.errors import Conflict
from controller.planes.openflow.channel import Channel, ChannelClosed

log = logging.getLogger(__name__)

_GREETING_S = 10.0
_MAX_GREETING = 64  # connections that have not said yet who they are
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
        self._connections: set[asyncio.Task[None]] = set()
        self._greeting = 0
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

    async def start(self) -> None:
        """Begin to accept; OSError where the address cannot be used."""
        if self._sock is not None:
            self._server = await asyncio.start_server(self._accept, sock=self._sock)
        else:
            self._server = await asyncio.start_server(self._accept, *self._address)

    async def close(self) -> None:
        """Close the listener and every connection."""
        if self._server is not None:
            self._server.close()
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is None:
            return
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)
        if not await self._secure(writer):
            return
        channel = Channel(reader, writer, self._echo_interval_s, self._dead_after_s)
        ended = asyncio.create_task(channel.run(), name=f"openflow {channel.peer}")
        try:
            plane = await self._identify(channel)
            if plane is not None:
                await plane.serve(channel, ended)
        except ChannelClosed as error:
            log.warning("openflow %s: %s", channel.peer, error)
        finally:
            channel.close("closed by this side")
            ended.cancel()

    async def _secure(self, writer: asyncio.StreamWriter) -> bool:
        """Whether a new connection may speak; where not, the reason is logged and counted."""
        peer = writer.get_extra_info("peername")
        if self._greeting >= _MAX_GREETING:
            self._count(str(peer), "too_many_greetings", "too many connections have not said who they are")
            writer.close()
            return False
        if self._ssl is None:
            return True
        self._greeting += 1
        try:
            await writer.start_tls(self._ssl, ssl_handshake_timeout=_GREETING_S)
        except (ssl.SSLError, OSError) as error:
            self._count(str(peer), "tls", f"TLS handshake failed: {error}")
            writer.transport.abort()
            return False
        finally:
            self._greeting -= 1
        return True

    async def _identify(self, channel: Channel) -> Attachable | None:
        """Return the plane a new connection belongs to; for none, the reason is logged and counted."""
        self._greeting += 1
        try:
            features = await channel.greet(_GREETING_S)
        finally:
            self._greeting -= 1
        plane = self._planes.get(features.datapath_id)
        if plane is None:
            return self._refuse(channel, "unknown_datapath", f"datapath id {features.datapath_id:016x} is no plane's")
        if plane.certificate_name is not None and plane.certificate_name not in _names(channel.peer_certificate):
            return self._refuse(
                channel, "wrong_certificate", f"plane {plane.name} needs a certificate of {plane.certificate_name}"
            )
        present = plane.channel
        if present is not None and present.closed is None:
            if await present.answers(_PROBE_S):
                return self._refuse(
                    channel, "already_connected", f"plane {plane.name} is connected from {present.peer}"
                )
            present.close("replaced by a new connection")
        return plane

    def _count(self, peer: str, reason: str, text: str) -> None:
        self.refused[reason] = self.refused.get(reason, 0) + 1
        log.warning("openflow %s refused: %s", peer, text)

    def _refuse(self, channel: Channel, reason: str, text: str) -> Attachable | None:
        self._count(channel.peer, reason, text)
        channel.close(text)
        return None


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
