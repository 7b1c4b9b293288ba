"""Shows on a machine's console what the guest inside logs, line by line and no faster than a console may grow."""

import os
from collections.abc import Callable

from vrc.guest.reactor import Reactor

LOOK_S = 1.0
LINES_PER_LOOK = 20
BURST_LINES = 400
"""Lines that may be shown at once after a quiet time; in the long run it is LINES_PER_LOOK."""
MAX_LOOK_BYTES = 256 << 10
MAX_LINE = 500
"""Characters shown of one line."""


class LogTail:
    """Follows the file ``path``, a guest's log (vrc/guest/log.py), and gives its lines to ``show``.

    Lines beyond the rate are not shown and counted: one line says how many.
    """

    def __init__(self, reactor: Reactor, path: str, show: Callable[[str], None]) -> None:
        self._reactor, self._path, self._show = reactor, path, show
        self._fd, self._at, self._rest = -1, 0, b""
        self._allowed, self._skipped = BURST_LINES, 0
        self._look()

    def _look(self) -> None:
        self._reactor.call_later(LOOK_S, self._look)
        self._allowed = min(BURST_LINES, self._allowed + LINES_PER_LOOK)
        if self._skipped and self._allowed > 1:
            self._show(f"{self._skipped} lines were not shown; they are in {self._path}")
            self._allowed, self._skipped = self._allowed - 1, 0
        if self._fd < 0:
            self._fd = _open(self._path)
        if self._fd < 0:
            return
        if os.fstat(self._fd).st_size < self._at:  # it was begun again
            self._read_former()
            self._at = 0
        self._at += self._read(self._fd, self._at)

    def _read_former(self) -> None:
        fd = _open(f"{self._path}.1")
        if fd >= 0:
            self._read(fd, self._at)
            os.close(fd)

    def _read(self, fd: int, at: int) -> int:
        """Show the lines from an offset on; return how many octets were read."""
        data = os.pread(fd, MAX_LOOK_BYTES, at)
        *lines, self._rest = (self._rest + data).split(b"\n")
        self._rest = self._rest[-MAX_LOOK_BYTES:]
        shown, self._allowed = lines[: self._allowed], max(0, self._allowed - len(lines))
        for line in shown:
            text = line[:MAX_LINE].decode(errors="replace")
            self._show("".join(c if c.isprintable() else "?" for c in text))
        self._skipped += len(lines) - len(shown)
        return len(data)


def _open(path: str) -> int:
    """Return a descriptor of a file, -1 where there is none."""
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return -1
