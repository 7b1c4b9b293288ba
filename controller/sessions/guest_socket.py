"""A router's listening socket and its guest's connections, which nobody closes but a thread.

With octets over a Unix socket a guest sends whatever descriptors it likes (SCM_RIGHTS, unix(7)). Whoever drops the
last one of an open file waits for its end: of a TCP connection for as long as the guest says (SO_LINGER, socket(7)),
of a packet socket for a grace period of the kernel. recv(2) drops those that nobody takes, or has a descriptor left
for, close(2) those that nobody read, also of connections that were never accepted. So the event loop looks before it
takes octets, leaves descriptors where they are, and a thread does every close.
"""

import contextlib
import os
import socket
import threading
from collections import deque


class Closer:
    """Closes what is one guest's, in a thread that is there while there is any."""

    def __init__(self) -> None:
        self._descriptors: deque[int] = deque()
        self._changing = threading.Lock()
        self._runs = False

    @property
    def busy(self) -> bool:
        """Whether something is still to be closed: until then nothing more should be taken from that guest."""
        return self._runs

    def close(self, descriptor: int) -> None:
        """Close a descriptor by and by; returns at once."""
        with self._changing:
            self._descriptors.append(descriptor)
            if self._runs:
                return
            self._runs = True
        try:
            threading.Thread(target=self._run, name="closer", daemon=True).start()
        except RuntimeError:  # the system has no thread left, or this process ends
            self._runs = False  # so with what is closed next

    def _run(self) -> None:
        while (descriptor := self._next()) is not None:
            with contextlib.suppress(OSError):
                os.close(descriptor)

    def _next(self) -> int | None:
        with self._changing:
            self._runs = bool(self._descriptors)
            return self._descriptors.popleft() if self._runs else None


class GuestSocket(socket.socket):
    """A socket that is left to a `Closer`; what it receives are octets alone."""

    closer: Closer

    @classmethod
    def over(cls, plain: socket.socket, closer: Closer) -> "GuestSocket":
        """Take the place of another socket."""
        made = cls(fileno=plain.detach())
        made.closer = closer
        # Else an octet out of band is passed over, and what came with it is closed.
        made.setsockopt(socket.SOL_SOCKET, socket.SO_OOBINLINE, 1)
        return made

    def recv(self, size: int, flags: int = 0) -> bytes:
        """Receive octets; PermissionError where descriptors come with them, which are closed with the connection."""
        octets, _, told, _ = self.recvmsg(size, 0, flags | socket.MSG_PEEK)
        if told & socket.MSG_CTRUNC:
            raise PermissionError("descriptors come with what a guest says")
        return octets if flags & socket.MSG_PEEK else super().recv(len(octets), flags)

    def close(self) -> None:
        """End the connection, or the listening, at once; whoever waits for that is not the caller."""
        if self.fileno() < 0:
            return
        with contextlib.suppress(OSError):
            self.shutdown(socket.SHUT_RDWR)
        self.closer.close(self.detach())
