"""Control groups of the cpu controller, version 1 or 2, that weigh threads of the kernel against each other.

Groups are of no namespace, so they are the whole machine's and go with the context.
"""

import ctypes
import os
import struct
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from lab.wires import WiresError, checked

_UNIT = {1: 9548, 2: 932}
"""What a weight of 1 is: as much as a process with nice -10 (cpu.shares, cpu.weight)."""
_MOST = {1: 262_144, 2: 10_000}
_SCHED_SETATTR = 314  # of x86_64
_ATTRIBUTES = struct.Struct("=IIQiIQQQ")


class CpuGroups:
    """A group for each thread, whose weights may change."""

    def __init__(self, files: Sequence[Path], version: int) -> None:
        self._files, self._version = files, version

    def weigh(self, weights: Sequence[float]) -> None:
        """Set the weights, in the order of the threads. WiresError where one is more than the kernel takes."""
        for file, weight in zip(self._files, weights, strict=True):
            number = round(weight * _UNIT[self._version])
            if number > (most := _MOST[self._version]):
                raise WiresError(f"a weight of {weight:g}: the cpu controller takes {most} at most, not {number}")
            file.write_text(str(number))


@contextmanager
def cpu_groups(place: Path, name: str, threads: Sequence[int]) -> Iterator[CpuGroups]:
    """Put each thread into a group of its own inside ``with``; ``place`` is where the controller is mounted
    meanwhile.

    WiresError where the kernel has no such controller, or a thread that it does not let go.
    """
    place.mkdir(parents=True)
    with ExitStack() as stack:
        version, file, members = _mounted(place, stack)
        files = []
        for number, thread in enumerate(threads):
            group = place / f"{name}-{number}"
            group.mkdir()
            stack.callback(group.rmdir)
            try:
                (group / members).write_text(str(thread))
            except OSError as problem:
                raise WiresError(f"thread {thread} does not go into a control group: {problem.strerror}") from None
            stack.callback(_left, place / members, thread)
            files.append(group / file)
        yield CpuGroups(files, version)


def set_turn(thread: int, seconds: float) -> None:
    """Have a thread's turns last so long, 0.1 ms at least (sched_setattr(2), Linux 6.12). OSError where that is
    refused."""
    nice = os.getpriority(os.PRIO_PROCESS, thread)
    attributes = _ATTRIBUTES.pack(_ATTRIBUTES.size, os.SCHED_OTHER, 0, nice, 0, round(seconds * 1e9), 0, 0)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.syscall(_SCHED_SETATTR, thread, attributes, 0):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def _left(members: Path, thread: int) -> None:
    with suppress(ProcessLookupError):  # its interface is gone
        members.write_text(str(thread))


def _mounted(place: Path, stack: ExitStack) -> tuple[int, str, str]:
    """Mount the controller; returns its version, the file of a weight and that of the members."""
    for version, options, file, members in (
        (1, ("-t", "cgroup", "-o", "cpu"), "cpu.shares", "tasks"),
        (2, ("-t", "cgroup2"), "cpu.weight", "cgroup.procs"),
    ):
        try:
            checked("mount", "-n", *options, "cgroup", str(place))
        except WiresError:
            continue
        stack.callback(checked, "umount", "-n", str(place))
        if version == 1:
            return version, file, members
        if "cpu" in (place / "cgroup.controllers").read_text().split():
            control = place / "cgroup.subtree_control"
            if "cpu" not in control.read_text().split():
                control.write_text("+cpu")
                stack.callback(control.write_text, "-cpu")
            return version, file, members
    raise WiresError("the kernel offers no cpu controller of control groups")
