"""Shows on a machine's console what the guest inside logs, line by line and no faster than a console may grow."""

import contextlib
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
    """Follows the file ``path``, which may be renamed and begun again, and gives its lines to ``show``.

    Lines beyond the rate are not shown and counted: one line says how many.
    """

    def __init__(self, reactor: Reactor, path: str, show: Callable[[str], None]) -> None:
        self._reactor, self._path, self._show = reactor, path, show
        self._fd, self._rest = -1, b""
        self._allowed, self._skipped = BURST_LINES, 0
        self._look()

    def _look(self) -> None:
        self._reactor.call_later(LOOK_S, self._look)
        self._allowed = min(BURST_LINES, self._allowed + LINES_PER_LOOK)
        if self._skipped and self._allowed > 1:
            self._show(f"{self._skipped} lines were not shown; they are in {self._path}")
            self._allowed, self._skipped = self._allowed - 1, 0
        if self._fd < 0:
            self._open()
        self._read()
        if self._replaced():
            self._read()
            self._open()

    def _open(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
        self._fd = -1
        with contextlib.suppress(OSError):
            self._fd = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)

    def _replaced(self) -> bool:
        """Whether the file of that name is another one by now."""
        if self._fd < 0:
            return False
        try:
            named = os.stat(self._path)
        except FileNotFoundError:
            return False
        return named.st_ino != os.fstat(self._fd).st_ino

    def _read(self) -> None:
        if self._fd < 0:
            return
        *lines, self._rest = (self._rest + os.read(self._fd, MAX_LOOK_BYTES)).split(b"\n")
        self._rest = self._rest[-MAX_LOOK_BYTES:]
        shown, self._allowed = lines[: self._allowed], max(0, self._allowed - len(lines))
        for line in shown:
            text = line[:MAX_LINE].decode(errors="replace")
            self._show("".join(c if c.isprintable() else "?" for c in text))
        self._skipped += len(lines) - len(shown)
