"""Somebody at a terminal who runs a command there."""

import fcntl
import os
import pty
import select
import struct
import subprocess
import termios
import time
from collections.abc import Mapping, Sequence

LIMIT_S = 60.0
"""A deadline for whatever a screen is to show."""


class Operator:
    """Sits at a terminal of its own, which the command controls as it would a shell's."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self._master, slave = pty.openpty()
        self.resize(24, 80)
        controlling = ("/usr/bin/setsid", "--ctty", "--wait")
        self.process = subprocess.Popen(
            [*controlling, *command], stdin=slave, stdout=slave, stderr=slave, env={**environment, "TERM": "xterm"}
        )
        os.close(slave)
        self.screen = b""

    def resize(self, rows: int, columns: int) -> None:
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def type(self, keys: bytes) -> None:
        while keys:
            keys = keys[os.write(self._master, keys[:1024]) :]

    def sees(self, text: bytes, typing: bytes = b"") -> bytes:
        """Wait until the screen shows something, and forget it; type something until then. Returns what was there
        before it."""
        deadline = time.monotonic() + LIMIT_S
        while text not in self.screen:
            assert time.monotonic() < deadline, (text, self.screen[-2000:])
            self.type(typing)
            assert self._look(), (text, self.screen[-2000:])
        before, _, self.screen = self.screen.partition(text)
        return before

    def _look(self) -> bool:
        """Wait a second for more; tells whether there may be any."""
        if not select.select([self._master], [], [], 1.0)[0]:
            return True
        try:
            piece = os.read(self._master, 65536)
        except OSError:  # nobody has the other end any more
            return False
        self.screen += piece
        return True

    def ends(self) -> int:
        """Wait for the end of the command; its exit status."""
        deadline = time.monotonic() + LIMIT_S
        while self._look():
            assert time.monotonic() < deadline, self.screen[-2000:]
        return self.process.wait(LIMIT_S)

    def close(self) -> None:
        """Go away; harmless when that was done."""
        self.process.kill()
        self.process.wait()
        if self._master >= 0:
            os.close(self._master)
            self._master = -1
