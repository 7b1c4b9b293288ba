"""The one log file of a guest: bounded in size, with one former file beside it."""

import contextlib
import os
import time

MAX_LOG_BYTES = 4 << 20
MAX_LINE_BYTES = 2000
LINES_AT_ONCE, LINES_PER_S = 10_000, 1_000
"""So many lines of one source are written at once, and so many a second then: zebra can say 40,000 a second, and to
write one costs the guest's first process more than zebra."""


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
        self._room: dict[str, _Room] = {}  # by source

    def write(self, source: str, line: str) -> None:
        """Add one line said by ``source``; a full disk loses it and counts it, and never stops the guest.

        What one source says beyond `LINES_PER_S` is lost and counted, too, and the next line of it says so.
        """
        room = self._room.get(source)
        if room is None:
            room = self._room[source] = _Room()
        if not room.take(time.monotonic()):
            self.lost += 1
            return
        if room.refused:
            refused, room.refused = room.refused, 0
            self._write("vr-guest", f"{refused} lines of {source} are lost: more than {LINES_PER_S} a second")
        self._write(source, line)

    def _write(self, source: str, line: str) -> None:
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


class _Room:
    """A token bucket of lines."""

    def __init__(self) -> None:
        self.refused = 0
        self._lines, self._since_s = float(LINES_AT_ONCE), 0.0

    def take(self, now_s: float) -> bool:
        """Take room for one line, if there is any; one that was refused counts."""
        self._lines = min(LINES_AT_ONCE, self._lines + (now_s - self._since_s) * LINES_PER_S)
        self._since_s = now_s
        # After a refusal there is room for a hundred: what is lost is told ten times a second, not before each line.
        if self._lines < (LINES_PER_S // 10 if self.refused else 1):
            self.refused += 1
            return False
        self._lines -= 1
        return True


def _open(path: str, flags: int) -> int:
    fd = os.open(path, flags | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
    os.fchmod(fd, 0o644)
    return fd
