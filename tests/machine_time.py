"""Processor time for emulated machines, each of which would get as much as one of the processes beside it.

A worker that emulates machines is in a group that weighs as much as two others, and so is what it starts; its guests
are in a group beside it (`controller.guests.limits`), which then weighs as much.
"""

import os
from contextlib import suppress
from pathlib import Path

from controller.guests.limits import PARENT, ROOT

OWN = "splitplane-tests"
TIMES = 2


def prefer(root: Path = ROOT) -> None:
    """Have this process and its guests preferred, unless it is; where groups cannot be had, nothing is."""
    base, file, usual = _hierarchy(root)
    own, guests = base / OWN, base / PARENT
    held = guests / OWN  # so that the group of all guests stays with its weight when the last of them has gone
    with suppress(OSError):
        if file == "cpu.weight":
            (base / "cgroup.subtree_control").write_text("+cpu")
        held.mkdir(parents=True, exist_ok=True)
        own.mkdir(exist_ok=True)
        for group in (own, guests):
            (group / file).write_text(str(usual * TIMES))
        (own / "cgroup.procs").write_text(str(os.getpid()))


def release(root: Path = ROOT) -> None:
    """Undo it, of whatever is left of this process's children too."""
    base, _, _ = _hierarchy(root)
    own, guests = base / OWN, base / PARENT
    with suppress(OSError):  # there is none
        for pid in (own / "cgroup.procs").read_text().split():
            with suppress(OSError):  # it has ended
                (base / "cgroup.procs").write_text(pid)
    for group in (guests / OWN, guests, own):
        with suppress(OSError):  # there is none, or somebody else's guest is in it
            group.rmdir()


def _hierarchy(root: Path) -> tuple[Path, str, int]:
    """Return where groups of processor time are, the file of their weight and what it says of a new one."""
    if (root / "cpu/cgroup.procs").exists():
        return root / "cpu", "cpu.shares", 1024
    return root, "cpu.weight", 100
