"""The session sockets of routers: one for each, over which a few connections at once reach the session service.

    guest ─► sessions/N/session.sock ─► here ─┬─► sessions/session.sock ─► gRPC
                                              └─► frames

gRPC takes as many connections as come, and cannot tell whose they are before a handshake. So each router has a socket
of its own here, which counts: one connection too many is closed. They are looked at one after the other, with a pause
in between; more of them wait in the kernel's queue, which is short. The first octet tells what a connection is for;
one that says nothing is closed.

No close of what is a guest's is left to the event loop, nor of what it sends besides octets (guest_socket.py).

A socket is its guest's alone (mode 0600, in a directory that no other user may enter). Our end of a connection to the
service has an abstract name, which gRPC tells as the peer: it says whose socket the connection came by. Every user of
the host sees such names (/proc/net/unix), so nothing tells the next one, which could be taken first.
"""

import asyncio
import os
import secrets
import socket
from collections.abc import Callable
from functools import partial
from pathlib import Path

from controller.sessions.guest_socket import Closer, GuestSocket
from wire.frames import MAGIC

CONNECTIONS = 4
"""A router's, at once; its VRC has two."""

SILENT_S = 5.0
"""How long a connection may say nothing at first."""

LOOK_EVERY_S = 0.05
"""Between two connections of a router that are looked at."""

_BACKLOG = 16
_HELD_BYTES = 64 << 10  # of one direction, for who reads slowly


class FrameProtocol(asyncio.Protocol):
    """What takes a connection of frames."""

    def cut(self) -> None:
        """End it at once."""


class SessionSockets:
    """Listens for the guests of routers in a directory for each, and joins them to the service at ``service``.

    ``frames`` makes what takes a connection of frames, of a router and of what is called when it has ended.
    ``refused`` is told the router of every connection that is closed as one too many.
    """

    def __init__(
        self,
        directory: Path,
        service: Path,
        frames: Callable[[int, Callable[[], object]], FrameProtocol],
        refused: Callable[[int], None],
    ) -> None:
        self._directory, self._service, self._frames, self._refused = directory, service, frames, refused
        self._listeners: dict[int, _Listener] = {}
        self._name = f"splitplane-session-{secrets.token_hex(8)}"

    def router_of(self, peer: str) -> int | None:
        """Return by whose socket a connection of the service came, of which gRPC tells this peer; None: by none."""
        scheme, _, name = peer.partition(":")
        ours, vrf_id, _ = (*name.rsplit("-", 2), "", "")[:3]
        return int(vrf_id) if scheme == "unix-abstract" and ours == self._name and vrf_id.isdecimal() else None

    def open(self, vrf_id: int, uid: int) -> None:
        """Listen for a router whose guest is this user; the socket of an earlier controller is replaced."""
        path = self._directory / str(vrf_id) / "session.sock"
        keep_private(path.parent, uid)
        # Elsewhere first: whoever connects finds a socket that somebody listens on, at any moment.
        fresh = self._directory / f".{vrf_id}.sock"
        fresh.unlink(missing_ok=True)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        try:
            listener.bind(str(fresh))
            fresh.chmod(0o600)
            os.chown(fresh, uid, -1)
            listener.listen(_BACKLOG)
            fresh.rename(path)
        except OSError:
            listener.close()
            fresh.unlink(missing_ok=True)
            raise
        if (before := self._listeners.get(vrf_id)) is not None:
            before.close()
        name = lambda: f"{self._name}-{vrf_id}-{secrets.token_hex(8)}"  # noqa: E731
        self._listeners[vrf_id] = _Listener(
            listener, self._service, name, partial(self._frames, vrf_id), partial(self._refused, vrf_id)
        )

    def close(self, vrf_id: int) -> None:
        """Remove a router's socket, and cut its connections."""
        if (known := self._listeners.pop(vrf_id, None)) is not None:
            known.close()
        (self._directory / str(vrf_id) / "session.sock").unlink(missing_ok=True)

    def cut(self, peer: str) -> None:
        """End the connection of the service of which gRPC tells this peer, at once."""
        vrf_id, name = self.router_of(peer), peer.partition(":")[2]
        if vrf_id is not None and (known := self._listeners.get(vrf_id)) is not None:
            known.cut(name)

    def close_all(self) -> None:
        """Stop listening and cut every connection; the sockets stay for the next controller to replace."""
        for listener in self._listeners.values():
            listener.close()
        self._listeners.clear()


def keep_private(directory: Path, uid: int) -> None:
    """Let a guest's user enter a directory, and nobody else but its owner; OSError where it is not ours to say."""
    if uid == os.geteuid():
        directory.chmod(0o700)
        return
    os.chown(directory, -1, uid)  # users of guests have a group of the same number
    directory.chmod(0o710)


