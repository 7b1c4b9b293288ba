"""Whose process is at the other end of a TCP connection of this host: sock_diag(7)."""

import errno
import ipaddress
import os
import socket
import struct
from typing import Protocol

_NETLINK_SOCK_DIAG, _BY_FAMILY, _NLMSG_ERROR = 4, 20, 2
_NLM_F_REQUEST, _ESTABLISHED = 1, 1
_ANY_STATE, _NO_COOKIE = 0xFFFFFFFF, b"\xff" * 8
_SO_NETNS_COOKIE = 71
_STATE_AT, _UID_AT = 16 + 1, 16 + 64  # behind the header, struct inet_diag_msg

Address = tuple[str, int]


class PeerGone(Exception):
    """The other end is of this host, and has closed its socket."""


class Connection(Protocol):
    """What is asked of a connected TCP socket."""

    def getsockname(self) -> tuple[str, int]:
        """Return our address and port, and more of IPv6."""

    def getpeername(self) -> tuple[str, int]:
        """Return the peer's."""

    def getsockopt(self, level: int, name: int, size: int, /) -> bytes:
        """Return an option."""


def peer_uid(connection: Connection) -> int | None:
    """Return the user of the process at the other end, None where that is not of this host and network namespace.

    PeerGone where it has closed its socket, because then the kernel tells no user. OSError where it does not answer.
    """
    try:
        ours, theirs = connection.getsockname()[:2], connection.getpeername()[:2]
    except OSError as error:
        raise PeerGone from error
    with socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM, _NETLINK_SOCK_DIAG) as diag:
        if _namespace(connection) != _namespace(diag):
            return None
        diag.settimeout(1.0)
        return _user_at(diag, ours, theirs)


def _namespace(one: Connection | socket.socket) -> bytes:
    """Return what tells network namespaces apart; nothing before Linux 5.14."""
    try:
        return one.getsockopt(socket.SOL_SOCKET, _SO_NETNS_COOKIE, 8)
    except OSError:
        return b""


def _user_at(diag: socket.socket, ours: Address, theirs: Address) -> int | None:
    packed = [ipaddress.ip_address(address[0].partition("%")[0]).packed for address in (theirs, ours)]
    family = socket.AF_INET6 if len(packed[0]) == 16 else socket.AF_INET
    ports = struct.pack("!HH", theirs[1], ours[1])
    asked = ports + packed[0].ljust(16, b"\0") + packed[1].ljust(16, b"\0") + bytes(4) + _NO_COOKIE
    request = struct.pack("=BBBxI", family, socket.IPPROTO_TCP, 0, _ANY_STATE) + asked
    diag.send(struct.pack("=IHHII", 16 + len(request), _BY_FAMILY, _NLM_F_REQUEST, 1, 0) + request)
    answer = diag.recv(4096)
    (kind,) = struct.unpack_from("=H", answer, 4)
    if kind == _NLMSG_ERROR:
        (code,) = struct.unpack_from("=i", answer, 16)
        if -code != errno.ENOENT:
            raise OSError(-code, os.strerror(-code))
    elif answer[_STATE_AT] == _ESTABLISHED and answer[20:24] == ports:
        (uid,) = struct.unpack_from("=I", answer, _UID_AT)
        return int(uid)
    elif answer[20:24] == ports:
        raise PeerGone
    if ours[0] == theirs[0] or ipaddress.ip_address(theirs[0].partition("%")[0]).is_loopback:
        raise PeerGone
    return None
