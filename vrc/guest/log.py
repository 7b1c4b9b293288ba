"""The one log file of a guest: bounded in size, with one former file beside it."""

import contextlib
import os
import time

MAX_LOG_BYTES = 4 << 20
MAX_LINE_BYTES = 2000


class GuestLog:
    """Appends lines to ``path``; when it reaches `limit` octets they become those of `former`, and it begins again.

    Both files are opened once, by whoever starts the guest: its first process, which writes to them, has no right to
    the directory that they are in. So nothing is renamed. The guest may read them, and nobody else gets that far:
    their directory is root's.
    """

    def __init__(self, path: str, limit: int = MAX_LOG_BYTES) -> None:
        self.path, self.former, self.limit, self.lost = path, f"{path}.1", limit, 0
        self._fd = _open(path, os.O_RDWR | os.O_APPEND)
        self._former_fd = _open(self.former, os.O_WRONLY)
        self._size = os.fstat(self._fd).st_size

    def write(self, source: str, line: str) -> None:
        """Add one line said by ``source``; a full disk loses it and counts it, and never stops the guest."""
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime())
        data = f"{stamp}Z {source}: {line}".encode(errors="replace")[:MAX_LINE_BYTES] + b"\n"
        try:
            if self._size + len(data) > self.limit:
                self._begin_again()
            self._size += os.write(self._fd, data)
        except OSError:
            self.lost += 1

    def _begin_again(self) -> None:
        """Copy what there is to the former file, first, for whoever follows the log; and empty this one."""
        with contextlib.suppress(OSError):  # a full disk: then the former file is short
            os.ftruncate(self._former_fd, 0)
            os.lseek(self._former_fd, 0, os.SEEK_SET)
            copied = 0
            while sent := os.sendfile(self._former_fd, self._fd, copied, self._size - copied):
                copied += sent
        os.ftruncate(self._fd, 0)
        self._size = 0


def _open(path: str, flags: int) -> int:
    fd = os.open(path, flags | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
    os.fchmod(fd, 0o644)
    return fd
