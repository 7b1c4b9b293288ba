"""Becomes the QEMU process of one machine: everything it may touch is opened or mounted first, then the rest goes.

    python -m controller.guests.launcher < plan.json        exit status 75: the machine runs already

    1. the lock of the machine's directory, its control groups
    2. the sockets it listens on and the files it uses, opened while their paths are still there
    3. network, mount, ipc and uts namespaces of its own; /run, /home, /root, /tmp, /var/cache, /var/lib, /var/spool
       and the controller's directories are hidden; /run/splitplane has the session's directory, the relay and its
       locks, and nothing else
    4. what was opened as descriptors under fixed numbers (see `Descriptor`), its limits
    5. guest.pid, and exec of setpriv and QEMU, as a user of its own without a capability

Standard library only, and little of it: the process is there once for every start. What becomes QEMU is a fork of it,
so that it is nobody's child that could end with the controller; it keeps its pid and start time through exec.
"""

import contextlib
import ctypes
import fcntl
import json
import os
import resource
import shutil
import signal
import socket
import struct
import sys
from enum import IntEnum
from pathlib import Path
from typing import Any

from controller.guests import pidfile
from wire.scheduling import work_in_batches

RUNS_ALREADY = 75
"""As controller/guests/startup.py has it, which this small program does not import."""
LOCK = "guest.lock"
HOME = "/run/splitplane"
"""Where QEMU finds what the launcher made for it."""

MAX_FILE_BYTES = 8 << 20
"""No file that QEMU or a relay writes gets longer: console, messages, counters."""

_CLONE_NEWNS, _CLONE_NEWUTS, _CLONE_NEWIPC, _CLONE_NEWNET = 0x20000, 0x4000000, 0x8000000, 0x40000000
_MS_RDONLY, _MS_NOSUID, _MS_NODEV, _MS_REMOUNT, _MS_BIND, _MS_REC, _MS_PRIVATE = 1, 2, 4, 32, 4096, 16384, 1 << 18
_SIOCSIFFLAGS, _IFF_UP = 0x8914, 1
_OPEN_FILES, _PROCESSES, _BACKLOG = 512, 96, 16
_HIDDEN = ("/home", "/root", "/tmp", "/var/tmp", "/var/cache", "/var/lib", "/var/spool")
# where Unix sockets of services lie, too, and files that they lock

_libc = ctypes.CDLL(None, use_errno=True)


class Descriptor(IntEnum):
    """The numbers under which QEMU finds what was opened for it."""

    QMP = 10
    CONTROL = 11
    CONSOLE = 12
    KERNEL = 13
    INITRD = 14
    ROOT = 15
    SEED = 16
    CONSOLE_LOG = 17
    TERMINAL0 = 18
    TERMINAL1 = 19
    TERMINAL2 = 20
    TERMINAL3 = 21


class LaunchError(Exception):
    """The kernel refused a step; the text says which."""


def _call(result: int, what: str) -> None:
    if result:
        raise LaunchError(f"{what}: {os.strerror(ctypes.get_errno())}")


def _mount(source: str, target: str, kind: str | None, flags: int, options: str | None = None) -> None:
    encoded = [text.encode() if text else None for text in (source, target, kind)]
    data = options.encode() if options else None
    _call(_libc.mount(*encoded, ctypes.c_ulong(flags), data), f"mount on {target}")


def lock(directory: str) -> bool:
    """Take a machine's directory, as long as this process lives, QEMU included; False where one runs on it."""
    descriptor = os.open(f"{directory}/{LOCK}", os.O_RDWR | os.O_CREAT, 0o600)
    os.set_inheritable(descriptor, True)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def enter_groups(procs: list[str]) -> None:
    """Move into control groups before anything is allocated."""
    for path in procs:
        with open(path, "w") as file:
            file.write(str(os.getpid()))


def limit_resources() -> None:
    """Limits that hold whoever looks on, and also where the host has no control groups."""
    for kind, limit in (
        (resource.RLIMIT_NOFILE, _OPEN_FILES),
        (resource.RLIMIT_FSIZE, MAX_FILE_BYTES),
        (resource.RLIMIT_NPROC, _PROCESSES),
        (resource.RLIMIT_CORE, 1),  # with 0 the host's root may still be started to take it (core(5))
    ):
        _, most = resource.getrlimit(kind)
        value = limit if most == resource.RLIM_INFINITY else min(limit, most)
        resource.setrlimit(kind, (value, value))
    work_in_batches()
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # a full log ends the log and not the machine


def open_all(plan: dict[str, Any]) -> dict[Descriptor, int]:
    """Open the sockets and files of a machine, as root; QEMU could not."""
    found = {Descriptor[name]: _listen(plan["directory"], file) for name, file in plan["sockets"].items()}
    for name, path in plan["files"].items():
        found[Descriptor[name]] = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
    found[Descriptor.CONSOLE_LOG] = os.open(plan["console_log"], flags, 0o600)
    return found


