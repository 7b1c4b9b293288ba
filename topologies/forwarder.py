"""vr-forwarder as planes, each a process of its own with XDP programs on its interfaces of the enclosure.

What a frame is redirected to has to poll (NAPI) at its other end, or the kernel drops it: the other end of each cable
has `gro on` for that, and a port has its XDP program.
"""

import functools
import json
import subprocess
from collections.abc import Mapping
from pathlib import Path

from topologies.commands import NetworkError, checked, ended, output, ran, wait_for
from topologies.p4runtime import Device, DevicePlanes, spawned, still_runs

ROOT = Path(__file__).parents[1]
PROGRAM = ROOT / "build" / "forwarder" / "daemon" / "vr-forwarder"
_RUN = Path("/run")


class Forwarder:
    """One vr-forwarder; whoever connects pushes the pipeline."""

    def __init__(self, name: str, device_id: int) -> None:
        self.name, self.device_id = name, device_id
        self._state = _RUN / f"vr-forwarder-{name}"
        self.log = _RUN / f"vr-forwarder-{name}.log"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        """Where its P4Runtime server listens."""
        return f"unix:{self._state}/p4rt.sock"

    @property
    def pid(self) -> int:
        """Its process."""
        assert self._process is not None, "start comes first"
        return self._process.pid

    def start(self, ports: Mapping[str, int]) -> None:
        """Start it on these interfaces and wait until it serves."""
        mount_bpffs()
        own = ["--state", str(self._state), "--instance", f"vr-forwarder-{self.name}", "--listen", self.address]
        numbered = [word for port, number in ports.items() for word in ("--port", f"{number}={port}")]
        command = [str(PROGRAM), *own, "--device-id", str(self.device_id), *numbered]
        self._process = spawned(command, self.log)
        wait_for(f"vr-forwarder {self.name} serving", self._serves, 20, 0.05, [self.log])

    def stop(self) -> None:
        """End it; harmless when repeated. What it has attached goes with the interfaces."""
        if self._process is not None:
            self._process.kill()
            ended(f"vr-forwarder {self.name}", self._process)

    def sent(self) -> int:
        """Return how many packets it has forwarded, its processes before this one included.

        NetworkError where it does not answer.
        """
        if not (text := output([*self._status, "--json"], 10, logs=[self.log])):
            raise NetworkError(f"vr-forwarder {self.name} does not answer; see {self.log}")
        return sum(int(traffic["sent"]["packets"]) for traffic in json.loads(text)["interfaces"].values())

    @property
    def _status(self) -> list[str]:
        return [str(PROGRAM), "status", "--state", str(self._state)]

    def _serves(self) -> bool:
        assert self._process is not None
        still_runs(f"vr-forwarder {self.name}", self._process, self.log)
        return ran(self._status, 10, logs=[self.log]).returncode == 0


@functools.cache
def mount_bpffs() -> None:
    """Mount a file system for what is pinned, in this mount namespace alone: it goes with the enclosure."""
    checked(["mount", "-n", "-t", "bpf", "bpf", "/sys/fs/bpf"])


class ForwarderPlanes(DevicePlanes):
    """vr-forwarders on the interfaces of the enclosure."""

    title = "vr-forwarder"
    needs_cables = False
    polled = True

    def __init__(self) -> None:
        super().__init__(_made)

    def missing(self) -> str:
        """Say how to build it where it is not built."""
        return "" if PROGRAM.exists() else f"{PROGRAM} is missing; run: make setup"


def _made(name: str, device_id: int, place: int) -> Device:
    return Forwarder(name, device_id)
