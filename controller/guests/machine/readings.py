"""What a machine was started with, and its state in words."""

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from controller.events.untrusted_text import printable
from controller.guests.control import count_of
from controller.guests.guest_files import replace_file
from controller.guests.limits import Limits
from controller.guests.machine.command_line import Sizes

FILE = "machine.json"

CLOCK_TOLERANCE_S = 0.5
"""A clock that is more than this beside the host's is stepped; daemons take their timers from another one."""

CLOCK_TOLD_S = 5.0
"""The operator is told of a step of at least this; a second or two is what a hardware clock of seconds leaves."""

_END_OF_TIME_S = 1 << 40
_HOST_MIB = 256  # what QEMU and its relays take besides the machine's memory
_PIDS = 64


@dataclass(frozen=True, slots=True)
class Machine:
    """machine.json: what only a restart of the whole machine changes, and what it runs on."""

    memory_mib: int
    vcpus: int
    image: str
    accelerator: str = ""
    identity: str = ""  # SHA-256 of the certificate's files inside
    missing: tuple[str, ...] = ()  # limits that the host does not offer

    def same_as(self, other: "Machine") -> bool:
        """Whether a machine need not be restarted to become the other one."""
        return (self.memory_mib, self.vcpus, self.image) == (other.memory_mib, other.vcpus, other.image)


def read_machine(directory: Path) -> Machine | None:
    """Return what the machine of a directory was started with, None where that is not known."""
    try:
        fields = json.loads((directory / FILE).read_text())
        return Machine(**fields | {"missing": tuple(fields["missing"])})
    except (OSError, ValueError, KeyError, TypeError):
        return None


def write_machine(directory: Path, machine: Machine) -> None:
    """Note what the machine of a directory is started with."""
    replace_file(directory / FILE, json.dumps(asdict(machine)).encode(), 0, 0o600)


def digest(identity: dict[str, bytes]) -> str:
    """Name the content of a certificate's files."""
    return hashlib.sha256(b"\0".join(identity.values())).hexdigest()


def limits_of(sizes: Sizes, disk_bytes_per_s: int = 0) -> Limits:
    """Return what a machine may take of the host."""
    return Limits((sizes.memory_mib + _HOST_MIB) << 20, sizes.vcpus + 0.5, _PIDS, disk_bytes_per_s)


def machine_state(reply: dict[str, Any], memory_mib: int) -> str:
    """Return a machine's state from what its first process says of it, which may be anything."""
    supervisor, kills = printable(str(reply.get("supervisor", ""))), count_of(reply, "oom_kills")
    if kills:
        remedy = f"raise memory: under guest: (now {memory_mib}M)"
        return f"failed: out of memory, {kills} processes were killed since it started; {remedy}"
    return "up" if supervisor in ("", "up") else supervisor


def clock_step_s(reply: dict[str, Any], asked_at_s: float, answered_at_s: float) -> float:
    """Return by how many seconds a machine's clock is to be put forward; 0 where it may be right.

    The machine read its clock somewhere between the two moments of ours: what lies within `CLOCK_TOLERANCE_S` of that
    is left. An older image does not tell its clock.
    """
    told = reply.get("time_s")
    if answered_at_s < asked_at_s:  # ours was put back in between: the next answer will tell
        return 0.0
    if not isinstance(told, (int, float)) or not 0 <= told < _END_OF_TIME_S:
        return 0.0
    early, late = asked_at_s - CLOCK_TOLERANCE_S, answered_at_s + CLOCK_TOLERANCE_S
    return 0.0 if early <= told <= late else (asked_at_s + answered_at_s) / 2 - told