class _Listener:
    """One router's socket and the connections over it."""

    def __init__(
        self,
        listener: socket.socket,
        service: Path,
        name: Callable[[], str],
        frames: Callable[[Callable[[], object]], FrameProtocol],
        refused: Callable[[], None],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._closer = Closer()
        self._socket, self._service, self._name = GuestSocket.over(listener, self._closer), service, name
        self._frames, self._refused = frames, refused
        self._open: dict[_Arrival | _Joint | FrameProtocol, asyncio.Task[None]] = {}
        self._pause: asyncio.TimerHandle | None = None
        self._listen()

    def close(self) -> None:
        if self._pause is not None:
            self._pause.cancel()
        self._loop.remove_reader(self._socket.fileno())
        self._socket.close()
        for connection, task in list(self._open.items()):
            task.cancel()
            connection.cut()

    def cut(self, name: str) -> None:
        for connection in list(self._open):
            if isinstance(connection, _Joint) and connection.name == name:
                connection.cut()

    def _listen(self) -> None:
        self._pause = None
        self._loop.add_reader(self._socket.fileno(), self._accept)

    def _accept(self) -> None:
        self._loop.remove_reader(self._socket.fileno())
        self._pause = self._loop.call_later(LOOK_EVERY_S, self._listen)
        if self._closer.busy:
            return  # its guest has sent what takes long to close: so nobody has more than a few of that waiting
        try:
            accepted, _ = self._socket.accept()
        except OSError:
            return
        guest = GuestSocket.over(accepted, self._closer)
        if len(self._open) >= CONNECTIONS:
            guest.close()
            self._refused()
            return
        guest.setblocking(False)
        arrival = _Arrival(guest)
        self._open[arrival] = self._loop.create_task(self._serve(arrival))

    async def _serve(self, arrival: "_Arrival") -> None:
        """Have whoever the first octet is for take the place of ``arrival``."""
        arrival.served, guest = True, arrival.guest
        try:
            first = await _first_octet(guest)
        except BaseException:
            del self._open[arrival]
            guest.close()
            raise
        task = self._open.pop(arrival)
        if first is None:
            guest.close()
        elif first == MAGIC[:1]:
            connection = self._frames(lambda: self._open.pop(connection, None))
            self._open[connection] = task
            await self._loop.connect_accepted_socket(lambda: connection, guest)
        else:
            joint = _Joint(self._name(), lambda: self._open.pop(joint, None))
            self._open[joint] = task
            await joint.join(guest, self._service)


class _Arrival:
    """A connection of which nobody knows yet what it is for."""

    def __init__(self, guest: socket.socket) -> None:
        self.guest = guest
        self.served = False

    def cut(self) -> None:
        """Its task is cancelled, and closes it; one that has not begun never does."""
        if not self.served:
            self.guest.close()


async def _first_octet(guest: socket.socket) -> bytes | None:
    """Wait for what a connection says first, and leave it to be read; None where it says nothing, or too late."""
    loop, readable = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(guest.fileno(), readable.set)
    try:
        async with asyncio.timeout(SILENT_S):
            await readable.wait()
        return guest.recv(1, socket.MSG_PEEK) or None
    except (OSError, TimeoutError):
        return None
    finally:
        loop.remove_reader(guest.fileno())


class _Joint:
    """Two connections and the two directions between them; ``gone`` is called once, when both have ended.

    ``name`` is that of our end of the one with the service.
    """

    def __init__(self, name: str, gone: Callable[[], object]) -> None:
        self.name, self._gone = name, gone
        self._guest, self._service = _End(self._lost), _End(self._lost)
        self._guest.connect(self._service)

    async def join(self, guest: socket.socket, service: Path) -> None:
        """Connect with the service and carry what the guest says; one that does not answer ends the guest's too."""
        loop = asyncio.get_running_loop()
        try:
            ours = await _connected(service, self.name)
            await loop.create_unix_connection(lambda: self._service, sock=ours)
            await loop.connect_accepted_socket(lambda: self._guest, guest)
        except OSError:
            guest.close()
            self.cut()
        except asyncio.CancelledError:
            guest.close()
            raise
        else:
            self._service.go()

    def cut(self) -> None:
        """End both at once."""
        for end in (self._guest, self._service):
            if end.transport is not None:
                end.transport.abort()
        self._lost()

    def _lost(self) -> None:
        if all(end.transport is None for end in (self._guest, self._service)):
            self._gone()


async def _connected(service: Path, name: str) -> socket.socket:
    """Connect from an abstract name; OSError where nobody answers."""
    ours = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    try:
        ours.bind(f"\0{name}")
        await asyncio.get_running_loop().sock_connect(ours, os.fspath(service))
    except BaseException:
        ours.close()
        raise
    return ours


class _End(asyncio.Protocol):
    """One of two ends: what comes here goes out at the other, which says when to wait, and ends with this one."""

    def __init__(self, lost: Callable[[], None]) -> None:
        self.transport: asyncio.Transport | None = None
        self._other: _End | None = None
        self._lost = lost

    def connect(self, other: "_End") -> None:
        """Make this and another the two ends of one."""
        self._other, other._other = other, self

    @property
    def _out(self) -> asyncio.Transport | None:
        """Where what comes here goes out."""
        return None if self._other is None else self._other.transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.set_write_buffer_limits(_HELD_BYTES)
        self.transport = transport
        if self._out is None:
            transport.pause_reading()  # until there is somebody to tell

    def go(self) -> None:
        if self.transport is not None:
            self.transport.resume_reading()

    def data_received(self, data: bytes) -> None:
        if (out := self._out) is not None:
            out.write(data)

    def pause_writing(self) -> None:
        if (out := self._out) is not None:
            out.pause_reading()

    def resume_writing(self) -> None:
        if (out := self._out) is not None:
            out.resume_reading()

    def connection_lost(self, _error: Exception | None) -> None:
        self.transport = None
        if (out := self._out) is not None:
            out.close()  # what is still to be written is
        self._lost()
