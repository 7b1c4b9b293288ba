"""The sockets to the guest kernel's rtnetlink: requests, dumps, and multicast groups with overrun detection.

Raw sockets with our own codec: a route must not cost more than a few microseconds, and the same sixty lines then do
for links, addresses and neighbors too.
"""

import asyncio
import ctypes
import errno
import socket
import struct
from collections.abc import AsyncIterator, Callable, Sequence

from vrc.errors import DumpInterrupted, KernelRefused
from vrc.netlink.requests import NLM_F_ACK, NLM_F_REQUEST
from vrc.netlink.route_messages import HEADER, NLM_F_DUMP_INTR, NLMSG_DONE, NLMSG_ERROR, messages

NLM_F_DUMP = 0x300

RTNLGRP_LINK, RTNLGRP_NEIGH, RTNLGRP_IPV4_IFADDR, RTNLGRP_IPV4_ROUTE = 1, 3, 5, 7
RTNLGRP_IPV6_IFADDR, RTNLGRP_IPV6_ROUTE, RTNLGRP_NEXTHOP = 9, 11, 32
RTNLGRP_IPV4_RULE, RTNLGRP_IPV6_RULE = 8, 19

_SOL_NETLINK, _NETLINK_ADD_MEMBERSHIP = 270, 1
_SO_RCVBUFFORCE, _SO_ATTACH_FILTER = 33, 26
_RTM_PROTOCOL = 16 + 5  # where a route message has rtm_protocol
_RECEIVE_BYTES = 1 << 16
_DATAGRAM_BYTES = 1 << 15  # most the kernel puts into one
_TURN_BYTES = _DATAGRAM_BYTES + (1 << 16)
_CATCH_UP_TURNS = 16  # a megabyte, which is 800 links: who floods neighbors does not keep `catch_up` for ever
_REPLY_TIMEOUT_S = 10.0
_ERRNO = struct.Struct("=i")
DUMP_ATTEMPTS = 8


def open_socket(*groups: int, receive_bytes: int = 1 << 20) -> socket.socket:
    """Return a non-blocking rtnetlink socket, member of multicast groups, with a receive buffer of that size."""
    sock = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_NONBLOCK, socket.NETLINK_ROUTE)
    try:
        sock.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, receive_bytes)
    except PermissionError:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
    sock.bind((0, 0))
    for group in groups:
        sock.setsockopt(_SOL_NETLINK, _NETLINK_ADD_MEMBERSHIP, group)
    return sock


def pass_over(sock: socket.socket, protocols: Sequence[range]) -> None:
    """Have the kernel keep route messages of these protocols from a socket that gets no others than such messages.

    A classic BPF program (linux/filter.h): a daemon's hundred thousand routes then cost the receiver nothing.
    """
    load_byte, at_least, more_than, give = 0x30, 0x35, 0x25, 0x06
    program = [(load_byte, 0, 0, _RTM_PROTOCOL)]
    for some in protocols:
        program += [(at_least, 0, 2, some.start), (more_than, 1, 0, some.stop - 1), (give, 0, 0, 0)]
    program.append((give, 0, 0, 0xFFFFFFFF))
    code = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *instruction) for instruction in program))
    sock.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, struct.pack("@HP", len(program), ctypes.addressof(code)))


def request(kind: int, flags: int, sequence: int, body: bytes) -> bytes:
    """Return a whole request message."""
    return HEADER.pack(16 + len(body), kind, flags | NLM_F_REQUEST, sequence, 0) + body


