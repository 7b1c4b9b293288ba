"""guest.pid: how a guest is found again by a controller that did not start it, and never by its pid alone.

    PID START-TIME BOOT-ID      start time in clock ticks after boot, field 22 of /proc/PID/stat (proc(5))

Standard library only, and little of it: the launcher of machines imports it too.
"""

import os
from pathlib import Path

FILE = "guest.pid"
_BOOT = Path("/proc/sys/kernel/random/boot_id")


def boot_id() -> str:
    """Return what names this boot of the host."""
    return _BOOT.read_text().strip()


def _stat(pid: int | str) -> list[str]:
    """Return the fields of /proc/PID/stat that follow the name."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def write(directory: Path, pid: int) -> None:
    """Note a process as the guest of a directory."""
    new = directory / f"{FILE}.new"
    with open(new, "w", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
        file.write(f"{pid} {_stat(pid)[19]} {boot_id()}\n")
    new.replace(directory / FILE)


def find(directory: Path) -> int:
    """Return the guest's first process, 0 when it does not run."""
    try:
        pid, start, boot = (directory / FILE).read_text().split()
        fields = _stat(pid)
        alive = fields[0] not in "ZX" and fields[19] == start
        return int(pid) if alive and boot == boot_id() else 0
    except (OSError, ValueError, IndexError):
        return 0


def age_s(pid: int) -> float:
    """Return for how many seconds a process has run; 0 where it does not."""
    try:
        started_s = int(_stat(pid)[19]) / os.sysconf("SC_CLK_TCK")
        return max(0.0, float(Path("/proc/uptime").read_text().split()[0]) - started_s)
    except (OSError, ValueError, IndexError):
        return 0.0


def cpu_s(pid: int) -> float:
    """Return how much time of cores a process has had, in seconds; 0 where there is none."""
    try:
        user, system = _stat(pid)[11:13]
        return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return 0.0
