"""Root of a machine writes newlines on its control channel: machine_newlines.py SECONDS, inside of the machine.

The port is its first process's and cannot be opened twice, so the descriptor is taken from there. Returns at once;
how many octets the host took is in WRITTEN at the end.
"""

import ctypes
import os
import select
import sys
import time
from pathlib import Path

from vrc.machine.system import CONTROL_PORT, find_port

WRITTEN = Path("/run/newlines")
_PIDFD_GETFD = 438  # pidfd_getfd(2), which Python does not have
_NEWLINES = b"\n" * 4096


def taken_from_init(device: str) -> int:
    """Return a descriptor of what the first process has open as ``device``."""
    (number,) = [one for one in Path("/proc/1/fd").iterdir() if str(one.readlink()) == device]
    libc = ctypes.CDLL(None, use_errno=True)
    fd = libc.syscall(_PIDFD_GETFD, os.pidfd_open(1), int(number.name), 0)
    if fd < 0:
        raise OSError(ctypes.get_errno(), f"pidfd_getfd {number}")
    return int(fd)


def flood(fd: int, seconds: float) -> int:
    """Write for so long; returns how many octets were taken."""
    written, until = 0, time.monotonic() + seconds
    waiting = select.poll()
    waiting.register(fd, select.POLLOUT)
    while time.monotonic() < until:
        try:
            written += os.write(fd, _NEWLINES)
        except BlockingIOError:  # nobody on the host listens
            waiting.poll(10)
    return written


def main() -> None:
    """Leave a process behind that does it."""
    device = find_port(CONTROL_PORT)
    assert device is not None
    fd, seconds = taken_from_init(device), float(sys.argv[1])
    WRITTEN.unlink(missing_ok=True)
    if os.fork():
        print("{}", flush=True)
        return
    os.setsid()
    silence = os.open(os.devnull, os.O_RDWR)
    for standard in range(3):
        os.dup2(silence, standard)
    WRITTEN.write_text(str(flood(fd, seconds)))


if __name__ == "__main__":
    main()
