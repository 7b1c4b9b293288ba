"""Stores, without the time that making one takes, which goes through all versions of the schema."""

import functools
import os
import tempfile
from pathlib import Path

from controller.store.sqlite import FILE, SqliteStore


@functools.cache
def _octets() -> bytes:
    with tempfile.TemporaryDirectory(prefix="sp-unit-") as name:
        SqliteStore(Path(name)).close()
        return Path(name, FILE).read_bytes()


def store_in(directory: Path) -> SqliteStore:
    """Open the store of a directory; both are made where they do not exist."""
    directory.mkdir(mode=0o700, exist_ok=True)
    if not (directory / FILE).exists():
        with open(directory / FILE, "xb", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
            file.write(_octets())
    return SqliteStore(directory)
