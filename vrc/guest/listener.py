"""A Unix socket for one user, and the connections to it."""

import contextlib
import os
import socket
from collections.abc import Callable

from vrc.guest.reactor import Reactor


def listen(path: str, owner: int, backlog: int) -> socket.socket:
    """Return a stream socket that listens at ``path`` for the user ``owner`` alone."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    listening.bind(path)
    os.chmod(path, 0o600)
    os.chown(path, owner, owner)
    listening.listen(backlog)
    return listening


class Listener:
    """Takes connections on a listening socket; ``take`` gets each, which does not block.

    Where ``take`` says False, the connection is one too many: it is closed, and counted in `refused`.
    """

    def __init__(self, reactor: Reactor, listening: socket.socket, take: Callable[[socket.socket], bool]) -> None:
        self._reactor, self._socket, self._take = reactor, listening, take
        self.refused = 0
        reactor.add_reader(self._socket.fileno(), self._accept)

    def close(self) -> None:
        """Stop listening; who is connected stays."""
        self._reactor.remove_reader(self._socket.fileno())
        self._socket.close()

    def _accept(self) -> None:
        try:
            client, _ = self._socket.accept()
        except OSError:
            return
        client.setblocking(False)
        if not self._take(client):
            client.close()
            self.refused += 1
