"""Files of keys and certificates: what belongs together is replaced together, or not at all."""

import contextlib
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from controller.store.disk import sync_directory

PRIVATE = 0o600

Owner = tuple[int, int]
"""User and group."""


def write_together(
    directory: Path, contents: Mapping[str, bytes], *, sync: bool = False, owner: Owner | None = None
) -> None:
    """Replace some files of a directory with content that only their owner may read; an OSError leaves all as is.

    Everything is written beside the files first, because that is what a full disk prevents; renaming needs no room.
    ``sync`` waits for the disk: what is lost is not made again.
    """
    write_beside(directory, contents, sync=sync, owner=owner)
    put_in_place(directory, contents)
    if sync:
        sync_directory(directory)


def write_beside(
    directory: Path, contents: Mapping[str, bytes], *, sync: bool = False, owner: Owner | None = None
) -> None:
    """Write files for `put_in_place`; an OSError leaves none of them."""
    written: list[Path] = []
    try:
        for name, content in contents.items():
            temporary = _beside(directory, name)
            temporary.unlink(missing_ok=True)
            written.append(temporary)
            with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE), "wb") as file:
                if owner is not None:
                    os.fchown(file.fileno(), *owner)
                file.write(content)
                file.flush()
                if sync:
                    os.fsync(file.fileno())
    except OSError:
        discard(directory, contents)
        raise


def put_in_place(directory: Path, names: Iterable[str]) -> None:
    """Rename what `write_beside` wrote, in this order."""
    for name in names:
        _beside(directory, name).replace(directory / name)


def left_beside(directory: Path, names: Iterable[str]) -> dict[str, bytes]:
    """Return what `write_beside` wrote and nobody has put in place or discarded, as one that was killed does not."""
    found = {}
    for name in names:
        with contextlib.suppress(FileNotFoundError):
            found[name] = _beside(directory, name).read_bytes()
    return found


def discard(directory: Path, names: Iterable[str]) -> None:
    """Remove what `write_beside` wrote."""
    for name in names:
        with contextlib.suppress(OSError):
            _beside(directory, name).unlink()


def _beside(directory: Path, name: str) -> Path:
    return directory / f".{name}.new"