def _listen(directory: str, name: str) -> int:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(f"{directory}/{name}")
    held = os.open(directory, os.O_PATH)  # a socket's path has at most 107 octets
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(f"/proc/self/fd/{held}/{name}")
    os.chmod(f"{directory}/{name}", 0o600)
    listener.listen(_BACKLOG)
    os.close(held)
    return listener.detach()


def place(opened: dict[Descriptor, int]) -> None:
    """Put descriptors under their fixed numbers, to be inherited."""
    # First to numbers of 64 and up: one may have the fixed number of another.
    moved = {name: fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 64) for name, fd in opened.items()}
    for fd in opened.values():
        os.close(fd)
    for name, fd in moved.items():
        os.dup2(fd, name, inheritable=True)
        os.close(fd)


def enclose(plan: dict[str, Any]) -> None:
    """Leave the host's network and see only what a machine needs of its files."""
    _call(_libc.unshare(_CLONE_NEWNS | _CLONE_NEWUTS | _CLONE_NEWIPC | _CLONE_NEWNET), "unshare")
    _bring_up_loopback()
    _mount("none", "/", None, _MS_REC | _MS_PRIVATE)
    # What lies below something that is about to be hidden is held first.
    session, relay = (os.open(plan[name], os.O_PATH) for name in ("session", "relay"))
    with open(plan["relay_program"], "rb") as file:
        program = file.read()
    _tmpfs("/run", "mode=755,size=64k")
    hidden = []
    for directory in (*_HIDDEN, *plan["hidden"]):
        if os.path.isdir(directory):  # it may lie in one that is hidden already
            _tmpfs(directory, "mode=755,size=4k")
            hidden.append(directory)
    for name in ("", "/session", "/relay"):
        os.mkdir(f"{HOME}{name}")
    with open(f"{HOME}/relay.py", "wb") as file:
        file.write(program)
    _bind(session, f"{HOME}/session", writable=False)
    _bind(relay, f"{HOME}/relay", writable=True)
    for directory in ("/run", *hidden):
        _mount("none", directory, None, _MS_REMOUNT | _MS_BIND | _MS_RDONLY | _MS_NOSUID | _MS_NODEV)


def _bring_up_loopback() -> None:
    """QEMU's user network connects with each relay over 127.0.0.1; nothing else is there (netdevice(7))."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        fcntl.ioctl(control, _SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", _IFF_UP))


def _tmpfs(target: str, options: str) -> None:
    _mount("tmpfs", target, "tmpfs", _MS_NOSUID | _MS_NODEV, options)


def _bind(held: int, target: str, writable: bool) -> None:
    _mount(f"/proc/self/fd/{held}", target, None, _MS_BIND)
    os.close(held)
    if not writable:
        _mount("none", target, None, _MS_REMOUNT | _MS_BIND | _MS_RDONLY | _MS_NOSUID | _MS_NODEV)


def make_relay_directory(plan: dict[str, Any]) -> None:
    """Make the relay's locks and counter anew, writable by the machine's user alone."""
    shutil.rmtree(plan["relay"], ignore_errors=True)
    os.mkdir(plan["relay"], 0o700)
    os.chown(plan["relay"], plan["uid"], plan["uid"])


def become(plan: dict[str, Any]) -> None:
    """Do everything and exec; LaunchError or OSError where a step fails."""
    enter_groups(plan["procs"])
    make_relay_directory(plan)
    opened = open_all(plan)
    nothing = os.open(os.devnull, os.O_RDONLY)
    log = os.open(plan["log"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o600)
    for source, target in ((nothing, 0), (log, 1), (log, 2)):
        os.dup2(source, target)
        if target != 1:
            os.close(source)
    enclose(plan)
    place(opened)
    limit_resources()
    pidfile.write(Path("."), os.getpid())
    os.chdir("/")
    os.execv(plan["argv"][0], plan["argv"])


def main() -> None:
    """Entry point: returns once QEMU's process runs, or with one line on standard error why it does not."""
    plan = json.load(sys.stdin)
    if not lock(plan["directory"]):
        raise SystemExit(RUNS_ALREADY)
    read, write = os.pipe()  # closed by exec, which so says that it came that far
    if os.fork():
        os.close(write)
        with open(read, "rb") as pipe:
            sys.exit(pipe.read().decode(errors="replace") or None)
    try:
        os.close(read)
        become(plan)
    except LaunchError as problem:
        os.write(write, str(problem).encode())
    except OSError as problem:
        os.write(write, f"{problem.filename or plan['argv'][0]}: {problem.strerror}".encode())
    finally:
        os._exit(1)


if __name__ == "__main__":
    main()
