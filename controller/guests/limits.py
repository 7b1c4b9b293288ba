"""Limits on what a guest may take of the host: control groups of memory, cpu, pids and cpuset, version 2 or 1.

    /sys/fs/cgroup[/CONTROLLER]/splitplane/ID-HASH        one for each guest; all weigh the same among themselves
    /sys/fs/cgroup[/CONTROLLER]/splitplane-ID-HASH        the same where processes are in no group either

Where a service manager has put the controller into a group, all guests together weigh as much as one service, or what
the operator has them weigh. Elsewhere each guest weighs as much as one process, and so stands beside them: a group of
all guests would have to weigh as much as all of them, and then a single one that is busy would, too.

A controller (in the kernel's sense) that the host does not offer is left out and named; whether that is an error is
for the operator to say (`Policy`). Where the host divides its disks' time by groups, each guest is one; where the
operator says so, what it reads of each disk in a second, and writes, has a limit.
"""

import contextlib
import hashlib
import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from controller.errors import GuestError
from controller.guests.shutdown import KILL_LIMIT_S, ended

ROOT = Path("/sys/fs/cgroup")
PARENT = "splitplane"
CONTROLLERS = ("memory", "cpu", "pids")
"""Those that a guest cannot do without, unless the operator says so; and cpuset where its processors are chosen."""
_CPUSET = "cpuset"
_DISKS = {True: "io", False: "blkio"}  # its name in version 2, and in 1
_DISKS_V1 = ("blkio.throttle.read_bps_device", "blkio.throttle.write_bps_device")
_NO_DISKS = ("loop", "ram", "zram")  # what has another disk, or memory, behind it
BLOCK = Path("/sys/block")
_PERIOD_US = 100_000
# 0 is the process that writes. What runs here may see them as vr-controller's unit does, which may not change them
# (ProtectControlGroups=); root may all the same, by what the first process sees.
_ENTER = """
while [ "$1" != -- ]; do
    { echo 0 >"$1" || echo 0 >"/proc/1/root$1"; } 2>/dev/null ||
        { echo "vrctl: $1 cannot be written; run vrctl as root" >&2; exit 1; }
    shift
done
shift
exec "$@"
"""


@dataclass(frozen=True, slots=True)
class Policy:
    """What the operator says of all guests' limits."""

    best_effort: bool = False  # a guest runs without the controllers that the host lacks
    cpus: str = ""  # processors that guests run on, as 2-7 or 1,3; empty: all
    disk_bytes_per_s: int = 0  # that a guest may read of each disk, and write; 0: no limit


STRICT = Policy()


@dataclass(frozen=True, slots=True)
class Limits:
    """What one guest may take."""

    memory_bytes: int
    cpus: float  # time of so many processors; 0: of all
    pids: int  # processes and threads
    disk_bytes_per_s: int = 0  # read of each disk, and written; 0: no limit


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


def _settings(controller: str, limits: Limits, cpus: str, unified: bool) -> list[tuple[str, str]]:
    """Return what is to be written into which file, in this order; of memory see `_limit_memory`."""
    quota = str(round(limits.cpus * _PERIOD_US))
    match controller:
        case "pids":
            return [("pids.max", str(limits.pids))]
        case "cpu" if unified:
            return [("cpu.max", f"{quota if limits.cpus else 'max'} {_PERIOD_US}")]
        case "cpu":
            return [("cpu.cfs_period_us", str(_PERIOD_US)), ("cpu.cfs_quota_us", quota if limits.cpus else "-1")]
        case "cpuset":
            return [("cpuset.cpus", cpus)]
        case "io":
            rate = str(limits.disk_bytes_per_s or "max")
            return [("io.max", f"{disk} rbps={rate} wbps={rate}") for disk in disks()]
    return [(file, f"{disk} {limits.disk_bytes_per_s}") for disk in disks() for file in _DISKS_V1]


def _limit_memory(group: Path, size: str, unified: bool) -> None:
    """Limit what a guest takes of memory, with none of the host's swap where the kernel counts that by groups."""
    swap = group / ("memory.swap.max" if unified else "memory.memsw.limit_in_bytes")
    if not unified and swap.exists():  # of both together, and never less than of memory: it is the first to grow
        with contextlib.suppress(OSError):
            swap.write_text(size)
    (group / ("memory.max" if unified else "memory.limit_in_bytes")).write_text(size)
    if swap.exists():
        swap.write_text("0" if unified else size)
    tcp = group / "memory.kmem.tcp.limit_in_bytes"
    if not unified and tcp.exists():  # its buffers, which version 2 counts with the rest, and version 1 if limited
        tcp.write_text(size)


def disks(block: Path = BLOCK) -> list[str]:
    """Return the numbers of the host's disks, as 254:0."""
    found = []
    for disk in sorted(block.iterdir()) if block.exists() else ():
        with contextlib.suppress(OSError, ValueError):
            if not disk.name.startswith(_NO_DISKS) and int((disk / "size").read_text()):
                found.append((disk / "dev").read_text().strip())
    return found


