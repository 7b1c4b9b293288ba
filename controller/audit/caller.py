"""Whose change it is: the process at the other end of the operator's socket, as the kernel names it."""

import os
import pwd
import socket
import struct
from dataclasses import dataclass
from pathlib import Path

_CREDENTIALS = struct.Struct("3i")  # pid, uid, gid: struct ucred of unix(7)
_NO_LOGIN = (1 << 32) - 1


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks for a change, and from where."""

    uid: int
    gid: int
    pid: int  # 0 where it is in a pid namespace that the controller cannot see
    origin: str  # "unix:/run/splitplane/api.sock"
    login_uid: int | None = None  # as whom this process' session logged in (sudo and su keep it), if that is known


def caller_of(connection: socket.socket, origin: str) -> Caller:
    """Return who connected over a Unix socket (SO_PEERCRED of unix(7)), and as whom it logged in."""
    octets = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, uid, gid = _CREDENTIALS.unpack(octets)
    return Caller(uid, gid, pid, origin, _login_uid(pid))


def this_process() -> Caller:
    """Return the controller itself, which is whose change it is where no other process asked."""
    return Caller(os.getuid(), os.getgid(), os.getpid(), "controller", _login_uid(os.getpid()))


def _login_uid(pid: int) -> int | None:
    try:
        uid = int(Path(f"/proc/{pid}/loginuid").read_text())
    except (OSError, ValueError):  # a kernel without auditing, or a process that is gone or cannot be seen
        return None
    return None if uid == _NO_LOGIN else uid


def user_name(uid: int) -> str:
    """Return a user's name, the number where it has none. May ask the network (nsswitch.conf(5))."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
