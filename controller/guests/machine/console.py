"""Connects this terminal with a machine's serial console; started by `vrctl console`. Ctrl-] ends it.

    python -m controller.guests.machine.console DIRECTORY

One at a time: QEMU serves the next one when this one has gone.
"""

import contextlib
import os
import select
import socket
import sys
import termios
import tty
from collections.abc import Iterator
from pathlib import Path

from controller.guests.guest_files import short_path

SOCKET = "console.sock"
ESCAPE = b"\x1d"  # Ctrl-]
_PIECE_BYTES = 1 << 16


@contextlib.contextmanager
def raw_terminal() -> Iterator[None]:
    """Hand on every key as it is typed, where standard input is a terminal."""
    if not os.isatty(0):
        yield
        return
    before = termios.tcgetattr(0)
    tty.setraw(0)
    try:
        yield
    finally:
        termios.tcsetattr(0, termios.TCSADRAIN, before)


def carry(channel: socket.socket, keys: int, screen: int) -> None:
    """Carry octets both ways until Ctrl-] is typed or the machine ends; ``keys`` and ``screen`` are descriptors."""
    reading = {channel.fileno(), keys}
    while True:
        ready, _, _ = select.select(reading, [], [])
        if channel.fileno() in ready:
            piece = channel.recv(_PIECE_BYTES)
            if not piece:
                return
            os.write(screen, piece)
        if keys in ready:
            typed = os.read(keys, _PIECE_BYTES)
            before, escape, _ = typed.partition(ESCAPE)
            channel.sendall(before)
            if escape:
                return
            if not typed:
                reading.remove(keys)


def main() -> None:
    """Entry point."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as channel:
        try:
            with short_path(Path(sys.argv[1]), SOCKET) as path:
                channel.connect(path)
        except OSError as problem:
            raise SystemExit(f"vrctl: the machine has no console: {problem.strerror}") from None
        print("Connected; Ctrl-] ends.", file=sys.stderr)
        with raw_terminal(), contextlib.suppress(KeyboardInterrupt, ConnectionError):  # the latter as QEMU dies
            carry(channel, 0, 1)


if __name__ == "__main__":
    main()
