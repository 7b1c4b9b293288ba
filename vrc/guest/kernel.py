"""System calls that a guest's first process needs and the standard library of Python 3.11 does not have."""

import ctypes
import os
import struct

CLONE_NEWNS = 0x00020000
CLONE_NEWUTS = 0x04000000
CLONE_NEWIPC = 0x08000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000

MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC = 1, 2, 4, 8
MS_BIND, MS_REC, MS_PRIVATE = 4096, 16384, 1 << 18
MOUNT_ATTR_RDONLY, MOUNT_ATTR_NOSUID = 1, 2
_PR_SET_DUMPABLE, _PR_SET_SECUREBITS, _SECBIT_NO_SETUID_FIXUP = 4, 28, 4
_AT_FDCWD, _AT_RECURSIVE = -100, 0x8000
_SYS_MOUNT_SETATTR = 442  # the same number on every architecture
_IN_NONBLOCK_CLOEXEC = os.O_NONBLOCK | os.O_CLOEXEC
_IN_CREATE, _IN_MOVED_TO = 0x100, 0x80

_libc = ctypes.CDLL(None, use_errno=True)


class EnclosureError(Exception):
    """The kernel refused a part of the enclosure; the text says which."""


def _check(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise EnclosureError(f"{what}: {os.strerror(number)}") from OSError(number, os.strerror(number))


def mount(source: str, target: str, kind: str | None, flags: int, options: str | None = None) -> None:
    """mount(2); EnclosureError names the target."""
    result = _libc.mount(
        source.encode(),
        target.encode(),
        kind.encode() if kind else None,
        ctypes.c_ulong(flags),
        options.encode() if options else None,
    )
    _check(result, f"mount on {target}")


def set_mount(target: str, attr_set: int, attr_clear: int, recursive: bool = False) -> None:
    """mount_setattr(2); EnclosureError names the target."""
    attributes = struct.pack("=QQQQ", attr_set, attr_clear, 0, 0)
    flags = _AT_RECURSIVE if recursive else 0
    result = _libc.syscall(_SYS_MOUNT_SETATTR, _AT_FDCWD, target.encode(), flags, attributes, len(attributes))
    _check(result, f"mount_setattr of {target}")


def unshare(flags: int) -> None:
    """unshare(2)."""
    _check(_libc.unshare(flags), "unshare")


def setns(fd: int, kind: int) -> None:
    """setns(2)."""
    _check(_libc.setns(fd, kind), "setns")


def close_to_others() -> None:
    """Let nobody look into this process who may not look into all of the host (prctl(2), PR_SET_DUMPABLE)."""
    _check(_libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0), "prctl")


def become_user(number: int) -> None:
    """Become a user and a group, and keep the capabilities until this process has another user namespace.

    Without CAP_SETPCAP they are lost (capabilities(7), "The securebits flags"): then it has one where everybody may.
    """
    _libc.prctl(_PR_SET_SECUREBITS, _SECBIT_NO_SETUID_FIXUP, 0, 0, 0)
    os.setresgid(number, number, number)
    os.setresuid(number, number, number)


def watch_directory(path: str) -> int:
    """Return an inotify descriptor that becomes readable when something appears in ``path``."""
    fd = int(_libc.inotify_init1(_IN_NONBLOCK_CLOEXEC))
    if fd < 0 or _libc.inotify_add_watch(fd, path.encode(), _IN_CREATE | _IN_MOVED_TO) < 0:
        raise EnclosureError(f"inotify on {path}: {os.strerror(ctypes.get_errno())}")
    return fd
