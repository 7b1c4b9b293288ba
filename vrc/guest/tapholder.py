"""Keeps one queue of each TAP open, so that interfaces, carrier and learned routes survive the death of the VRC.

A Unix SEQPACKET socket; each message is one JSON object and gets one reply:

    {"op": "hold", "name": "eth0"} and one descriptor by SCM_RIGHTS   keep it, in place of an earlier one
    {"op": "drop", "name": "eth0"}                                    close it
    {"op": "list"}                                                    {"ok": true, "names": ["eth0"]}

Replies are {"ok": true, …} or {"ok": false, "error": "…"}. What a client says wrongly is refused, never fatal.
"""

import array
import json
import os
import socket
from typing import Any

from vrc.guest.listener import Listener
from vrc.guest.reactor import Reactor

MAX_HELD = 256
MAX_CLIENTS = 8
MAX_MESSAGE_BYTES = 4096
MAX_NAME_BYTES = 15
"""IFNAMSIZ without its terminating zero."""

_PASSED = array.array("i", [0]).itemsize


class Refused(Exception):
    """A client asked for something the holder does not do; the text goes back to it."""


class TapHolder:
    """Holds descriptors by interface name for clients of the socket at ``path``."""

    def __init__(self, reactor: Reactor, path: str, owner: int) -> None:
        self._reactor = reactor
        self._held: dict[str, int] = {}
        self._clients: set[socket.socket] = set()
        self._listener = Listener(reactor, path, socket.SOCK_SEQPACKET, owner, MAX_CLIENTS, self._take)

    @property
    def names(self) -> list[str]:
        """The interfaces whose descriptor is held."""
        return sorted(self._held)

    def close(self) -> None:
        """Close every descriptor that is held, every client and the socket."""
        for client in list(self._clients):
            self._forget(client)
        self._listener.close()
        for fd in self._held.values():
            os.close(fd)
        self._held.clear()

    def _take(self, client: socket.socket) -> bool:
        if len(self._clients) >= MAX_CLIENTS:
            return False
        self._clients.add(client)
        self._reactor.add_reader(client.fileno(), lambda: self._receive(client))
        return True

    def _forget(self, client: socket.socket) -> None:
        self._reactor.remove_reader(client.fileno())
        self._clients.discard(client)
        client.close()

    def _receive(self, client: socket.socket) -> None:
        passed: list[int] = []
        try:
            message, control, _, _ = client.recvmsg(
                MAX_MESSAGE_BYTES, socket.CMSG_SPACE(_PASSED * 4), socket.MSG_CMSG_CLOEXEC
            )
            passed = _descriptors(control)
            if not message:
                raise ConnectionResetError
            client.send(json.dumps(self._answer(message, passed)).encode())
        except BlockingIOError:
            return
        except OSError:
            self._forget(client)
        finally:
            for fd in passed:
                os.close(fd)

    def _answer(self, message: bytes, passed: list[int]) -> dict[str, Any]:
        try:
            request = json.loads(message)
        except (ValueError, RecursionError):
            return {"ok": False, "error": "not a JSON object"}
        try:
            return {"ok": True} | self._do(request, passed)
        except Refused as refusal:
            return {"ok": False, "error": str(refusal)}

    def _do(self, request: Any, passed: list[int]) -> dict[str, Any]:
        op = request.get("op") if isinstance(request, dict) else None
        if op == "list":
            return {"names": self.names}
        if op not in ("hold", "drop"):
            raise Refused("op is none of hold, drop, list")
        name = request.get("name")
        if not isinstance(name, str) or not 0 < len(name.encode(errors="replace")) <= MAX_NAME_BYTES:
            raise Refused(f"name is not a string of 1 to {MAX_NAME_BYTES} octets")
        if op == "hold":
            return self._hold(name, passed)
        if name not in self._held:
            raise Refused(f"{name} is not held")
        os.close(self._held.pop(name))
        return {}

    def _hold(self, name: str, passed: list[int]) -> dict[str, Any]:
        if len(passed) != 1:
            raise Refused(f"hold needs one descriptor, not {len(passed)}")
        if name not in self._held and len(self._held) >= MAX_HELD:
            raise Refused(f"{MAX_HELD} descriptors are held already")
        earlier = self._held.pop(name, None)
        self._held[name] = passed.pop()
        if earlier is not None:
            os.close(earlier)
        return {}


def _descriptors(control: list[tuple[int, int, bytes]]) -> list[int]:
    fds = array.array("i")
    for level, kind, data in control:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            fds.frombytes(data[: len(data) - len(data) % _PASSED])
    return list(fds)
