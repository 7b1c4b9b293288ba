"""Gives a detached queue of every TAP to the guest's supervisor, so that carrier survives the VRC.

One JSON message each way over a Unix SEQPACKET socket: ``{"op": "hold", "name": "eth0"}`` with the queue's file
descriptor, ``{"op": "drop", "name": "eth0"}``, ``{"op": "list"}``; answers ``{"ok": true, ...}``.
"""

import asyncio
import json
import socket
from typing import Any

from vrc.errors import HolderError

_TIMEOUT_S = 2.0
_MESSAGE_BYTES = 1 << 16


class Holder:
    """The supervisor's side of the TAPs, or nothing at all where ``path`` is empty."""

    def __init__(self, path: str = "") -> None:
        self.path = path
        self._lock = asyncio.Lock()

    async def hold(self, name: str, fd: int) -> None:
        """Hand over a detached queue. HolderError."""
        await self._ask({"op": "hold", "name": name}, [fd])

    async def drop(self, name: str) -> None:
        """Have the queue of a TAP closed. HolderError."""
        await self._ask({"op": "drop", "name": name})

    async def names(self) -> set[str]:
        """Return the TAPs that are held. HolderError."""
        if not self.path:
            return set()
        names = (await self._ask({"op": "list"})).get("names", [])
        return {str(name) for name in names}

    async def _ask(self, question: dict[str, str], fds: list[int] | None = None) -> dict[str, Any]:
        if not self.path:
            return {}
        loop = asyncio.get_running_loop()
        async with self._lock:
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK) as sock:
                try:
                    async with asyncio.timeout(_TIMEOUT_S):
                        await loop.sock_connect(sock, self.path)
                        socket.send_fds(sock, [json.dumps(question).encode()], fds or [])
                        answer = json.loads(await loop.sock_recv(sock, _MESSAGE_BYTES) or b"null")
                except (OSError, TimeoutError, ValueError) as error:
                    raise HolderError(f"holder {self.path}: {question['op']}: {error or 'no answer'}") from error
        if not isinstance(answer, dict) or answer.get("ok") is not True:
            raise HolderError(f"holder {self.path}: {question['op']} refused: {answer}")
        return answer
