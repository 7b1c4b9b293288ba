"""A private Open vSwitch (userspace datapath) with hosts, each in a network namespace of its own.

    ┌ namespace of the switch ────────────────────────────────────┐      ┌ namespace of a host ┐
    │ ovsdb-server, ovs-vswitchd (own run directory)              │      │                     │
    │ bridge ── port ─────────────────────────────────────── veth ┼──────┼ eth0                │
    │    └───── patch ── access bridge (tag) ─────────────── veth ┼──────┼ eth0 (untagged)     │
    └─────────────────────────────────────────────────────────────┘      └─────────────────────┘

Nothing is left when the context ends, however it ends: processes, namespaces, and with them their links, go.
"""

import asyncio
import contextlib
import ctypes
import itertools
import os
import shutil
import socket
import subprocess
import tempfile
import threading
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self, TypeVar

T = TypeVar("T")

_SCHEMA = "/usr/share/openvswitch/vswitch.ovsschema"
_NAMESPACES = "/run/netns"
_COMMAND_S = 60.0
_CLONE_NEWNET = 0x40000000
_ETH_P_ALL = 0x0003
QUIETLY = ("-W", "1")
"""For `Host.ping`: wait for an answer for a second, and not for as long as a busy machine may take."""


def sh(*command: str, env: dict[str, str] | None = None) -> str:
    """Run a command and return what it prints; CalledProcessError, with what it complained of, where it fails."""
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=_COMMAND_S, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


def in_namespace(name: str, call: Callable[[], T]) -> T:
    """Return what ``call`` returns when it runs in a network namespace; sockets it makes stay there."""
    results: list[T] = []
    errors: list[OSError] = []

    def run() -> None:
        try:
            with Path(_NAMESPACES, name).open("rb") as namespace:
                if ctypes.CDLL(None, use_errno=True).setns(namespace.fileno(), _CLONE_NEWNET):
                    raise OSError(ctypes.get_errno(), f"setns {name}")
            results.append(call())
        except OSError as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return results[0]


@contextlib.contextmanager
def namespace(prefix: str = "sp") -> Iterator[str]:
    """Make a network namespace with loopback up; everything in it is killed and it is removed at the end."""
    name = f"{prefix}-{uuid.uuid4().hex[:8]}"
    try:
        sh("ip", "netns", "add", name)
        sh("ip", "-n", name, "link", "set", "lo", "up")
        yield name
    finally:
        if Path(_NAMESPACES, name).exists():  # also where making it was interrupted
            _remove_namespace(name)


def _remove_namespace(name: str) -> None:
    try:
        for pid in sh("ip", "netns", "pids", name).split():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), 9)
    finally:
        sh("ip", "netns", "del", name)


@dataclass(frozen=True, slots=True)
class Host:
    """A host behind one port of a bridge."""

    namespace: str
    bridge: str
    port: int  # OpenFlow port number at the bridge
    link: str  # the switch's end of the cable
    mac: str

    async def run(self, *command: str) -> tuple[int, str]:
        """Run a command in the host and return its exit status and output."""
        process = await asyncio.create_subprocess_exec(
            *("ip", "netns", "exec", self.namespace, *command), stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        try:
            output, _ = await asyncio.wait_for(process.communicate(), _COMMAND_S)
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        return process.returncode or 0, output.decode()

    async def ping(self, address: str, count: int = 3, *options: str) -> int:
        """Return how many of ``count`` echo requests were answered; QUIETLY where none should be.

        They go at once, because ping ends when nothing came for one interval after the last one, whatever -W says, if
        any was answered: with a short one an answer that is late would be lost.
        """
        paced = ("-c", str(count), "-l", str(count), "-i", "10", "-W", "10")
        _, output = await self.run("ping", "-n", *paced, *options, address)
        return output.count("bytes from")

    def ip(self, *arguments: str) -> str:
        """Run ip in the host's namespace."""
        return sh("ip", "-n", self.namespace, *arguments)

    def neighbor(self, address: str, mac: str) -> None:
        """Enter a permanent neighbor."""
        self.ip("neigh", "replace", address, "lladdr", mac, "dev", "eth0", "nud", "permanent")

    def packet_socket(self) -> socket.socket:
        """Return a socket that sends and receives the host's frames; the caller closes it."""

        def make() -> socket.socket:
            packets = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_ETH_P_ALL))
            packets.bind(("eth0", 0))
            packets.setblocking(False)
            return packets

        return in_namespace(self.namespace, make)


