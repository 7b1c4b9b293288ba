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
import os
import shutil
import signal
import socket
import subprocess
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from device_hosts import PrivateDevice, add_host
from ovs import Host, sh

from topologies.forwarder import PROGRAM

INSTANCE = "test"
NATIVE_MTU = 3400
"""veth takes native XDP up to 3,498 octets on a page of 4,096; with more the forwarder is generic."""
_START_S = 60.0
_HOLDER = "mount -n -t bpf bpf /sys/fs/bpf && echo && exec sleep infinity"


@dataclass
class PrivateForwarder(PrivateDevice):
    """vr-forwarder in a namespace: ``with PrivateForwarder(2) as forwarder``; no pipeline until one is pushed."""

    options: tuple[str, ...] = ()
    mtu: int = NATIVE_MTU
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
        self.start()

    def power_off(self) -> None:
        """Take away the daemon, what it has pinned and its state; its ports stay."""
        self.kill()
        if self._holder is not None:
            self._holder.kill()
            self._holder.wait()
            self._holder = None
            self._wait_until_detached()
        shutil.rmtree(self.state, ignore_errors=True)

    def _wait_until_detached(self) -> None:
        """Wait until no port has an XDP program: the kernel takes what was pinned apart after the holder's end."""
        pause = threading.Event()
        for _ in range(int(_START_S / 0.02)):
            links = json.loads(sh("ip", "-n", str(self.namespace), "-j", "link", "show"))
            if not any("xdp" in link for link in links):
                return
            pause.wait(0.02)
        raise RuntimeError(f"XDP programs stay attached: {links}")

    def start(self, *options: str) -> None:
        """Start the daemon and wait until it says that it serves; RuntimeError with its log where it does not."""
        ports = [word for host in self.hosts for word in ("--port", f"{host.port}={host.link}")]
        notices = self.directory / "notify.sock"
        notices.unlink(missing_ok=True)
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as heard:
            heard.bind(str(notices))
            with self.log_file.open("ab") as log:
                self._process = subprocess.Popen(
                    self.command("run", "--listen", self.address, *ports, *self.options, *options),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    env=os.environ | {"NOTIFY_SOCKET": str(notices)},
                )
            self._wait_until_ready(heard)

    def _wait_until_ready(self, heard: socket.socket) -> None:
        assert self._process is not None
        heard.settimeout(0.1)
        for _ in range(int(_START_S / 0.1)):
            with contextlib.suppress(TimeoutError):
                if heard.recv(1000).startswith(b"READY=1"):
                    return
            if self._process.poll() is not None:
                break
        raise RuntimeError(f"vr-forwarder does not serve:\n{self.log}")

    def kill(self) -> None:
        """Kill the daemon at once; what it has attached goes on forwarding."""
        self._end(signal.SIGKILL)

    def lose(self) -> None:
        """Kill the daemon and take its journal: the next one begins with nothing, on ports that do not flap."""
        self.kill()
        shutil.rmtree(self.state)

    def stop(self) -> int:
        """End the daemon in order and return its exit status."""
        return self._end(signal.SIGTERM)

    def _end(self, how: signal.Signals) -> int:
        if self._process is None:
            return 0
        self._process.send_signal(how)
        status = self._process.wait(_START_S)
        self._process = None
        return status

    # -- its subcommands ---------------------------------------------------------------------------------------------
    def command(self, verb: str, *options: str) -> tuple[str, ...]:
        """Return the command line of a subcommand, in the switch's namespaces."""
        assert self._holder is not None, "the power is off"
        enter = ("nsenter", "--target", str(self._holder.pid), "--net", "--mount", "--")
        return (*enter, str(PROGRAM), verb, "--state", str(self.state), "--instance", INSTANCE, *options)

    def run(self, verb: str, *options: str) -> "subprocess.CompletedProcess[str]":
        """Run a subcommand."""
        return subprocess.run(
            self.command(verb, *options), capture_output=True, text=True, check=False, timeout=_START_S
        )

    def show(self, verb: str, *options: str) -> Any:
        """Return what a subcommand says, as values."""
        done = self.run(verb, "--json", *options)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)
