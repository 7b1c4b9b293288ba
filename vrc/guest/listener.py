"""A Unix socket for one user, and the connections to it."""

import contextlib
import os
import socket
from collections.abc import Callable

from vrc.guest.reactor import Reactor


class Listener:
    """Listens at ``path`` for the user ``owner``; ``take`` gets every connection, which does not block.

    Where ``take`` says False, the connection is one too many: it is closed, and counted in `refused`.
    """

    def __init__(
        self,
        reactor: Reactor,
        path: str,
        kind: socket.SocketKind,
        owner: int,
        backlog: int,
        take: Callable[[socket.socket], bool],
    ) -> None:
        self._reactor, self._take = reactor, take
        self.refused = 0
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        self._socket = socket.socket(socket.AF_UNIX, kind | socket.SOCK_NONBLOCK)
        self._socket.bind(path)
        os.chmod(path, 0o600)
        os.chown(path, owner, owner)
        self._socket.listen(backlog)
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
