"""Network namespaces of a lab's own, and hosts in them.

Nothing is left when a context ends, however it ends: processes, namespaces, and with them their links, go.
"""

import asyncio
import contextlib
import ctypes
import os
import shutil
import socket
import subprocess
import tempfile
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self, TypeVar

from lab.commands import COMMAND_LIMIT_S, NetworkError, ran

T = TypeVar("T")

_NAMESPACES = "/run/netns"
_CLONE_NEWNET = 0x40000000
_ETH_P_ALL = 0x0003
QUIETLY = ("-W", "1")
"""For `Host.ping`: wait for an answer for a second, and not for as long as a busy machine may take."""


def trusting(*interfaces: str) -> dict[str, int]:
    """Return what of /proc/sys/net makes a node trust a neighbor that once answered for an hour, as many routers do.

    Linux asks again after half a minute, and gives up a neighbor that is silent for six seconds, though what it is
    sent would be forwarded. While a controller starts nobody answers, and on a busy machine that takes longer.
    """
    return {
        f"{ip}/neigh/{interface}/{name}": value
        for ip in ("ipv4", "ipv6")
        for interface in interfaces
        for name, value in (("base_reachable_time_ms", 3_600_000), ("delay_first_probe_time", 0))
    }


def sh(*command: str, env: dict[str, str] | None = None, logs: Sequence[Path] = ()) -> str:
    """Run a command and return what it prints; NetworkError with all that it complained of where it fails."""
    done = ran(command, COMMAND_LIMIT_S, logs=logs, environment=env)
    if done.returncode:
        raise NetworkError(f"{' '.join(command)}: {done.stderr.strip() or done.stdout.strip()}", *logs)
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
            output, _ = await asyncio.wait_for(process.communicate(), COMMAND_LIMIT_S)
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
    """What its holder has for itself inside ``with``.

    Whatever ``bring_up`` puts on the stack goes with it, however it ends.
    """

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
