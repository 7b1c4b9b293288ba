"""BMv2 (simple_switch_grpc), each a process of its own, and as planes of a network."""

import contextlib
import socket
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from mininet.node import Node

from lab.commands import COMMAND_LIMIT_S, ended, ran, spawned, still_runs, wait_for
from lab.planes.p4runtime import Device, DevicePlanes, DeviceSwitch, on_path

PROGRAM = "simple_switch_grpc"
CPU_PORT = 510  # p4src/v1model
_RUN = Path("/run/bmv2")
OWN_SYSFS = ("unshare", "--mount", "sh", "-c", 'mount -n -t sysfs sysfs /sys && exec "$@"', "sh")
"""BMv2 looks for the carrier of its ports in sysfs, where the enclosure's interfaces do not show; a group whose ports
are all down ends it with SIGFPE."""
_EVERY_S = 0.02
_START_LIMIT_S = 60
_FIRST_GRPC_PORT, _FIRST_THRIFT_PORT = 9559, 9090


@dataclass
class Bmv2:
    """One simple_switch_grpc without a program: whoever connects pushes one."""

    name: str
    device_id: int
    address: str  # of its P4Runtime server: "HOST:PORT" or "unix:PATH"
    thrift_port: int  # differs between switches that share a namespace
    log: Path
    prefix: Sequence[str] = ()  # begins its command: the namespace that it runs in
    options: Sequence[str] = ()  # of its P4Runtime server
    log_level: str = "warn"
    _process: "subprocess.Popen[bytes] | None" = field(default=None, init=False)

    @property
    def pid(self) -> int:
        """Its process."""
        assert self._process is not None, "start comes first"
        return self._process.pid

    def start(self, ports: Mapping[str, int]) -> None:
        """Start it on these interfaces and wait until it listens. NetworkError with its last words."""
        self.log.parent.mkdir(exist_ok=True)
        self._process = spawned(self._command(ports), self.log)
        wait_for(f"BMv2 {self.name} listening on {self.address}", self._listens, _START_LIMIT_S, _EVERY_S, [self.log])

    def stop(self) -> None:
        """Kill it; its ports stay. Harmless when repeated."""
        if self._process is not None:
            self._process.kill()
            ended(f"BMv2 {self.name}", self._process)
            self._process = None
        if self.address.startswith("unix:"):
            Path(self.address.removeprefix("unix:")).unlink(missing_ok=True)

    def _command(self, ports: Mapping[str, int]) -> list[str]:
        interfaces = [part for port, number in ports.items() for part in ("-i", f"{number}@{port}")]
        optional = optional_words(self.thrift_port, f"ipc://{self.log.parent}/{self.name}.ipc")
        own = ["--no-p4", "--device-id", str(self.device_id), "--log-level", self.log_level, *interfaces, *optional]
        server = ["--grpc-server-addr", self.address, "--cpu-port", str(CPU_PORT), *self.options]
        return [*self.prefix, PROGRAM, *own, "--", *server]

    def _listens(self) -> bool:
        assert self._process is not None
        still_runs(f"BMv2 {self.name}", self._process, self.log)
        if self.address.startswith("unix:"):
            return Path(self.address.removeprefix("unix:")).exists()
        host, _, port = self.address.rpartition(":")
        with contextlib.suppress(OSError), socket.create_connection((host, int(port)), 1):
            return True
        return False


def optional_words(thrift_port: int, notices: str) -> list[str]:
    """Return the options that a build of BMv2 may lack: those of Thrift, and of nanomsg, which writes to /tmp."""
    options = {"--thrift-port": str(thrift_port), "--notifications-addr": notices}
    known = ran([PROGRAM, "--help"], COMMAND_LIMIT_S)
    offered = known.stdout + known.stderr
    return [part for name, value in options.items() if name in offered for part in (name, value)]


def enclosed(name: str, device_id: int, place: int) -> Device:
    """Return a BMv2 of the enclosure; ``place`` tells its BMv2s apart: each has TCP ports of its own, on loopback."""
    address = f"127.0.0.1:{_FIRST_GRPC_PORT + place}"
    return Bmv2(name, device_id, address, _FIRST_THRIFT_PORT + place, _RUN / f"{name}.log", OWN_SYSFS)


class Bmv2Planes(DevicePlanes):
    """BMv2 switches on the interfaces of the enclosure.

    A BMv2 one of whose interfaces is set down receives nothing more on any of them. So cables are cut at their
    other end.
    """

    title = "BMv2"
    needs_cables = True
    polled = False

    def __init__(self) -> None:
        super().__init__(enclosed)

    def missing(self) -> str:
        """Say what to install where simple_switch_grpc is not on PATH."""
        if on_path(PROGRAM):
            return ""
        return (
            f"{PROGRAM} is not on PATH; install p4lang's package p4lang-bmv2, "
            "as https://github.com/p4lang/behavioral-model documents"
        )

    def loose_end(self, switch: DeviceSwitch, port: str) -> tuple[Node, str]:
        """Return the other end of the veth pair."""
        own = switch.nameToIntf[port]
        other = own.link.intf2 if own.link.intf1 is own else own.link.intf1
        return other.node, other.name
