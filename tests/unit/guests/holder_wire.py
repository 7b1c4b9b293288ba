"""A TAP holder and one client of it."""

import json
import os
import socket
from typing import Any

from vrc.guest.reactor import Reactor
from vrc.guest.tapholder import TapHolder


class Wire:
    """A holder and one client of it, turned by hand."""

    def __init__(self, path: str) -> None:
        self.reactor = Reactor()
        self.holder = TapHolder(self.reactor, path, os.getuid())
        self.client = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.client.settimeout(1)
        self.client.connect(path)

    def turn(self) -> None:
        for _ in range(3):
            self.reactor.call_later(0.0, self.reactor.stop)
            self.reactor.run()

    def say(self, message: bytes, *fds: int) -> dict[str, Any]:
        socket.send_fds(self.client, [message], fds)
        self.turn()
        reply: dict[str, Any] = json.loads(self.client.recv(65536))
        return reply

    def ask(self, op: str, name: str = "eth0", *fds: int) -> dict[str, Any]:
        return self.say(json.dumps({"op": op, "name": name}).encode(), *fds)

    def close(self) -> None:
        self.client.close()
        self.holder.close()
