"""The one log file of a guest: bounded in size, with one old file beside it."""

import os
import time

MAX_LOG_BYTES = 4 << 20
MAX_LINE_BYTES = 2000


class GuestLog:
    """Appends lines to ``path`` and renames it to ``path``.1 when it reaches `limit` octets."""

    def __init__(self, path: str, limit: int = MAX_LOG_BYTES) -> None:
        self.path, self.limit, self.lost = path, limit, 0
        self._fd, self._size = -1, 0
        self._open()

    def write(self, source: str, line: str) -> None:
        """Add one line said by ``source``; a full disk loses it and counts it, and never stops the guest."""
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime())
        data = f"{stamp}Z {source}: {line}".encode(errors="replace")[:MAX_LINE_BYTES] + b"\n"
        try:
            if self._size + len(data) > self.limit:
                os.replace(self.path, self.path + ".1")
                os.close(self._fd)
                self._open()
            self._size += os.write(self._fd, data)
        except OSError:
            self.lost += 1

    def _open(self) -> None:
        self._fd = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o640)
        self._size = os.fstat(self._fd).st_size
