"""vr-guest: closes a guest in, then is its pid 1: makes its interfaces, runs suite and VRC, answers the controller.

Standard library only, and little of it: the process is there once for every router.

    vr-guest --config DIRECTORY/guest.json     returns when the guest runs; one line on stderr where it cannot

The controller's socket is DIRECTORY/control.sock: one JSON object a line, one reply a line.

    {"op": "status"}                 {"ok": true, "daemons": {…}, "restarts": 3, "confinement": "…"}
    {"op": "reload", "config": {…}}  {"ok": true} when it is in force, {"ok": false, "error": "…"} as the suite put it
    {"op": "stop"}                   {"ok": true} when every other process of the guest is gone; then it exits
    {"op": "version"}                {"ok": true, "version": 1}
"""

import contextlib
import fcntl
import functools
import json
import os
import resource
import select
import signal
import socket
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from vrc.guest.children import Children, KeptChild
from vrc.guest.enclosure import (
    EXIT_RUNS_ALREADY,
    OWN,
    Bind,
    EnclosureError,
    NoUserNamespace,
    close_in,
    enter_namespaces,
    give_up_privileges,
    settle_in,
)
from vrc.guest.interfaces import GuestInterface, GuestInterfaces
from vrc.guest.listener import Listener
from vrc.guest.log import GuestLog
from vrc.guest.reactor import Reactor, Timer
from vrc.guest.suites.base import Section, as_user
from vrc.guest.suites.choice import make, section_of

VERSION = 1
MAX_REQUEST_BYTES = 8 << 20
MAX_CLIENTS = 16
LAUNCH_LIMIT_S = 25.0
"""How long the guest may take to be closed in; whoever started vr-guest waits a little longer."""
STOP_LIMIT_S = 4.0
LAST_WORDS_S = 0.2
_OPEN_FILES = 65536


@dataclass(frozen=True, slots=True)
class GuestConfig:
    """guest.json, as the driver wrote it."""

    router: str
    hostname: str
    directory: str
    binds: tuple[Bind, ...]
    hidden: tuple[str, ...]
    vrc_uid: int
    vrc_argv: tuple[str, ...]
    vrc_environment: dict[str, str]
    interfaces: tuple[GuestInterface, ...]
    suite: str  # the name of its section
    section: Section

    @classmethod
    def parse(cls, fields: dict[str, Any]) -> "GuestConfig":
        """Take the fields of guest.json; KeyError, TypeError or ValueError where they are none."""
        vrc = fields["vrc"]
        suite, section = section_of(fields)
        return cls(
            router=fields["router"],
            hostname=fields["hostname"],
            directory=fields["directory"],
            binds=tuple(Bind(*bind) for bind in fields["binds"]),
            hidden=tuple(fields["hidden"]),
            vrc_uid=vrc["uid"],
            vrc_argv=tuple(vrc["argv"]),
            vrc_environment=vrc["environment"],
            interfaces=tuple(map(GuestInterface.parse, fields["interfaces"])),
            suite=suite,
            section=section,
        )

    @property
    def vrc_command(self) -> list[str]:
        """The VRC's command, as its own user with one capability."""
        return [*as_user(self.vrc_uid, self.vrc_uid, "net_admin"), *self.vrc_argv]


