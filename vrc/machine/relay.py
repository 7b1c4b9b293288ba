"""The session relay: a Unix socket for the guest's VRC, joined to the one address that the machine can reach.

    VRC ─► session.sock ─► relay ─► 10.0.2.100:6654 ─► QEMU ─► this router's session socket on the host

At most MAX_JOINED connections at once, and of each at most one piece of READ_BYTES under way in each direction: who
reads slowly stops who writes.
"""

import contextlib
import errno
import os
import socket
from collections.abc import Callable

from vrc.guest.listener import Listener, listen
from vrc.guest.reactor import Reactor

MAX_JOINED = 4
READ_BYTES = 65536


class SessionRelay:
    """Listens at ``path`` (for the user ``owner``) and joins every connection to ``target`` (address, port)."""

    def __init__(
        self, reactor: Reactor, path: str, owner: int, target: tuple[str, int], log: Callable[[str], None]
    ) -> None:
        self._reactor, self._target, self._log = reactor, target, log
        self._joined: set[_Joint] = set()
        self.failed = 0
        self._listener = Listener(reactor, listen(path, owner, MAX_JOINED), self._take)

    @property
    def counts(self) -> dict[str, int]:
        """How many connections are open, were refused as too many, and did not reach the host."""
        return {"open": len(self._joined), "refused": self._listener.refused, "failed": self.failed}

    def close(self) -> None:
        """Cut every connection and stop listening."""
        for joint in list(self._joined):
            joint.close()
        self._listener.close()

    def _take(self, client: socket.socket) -> bool:
        if len(self._joined) >= MAX_JOINED:
            if not self._listener.refused:
                self._log(f"more than {MAX_JOINED} sessions at once: refused")
            return False
        host = socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        host.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        joint = _Joint(self._reactor, client, host, self._gone)
        self._joined.add(joint)
        joint.connect(self._target)
        return True

    def _gone(self, joint: "_Joint", error: str) -> None:
        self._joined.discard(joint)
        if error:
            self.failed += 1
            if self.failed == 1:
                self._log(f"{self._target[0]}:{self._target[1]} cannot be reached: {error}")


class _Joint:
    """Two sockets and the two directions between them."""

    def __init__(
        self, reactor: Reactor, client: socket.socket, host: socket.socket, gone: Callable[["_Joint", str], None]
    ) -> None:
        self._reactor, self._client, self._host, self._gone = reactor, client, host, gone
        self._flows: list[_Flow] = []
        self._connecting = False

    def connect(self, target: tuple[str, int]) -> None:
        problem = self._host.connect_ex(target)
        if problem not in (0, errno.EINPROGRESS):
            self.close(os.strerror(problem))
            return
        self._connecting = True
        self._reactor.add_writer(self._host.fileno(), self._connected)

    def _connected(self) -> None:
        self._reactor.remove_writer(self._host.fileno())
        self._connecting = False
        if problem := self._host.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            self.close(os.strerror(problem))
            return
        self._flows = [
            _Flow(self._reactor, source, sink, self._flow_ended)
            for source, sink in ((self._client, self._host), (self._host, self._client))
        ]

    def _flow_ended(self, broken: bool) -> None:
        if broken or all(flow.ended for flow in self._flows):
            self.close()

    def close(self, error: str = "") -> None:
        if self._connecting:
            self._reactor.remove_writer(self._host.fileno())
        for flow in self._flows:
            flow.ignore()
        self._client.close()
        self._host.close()
        self._gone(self, error)


class _Flow:
    """One direction: reads while nothing is unsent, writes while something is."""

    def __init__(
        self, reactor: Reactor, source: socket.socket, sink: socket.socket, on_end: Callable[[bool], None]
    ) -> None:
        self._reactor, self._source, self._sink, self._on_end = reactor, source, sink, on_end
        self._unsent = b""
        self.ended = False
        self._waiting: Callable[[int], None] | None = None
        self._wait_to_read()

    def ignore(self) -> None:
        if self._waiting:
            fd = self._sink.fileno() if self._unsent else self._source.fileno()
            self._waiting(fd)
        self._waiting = None

    def _wait_to_read(self) -> None:
        self._reactor.add_reader(self._source.fileno(), self._read)
        self._waiting = self._reactor.remove_reader

    def _read(self) -> None:
        try:
            data = self._source.recv(READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            self._on_end(True)
            return
        if data:
            self._send(data)
            return
        self.ignore()
        self.ended = True
        with contextlib.suppress(OSError):  # the other end may have closed altogether
            self._sink.shutdown(socket.SHUT_WR)
        self._on_end(False)

    def _send(self, data: bytes) -> None:
        try:
            sent = self._sink.send(data)
        except BlockingIOError:
            sent = 0
        except OSError:
            self._on_end(True)
            return
        left = data[sent:]
        if bool(left) != bool(self._unsent):
            self.ignore()
            if left:
                self._reactor.add_writer(self._sink.fileno(), lambda: self._send(self._unsent))
                self._waiting = self._reactor.remove_writer
            else:
                self._wait_to_read()
        self._unsent = left
