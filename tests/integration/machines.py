"""The image of guests in machines for tests, and what is left of machines on a host."""

import asyncio
import functools
import subprocess
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from controller.guests import limits
from controller.guests.machine import accelerator, image

ROOT = Path(__file__).parents[2]
IMAGE = ROOT / "build/guest"
QEMU = "qemu-system-x86_64"
BOOT_S = 240.0
"""A deadline: an emulated machine boots in seconds, but not on a host that has other things to do."""


def needs_image() -> None:
    """Fail, by name, where the image was not made."""
    assert (IMAGE / "image.json").exists(), f"{IMAGE} is missing; run: scripts/setup tests"


def remember_accelerator(state: Path) -> None:
    """Have what keeps its state in this directory know what machines run on here, which it would try by itself.

    Where guests hang under KVM that takes 2 s of a core, for each controller of a test.
    """
    (state / accelerator.FILE).write_bytes(_found_accelerator())


@functools.cache
def _found_accelerator() -> bytes:
    with tempfile.TemporaryDirectory(prefix="sp-accelerator-") as name:
        probe = accelerator.AcceleratorProbe(Path(name))
        choosing = probe.choose(image.load(IMAGE, "a test"))
        with ThreadPoolExecutor(1) as pool:  # this thread may have a loop
            pool.submit(asyncio.run, choosing).result()
        return (Path(name) / accelerator.FILE).read_bytes()


def machines_of(directory: Path) -> list[int]:
    """Return the QEMU processes that hold a file under a directory: each has its machine's lock and logs."""
    found = []
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            is_qemu = entry.name.isdigit() and QEMU in (entry / "cmdline").read_text().split("\0")[0]
            if is_qemu and any(path.is_relative_to(directory) for path in _opened(entry)):
                found.append(int(entry.name))
    return found


def _opened(process: Path) -> Iterator[Path]:
    """Yield what a process holds open; QEMU closes connections meanwhile, which says nothing of the others."""
    for held in (process / "fd").iterdir():
        with suppress(FileNotFoundError):
            yield held.readlink()


def control_groups(directory: Path) -> set[str]:
    """Return the control groups of the machine whose directory this is."""
    find = ["find", "/sys/fs/cgroup", "-path", f"*/splitplane?{limits.name_of(directory)}", "-type", "d"]
    return set(subprocess.run(find, capture_output=True, text=True, check=False).stdout.split())