def make(directory: Path, limits: Limits, root: Path = ROOT, *, cpus: str = "") -> Group:
    """Make the control groups of the guest of a directory, or bring them to these limits."""
    name = name_of(directory)
    base, offered = _unified(root)
    procs: list[str] = []
    missing: list[str] = []
    kind = _DISKS["io" in offered]
    wanted = (*CONTROLLERS, *((_CPUSET,) if cpus else ()), *((kind,) if limits.disk_bytes_per_s else ()))
    for controller in dict.fromkeys((*wanted, kind)):
        unified = controller in offered
        group = _own_place(base if unified else root / controller, name)
        try:
            if unified:
                _delegate(base, group.parent, controller)
            elif not (root / controller / "cgroup.procs").exists():
                raise FileNotFoundError(controller)
            group.mkdir(parents=True, exist_ok=True)
            if controller == _CPUSET and not unified:
                _inherit_cpuset(group)
            if controller == "memory":
                _limit_memory(group, str(limits.memory_bytes), unified)
            else:
                for file, value in _settings(controller, limits, cpus, unified):
                    (group / file).write_text(value)
        except OSError:
            if controller in wanted:
                missing.append(controller)
                continue
            if not (group / "cgroup.procs").exists():
                continue
        if str(group / "cgroup.procs") not in procs:
            procs.append(str(group / "cgroup.procs"))
    return Group(tuple(procs), tuple(missing))


def _place(below: Path, name: str, grouped: bool) -> Path:
    return below / PARENT / name if grouped else below / f"{PARENT}-{name}"


def _own_place(below: Path, name: str) -> Path:
    """Return the group where a guest runs that a controller started otherwise, else the one where it is to run."""
    grouped = _in_a_group()
    former = _place(below, name, not grouped)
    return former if _holds_any(former) else _place(below, name, grouped)


def _in_a_group(proc: Path = Path("/proc/self/cgroup")) -> bool:
    """Whether this process shares its processor time with a group of its own (cgroups(7))."""
    for line in proc.read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if path != "/" and (not controllers or "cpu" in controllers.split(",")):
            return True
    return False


def require(group: Group, policy: Policy, router: str) -> None:
    """GuestError where the host lacks what limits a guest, unless the operator said that it may."""
    if group.missing and not policy.best_effort:
        lacking = " and ".join(group.missing)
        remedy = f"mount them below {ROOT}, or give vr-host (or a vr-controller without it) --limits best-effort"
        raise GuestError(f"{router}: no control groups of {lacking} here; {remedy}")


def _delegate(base: Path, parent: Path, controller: str) -> None:
    """Let groups below have a controller (cgroup-v2, "Enabling and Disabling")."""
    for place in dict.fromkeys((base, parent)):
        place.mkdir(exist_ok=True)
        control = place / "cgroup.subtree_control"
        if controller not in control.read_text().split():
            control.write_text(f"+{controller}")


def _inherit_cpuset(group: Path) -> None:
    """Give a group of version 1 what it needs before a process may enter: it begins with neither (cpuset(7))."""
    for place in (group.parent, group):
        for file in ("cpuset.cpus", "cpuset.mems"):
            if not (place / file).read_text().strip():
                (place / file).write_text((place.parent / file).read_text())


def groups(directory: Path, root: Path = ROOT) -> Iterator[Path]:
    """Yield the groups that the guest of a directory is in, or was when its controller was started otherwise."""
    name = name_of(directory)
    for below in (root, root / "unified", *(root / name for name in (*CONTROLLERS, _CPUSET, _DISKS[False]))):
        for grouped in (True, False):
            if (group := _place(below, name, grouped)).exists():
                yield group


def entering(directory: Path, argv: list[str], root: Path = ROOT) -> list[str]:
    """Return the command that enters the control groups of the guest of a directory and becomes another one there."""
    held = [str(group / "cgroup.procs") for group in groups(directory, root) if _holds_any(group)]
    return ["/bin/sh", "-c", _ENTER, "sh", *held, "--", *argv] if held else argv


def lacking(directory: Path, root: Path = ROOT, *, cpus: str = "") -> list[str]:
    """Return the controllers that the guest of a directory is in no group of, as one that ran before has none."""
    base, offered = _unified(root)
    wanted = (*CONTROLLERS, *((_CPUSET,) if cpus else ()))
    held = [group for group in groups(directory, root) if _holds_any(group)]
    below = {controller: (base if controller in offered else root / controller) for controller in wanted}
    return [controller for controller, place in below.items() if not any(one.is_relative_to(place) for one in held)]


def _holds_any(group: Path) -> bool:
    try:
        return bool((group / "cgroup.procs").read_text().strip())
    except OSError:
        return False


def memory_kills(directory: Path, root: Path = ROOT) -> int:
    """Return how many processes of a guest were killed because it used all of its memory."""
    found = 0
    for group in groups(directory, root):
        for file in ("memory.events", "memory.oom_control"):
            with contextlib.suppress(OSError, ValueError):
                fields = dict(line.split() for line in (group / file).read_text().splitlines())
                found += int(fields.get("oom_kill", 0))
    return found


def remove(directory: Path, root: Path = ROOT) -> bool:
    """Remove the control groups of a guest that has ended; False where one still holds a process, and stays."""
    for group in list(groups(directory, root)):
        with contextlib.suppress(OSError):
            group.rmdir()
            if group.parent.name == PARENT:  # with the last of them
                group.parent.rmdir()
    return not any(groups(directory, root))


async def empty(directory: Path, root: Path = ROOT) -> None:
    """End what is left in a guest's control groups, and wait for it."""
    for group in groups(directory, root):
        with contextlib.suppress(OSError):
            for pid in map(int, (group / "cgroup.procs").read_text().split()):
                with contextlib.suppress(ProcessLookupError):
                    held = os.pidfd_open(pid)
                    try:
                        signal.pidfd_send_signal(held, signal.SIGKILL)
                        await ended(held, KILL_LIMIT_S)
                    finally:
                        os.close(held)