class Supervisor:
    """pid 1 of a guest."""

    def __init__(self, config: GuestConfig, confinement: str) -> None:
        self._config, self._confinement = config, confinement
        self._reactor = Reactor()
        self._log = GuestLog(f"{OWN}/directory/guest.log")
        self._children = children = Children(self._reactor, self._log, self._reaped)
        say = functools.partial(self._log.write, "vr-guest")
        self._interfaces = GuestInterfaces(self._reactor, config.interfaces, say)
        self._vrc = KeptChild(children, "vrc", config.vrc_command, config.vrc_environment)
        self._suite = make(config.suite, children, config.section, f"{OWN}/directory/etc")
        self._changes: list[Callable[[], None]] | None = []  # wait until the suite starts; None from then on
        self._clients: dict[socket.socket, bytes] = {}
        self._stopping: list[socket.socket] | None = None
        self._last_words: Timer | None = None
        Listener(self._reactor, f"{OWN}/directory/control.sock", socket.SOCK_STREAM, 0, MAX_CLIENTS, self._take)
        self._reactor.on_signal(signal.SIGTERM, lambda: self._stop(None))

    def run(self) -> None:
        """Start everything and serve until stopped."""
        self._log.write("vr-guest", f"guest of {self._config.router} starts; confinement: {self._confinement}")
        self._vrc.start()
        self._interfaces.start(self._start_suite)
        self._reactor.run()

    def _start_suite(self) -> None:
        if self._stopping is None:
            self._suite.start()
            changes, self._changes = self._changes, None
            for change in changes or []:
                change()

    # ── the controller's socket ──

    def _take(self, client: socket.socket) -> bool:
        if len(self._clients) >= MAX_CLIENTS:
            return False
        self._clients[client] = b""
        self._reactor.add_reader(client.fileno(), lambda: self._receive(client))
        return True

    def _receive(self, client: socket.socket) -> None:
        try:
            data = client.recv(65536)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        received = self._clients[client] + data
        if not data or len(received) > MAX_REQUEST_BYTES:
            self._forget(client)
            return
        *lines, self._clients[client] = received.split(b"\n")
        for line in lines:
            self._request(client, line)

    def _forget(self, client: socket.socket) -> None:
        if self._clients.pop(client, None) is not None:
            self._reactor.remove_reader(client.fileno())
            client.close()

    def _reply(self, client: socket.socket, error: str, **fields: Any) -> None:
        if client not in self._clients:
            return
        answer = {"ok": False, "error": error} if error else {"ok": True, **fields}
        try:
            client.sendall(json.dumps(answer).encode() + b"\n")
        except OSError:
            self._forget(client)

    def _request(self, client: socket.socket, line: bytes) -> None:
        try:
            request = json.loads(line)
            op = request["op"]
            if op == "status":
                restarts = self._vrc.restarts + self._suite.restarts
                daemons = {"vrc": self._vrc.state} | self._interfaces.states | self._suite.tell_states()
                self._reply(client, "", daemons=daemons, restarts=restarts, confinement=self._confinement)
            elif op == "reload":
                self._reload(client, GuestConfig.parse(request["config"]))
            elif op == "stop":
                self._stop(client)
            elif op == "version":
                self._reply(client, "", version=VERSION)
            else:
                self._reply(client, f"no operation {op!r}")
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            self._reply(client, f"not a request: {error!r}")

    def _reload(self, client: socket.socket, config: GuestConfig) -> None:
        if config.suite != self._config.suite:
            self._reply(client, "another suite needs a new guest")
            return

        def applied(error: str) -> None:
            if not error:
                if config.hostname != self._config.hostname:
                    socket.sethostname(config.hostname)
                self._config = config
                self._vrc.replace(config.vrc_command, config.vrc_environment)
            self._reply(client, error)

        self._interfaces.change(config.interfaces)
        change = functools.partial(self._suite.change, config.section, applied)
        if self._changes is None:
            change()
        else:
            self._changes.append(change)

    # ── the end ──

    def _stop(self, client: socket.socket | None) -> None:
        waiting = [client] if client else []
        if self._stopping is not None:
            self._stopping += waiting
            return
        self._stopping = waiting
        self._log.write("vr-guest", "stopping")
        self._suite.stop()
        self._reactor.call_later(STOP_LIMIT_S, self._kill)
        self._end()

    def _kill(self) -> None:
        self._vrc.stop(signal.SIGKILL)
        self._suite.stop(signal.SIGKILL)

    def _reaped(self) -> None:
        if self._stopping is not None:
            self._end()

    def _end(self) -> None:
        if self._suite.running:
            return
        if not self._last_words:
            # The VRC still carries to the peers what the daemons said at their end.
            self._last_words = self._reactor.call_later(LAST_WORDS_S, self._vrc.stop)
        if self._vrc.pid:
            return
        for client in self._stopping or []:
            self._reply(client, "")
        self._log.write("vr-guest", "stopped")
        self._reactor.stop()


def _first_process(config: GuestConfig, user_namespace: bool, go: int, ready: int) -> None:
    """Be pid 1; never returns."""
    status = 1
    try:
        if not os.read(go, 1):
            os._exit(1)
        os.setsid()
        settle_in(config.hostname, user_namespace)
        give_up_privileges()
        confinement = "user namespace" if user_namespace else "no user namespace"
        supervisor = Supervisor(config, confinement)
        with open("/dev/null", "r+b", buffering=0) as null:
            for fd in (0, 1, 2):
                os.dup2(null.fileno(), fd)
        os.write(ready, b"ready")
        os.close(ready)
        supervisor.run()
        status = 0
    except NoUserNamespace as error:
        os.write(ready, f"userns {error}".encode())
    except (EnclosureError, OSError) as error:
        with contextlib.suppress(OSError):
            os.write(ready, str(error).encode())
    finally:
        os._exit(status)


