"""Files of a guest's directory: replaced at once, with their owner and mode from the first moment."""

import contextlib
import fcntl
import json
import os
import shutil
import stat
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

CONFIG, LOCK = "guest.json", "guest.lock"


def replace_file(path: Path, content: bytes, owner: int, mode: int) -> None:
    """Make a file hold ``content``; one that does already is left alone."""
    replace_files(path.parent, {path.name: content}, owner, mode)


def replace_files(directory: Path, contents: Mapping[str, bytes], owner: int, mode: int) -> None:
    """Make files that belong together hold their contents; where there is no room for one, all stay as they are."""
    changed = [name for name, content in contents.items() if not _holds(directory / name, content)]
    try:
        for name in changed:
            _write_new(directory / name, contents[name], owner, mode)
    except OSError:
        for name in changed:
            with contextlib.suppress(OSError):
                _new(directory / name).unlink()
        raise
    for name in changed:
        _new(directory / name).replace(directory / name)


def _holds(path: Path, content: bytes) -> bool:
    try:
        return path.read_bytes() == content
    except FileNotFoundError:
        return False


def _new(path: Path) -> Path:
    return path.with_name(path.name + ".new")


def _write_new(path: Path, content: bytes, owner: int, mode: int) -> None:
    with contextlib.suppress(FileNotFoundError):
        _new(path).unlink()
    try:
        with open(_new(path), "xb", opener=lambda name, flags: os.open(name, flags, mode)) as file:
            os.fchown(file.fileno(), owner, owner)
            os.fchmod(file.fileno(), mode)
            file.write(content)
    except OSError as error:
        error.filename = error.filename or str(path)  # a file that is open has no name: write(2)
        raise


def make_directory(path: Path, owner: int, group: int, mode: int) -> None:
    """Make a directory, or bring an existing one to this owner and mode; OSError for a link to one."""
    path.mkdir(parents=True, exist_ok=True)
    held = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        os.fchown(held, owner, group)
        os.fchmod(held, mode)
    finally:
        os.close(held)


def take_over(directory: Path, folders: Collection[str]) -> None:
    """Remove from the directory of a guest that does not run what one of an older version may have left there.

    Its root could write to it: links and what else is no plain file, which could lead whoever comes after it astray,
    and folders other than ``folders``. Sockets stay: another controller may be starting the guest just now.
    """
    with contextlib.suppress(FileNotFoundError):
        for entry in list(os.scandir(directory)):
            mode = entry.stat(follow_symlinks=False).st_mode
            if stat.S_ISDIR(mode):
                if entry.name not in folders:
                    shutil.rmtree(entry.path)
            elif not (stat.S_ISREG(mode) or stat.S_ISSOCK(mode)):
                os.unlink(entry.path)


def read_config(directory: Path) -> dict[str, Any] | None:
    """Return what a guest was started with, None where that is not known."""
    try:
        config: dict[str, Any] = json.loads((directory / CONFIG).read_text())
    except (OSError, ValueError):
        return None
    return config


def write_config(directory: Path, config: dict[str, Any]) -> None:
    """Note what a guest was started with."""
    replace_file(directory / CONFIG, json.dumps(config, indent=1).encode(), 0, 0o600)


def note_start(directory: Path, config: dict[str, Any]) -> bool:
    """Note what a guest is about to be started with; False where one is there that came from what was noted before,
    though nobody may have noted its process yet: a start outlives whoever asked for it."""
    held = os.open(directory / LOCK, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        write_config(directory, config)
        fcntl.flock(held, fcntl.LOCK_UN)  # also for a process that is being forked just now
    except BlockingIOError:
        return False
    finally:
        os.close(held)
    return True


def note_change(directory: Path, former: dict[str, Any]) -> None:
    """Note that a guest is handed another configuration than ``former``: until it has taken one it has neither for
    certain, as its answer may be lost and a refusal leaves the interfaces as they were to be."""
    write_config(directory, former | {"changing": True})


@contextlib.contextmanager
def short_path(directory: Path, name: str) -> Iterator[str]:
    """A path of a socket in a directory that is short enough: it may have 107 octets (unix(7)), and ours more."""
    held = os.open(directory, os.O_PATH)
    try:
        yield f"/proc/self/fd/{held}/{name}"
    finally:
        os.close(held)
