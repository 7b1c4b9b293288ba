"""Listens for zebra's FPM connection and hands on what it says, in batches.

An FPM frame is version (1), type (1: netlink), length (2 octets, big endian, the header's four included) and
netlink messages; a changed route is RTM_DELROUTE and RTM_NEWROUTE in one frame, so a frame is never split.
"""

import asyncio
import logging
import socket
import struct
from typing import Protocol

from vrc.errors import MalformedFrame, MalformedNetlink
from vrc.netlink import _loops
from vrc.netlink.route_messages import Batch, scan

log = logging.getLogger(__name__)

GATHER_S = 0.02
"""How long what zebra says is let gather after a small read. It says some 40 routes at a time, and a message to the
controller costs both ends half a millisecond, whatever is in it. The first change after a pause goes at once."""

BATCH_ROUTES = 1000
"""Changes handled in one turn of the event loop: about 3 ms."""

_HEAD = struct.Struct(">BBH")
_VERSION, _NETLINK = 1, 1
_RECEIVE_BYTES = 1 << 18


def scan_frames(buffer: bytes, offset: int, limit: int, batch: Batch) -> int:
    """Append the messages of whole frames from ``offset`` on until ``limit`` changes are in the batch.

    Returns where the next frame begins. MalformedFrame where there is no frame; what is wrong inside a frame is
    counted in the batch and ends with the frame.
    """
    unpack, size = _HEAD.unpack_from, len(buffer) - 4
    changes = batch.changes
    while True:
        offset = _loops.frames(buffer, offset, limit, changes)
        if offset > size or len(changes) >= limit:
            return offset
        version, kind, length = unpack(buffer, offset)
        end = offset + length
        if version != _VERSION or length < 4:
            raise MalformedFrame(f"FPM header {buffer[offset : offset + 4].hex()}")
        if end > size + 4:
            return offset
        if kind == _NETLINK:
            try:
                scan(buffer, offset + 4, end, batch)
            except MalformedNetlink as error:
                batch.malformed += 1
                batch.problem = str(error)
        offset = end


class FpmListener(Protocol):
    """Whom the server tells about zebra. None of these may block or raise."""

    def fpm_opened(self) -> None:
        """Zebra connected: it repeats everything, without an end marker."""

    def fpm_batch(self, batch: Batch) -> None:
        """Zebra said something."""

    def fpm_closed(self, reason: str) -> None:
        """The connection is gone; what was learned by it stays."""


class FpmServer:
    """Serves one zebra at a time on a TCP address."""

    def __init__(self, host: str, port: int, listener: FpmListener) -> None:
        self._listener = listener
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._socket = socket.create_server((host, port), family=family, backlog=1, reuse_port=False)
        self._socket.setblocking(False)

    @property
    def port(self) -> int:
        """The port listened on."""
        port: int = self._socket.getsockname()[1]
        return port

    def close(self) -> None:
        """Stop listening."""
        self._socket.close()

    async def run(self) -> None:
        """Accept and read for ever."""
        loop = asyncio.get_running_loop()
        while True:
            connection, _ = await loop.sock_accept(self._socket)
            with connection:
                self._listener.fpm_opened()
                reason = "closed"
                try:
                    reason = await self._read(loop, connection)
                finally:
                    self._listener.fpm_closed(reason)

    async def _read(self, loop: asyncio.AbstractEventLoop, connection: socket.socket) -> str:
        rest = b""
        while True:
            try:
                received = await loop.sock_recv(connection, _RECEIVE_BYTES)
            except OSError as error:
                return str(error)
            if not received:
                return "closed by zebra"
            buffer = rest + received
            offset = 0
            while True:
                batch = Batch()
                try:
                    done = scan_frames(buffer, offset, BATCH_ROUTES, batch)
                except MalformedFrame as error:
                    self._listener.fpm_batch(batch)
                    return str(error)
                if done == offset:
                    break
                self._listener.fpm_batch(batch)
                offset = done
                await asyncio.sleep(0)  # packets and neighbors first
            rest = buffer[offset:]
            if len(received) < _RECEIVE_BYTES // 2:
                await asyncio.sleep(GATHER_S)
