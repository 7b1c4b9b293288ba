"""A private BMv2 (simple_switch_grpc) with hosts, each in a network namespace of its own.

    ┌ namespace of the switch ───────┐      ┌ namespace of a host ┐
    │ simple_switch_grpc --no-p4     │      │                     │
    │   port N ─── pN ────────── veth┼──────┼ eth0                │
    └───────┬────────────────────────┘      └─────────────────────┘
            │ P4Runtime on a Unix socket: not bound to the namespace

A test that uses it is marked `root` and `needs_bmv2`. Nothing is left when the context ends, however it ends.
"""

import shutil
import subprocess
import threading
from dataclasses import dataclass, field

import pytest
from device_hosts import PrivateDevice

from topologies.bmv2 import PROGRAM, optional_words

CPU_PORT = 510  # of p4src/v1model
MISSING = f"{PROGRAM} is not on PATH; p4lang documents how to install BMv2"
needs_bmv2 = pytest.mark.skipif(shutil.which(PROGRAM) is None, reason=MISSING)

_START_S = 60.0


@dataclass
class PrivateBmv2(PrivateDevice):
    """BMv2 in a namespace: ``with PrivateBmv2(2) as bmv2``; it knows no pipeline until one is pushed."""

    device_id: int = 1
    thrift_port: int = 9090  # differs between switches that share a namespace
    server_options: tuple[str, ...] = ()  # TLS
    more_ports: dict[int, str] = field(default_factory=dict)  # devices that are there already, by number
    kind = "bmv2"

    @property
    def address(self) -> str:
        """Where its P4Runtime server listens."""
        return f"unix:{self.directory}/p4rt.sock"

    def power_on(self) -> None:
        """Start it without a pipeline and wait until it listens; RuntimeError with its log where it does not."""
        devices = {host.port: host.link for host in self.hosts} | self.more_ports
        ports = [word for number, device in devices.items() for word in ("-i", f"{number}@{device}")]
        own = ("--device-id", str(self.device_id), "--log-level", "warn")
        optional = optional_words(self.thrift_port, f"ipc://{self.directory}/notices.ipc")
        server = ("--grpc-server-addr", self.address, "--cpu-port", str(CPU_PORT), *self.server_options)
        command = (PROGRAM, "--no-p4", *own, *optional, *ports, "--", *server)
        with self.log_file.open("ab") as log:
            self._process = subprocess.Popen(
                ("ip", "netns", "exec", str(self.namespace), *command),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        pause = threading.Event()
        for _ in range(int(_START_S / 0.02)):
            if (self.directory / "p4rt.sock").exists():
                return
            if self._process.poll() is not None:
                break
            pause.wait(0.02)
        raise RuntimeError(f"{PROGRAM} does not listen:\n{self.log}")

    def power_off(self) -> None:
        """Kill it at once; its ports stay."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
        (self.directory / "p4rt.sock").unlink(missing_ok=True)