class Rtnetlink:
    """Requests and dumps, one at a time each on a socket of its own."""

    def __init__(self) -> None:
        self._socket = open_socket()
        self._sequence = 0
        self._lock = asyncio.Lock()

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    async def change(self, what: str, kind: int, flags: int, body: bytes) -> None:
        """Send one request and wait for its acknowledgement; KernelRefused(what) where there is an error."""
        async with self._lock:
            self._sequence += 1
            loop = asyncio.get_running_loop()
            message = request(kind, flags | NLM_F_ACK, self._sequence, body)
            try:
                await loop.sock_sendall(self._socket, message)
                async with asyncio.timeout(_REPLY_TIMEOUT_S):
                    code = await self._acknowledgement(loop, self._sequence)
            except OSError as error:
                raise KernelRefused(what, error.errno or errno.EIO) from error
        if code:
            raise KernelRefused(what, code)

    async def _acknowledgement(self, loop: asyncio.AbstractEventLoop, sequence: int) -> int:
        while True:
            buffer = await loop.sock_recv(self._socket, _RECEIVE_BYTES)
            for kind, _, start, _ in messages(buffer):
                if kind == NLMSG_ERROR and HEADER.unpack_from(buffer, start - 16)[3] == sequence:
                    code: int = _ERRNO.unpack_from(buffer, start)[0]
                    return -code

    async def dump(self, what: str, kind: int, body: bytes) -> AsyncIterator[bytes]:
        """Yield a dump's messages, a buffer of whole ones at a time.

        DumpInterrupted at its end where the table changed meanwhile; KernelRefused(what) where the kernel says no.
        """
        loop = asyncio.get_running_loop()
        with open_socket() as sock:
            await loop.sock_sendall(sock, request(kind, NLM_F_DUMP, 1, body))
            interrupted = 0
            while True:
                try:
                    async with asyncio.timeout(_REPLY_TIMEOUT_S):
                        buffer = await loop.sock_recv(sock, _RECEIVE_BYTES)
                except OSError as error:
                    raise KernelRefused(what, error.errno or errno.EIO) from error
                done, flags = _dump_state(what, buffer)
                interrupted |= flags & NLM_F_DUMP_INTR
                yield buffer
                if done and interrupted:
                    raise DumpInterrupted(f"{what}: the table changed while it was dumped")
                if done:
                    return
                await asyncio.sleep(0)


def _dump_state(what: str, buffer: bytes) -> tuple[bool, int]:
    """Return whether a dump ends in this buffer, and the flags seen in it."""
    seen = 0
    for kind, flags, start, end in messages(buffer):
        seen |= flags
        if kind == NLMSG_DONE:
            return True, seen
        if kind == NLMSG_ERROR:
            code = _ERRNO.unpack_from(buffer, start)[0] if end - start >= 4 else -errno.EIO
            raise KernelRefused(what, -code)
    return False, seen


class Monitor:
    """A member of multicast groups: calls ``received`` with a buffer of whole messages and ``overrun`` where the
    kernel had to drop some, after which only a dump is complete. Routes of some protocols may be passed over."""

    def __init__(
        self,
        groups: tuple[int, ...],
        received: Callable[[bytes], None],
        overrun: Callable[[], None],
        *,
        receive_bytes: int = 8 << 20,
        passed_over: Sequence[range] = (),
    ) -> None:
        self.overruns = 0
        self._received = received
        self._overrun = overrun
        self._socket = open_socket(*groups, receive_bytes=receive_bytes)
        if passed_over:
            pass_over(self._socket, passed_over)
        self._paused = True
        self._buffer = bytearray(_TURN_BYTES)
        self._view = memoryview(self._buffer)

    def start(self) -> None:
        """Begin to read, or go on after `pause`."""
        if self._paused:
            self._paused = False
            asyncio.get_running_loop().add_reader(self._socket, self._readable)

    def catch_up(self) -> None:
        """Take in what the kernel has said until now, so that nothing that is read later is older than a dump from
        now on: of a carrier, for one, a dump tells before a message does."""
        for _ in range(_CATCH_UP_TURNS):
            if not self._readable():
                break

    def pause(self) -> None:
        """Leave messages in the socket's buffer."""
        if not self._paused:
            self._paused = True
            asyncio.get_running_loop().remove_reader(self._socket)

    def close(self) -> None:
        """Stop and close the socket."""
        self.pause()
        self._socket.close()

    def _readable(self) -> bool:
        # A route is a datagram of its own: up to a few hundred are joined, which costs less than handling each, and
        # then packets have their turn.
        filled = 0
        while filled <= len(self._buffer) - _DATAGRAM_BYTES:
            try:
                filled += (self._socket.recv_into(self._view[filled:]) + 3) & ~3
            except BlockingIOError:
                break
            except OSError as error:
                if error.errno != errno.ENOBUFS:
                    raise
                self.overruns += 1
                self._overrun()
        if filled:
            self._received(bytes(self._view[:filled]))
        return bool(filled)