def _start_time(pid: int) -> int:
    with open(f"/proc/{pid}/stat") as file:
        return int(file.read().rpartition(")")[2].split()[19])


def _write_pid(directory: int, pid: int) -> None:
    with open("/proc/sys/kernel/random/boot_id") as file:
        boot = file.read().strip()
    fd = os.open("guest.pid.new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600, dir_fd=directory)
    os.write(fd, f"{pid} {_start_time(pid)} {boot}\n".encode())
    os.close(fd)
    os.replace("guest.pid.new", "guest.pid", src_dir_fd=directory, dst_dir_fd=directory)


def _stage(config: GuestConfig, directory: int, user_namespace: bool, ready: int) -> None:
    """Close in, start pid 1, and exit; never returns."""
    try:
        go_read, go_write = os.pipe()
        close_in(
            [Bind(config.directory, f"{OWN}/directory", True), *config.binds], list(config.hidden), config.vrc_uid
        )
        enter_namespaces(user_namespace)
        pid = os.fork()
        if pid == 0:
            os.close(go_write)
            os.close(directory)
            _first_process(config, user_namespace, go_read, ready)
        _write_pid(directory, pid)
        os.write(go_write, b"1")
    except NoUserNamespace as error:
        os.write(ready, f"userns {error}".encode())
    except (EnclosureError, OSError) as error:
        os.write(ready, str(error).encode())
    finally:
        os._exit(0)


def _launch(config: GuestConfig, directory: int, user_namespace: bool) -> str:
    """Return "" once the guest runs, else why it does not."""
    read, write = os.pipe()
    stage = os.fork()
    if stage == 0:
        os.close(read)
        _stage(config, directory, user_namespace, write)
    os.close(write)
    said = _said_within(LAUNCH_LIMIT_S, read)
    os.close(read)
    if said is None:
        _kill(stage, directory)
    os.waitpid(stage, 0)
    if said == "ready":
        return ""
    if said is None:
        return f"its first process was not ready within {LAUNCH_LIMIT_S:g} s; see {config.directory}/guest.log"
    return said or "its first process ended without a word"


def _said_within(limit_s: float, pipe: int) -> str | None:
    """Return what is written to a pipe until its end; None where that does not come in time."""
    said, deadline = b"", time.monotonic() + limit_s
    while select.select([pipe], [], [], max(0.0, deadline - time.monotonic()))[0]:
        piece = os.read(pipe, 4096)
        if not piece:
            return said.decode(errors="replace")
        said += piece
    return None


def _kill(stage: int, directory: int) -> None:
    """Kill what hangs on the way to a guest: the stage, and pid 1 where there is one."""
    os.kill(stage, signal.SIGKILL)  # pid 1 ends by itself where the stage had not noted it yet
    with contextlib.suppress(OSError, ValueError, IndexError):
        with open(os.open("guest.pid", os.O_RDONLY, dir_fd=directory)) as file:
            pid, start, _ = file.read().split()
        if _start_time(int(pid)) == int(start):
            os.kill(int(pid), signal.SIGKILL)


def _limit_resources() -> None:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = _OPEN_FILES if most == resource.RLIM_INFINITY else min(_OPEN_FILES, most)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def main() -> int:
    """The console script ``vr-guest``."""
    if len(sys.argv) != 3 or sys.argv[1] != "--config":
        print("usage: vr-guest --config DIRECTORY/guest.json", file=sys.stderr)
        return 2
    with open(sys.argv[2]) as file:
        config = GuestConfig.parse(json.load(file))
    directory = os.open(config.directory, os.O_RDONLY | os.O_DIRECTORY)
    # Held by pid 1 as long as it lives: there is never a second guest on one directory.
    lock = os.open("guest.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600, dir_fd=directory)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        print("it runs already", file=sys.stderr)
        return EXIT_RUNS_ALREADY
    _limit_resources()
    problem = _launch(config, directory, user_namespace=True)
    if problem.startswith("userns "):
        problem = _launch(config, directory, user_namespace=False)
    if problem:
        print(problem, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
