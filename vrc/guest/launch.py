"""Starts the first process of a guest: closes it in, and returns when it runs, or with the reason why it does not.

    vr-guest ── stage: the guest's mounts, its PID namespace      (vrc/guest/enclosure.py)
                  ├─ pid 1: leaves the host's users and network, waits … becomes root of the guest, runs
                  └─ helper, in pid 1's network: ids for pid 1, /proc and /sys

vr-guest, stage and helper are root of the host, and end once the guest runs.
"""

import contextlib
import os
import select
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from vrc.guest.enclosure import Bind, Folders, close_in, settle_in
from vrc.guest.kernel import CLONE_NEWPID, EnclosureError, unshare
from vrc.guest.kernel_views import mount_kernel_views
from vrc.guest.namespaces import (
    GuestIds,
    become_root,
    enter_network,
    leave_users_and_network,
    map_ids,
    require_ids,
)
from vrc.guest.privileges import give_up_privileges, refuse_system_calls
from wire.scheduling import work_in_batches

LIMIT_S = 25.0
"""How long the guest may take to be closed in on a host; whoever started vr-guest waits a little longer."""
EXIT_RUNS_ALREADY = 75
"""vr-guest's exit status where there is a guest in its directory already."""
PID_FILE = "guest.pid"


class FirstProcess(Protocol):
    """What pid 1 of a guest is once it is closed in."""

    def run(self) -> None:
        """Serve until stopped."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How a guest is closed in, and what its first process becomes then."""

    directory: int  # a descriptor of the guest's own
    hostname: str
    binds: tuple[Bind, ...]
    hidden: tuple[str, ...]
    folders: Folders
    ids: GuestIds
    become: Callable[[], FirstProcess]


def launch(plan: Plan, limit_s: float = LIMIT_S) -> str:
    """Start a guest; return "" once it runs, else why it does not, within ``limit_s``."""
    read, write = os.pipe()
    stage = os.fork()
    if stage == 0:
        os.close(read)
        _guarded(write, lambda: _stage(plan, write))
    os.close(write)
    said = _said_within(limit_s, read)
    os.close(read)
    if said is None:
        _kill(stage, plan.directory)
    os.waitpid(stage, 0)
    if said == "ready":
        return ""
    if said is None:
        return f"its first process was not ready within {limit_s:g} s; see guest.log"
    return said or "its first process ended without a word"


def _guarded(ready: int, work: Callable[[], None]) -> None:
    """Do what a forked process is for, and exit; what the kernel refused is told. Never returns."""
    status = 1
    try:
        work()
        status = 0
    except (EnclosureError, OSError) as error:
        with contextlib.suppress(OSError):
            os.write(ready, str(error).encode())
    finally:
        os._exit(status)


def _stage(plan: Plan, ready: int) -> None:
    require_ids(plan.ids)
    _become_batch_work()  # while it is allowed to
    close_in(plan.binds, plan.hidden, plan.folders, plan.ids)
    unshare(CLONE_NEWPID)
    left, prepared = os.pipe(), os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(left[0])
        os.close(prepared[1])
        os.close(plan.directory)
        _guarded(ready, lambda: _be_first(plan, left[1], prepared[0], ready))
    os.close(left[1])
    os.close(prepared[0])
    _write_pid(plan.directory, pid)
    helper = os.fork()
    if helper == 0:
        _guarded(ready, lambda: _prepare(pid, plan.ids, left[0], prepared[1]))
    os.close(prepared[1])  # where the helper fails, pid 1 sees the end of the pipe
    os.waitpid(helper, 0)


def _become_batch_work() -> None:
    """Be scheduled as guests are.

    The controller may run at a better priority than others (docs/bench.md), which guests do not inherit. They are
    batch work (sched(7)): one that wakes does not interrupt who runs, so daemons that hand routes on to each other
    do so in larger pieces.
    """
    os.setpriority(os.PRIO_PROCESS, 0, max(0, os.getpriority(os.PRIO_PROCESS, 0)))
    work_in_batches()


def _prepare(pid: int, ids: GuestIds, left: int, prepared: int) -> None:
    """Prepare what pid 1 cannot: as root of the host, in its PID and network namespaces."""
    if os.read(left, 1):
        map_ids(pid, ids)
        enter_network(pid)
        mount_kernel_views()
        os.write(prepared, b"1")


def _be_first(plan: Plan, left: int, prepared: int, ready: int) -> None:
    leave_users_and_network(plan.ids)
    os.write(left, b"1")
    if not os.read(prepared, 1):
        return  # the helper says why
    os.close(left)
    os.close(prepared)
    become_root()
    os.setsid()
    settle_in(plan.hostname)
    give_up_privileges()
    first = plan.become()
    refuse_system_calls()
    with open("/dev/null", "r+b", buffering=0) as null:
        for fd in (0, 1, 2):
            os.dup2(null.fileno(), fd)
    os.write(ready, b"ready")
    os.close(ready)
    first.run()


def _start_time(pid: int) -> int:
    with open(f"/proc/{pid}/stat") as file:
        return int(file.read().rpartition(")")[2].split()[19])


def _write_pid(directory: int, pid: int) -> None:
    with open("/proc/sys/kernel/random/boot_id") as file:
        boot = file.read().strip()
    new = f"{PID_FILE}.new"
    fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600, dir_fd=directory)
    os.write(fd, f"{pid} {_start_time(pid)} {boot}\n".encode())
    os.close(fd)
    os.replace(new, PID_FILE, src_dir_fd=directory, dst_dir_fd=directory)


def _said_within(limit_s: float, pipe: int) -> str | None:
    """Return what is written to a pipe until its end; None where that does not come in time."""
    said, deadline = b"", time.monotonic() + limit_s
    while select.select([pipe], [], [], max(0.0, deadline - time.monotonic()))[0]:
        piece = os.read(pipe, 4096)
        if not piece:
            return said.decode(errors="replace")
        said += piece
    return None


def _kill(stage: int, directory: int) -> None:
    """Kill what hangs on the way to a guest: the stage, and pid 1 where there is one."""
    os.kill(stage, signal.SIGKILL)  # pid 1 ends by itself where the stage had not noted it yet
    with contextlib.suppress(OSError, ValueError, IndexError):
        with open(os.open(PID_FILE, os.O_RDONLY, dir_fd=directory)) as file:
            pid, start, _ = file.read().split()
        if _start_time(int(pid)) == int(start):
            os.kill(int(pid), signal.SIGKILL)
