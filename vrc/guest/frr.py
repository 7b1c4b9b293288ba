"""FRR's daemons in one guest: the order they start in, what restarts with what, and how their configuration changes.

    start:   zebra, alone ── its vty socket appears ──→ the others ── all their sockets ──→ vtysh -b (whole file)
    zebra dies:   the others are killed, then everything starts as above; zebra -K keeps the kernel's routes
    another dies: it alone starts again, then vtysh -b -d NAME
    new text:     daemons that are new start, frr-reload.py, daemons without configuration stop;
                  where FRR refuses a line, the former text is put back the same way

After zebra alone restarts, FRR 8.4 daemons send it no routes, hence all of them. They are killed, not asked to end:
an orderly end would tell the peers to drop their routes.
"""

import contextlib
import os
import re
import signal
import socket
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from vrc.guest.children import Backoff, Child, Children, describe_end
from vrc.guest.enclosure import watch_directory
from vrc.guest.reactor import Timer
from vrc.guest.suite import ENVIRONMENT, Reply, Section, empty_directory, write_file

BINARIES = "/usr/lib/frr"
CONFIGURATION = "/etc/frr"
SOCKETS = "/var/run/frr"
START_LIMIT_S = 20.0
"""A daemon without a vty socket for this long after its start is killed and started again."""
_PROBE_AGAIN_S = 0.02
_DAEMON_CAPABILITIES = "-all,+chown,+dac_override,+setgid,+setuid,+net_bind_service,+net_admin,+net_raw,+sys_admin"
"""FRR starts as root, becomes its own user, and keeps at most the last four (cap_net_bind_service in bgpd alone)."""
_OWN_DIRECTORIES = ("/var/log/frr", "/var/tmp/frr")  # the latter for FRR's crash logs


@dataclass(frozen=True, slots=True)
class FrrSettings:
    """What the daemons are to run with."""

    text: str  # the whole of frr.conf
    daemons: tuple[str, ...]  # zebra first
    hold_time_s: int
    fpm: bool

    @classmethod
    def parse(cls, section: Section) -> "FrrSettings":
        """Take FRR's section of guest.json; KeyError or TypeError where it is none."""
        return cls(section["text"], tuple(section["daemons"]), section["hold_time_s"], section["fpm"])

    @property
    def zebra_options(self) -> list[str]:
        """The options that only a restart of zebra changes."""
        module = ["-M", "dplane_fpm_nl"] if self.fpm else []
        return [*module, "-K", str(self.hold_time_s)]


