"""The files of the audit log: lines are appended whole and synced, the oldest file goes where there are too many.

audit.log  ──full──►  audit.1.log  ──►  …  ──►  audit.7.log  ──►  deleted
"""

import contextlib
import itertools
import os
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO

FILE_BYTES, FILES = 8 << 20, 8
"""Size of a file and how many there are: 64 MiB in all."""


class AuditFiles:
    """Appends to the newest file and reads all of them. Not for several threads at once."""

    def __init__(self, directory: Path, file_bytes: int = FILE_BYTES, files: int = FILES) -> None:
        self.path = directory / "audit.log"
        self._directory, self._file_bytes, self._files = directory, file_bytes, files

    def append(self, lines: Iterable[bytes]) -> None:
        """Append lines, each with its end, and sync them. OSError where that fails, or what making a line raises, and
        then none of them is there that did not fill a file."""
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = self._open()
        size = start = os.fstat(descriptor).st_size
        try:
            for line in lines:
                if size and size + len(line) > self._file_bytes:
                    os.fsync(descriptor)
                    start = size  # what is in a file that is full stays
                    self._rotate()
                    descriptor, full = self._open(), descriptor
                    size = start = 0
                    os.close(full)
                _write(descriptor, line)
                size += len(line)
            os.fsync(descriptor)
        except BaseException:
            with contextlib.suppress(OSError):
                os.ftruncate(descriptor, start)
            raise
        finally:
            os.close(descriptor)

    def _open(self) -> int:
        descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            size = os.fstat(descriptor).st_size
            if size and os.pread(descriptor, 1, size - 1) != b"\n":  # the host went down under a write
                _write(descriptor, b"\n")
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor

    def _rotate(self) -> None:
        paths = [self.path, *(self._numbered(number) for number in range(1, self._files))]
        for newer, older in reversed(list(itertools.pairwise(paths))):
            with contextlib.suppress(FileNotFoundError):
                newer.replace(older)

    def _numbered(self, number: int) -> Path:
        return self._directory / f"audit.{number}.log"

    def open_all(self, since: float = 0.0) -> list[BinaryIO]:
        """Open all files to be read, the oldest first, but for those last written before ``since`` (seconds since the
        epoch). What is appended or rotated from then on changes nothing in what was there."""
        found: list[BinaryIO] = []
        for path in (*(self._numbered(number) for number in range(self._files - 1, 0, -1)), self.path):
            with contextlib.suppress(FileNotFoundError):
                file = path.open("rb")
                if os.fstat(file.fileno()).st_mtime >= since:
                    found.append(file)
                else:
                    file.close()
        return found


def _write(descriptor: int, octets: bytes) -> None:
    while octets:
        octets = octets[os.write(descriptor, octets) :]