class Private:
    """What a test has for itself inside ``with``. Whatever ``bring_up`` puts on the stack goes with it, however it
    ends."""

    _stack: contextlib.ExitStack

    def bring_up(self) -> None:
        """Start everything."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        try:
            self.bring_up()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def make_directory(self, prefix: str) -> Path:
        """Make a directory that goes with it."""
        directory = Path(tempfile.mkdtemp(prefix=prefix))
        self._stack.callback(shutil.rmtree, directory, ignore_errors=True)
        return directory


@dataclass
class PrivateOvs(Private):
    """Open vSwitch in a namespace: ``with PrivateOvs() as ovs``. A given namespace is used and left alone."""

    namespace: str | None = None
    directory: Path = field(init=False)
    _stack: contextlib.ExitStack = field(default_factory=contextlib.ExitStack, init=False)
    _processes: list[subprocess.Popen[bytes]] = field(default_factory=list, init=False)
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1), init=False)

    def bring_up(self) -> None:
        """Start its daemons."""
        self.directory = self.make_directory("sp-ovs-")
        if self.namespace is None:
            self.namespace = self._stack.enter_context(namespace("sp-ovs"))
        self._stack.callback(self.kill)
        self._database = f"unix:{self.directory}/db.sock"
        self._start()

    @property
    def environment(self) -> dict[str, str]:
        """The environment that keeps Open vSwitch's programs in the private directory."""
        names = ("OVS_RUNDIR", "OVS_DBDIR", "OVS_LOGDIR", "OVS_SYSCONFDIR")
        return {**os.environ, **dict.fromkeys(names, str(self.directory))}

    # -- life --------------------------------------------------------------------------------------------------------
    def _start(self) -> None:
        database = self.directory / "conf.db"
        if not database.exists():
            sh("ovsdb-tool", "create", str(database), _SCHEMA)
        self._spawn("ovsdb-server", str(database), f"--remote=p{self._database}")
        self._wait_for(self.directory / "db.sock")
        # There is a moment in which the socket is there and nobody listens.
        sh("ovs-vsctl", f"--db={self._database}", "--retry", "--no-wait", "init", env=self.environment)
        self._spawn("ovs-vswitchd", self._database)
        self.vsctl("set", "Open_vSwitch", ".", "other_config:flow-restore-wait=false")

    def _spawn(self, program: str, *arguments: str) -> None:
        command = ("ip", "netns", "exec", str(self.namespace), program, *arguments)
        own = (f"--pidfile={self.directory}/{program}.pid", f"--log-file={self.directory}/{program}.log")
        quiet = ("-vconsole:off", "-vsyslog:off", f"--unixctl={self.directory}/{program}.ctl")
        process = subprocess.Popen(
            (*command, *own, *quiet), env=self.environment, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        self._processes.append(process)

    def _wait_for(self, path: Path) -> None:
        deadline = threading.Event()
        for _ in range(1200):
            if path.exists():
                return
            deadline.wait(0.05)
        raise RuntimeError(f"{path.name} did not appear; see {self.directory}")

    def kill(self) -> None:
        """Kill the switch and its database at once."""
        for process in reversed(self._processes):
            process.kill()
            process.wait()
        self._processes.clear()
        (self.directory / "db.sock").unlink(missing_ok=True)

    def restart(self) -> None:
        """Kill everything and start it again: the configuration stays, all flows are gone."""
        self.kill()
        self._start()

    # -- commands ----------------------------------------------------------------------------------------------------
    def vsctl(self, *arguments: str) -> str:
        """Run ovs-vsctl, which waits until the switch has done it."""
        return sh("ovs-vsctl", f"--db={self._database}", "--timeout=50", *arguments, env=self.environment).strip()

    def ofctl(self, command: str, bridge: str, *arguments: str) -> str:
        """Run an ovs-ofctl command on a bridge with OpenFlow 1.3."""
        socket_path = f"unix:{self.directory}/{bridge}.mgmt"
        return sh("ovs-ofctl", "-O", "OpenFlow13", command, socket_path, *arguments, env=self.environment)

    def appctl(self, *arguments: str) -> str:
        """Run ovs-appctl on the switch."""
        return sh("ovs-appctl", "-t", f"{self.directory}/ovs-vswitchd.ctl", *arguments, env=self.environment)

    # -- networks ----------------------------------------------------------------------------------------------------
    def add_bridge(self, name: str, datapath_id: int) -> None:
        """Add a bridge that forwards nothing until it is told to."""
        fixed = ("datapath_type=netdev", "fail_mode=secure", "protocols=OpenFlow13")
        identity = f"other_config:datapath-id={datapath_id:016x}"
        self.vsctl("add-br", name, "--", "set", "bridge", name, *fixed, identity, "other_config:disable-in-band=true")

    def set_controller(self, bridge: str, target: str) -> None:
        """Make a bridge connect to a controller, and try again every second."""
        retry = ("max_backoff=1000", "inactivity_probe=5000")
        self.vsctl("set-controller", bridge, target, "--", "set", "controller", bridge, *retry)

    def listening_socket(self) -> socket.socket:
        """Return a socket that listens on loopback inside the switch's namespace."""
        return in_namespace(str(self.namespace), lambda: socket.create_server(("127.0.0.1", 0)))

    def add_host(self, bridge: str, mac: str, *addresses: str, vlan: int = 0) -> Host:
        """Add a host with a MAC and addresses ("10.0.0.2/24"); with a VLAN its frames reach the bridge tagged."""
        number = next(self._numbers)
        name = self._stack.enter_context(namespace("sp-host"))
        link = f"p{number}"
        ends = ("type", "veth", "peer", "name", "eth0", "netns", name)
        sh("ip", "-n", str(self.namespace), "link", "add", link, "address", _link_mac(number), *ends)
        for place, device in ((str(self.namespace), link), (name, "eth0")):
            sh("ip", "netns", "exec", place, "ethtool", "-K", device, "tx", "off", "tso", "off", "gso", "off")
        sh("ip", "netns", "exec", str(self.namespace), "sysctl", "-qw", f"net.ipv6.conf.{link}.disable_ipv6=1")
        sh("ip", "-n", str(self.namespace), "link", "set", link, "up")
        sh("ip", "netns", "exec", name, "sysctl", "-qw", "net.ipv6.conf.eth0.accept_dad=0")
        sh("ip", "-n", name, "link", "set", "eth0", "address", mac, "up")
        for address in addresses:
            sh("ip", "-n", name, "address", "add", address, "dev", "eth0")
        if vlan:
            self._add_access_port(bridge, link, number, vlan)
        else:
            self.vsctl("add-port", bridge, link, "--", "set", "interface", link, f"ofport_request={number}")
        return Host(name, bridge, number, link, mac)

    def _add_access_port(self, bridge: str, link: str, number: int, vlan: int) -> None:
        access, here, there = f"access{number}", f"trunk{number}", f"uplink{number}"
        self.vsctl("add-br", access, "--", "set", "bridge", access, "datapath_type=netdev")
        self.vsctl("add-port", access, link, f"tag={vlan}")
        patch = "type=patch"
        self.vsctl("add-port", access, there, "--", "set", "interface", there, patch, f"options:peer={here}")
        self.vsctl(
            *("add-port", bridge, here, "--", "set", "interface", here, patch),
            *(f"options:peer={there}", f"ofport_request={number}"),
        )


def _link_mac(number: int) -> str:
    return f"02:fe:00:00:00:{number:02x}"
