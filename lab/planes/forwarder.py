"""vr-forwarder, each a process of its own with XDP programs on its interfaces, and as planes of a network.

What a frame is redirected to has to poll (NAPI) at its other end, or the kernel drops it: the other end of each cable
has `gro on` for that, and a port has its XDP program.
"""

import contextlib
import functools
import json
import os
import signal
import socket
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from mininet.net import Mininet

from lab.commands import NetworkError, checked, ended, output, spawned, still_runs, wait_for
from lab.planes.p4runtime import DevicePlanes, DeviceSwitch

ROOT = Path(__file__).parents[2]
PROGRAM = ROOT / "build" / "forwarder" / "daemon" / "vr-forwarder"
_RUN = Path("/run")
_EVERY_S = 0.1
_START_LIMIT_S = 60


@dataclass
class Forwarder:
    """One vr-forwarder; whoever connects pushes the pipeline.

    What it has attached goes on forwarding when it ends, and goes with the interfaces.
    """

    name: str
    instance: str
    device_id: int
    state: Path
    """Its directory, for journal and sockets."""
    log: Path
    prefix: Sequence[str] = ()
    """Begins each of its commands: the namespaces that it runs in."""
    options: Sequence[str] = ()
    """Of its `run`, whenever it starts."""
    program: Path = field(default_factory=lambda: PROGRAM)
    _process: "subprocess.Popen[bytes] | None" = field(default=None, init=False)

    @property
    def address(self) -> str:
        """Where its P4Runtime server listens."""
        return f"unix:{self.state}/p4rt.sock"

    @property
    def pid(self) -> int:
        """Its process."""
        assert self._process is not None, "start comes first"
        return self._process.pid

    def start(self, ports: Mapping[str, int], *options: str) -> None:
        """Start it on these interfaces and wait until it says that it serves. NetworkError with its last words."""
        own = ("--device-id", str(self.device_id), "--listen", self.address)
        numbered = [word for port, number in ports.items() for word in ("--port", f"{number}={port}")]
        with tempfile.TemporaryDirectory() as directory, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as heard:
            notices = f"{directory}/notify.sock"
            heard.bind(notices)
            Path(directory).chmod(0o755)  # it may run as somebody else
            Path(notices).chmod(0o777)
            heard.settimeout(_EVERY_S)
            environment = os.environ | {"NOTIFY_SOCKET": notices}  # systemd's protocol, sd_notify(3)
            self._process = spawned(
                self.command("run", *own, *numbered, *self.options, *options), self.log, environment
            )
            wait_for(f"{self.name} serving", lambda: self._ready(heard), _START_LIMIT_S, 0, [self.log])

    def stop(self, how: signal.Signals = signal.SIGKILL) -> int:
        """Signal it and return its exit status; harmless when repeated."""
        if self._process is None:
            return 0
        self._process.send_signal(how)
        ended(self.name, self._process)
        status = self._process.returncode
        self._process = None
        return status

    def sent(self) -> int:
        """Return how many packets it has forwarded, its processes before this one included.

        NetworkError where it does not answer.
        """
        if not (text := output(self.command("status", "--json"), 10, logs=[self.log])):
            raise NetworkError(f"{self.name} does not answer; see {self.log}")
        return sum(int(traffic["sent"]["packets"]) for traffic in json.loads(text)["interfaces"].values())

    def command(self, verb: str, *options: str) -> list[str]:
        """Return the command line of one of its subcommands."""
        own = ("--state", str(self.state), "--instance", self.instance)
        return [*self.prefix, str(self.program), verb, *own, *options]

    def _ready(self, heard: socket.socket) -> bool:
        assert self._process is not None
        with contextlib.suppress(TimeoutError):
            if heard.recv(1000).startswith(b"READY=1"):
                return True
        still_runs(self.name, self._process, self.log)
        return False


@functools.cache
def mount_bpffs() -> None:
    """Mount a file system for what is pinned, in this mount namespace alone: it goes with the enclosure."""
    checked(["mount", "-n", "-t", "bpf", "bpf", "/sys/fs/bpf"])


class ForwarderPlanes(DevicePlanes):
    """vr-forwarders on the interfaces of the enclosure."""

    title = "vr-forwarder"
    needs_cables = False
    polled = True

    def __init__(self, *options: str) -> None:
        """``options`` are those of each one's `run`."""
        super().__init__(functools.partial(enclosed, options=options))

    def switch(self, mininet: Mininet, name: str, number: int) -> DeviceSwitch:
        """Add a switch."""
        mount_bpffs()
        return super().switch(mininet, name, number)

    def missing(self) -> str:
        """Say how to build it where it is not built."""
        return "" if PROGRAM.exists() else f"{PROGRAM} is missing; run: make setup"


def enclosed(name: str, device_id: int, place: int = 0, options: Sequence[str] = ()) -> Forwarder:
    """Return a vr-forwarder of the enclosure."""
    own = f"vr-forwarder-{name}"
    return Forwarder(f"vr-forwarder {name}", own, device_id, _RUN / own, _RUN / f"{own}.log", options=options)
