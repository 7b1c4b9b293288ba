"""A private vr-forwarder with hosts, each in a network namespace of its own.

    ┌ namespace of the switch ───────┐      ┌ namespace of a host ┐
    │ XDP program in the kernel      │      │                     │
    │   port N ─── pN ────────── veth┼──────┼ eth0                │
    │ vr-forwarder                   │      └─────────────────────┘
    └───────┬────────────────────────┘
            │ P4Runtime on a Unix socket: not bound to the namespace

The daemon may be killed and started again: what it has pinned, in a bpffs of the holder's mount namespace, goes on
forwarding. Only without the holder is the power off. Nothing is left when the context ends, however it ends.
"""

import contextlib
import json
import shutil
import signal
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lab.commands import COMMAND_LIMIT_S, ran, wait_for
from lab.namespaces import Host, sh
from lab.planes.forwarder import Forwarder
from lab.private.device import PrivateDevice, add_host

INSTANCE = "test"
NATIVE_MTU = 3400
"""veth takes native XDP up to 3,498 octets on a page of 4,096; with more vr-forwarder is generic before Linux 6.3."""
_DETACH_LIMIT_S = 60.0
_HOLDER = "mount -n -t bpf bpf /sys/fs/bpf && echo && exec sleep infinity"


@dataclass
class PrivateForwarder(PrivateDevice):
    """vr-forwarder in a namespace: ``with PrivateForwarder(2) as forwarder``; no pipeline until one is pushed."""

    device_id: int = 1
    options: tuple[str, ...] = ()
    mtu: int = NATIVE_MTU
    generic: bool = False
    kind = "vr-forwarder"
    _holder: subprocess.Popen[bytes] | None = field(default=None, init=False)

    def add_host(self, stack: contextlib.ExitStack, here: str, number: int) -> Host:
        """Add the host behind a port, with an end that is polled, which a veth peer of native XDP needs."""
        return add_host(stack, here, self.kind, number, "gro", "on", mtu=self.mtu)

    @property
    def state(self) -> Path:
        """The daemon's directory, for its journal and sockets."""
        return self.directory / "state"

    @property
    def address(self) -> str:
        """Where its P4Runtime server listens."""
        return f"unix:{self.state}/p4rt.sock"

    # -- life --------------------------------------------------------------------------------------------------------
    def power_on(self) -> None:
        """Start it with nothing."""
        command = ("ip", "netns", "exec", str(self.namespace), "setpriv", "--pdeathsig", "KILL", "sh", "-c", _HOLDER)
        self._holder = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
        assert self._holder.stdout is not None
        assert self._holder.stdout.readline(), "no bpffs"
        self._holder.stdout.close()
        inside = ("nsenter", "--target", str(self._holder.pid), "--net", "--mount", "--")
        self.process = Forwarder("vr-forwarder", INSTANCE, self.device_id, self.state, self.log_file, inside)
        self.start()

    def power_off(self) -> None:
        """Take away the daemon, what it has pinned and its state; its ports stay."""
        self.kill()
        self.process = None
        if self._holder is not None:
            self._holder.kill()
            self._holder.wait()
            self._holder = None
            # The kernel takes what was pinned apart after the holder's end.
            wait_for("ports without XDP programs", self._detached, _DETACH_LIMIT_S, 0.02)
        shutil.rmtree(self.state, ignore_errors=True)

    def _detached(self) -> bool:
        links = json.loads(sh("ip", "-n", str(self.namespace), "-j", "link", "show"))
        return not any("xdp" in link for link in links)

    def start(self, *options: str) -> None:
        """Start the daemon and wait until it says that it serves. NetworkError with its last words."""
        generic = ("--no-native",) if self.generic else ()
        ports = {host.link: host.port for host in self.hosts}
        self.daemon.start(ports, "--core-shares", *generic, *self.options, *options)

    def kill(self) -> None:
        """Kill the daemon at once; what it has attached goes on forwarding."""
        if self.process is not None:
            self.daemon.stop()

    def lose(self) -> None:
        """Kill the daemon and take its journal: the next one begins with nothing, on ports that do not flap."""
        self.kill()
        shutil.rmtree(self.state)

    def stop(self) -> int:
        """End the daemon in order and return its exit status."""
        return self.daemon.stop(signal.SIGTERM)

    @property
    def daemon(self) -> Forwarder:
        """The daemon, which may be ended and started again while the power is on."""
        assert isinstance(self.process, Forwarder), "the power is off"
        return self.process

    # -- its subcommands ---------------------------------------------------------------------------------------------
    def command(self, verb: str, *options: str) -> list[str]:
        """Return the command line of a subcommand, in the switch's namespaces."""
        return self.daemon.command(verb, *options)

    def run(self, verb: str, *options: str) -> "subprocess.CompletedProcess[str]":
        """Run a subcommand."""
        return ran(self.command(verb, *options), COMMAND_LIMIT_S, logs=[self.log_file])

    def show(self, verb: str, *options: str) -> Any:
        """Return what a subcommand says, as values."""
        done = self.run(verb, "--json", *options)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)
