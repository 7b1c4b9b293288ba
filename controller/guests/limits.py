"""Limits on what a machine may take of the host: a control group of memory, cpu and pids, version 2 or 1.

A controller (in the kernel's sense) that the host does not offer is left out, and named, so that the status tells.
"""

import contextlib
import hashlib
import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from controller.guests.shutdown import KILL_LIMIT_S, ended

ROOT = Path("/sys/fs/cgroup")
PARENT = "splitplane"
CONTROLLERS = ("memory", "cpu", "pids")
_PERIOD_US = 100_000


@dataclass(frozen=True, slots=True)
class Limits:
    """What one machine may take."""

    memory_bytes: int
    cpus: float
    pids: int


@dataclass(frozen=True, slots=True)
class Group:
    """Control groups that are ready: the files to write a pid to, and the controllers that could not be had."""

    procs: tuple[str, ...]
    missing: tuple[str, ...]


def name_of(directory: Path) -> str:
    """A name that two controllers on one host do not share."""
    return f"{directory.name}-{hashlib.sha256(str(directory.absolute()).encode()).hexdigest()[:12]}"


def _unified(root: Path) -> tuple[Path, set[str]]:
    for place in (root, root / "unified"):
        with contextlib.suppress(OSError):
            return place, set((place / "cgroup.controllers").read_text().split())
    return root, set()


def _settings(controller: str, limits: Limits, unified: bool) -> dict[str, str]:
    quota = str(round(limits.cpus * _PERIOD_US))
    if controller == "memory":
        return {"memory.max" if unified else "memory.limit_in_bytes": str(limits.memory_bytes)}
    if controller == "pids":
        return {"pids.max": str(limits.pids)}
    if unified:
        return {"cpu.max": f"{quota} {_PERIOD_US}"}
    return {"cpu.cfs_period_us": str(_PERIOD_US), "cpu.cfs_quota_us": quota}


def make(directory: Path, limits: Limits, root: Path = ROOT) -> Group:
    """Make the control groups of the machine of a directory, or bring them to these limits."""
    name = name_of(directory)
    base, offered = _unified(root)
    procs: list[str] = []
    missing: list[str] = []
    for controller in CONTROLLERS:
        unified = controller in offered
        group = (base if unified else root / controller) / PARENT / name
        try:
            if unified:
                _delegate(base, controller)
            elif not (root / controller / "cgroup.procs").exists():
                raise FileNotFoundError(controller)
            group.mkdir(parents=True, exist_ok=True)
            for file, value in _settings(controller, limits, unified).items():
                (group / file).write_text(value)
        except OSError:
            missing.append(controller)
            continue
        if str(group / "cgroup.procs") not in procs:
            procs.append(str(group / "cgroup.procs"))
    return Group(tuple(procs), tuple(missing))


def _delegate(base: Path, controller: str) -> None:
    """Let groups below have a controller (cgroup-v2, "Enabling and Disabling")."""
    for place in (base, base / PARENT):
        place.mkdir(exist_ok=True)
        control = place / "cgroup.subtree_control"
        if controller not in control.read_text().split():
            control.write_text(f"+{controller}")


def _groups(directory: Path, root: Path) -> Iterator[Path]:
    name = name_of(directory)
    for place in (root, root / "unified", *(root / controller for controller in CONTROLLERS)):
        yield place / PARENT / name


def remove(directory: Path, root: Path = ROOT) -> None:
    """Remove the control groups of a machine that has ended; what still holds a process stays."""
    for group in _groups(directory, root):
        for place in (group, group.parent):  # the parent with the last of them
            with contextlib.suppress(OSError):
                place.rmdir()


async def empty(directory: Path, root: Path = ROOT) -> None:
    """End what is left in a machine's control groups, and wait for it."""
    for group in _groups(directory, root):
        with contextlib.suppress(OSError):
            for pid in map(int, (group / "cgroup.procs").read_text().split()):
                with contextlib.suppress(ProcessLookupError):
                    held = os.pidfd_open(pid)
                    try:
                        signal.pidfd_send_signal(held, signal.SIGKILL)
                        await ended(held, KILL_LIMIT_S)
                    finally:
                        os.close(held)
