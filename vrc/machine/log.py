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
_KNOWN_BY = 256  # octets


class LogTail:
    """Follows the file ``path``, a guest's log (vrc/guest/log.py), and gives its lines to ``show``.

    Lines beyond the rate are not shown and counted: one line says how many. Of a log that was begun again the former
    file is read first; where that does not begin with what was read so far, a line says that some may be lost.
    """

    def __init__(self, reactor: Reactor, path: str, show: Callable[[str], None]) -> None:
        self._reactor, self._path, self._former, self._show = reactor, path, f"{path}.1", show
        self._fd, self._at, self._rest = -1, 0, b""
        self._last = b""  # the last octets before that, by which the former file is known as the one read so far
        self._former_ns = _written_ns(self._former)
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
        log, former_ns = os.fstat(self._fd), _written_ns(self._former)
        # It was begun again, and the former file is complete: that one is emptied, and written, first.
        begun_again = former_ns and former_ns != self._former_ns and former_ns < log.st_mtime_ns
        if log.st_size < self._at or begun_again:
            self._former_ns = former_ns
            self._read_former()
            self._at, self._last = 0, b""
        self._at += self._read(self._fd, self._at)

    def _read_former(self) -> None:
        fd = _open(self._former)
        if fd < 0:
            return
        at = self._at
        if not self._last or os.pread(fd, len(self._last), at - len(self._last)) != self._last:
            self._show(f"{self._path} was begun again before it was read: what was before {self._former} may be lost")
            self._allowed, self._rest, at = max(0, self._allowed - 1), b"", 0
        while read := self._read(fd, at):
            at += read
        os.close(fd)

    def _read(self, fd: int, at: int) -> int:
        """Show the lines from an offset on; return how many octets were read."""
        data = os.pread(fd, MAX_LOOK_BYTES, at)
        self._last = (self._last + data)[-_KNOWN_BY:]
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


def _written_ns(path: str) -> int:
    """Return when a file was written, 0 where there is nothing in it."""
    try:
        found = os.stat(path, follow_symlinks=False)
    except OSError:
        return 0
    return found.st_mtime_ns if found.st_size else 0