class Daemon:
    """One daemon's process and how far it is."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.ready = False  # it answers on its vty socket
        self.configured = False  # … and was given its part of the text
        self.child: Child | None = None
        self.backoff = Backoff()
        self.timer: Timer | None = None
        self.started = 0.0
        self.last_end = ""

    @property
    def running(self) -> bool:
        """Tell whether it has a process."""
        return self.child is not None and self.child.pid != 0

    @property
    def state(self) -> str:
        """``up``, ``starting`` or ``failed: …``."""
        if self.configured:
            return "up"
        return f"failed: {self.last_end}" if self.backoff.failed else "starting"

    def cancel(self) -> None:
        """Forget a start or a limit that was due."""
        if self.timer:
            self.timer.cancel()
        self.timer = None


class FrrDaemons:
    """Runs FRR as its settings say; `etc` is where this process may write what is CONFIGURATION to the daemons."""

    def __init__(self, children: Children, section: Section, etc: str) -> None:
        self.settings, self.restarts, self.config_error = FrrSettings.parse(section), 0, ""
        self._children, self._reactor, self._etc = children, children.reactor, etc
        self._uid, self._gid, self._vty_gid = section["ids"]
        self._daemons = {name: Daemon(name) for name in self.settings.daemons}
        self._loaded = False  # vtysh -b went through since zebra started
        self._falling = False  # zebra died: waiting for the others to be gone
        self._pause_s = 0.0  # before zebra starts again
        self._stopping = False
        self._job: Child | None = None
        self._jobs: list[tuple[str, list[str], Callable[[int, list[str]], None]]] = []
        self._change: tuple[FrrSettings, Reply] | None = None  # waits for new daemons or for the first load
        self._inotify = watch_directory(SOCKETS)
        self._reactor.add_reader(self._inotify, self._directory_changed)

    @property
    def states(self) -> dict[str, str]:
        """State by daemon, and ``config`` where FRR refused a line."""
        states = {name: daemon.state for name, daemon in self._daemons.items()}
        return states | ({"config": f"failed: {self.config_error}"} if self.config_error else {})

    def start(self) -> None:
        """Start everything from nothing."""
        for directory in _OWN_DIRECTORIES:
            os.makedirs(directory, exist_ok=True)
            os.chown(directory, self._uid, self._gid)
        self._write_text(self.settings.text)
        self._begin()

    def stop(self, number: int = signal.SIGTERM) -> None:
        """Signal every daemon and start none again."""
        self._stopping = True
        self._jobs.clear()
        self._kill_job()
        for daemon in self._daemons.values():
            daemon.cancel()
            if daemon.child:
                daemon.child.kill(number)

    @property
    def running(self) -> bool:
        """Tell whether any process of FRR is left."""
        return self._job is not None or any(daemon.running for daemon in self._daemons.values())

    # ── start and death ──

    def _begin(self) -> None:
        self._falling = self._loaded = False
        empty_directory(SOCKETS)
        self._spawn(self._daemons["zebra"])

    def _spawn(self, daemon: Daemon) -> None:
        daemon.cancel()
        with contextlib.suppress(FileNotFoundError):
            os.unlink(f"{SOCKETS}/{daemon.name}.vty")
        options = self.settings.zebra_options if daemon.name == "zebra" else []
        argv = [
            *("/usr/bin/setpriv", "--bounding-set", _DAEMON_CAPABILITIES),
            *(f"{BINARIES}/{daemon.name}", *options, "-P", "0"),
            *("--log", "stdout", "--log-level", "informational"),
        ]
        daemon.started = time.monotonic()
        daemon.child = Child(daemon.name, argv, ENVIRONMENT, lambda _child, status: self._died(daemon, status))
        try:
            self._children.spawn(daemon.child)
        except OSError as error:
            daemon.child.last_line = f"setpriv: {error.strerror}"
            self._died(daemon, 127)
            return
        daemon.timer = self._reactor.call_later(START_LIMIT_S, lambda: self._too_slow(daemon))

    def _too_slow(self, daemon: Daemon) -> None:
        if not daemon.ready and daemon.child:
            self._children.log.write("vr-guest", f"{daemon.name} did not answer within {START_LIMIT_S:.0f} s")
            daemon.child.kill(signal.SIGKILL)

    def _died(self, daemon: Daemon, exit_status: int) -> None:
        daemon.ready = daemon.configured = False
        daemon.cancel()
        daemon.last_end = describe_end(exit_status, daemon.child.last_line if daemon.child else "")
        if self._stopping or self._daemons.get(daemon.name) is not daemon:
            return
        self._children.log.write("vr-guest", f"{daemon.name} ended: {daemon.last_end}")
        self.restarts += 1
        if self._falling:
            self._fallen()
        elif daemon.name == "zebra":
            self._fall(daemon.backoff.delay_s(time.monotonic() - daemon.started))
        else:
            pause = daemon.backoff.delay_s(time.monotonic() - daemon.started)
            daemon.timer = self._reactor.call_later(pause, lambda: self._spawn(daemon))
            self._advance()

    def _fall(self, pause_s: float) -> None:
        self._falling, self._loaded, self._pause_s = True, False, pause_s
        self._jobs.clear()
        self._kill_job()
        if self._change:  # what is about to start may as well start with the new text
            settings, reply = self._change
            self._adopt(settings)
            reply("")
        for daemon in self._daemons.values():
            daemon.cancel()
            daemon.ready = daemon.configured = False
            if daemon.child:
                daemon.child.kill(signal.SIGKILL)
        self._fallen()

    def _fallen(self) -> None:
        if not self.running:
            zebra = self._daemons["zebra"]
            zebra.cancel()
            zebra.timer = self._reactor.call_later(self._pause_s, self._begin)

    # ── readiness ──

    def _directory_changed(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self._inotify, 65536)
        for daemon in list(self._daemons.values()):
            if daemon.running and not daemon.ready:
                self._probe(daemon)

    def _probe(self, daemon: Daemon) -> None:
        if daemon.ready or not daemon.running:
            return
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK) as vty:
            try:
                vty.connect(f"{SOCKETS}/{daemon.name}.vty")
            except FileNotFoundError:
                return
            except OSError:  # bound, but not listening yet
                self._reactor.call_later(_PROBE_AGAIN_S, lambda: self._probe(daemon))
                return
        daemon.ready = True
        daemon.cancel()
        self._became_ready(daemon)

    def _became_ready(self, daemon: Daemon) -> None:
        if daemon.name == "zebra":
            for other in self._daemons.values():
                if other is not daemon:
                    self._spawn(other)
        elif self._loaded and not (self._change and daemon.name not in self.settings.daemons):
            self._load(daemon.name)
        self._advance()

    def _advance(self) -> None:
        """Load or reload as soon as no daemon is left that has not yet come up or failed once."""
        if self._falling or self._job or not self._daemons["zebra"].ready:
            return
        if any(not daemon.ready and not daemon.backoff.deaths for daemon in self._daemons.values()):
            return
        if not self._loaded:
            self._loaded = True
            self._load("")
        elif self._change and not self._jobs:
            self._reload()

    # ── configuration ──

    def _load(self, name: str) -> None:
        argv = ["/usr/bin/vtysh", "-b", *(("-d", name) if name else ())]
        names = [name] if name else [daemon.name for daemon in self._daemons.values() if daemon.ready]
        self._submit("vtysh", argv, lambda status, lines: self._load_done(names, status, lines))

    def _load_done(self, names: list[str], exit_status: int, lines: list[str]) -> None:
        self._mark_configured(names)
        self.config_error = first_error(lines, self.settings.text) if exit_status else ""
        self._advance()

    def _mark_configured(self, names: Iterable[str]) -> None:
        for name in names:
            if daemon := self._daemons.get(name):
                daemon.configured = daemon.ready

    def change(self, section: Section, reply: Reply) -> None:
        """Run with another section; ``reply`` is told when that is done."""
        settings = FrrSettings.parse(section)
        if self._change:
            reply("is being changed already; try again")
            return
        if settings == self.settings:
            reply("")
        elif settings.zebra_options != self.settings.zebra_options or not self._daemons["zebra"].ready:
            self._adopt(settings)
            self._fall(0.0)
            reply("")
        else:
            self._change = (settings, reply)
            for name in settings.daemons:
                if name not in self._daemons:
                    self._daemons[name] = Daemon(name)
                    self._spawn(self._daemons[name])
            self._advance()

    def _adopt(self, settings: FrrSettings) -> None:
        former, self._change, self.settings = self._daemons, None, settings
        self._daemons = {name: former.get(name) or Daemon(name) for name in settings.daemons}
        for name, daemon in former.items():
            daemon.backoff = Backoff()
            if name not in self._daemons and daemon.child:
                daemon.cancel()
                daemon.child.kill(signal.SIGKILL)
        self._write_text(settings.text)

    def _reload(self) -> None:
        assert self._change
        settings, reply = self._change
        self._write_text(settings.text)
        self._submit("frr-reload", _RELOAD, lambda status, lines: self._reload_done(settings, reply, status, lines))

    def _reload_done(self, settings: FrrSettings, reply: Reply, exit_status: int, lines: list[str]) -> None:
        self._change = None
        if exit_status == 0:
            self.settings, self.config_error = settings, ""
            self._mark_configured(self._daemons)
            self._stop_unneeded()
            reply("")
            return
        objection = first_error(lines, settings.text)
        self._write_text(self.settings.text)
        self._submit("frr-reload", _RELOAD, lambda _status, _lines: self._stop_unneeded())
        reply(objection)

    def _stop_unneeded(self) -> None:
        for name in [name for name in self._daemons if name not in self.settings.daemons]:
            daemon = self._daemons.pop(name)
            daemon.cancel()
            if daemon.child:
                daemon.child.kill(signal.SIGTERM)
        self._advance()

    def _write_text(self, text: str) -> None:
        for name, content in {"frr.conf": text, "vtysh.conf": "service integrated-vtysh-config\n"}.items():
            write_file(f"{self._etc}/{name}", content, self._gid)

    # ── one vtysh or frr-reload.py at a time, as a user without privileges ──

    def _submit(self, name: str, argv: list[str], done: Callable[[int, list[str]], None]) -> None:
        self._jobs.append((name, argv, done))
        self._next_job()

    def _next_job(self) -> None:
        if self._job or not self._jobs:
            return
        name, argv, done = self._jobs.pop(0)
        user = ["--reuid", str(self._uid), "--regid", str(self._gid), "--groups", str(self._vty_gid)]
        prefix = ["/usr/bin/setpriv", *user, "--bounding-set", "-all", "--inh-caps", "-all"]
        job = Child(name, prefix + argv, ENVIRONMENT, lambda job, status: self._job_done(job, status, done))
        job.lines = []
        self._job = job
        try:
            self._children.spawn(job)
        except OSError as error:
            job.lines = [f"% {name}: {error.strerror}"]
            self._job_done(job, 127, done)

    def _job_done(self, job: Child, exit_status: int, done: Callable[[int, list[str]], None]) -> None:
        self._job = None
        if self._falling:
            self._fallen()
        elif not self._stopping:
            done(exit_status, job.lines or [])
            self._next_job()

    def _kill_job(self) -> None:
        if self._job:
            self._job.kill(signal.SIGKILL)


_RELOAD = [
    *("/usr/bin/python3", f"{BINARIES}/frr-reload.py", "--reload", "--stdout", "--log-level", "error"),
    *("--bindir", "/usr/bin", "--confdir", CONFIGURATION, "--rundir", SOCKETS, f"{CONFIGURATION}/frr.conf"),
]


_OBJECTION = re.compile(
    r"^line \d+: (?:% (?P<syntax>[^\[]+)\[\d+\]: |Failure to communicate\[\d+\] to (?P<daemon>\w+), line: )"
    r"(?P<command>.*)$"
)
_NOISE = "vtysh_pam: Failed in account validation: Authentication failure(7)"


def first_error(lines: list[str], text: str) -> str:
    """Return in one line what vtysh or frr-reload.py objected to first, with its line number in ``text``."""
    reason = ""
    for raw in lines:
        line = raw.replace(_NOISE, "").strip()
        if match := _OBJECTION.match(line):
            command = match["command"].strip()
            reason = match["syntax"] or reason or f"{match['daemon']} refused it"
            numbers = [number for number, given in enumerate(text.splitlines(), 1) if given.strip() == command]
            return f"line {numbers[0]}: {reason}: {command}" if numbers else f"{reason}: {command}"
        if line.startswith("%"):
            reason = line.lstrip("% ")
    return reason or next((said for raw in lines if (said := raw.replace(_NOISE, "").strip())), "no reason given")
