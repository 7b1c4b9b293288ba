"""A private BMv2 (simple_switch_grpc) with hosts, each in a network namespace of its own.

    ┌ namespace of the switch ───────┐      ┌ namespace of a host ┐
    │ simple_switch_grpc --no-p4     │      │                     │
    │   port N ─── pN ────────── veth┼──────┼ eth0                │
    └───────┬────────────────────────┘      └─────────────────────┘
            │ P4Runtime on a Unix socket: not bound to the namespace

A test that uses it is marked `root` and `needs_bmv2`. Nothing is left when the context ends, however it ends.
"""

import contextlib
import shutil
import subprocess
import tempfile
import threading
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from device_hosts import add_host
from ovs import Host, namespace

PROGRAM = "simple_switch_grpc"
CPU_PORT = 510  # of p4src/v1model
MISSING = f"{PROGRAM} is not on PATH; p4lang documents how to install BMv2"
needs_bmv2 = pytest.mark.skipif(shutil.which(PROGRAM) is None, reason=MISSING)

_START_S = 20.0


@dataclass
class PrivateBmv2:
    """BMv2 in a namespace: ``with PrivateBmv2(hosts=2) as bmv2``; it knows no pipeline until one is pushed.

    Host N is behind port N and has the MAC 02:00:00:00:00:0N. A given namespace is used and left alone.
    """

    hosts_wanted: int = 2
    namespace: str | None = None
    device_id: int = 1
    thrift_port: int = 9090  # differs between switches that share a namespace
    server_options: tuple[str, ...] = ()  # TLS
    directory: Path = field(init=False)
    hosts: list[Host] = field(default_factory=list, init=False)
    _stack: contextlib.ExitStack = field(default_factory=contextlib.ExitStack, init=False)
    _process: subprocess.Popen[bytes] | None = field(default=None, init=False)

    def __enter__(self) -> "PrivateBmv2":
        try:
            self.directory = Path(tempfile.mkdtemp(prefix="sp-bmv2-"))
            self._stack.callback(shutil.rmtree, self.directory, ignore_errors=True)
            if self.namespace is None:
                self.namespace = self._stack.enter_context(namespace("sp-bmv2"))
            for number in range(1, self.hosts_wanted + 1):
                self.hosts.append(add_host(self._stack, self.namespace, "bmv2", number))
            self._stack.callback(self.kill)
            self.start()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def address(self) -> str:
        """Where its P4Runtime server listens."""
        return f"unix:{self.directory}/p4rt.sock"

    @property
    def log(self) -> str:
        """What it has written so far, of all its starts."""
        return (self.directory / "bmv2.log").read_text(errors="replace")

    @property
    def pid(self) -> int:
        """The process of the running switch."""
        assert self._process is not None, "start comes first"
        return self._process.pid

    # -- life --------------------------------------------------------------------------------------------------------
    def start(self) -> None:
        """Start it without a pipeline and wait until it listens; RuntimeError with its log where it does not."""
        ports = [word for host in self.hosts for word in ("-i", f"{host.port}@{host.link}")]
        own = ("--device-id", str(self.device_id), "--thrift-port", str(self.thrift_port), "--log-level", "warn")
        notices = ("--notifications-addr", f"ipc://{self.directory}/notices.ipc")
        server = ("--grpc-server-addr", self.address, "--cpu-port", str(CPU_PORT), *self.server_options)
        command = (PROGRAM, "--no-p4", *own, *notices, *ports, "--", *server)
        with (self.directory / "bmv2.log").open("ab") as log:
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

    def kill(self) -> None:
        """Kill it at once; its ports stay."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
        (self.directory / "p4rt.sock").unlink(missing_ok=True)

    def restart(self) -> None:
        """Kill it and start it again, empty."""
        self.kill()
        self.start()

    # -- ports -------------------------------------------------------------------------------------------------------
    def set_link(self, port: int, up: bool) -> None:
        """Give a port carrier or take it away, by the host's end of the cable.

        BMv2's own end stays up: while one of its interfaces is down, its receiving thread waits for that alone.
        """
        self.hosts[port - 1].ip("link", "set", "eth0", "up" if up else "down")
