"""Which texts a suite's own parser has taken: who asks it at apply does not ask again when the guest starts."""

import hashlib
import os
from pathlib import Path

MOST_TEXTS = 16_384
"""So many are remembered, each by a digest; of more, the oldest is forgotten."""


def identity(program: str | Path) -> tuple[int, ...]:
    """Return what tells a program from another one under its path, as after an upgrade; empty where there is none."""
    try:
        found = os.stat(program)
    except OSError:
        return ()
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


class TakenTexts:
    """Texts that programs have taken."""

    def __init__(self) -> None:
        self._known: dict[bytes, None] = {}  # the oldest first

    def key(self, program: str, text: str) -> bytes:
        """Return what a text is known by, of the program as it is now."""
        digest = hashlib.sha256(repr((program, identity(program))).encode())
        digest.update(text.encode())
        return digest.digest()

    def __contains__(self, key: bytes) -> bool:
        return key in self._known

    def add(self, key: bytes) -> None:
        """Remember a text by the key that it had before its program was asked."""
        self._known[key] = None
        if len(self._known) > MOST_TEXTS:
            del self._known[next(iter(self._known))]
