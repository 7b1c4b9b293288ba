"""What processes cost: CPU time and peak memory, from /proc."""

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

_PREFERRED, _GIVES_WAY = -10, 19
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def _stat(pid: int) -> list[str]:
    """Return the fields of /proc/PID/stat after the name: state, parent, …"""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def cpu_s(pid: int) -> float:
    """Return user and system time of a process and its threads so far, in seconds."""
    fields = _stat(pid)
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S


def resident_mib(pid: int) -> float:
    """Return the resident size of a process, in MiB."""
    return _memory_mib(pid, "VmRSS:")


def peak_mib(pid: int) -> float:
    """Return the largest resident size of a process so far, in MiB."""
    return _memory_mib(pid, "VmHWM:")


def _memory_mib(pid: int, what: str) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(what):
            return int(line.split()[1]) / 1024
    return 0.0


def descendants(ancestor: int) -> list[int]:
    """Return the processes below one, in no order."""
    children: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with suppress(OSError, IndexError):
                children.setdefault(int(_stat(int(entry))[1]), []).append(int(entry))
    found, waiting = [], [ancestor]
    while waiting:
        below = children.get(waiting.pop(), [])
        found += below
        waiting += below
    return found


def guest_processes(first: int) -> dict[str, int]:
    """Return the processes of a guest that a measurement names, by name; ``first`` is the guest's first process."""
    found = {}
    for pid in descendants(first):
        with suppress(OSError):
            command = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            if b"vrc.agent" in command:
                found["vrc"] = pid
            elif (name := os.path.basename(command[0]).decode()) in ("zebra", "bgpd"):
                found[name] = pid
    return found


def machine_s() -> dict[str, float]:
    """Return how long all cores together have been busy, taken away by the hypervisor, and idle since boot."""
    ticks = [int(field) for field in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    user, nice, system, idle, waiting, irq, softirq, stolen = (tick / _TICKS_PER_S for tick in ticks)
    return {"busy": user + nice + system + irq + softirq, "stolen": stolen, "idle": idle + waiting}


def prefer(pid: int) -> None:
    """Give a process, with all its threads, nice -10, also against other sessions (autogroups)."""
    for thread in os.listdir(f"/proc/{pid}/task"):
        _renice(int(thread), _PREFERRED)


def give_way() -> None:
    """Have this process, in a session of its own from now on, run at nice 19, also against other sessions."""
    os.setsid()
    _renice(os.getpid(), _GIVES_WAY)


def _renice(pid: int, nice: int) -> None:
    os.setpriority(os.PRIO_PROCESS, pid, nice)
    with suppress(OSError):  # without CONFIG_SCHED_AUTOGROUP
        Path(f"/proc/{pid}/autogroup").write_text(str(nice))


class Meter:
    """CPU time of some processes, and of the whole machine, since a moment."""

    def __init__(self, processes: Mapping[str, int]) -> None:
        self.processes = dict(processes)
        self._start = {name: cpu_s(pid) for name, pid in self.processes.items()}
        self._machine = machine_s()

    def cpu_s(self) -> dict[str, float]:
        """Return the seconds each process used since then."""
        return {name: round(cpu_s(pid) - self._start[name], 2) for name, pid in self.processes.items()}

    def machine_s(self) -> dict[str, float]:
        """Return how long all cores together were busy and idle since then, whoever used them."""
        return {name: round(now - self._machine[name], 2) for name, now in machine_s().items()}

    def peak_mib(self) -> dict[str, int]:
        """Return the largest resident size of each process in its whole life, in MiB."""
        return {name: round(peak_mib(pid)) for name, pid in self.processes.items()}
