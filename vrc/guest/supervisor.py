"""vr-guest: closes a guest in, then is its pid 1: makes its interfaces, runs suite and VRC, answers the controller.

Standard library only, and little of it: the process is there once for every router.

    vr-guest --config DIRECTORY/guest.json [--limit SECONDS] [--group CGROUP.PROCS]…

It returns when the guest runs, or with one line on stderr why it does not, which it has to within the limit. All of
the guest is in these control groups.

The controller's socket is DIRECTORY/control.sock: one JSON object a line, one reply a line.

    {"op": "status"}                 {"ok": true, "daemons": {…}, "restarts": 3}
    {"op": "reload", "config": {…}}  {"ok": true} when it is in force, {"ok": false, "error": "…"} as the suite put it
    {"op": "stop"}                   {"ok": true} when every other process of the guest is gone; then it exits
    {"op": "version"}                {"ok": true, "version": 1}
"""

import fcntl
import functools
import json
import os
import resource
import signal
import socket
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from vrc.guest.children import Children, KeptChild
from vrc.guest.enclosure import ETC, OWN, Bind, Folders
from vrc.guest.interfaces import GuestInterface, GuestInterfaces
from vrc.guest.launch import EXIT_RUNS_ALREADY, LIMIT_S, Plan, launch
from vrc.guest.listener import Listener, listen
from vrc.guest.log import GuestLog
from vrc.guest.namespaces import GuestIds
from vrc.guest.privileges import leave_no_core
from vrc.guest.reactor import Reactor, Timer
from vrc.guest.suites.base import Section, as_user, unwritten
from vrc.guest.suites.choice import make, section_of

VERSION = 1
MAX_REQUEST_BYTES = 8 << 20
MAX_CLIENTS = 16
STOP_LIMIT_S = 4.0
LAST_WORDS_S = 0.2
LOG, SOCKET, LOCK = "guest.log", "control.sock", "guest.lock"
_OPEN_FILES = 65536


@dataclass(frozen=True, slots=True)
class GuestConfig:
    """guest.json, as the driver wrote it."""

    router: str
    hostname: str
    directory: str
    binds: tuple[Bind, ...]
    hidden: tuple[str, ...]
    folders: Folders
    ids: GuestIds
    vrc_argv: tuple[str, ...]
    vrc_environment: dict[str, str]
    interfaces: tuple[GuestInterface, ...]
    suite: str  # the name of its section
    section: Section

    @classmethod
    def parse(cls, fields: dict[str, Any]) -> "GuestConfig":
        """Take the fields of guest.json; KeyError, TypeError or ValueError where they are none."""
        vrc, folders = fields["vrc"], fields["folders"]
        suite, section = section_of(fields)
        user, group = section["ids"][:2]
        return cls(
            router=fields["router"],
            hostname=fields["hostname"],
            directory=fields["directory"],
            binds=tuple(Bind(*bind) for bind in fields["binds"]),
            hidden=tuple(fields["hidden"]),
            folders=Folders(folders["etc"], folders["run"], (user, group)),
            ids=GuestIds(fields["id_base"], vrc["uid"]),
            vrc_argv=tuple(vrc["argv"]),
            vrc_environment=vrc["environment"],
            interfaces=tuple(map(GuestInterface.parse, fields["interfaces"])),
            suite=suite,
            section=section,
        )

    @property
    def vrc_command(self) -> list[str]:
        """The VRC's command, as its own user with one capability."""
        return [*as_user(self.ids.vrc, self.ids.vrc, "net_admin"), *self.vrc_argv]


class Supervisor:
    """pid 1 of a guest. ``log`` and ``listening``, for the controller, are files of the host that it came with."""

    def __init__(self, config: GuestConfig, log: GuestLog, listening: socket.socket) -> None:
        self._config, self._log = config, log
        self._reactor = Reactor()
        self._children = children = Children(self._reactor, self._log, self._reaped)
        say = functools.partial(self._log.write, "vr-guest")
        self._interfaces = GuestInterfaces(self._reactor, config.interfaces, say)
        self._vrc = KeptChild(children, "vrc", config.vrc_command, config.vrc_environment)
        self._suite = make(config.suite, children, config.section, ETC)
        self._changes: list[Callable[[], None]] | None = []  # wait until the suite starts; None from then on
        self._clients: dict[socket.socket, bytes] = {}
        self._stopping: list[socket.socket] | None = None
        self._last_words: Timer | None = None
        Listener(self._reactor, listening, self._take)
        self._reactor.on_signal(signal.SIGTERM, lambda: self._stop(None))

    def run(self) -> None:
        """Start everything and serve until stopped."""
        root = self._config.ids.on_host(0)
        self._log.write("vr-guest", f"guest of {self._config.router} starts; its root is user {root} of the host")
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
                self._reply(client, "", daemons=daemons, restarts=restarts)
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

        def change() -> None:
            try:
                self._suite.change(config.section, applied)
            except OSError as error:
                self._reply(client, unwritten(error))

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


def _limit_resources() -> None:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = _OPEN_FILES if most == resource.RLIM_INFINITY else min(_OPEN_FILES, most)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    leave_no_core()


def _plan(config: GuestConfig, directory: int) -> Plan:
    """Open what of the directory the first process needs, which sees none of it, and say what it becomes."""
    here = f"/proc/self/fd/{directory}"  # a socket's path has at most 107 octets
    log = GuestLog(f"{config.directory}/{LOG}")
    listening = listen(f"{here}/{SOCKET}", 0, MAX_CLIENTS)
    logs = (Bind(path, f"{OWN}/{os.path.basename(path)}") for path in (log.path, log.former))
    return Plan(
        directory=directory,
        hostname=config.hostname,
        binds=(*config.binds, *logs),
        hidden=config.hidden,
        folders=config.folders,
        ids=config.ids,
        become=lambda: Supervisor(config, log, listening),
    )


def _enter_groups(procs: Iterable[str]) -> None:
    for path in procs:
        with open(path, "w") as file:
            file.write(str(os.getpid()))


def main() -> int:
    """The console script ``vr-guest``."""
    options = list(zip(sys.argv[1::2], sys.argv[2::2], strict=False))
    names = [name for name, _ in options]
    limited = names[1:2] == ["--limit"]
    groups = options[1 + limited :]
    if len(sys.argv) % 2 == 0 or names != ["--config", *["--limit"] * limited, *["--group"] * len(groups)]:
        print(
            "usage: vr-guest --config DIRECTORY/guest.json [--limit SECONDS] [--group CGROUP.PROCS]…", file=sys.stderr
        )
        return 2
    path = options[0][1]
    limit_s = float(options[1][1]) if limited else LIMIT_S
    directory = os.open(os.path.dirname(path) or ".", os.O_RDONLY | os.O_DIRECTORY)
    # Held by pid 1 as long as it lives: there is never a second guest on one directory.
    lock = os.open(LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600, dir_fd=directory)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        print("it runs already", file=sys.stderr)
        return EXIT_RUNS_ALREADY
    with open(path) as file:  # from now on it says what the guest was started with: who changes it has the lock
        config = GuestConfig.parse(json.load(file))
    try:
        _enter_groups(path for _, path in groups)
    except OSError as error:
        print(f"{error.filename}: {error.strerror}", file=sys.stderr)
        return 1
    _limit_resources()
    problem = launch(_plan(config, directory), limit_s)
    if problem:
        print(problem, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
