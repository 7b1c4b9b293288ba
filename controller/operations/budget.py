"""What routers need of the controller's process, and how many it has room for; more are refused by apply."""

import resource
from dataclasses import dataclass
from math import inf
from pathlib import Path

from controller.errors import Conflict
from controller.model import MAX_ROUTERS

DESCRIPTORS_OF_ROUTER = 16
"""Its socket, three for each of the four connections that its guest may have (sessions/sockets.py: the guest's, and
both ends of that to the service), and three for what is asked of its guest at once."""

OTHER_DESCRIPTORS = 1024
"""The operator API (128), switches (64 that have not said who they are, then one a plane), store, logs, loops."""

MEMORY_OF_ROUTER = 160 << 10
"""Octets, with its session and 100 routes (docs/bench.md, Many routers: sessions). Its quotas are beside that."""

OTHER_MEMORY = 128 << 20

MOST_DESCRIPTORS = OTHER_DESCRIPTORS + MAX_ROUTERS * DESCRIPTORS_OF_ROUTER
"""What as many routers as there can be need."""


@dataclass(frozen=True, slots=True)
class Budget:
    """What the process may have."""

    descriptors: float
    memory_bytes: float

    @property
    def most_routers(self) -> int:
        """How many routers there is room for."""
        by_descriptors = (self.descriptors - OTHER_DESCRIPTORS) / DESCRIPTORS_OF_ROUTER
        by_memory = (self.memory_bytes - OTHER_MEMORY) / MEMORY_OF_ROUTER
        return max(0, int(min(by_descriptors, by_memory, MAX_ROUTERS)))

    def require(self, routers: int) -> None:
        """Raise Conflict, with what is needed and what there is, where so many routers have no room."""
        descriptors = OTHER_DESCRIPTORS + routers * DESCRIPTORS_OF_ROUTER
        if descriptors > self.descriptors:
            raise Conflict(
                f"{routers} routers need {descriptors} descriptors, and vr-controller may have "
                f"{self.descriptors:.0f}, for {self.most_routers} routers; raise its LimitNOFILE= and restart it"
            )
        memory = OTHER_MEMORY + routers * MEMORY_OF_ROUTER
        if memory > self.memory_bytes:
            raise Conflict(
                f"{routers} routers need {memory >> 20} MiB of vr-controller, and it may have "
                f"{int(self.memory_bytes) >> 20} MiB, for {self.most_routers} routers; give it more memory"
            )


def raise_descriptors() -> None:
    """Let this process have as many descriptors as all routers need, or as many as it may."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most != resource.RLIM_INFINITY and most < MOST_DESCRIPTORS:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (MOST_DESCRIPTORS, MOST_DESCRIPTORS))
        except (OSError, ValueError):  # without CAP_SYS_RESOURCE, or beyond fs.nr_open
            pass
        else:
            return
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def of_process() -> Budget:
    """Return what this process may have: its limit of descriptors, the memory of host and control groups."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    descriptors = inf if soft == resource.RLIM_INFINITY else soft
    return Budget(descriptors, min(_memory_of_host(), *_memory_of_groups()))


def _memory_of_host() -> float:
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemTotal:"):
                return int(line.split()[1]) << 10
    except (OSError, ValueError, IndexError):
        pass
    return inf


def _memory_of_groups(proc: Path = Path("/proc/self/cgroup"), root: Path = Path("/sys/fs/cgroup")) -> list[float]:
    """Return the limits of the control groups around this process (version 2: 0::/PATH)."""
    found = [inf]
    try:
        lines = proc.read_text().splitlines()
    except OSError:
        return found
    path = next((line.removeprefix("0::") for line in lines if line.startswith("0::")), None)
    if path is None:
        return found
    group = root / path.lstrip("/")
    for each in (group, *group.parents):
        try:
            found.append(int((each / "memory.max").read_text()))
        except (OSError, ValueError):  # no limit ("max"), or no such file
            continue
        if each == root:
            break
    return found
