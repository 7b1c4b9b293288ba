"""What a machine and its QEMU said: the console's log and its bound, and the last words of either."""

import contextlib
import re
import shutil
from pathlib import Path

from controller.events.untrusted_text import printable
from controller.guests.machine import monitor

CONSOLE_LOG, QEMU_LOG = "console.log", "qemu.log"
MAX_CONSOLE_BYTES = 1 << 20
"""Of the console's log, then it becomes console.log.1."""

_TAIL_BYTES = 64 << 10
_PANIC = re.compile(rb"Kernel panic - not syncing: ([^\r\n]{1,200})")
_KERNEL_LINE = re.compile(r"\[ *[0-9]+\.[0-9]{6}\] ")
_MEMORY_WORDS = ("out of memory", "deadlocked on memory")


def last_words(directory: Path, ended: str, memory_mib: int) -> str:
    """Say why a machine ended: its kernel's panic, else ``ended`` (QEMU's monitor), else QEMU's complaint."""
    panics = _PANIC.findall(_tail(directory / CONSOLE_LOG))
    if panics:
        text = panics[-1].decode(errors="replace").strip()
        if any(words in text.lower() for words in _MEMORY_WORDS):
            return f"out of memory; raise memory: under guest: (now {memory_mib}M)"
        return f"kernel panic: {printable(text)}"
    if ended in monitor.BY_ITSELF and (last := last_line(directory / CONSOLE_LOG, _KERNEL_LINE)):
        return f"{ended}: {last}"
    return ended or last_line(directory / QEMU_LOG) or "QEMU was killed"


def bound_console(directory: Path) -> None:
    """Keep the console's log short. QEMU appends to it, so what is cut off is kept as console.log.1."""
    log = directory / CONSOLE_LOG
    with contextlib.suppress(OSError):
        if log.stat().st_size > MAX_CONSOLE_BYTES:
            shutil.copyfile(log, f"{log}.1")
            with log.open("r+b") as file:
                file.truncate()


def _tail(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - _TAIL_BYTES))
            return file.read(_TAIL_BYTES)
    except OSError:
        return b""


def last_line(path: Path, but: re.Pattern[str] | None = None) -> str:
    """The last line, not of a kind, of a log that a guest may have written; fit to be shown."""
    lines = _tail(path).decode(errors="replace").split("\n")
    said = [line.strip() for line in lines if line.strip() and not (but and but.match(line))]
    return printable(said[-1].removeprefix("qemu-system-x86_64: ")) if said else ""
