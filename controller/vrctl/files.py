"""Files that vrctl writes."""

import os
from collections.abc import Iterable
from pathlib import Path

from controller.errors import SplitplaneError


def write_private(path: Path, pieces: Iterable[bytes]) -> int:
    """Write a new file that only its owner may read, whole or not at all; returns its size in octets."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        if path.exists():
            raise SplitplaneError(f"{path} exists; give the name of a new file")
        size = 0
        with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            for piece in pieces:
                size += file.write(piece)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as problem:
        raise SplitplaneError(f"{path}: {problem.strerror}; nothing was written") from None
    finally:
        temporary.unlink(missing_ok=True)
    return size


def append_all(path: Path, pieces: Iterable[bytes]) -> None:
    """Write a stream to a file as it comes."""
    try:
        with path.open("wb", buffering=0) as file:
            for piece in pieces:
                file.write(piece)
    except OSError as problem:
        raise SplitplaneError(f"{path}: {problem.strerror}") from None
