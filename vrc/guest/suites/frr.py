"""FRR's daemons in one guest: the order they start in, what restarts with what, and how their configuration changes.

    start:   mgmtd ── its vty socket appears ──→ zebra ── the same ──→ the others ── all ──→ vtysh -b (whole file)
    zebra dies:   the others are killed, then everything starts as above; zebra -K keeps the kernel's routes
    another dies: it alone starts again, then vtysh -b -d NAME
    one hangs at its start, or vtysh does: it is killed at its limit, its state says so, and it is tried again
    new text:     daemons that are new start, frr-reload.py, daemons without configuration stop;
                  where FRR refuses a line, the former text is put back the same way

After zebra alone restarts, FRR's daemons send it no routes, hence all of them. They are killed, not asked to end:
an orderly end would tell the peers to drop their routes.

mgmtd is there from FRR 9 on: it keeps the configuration of zebra, staticd, ripd and ripngd. Without it a reload says
that all went well and changes nothing of theirs, so none begins before it is up. One that starts again knows nothing;
the text that it is given is the one that its daemons run with already. After each text it is asked what it has, as it
may have forgotten some of it (`frr_jobs.py`).
"""

import contextlib
import os
import signal
import socket
import time
from collections.abc import Iterable
from dataclasses import dataclass

from vrc.guest.children import Backoff, Child, Children, describe_end, late
from vrc.guest.enclosure import FRR_STATE
from vrc.guest.kernel import watch_directory
from vrc.guest.reactor import Timer
from vrc.guest.suites.base import (
    ENVIRONMENT,
    Reply,
    Section,
    as_user,
    empty_directory,
    job_limit_of,
    start_limit_of,
    unwritten,
    write_files,
)
from vrc.guest.suites.frr_jobs import BINARIES, SOCKETS, FrrJobs
from vrc.guest.suites.frr_objections import first_error, refusals
from vrc.guest.suites.source_watch import SourceWatch, Tell, fpm_is_missing

LOAD_AGAIN_S = 5.0
"""How long after that a text is loaded again."""
FPM_LINE = "fpm address 127.0.0.1"
_SILENT = "zebra does not send routes (no FPM connection); it is told to connect every 30 s"
_LEADERS = ("mgmtd", "zebra")
"""Those that are waited for before others start, in this order."""
_PROBE_AGAIN_S = 0.02
_FPM_THREAD = "dplane_fpm_nl"
_PROMPT = ("bfdd",)
"""Daemons that take short turns: at 50 ms times 3, a session is down if six turns together come 100 ms late."""
_CAPABILITIES_KEPT = ("net_bind_service", "net_admin", "net_raw", "sys_admin")
_DAEMON_CAPABILITIES = ",".join(
    ("-all", *(f"+{name}" for name in ("chown", "dac_override", "setgid", "setuid", *_CAPABILITIES_KEPT)))
)
"""FRR starts as root, becomes its own user, and keeps at most the last four (cap_net_bind_service in bgpd alone)."""
_OWN_DIRECTORIES = ("/var/log/frr", "/var/tmp/frr")  # the latter for FRR's crash logs


@dataclass(frozen=True, slots=True)
class FrrSettings:
    """What the daemons are to run with."""

    text: str  # the whole of frr.conf
    daemons: tuple[str, ...]  # the leaders first
    hold_time_s: int
    fpm: bool
    lines_before: int  # of the text that are not the operator's, and not counted in what is said of it
    start_limit_s: float  # a daemon without a vty socket for so long after its start is killed and started again
    job_limit_s: float  # so is a vtysh or frr-reload.py, which is killed; the controller waits longer for a change

    @classmethod
    def parse(cls, section: Section) -> "FrrSettings":
        """Take FRR's section of guest.json; KeyError or TypeError where it is none.

        It names what the text asks for. Whether that needs a mgmtd is for the FRR that is installed here to say.
        """
        mgmtd = ("mgmtd",) if os.path.exists(f"{BINARIES}/mgmtd") else ()
        daemons = (*mgmtd, *section["daemons"])
        before = section.get("lines_before", 0)
        limits = start_limit_of(section), job_limit_of(section)
        return cls(section["text"], daemons, section["hold_time_s"], section["fpm"], before, *limits)

    @property
    def zebra_options(self) -> list[str]:
        """The options that only a restart of zebra changes."""
        module = ["-M", "dplane_fpm_nl"] if self.fpm else []
        # In one word: from FRR 9 on the time is optional, and as a word of its own it would not be taken.
        return [*module, f"-K{self.hold_time_s}"]


class Daemon:
    """One daemon's process and how far it is."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.ready = False  # it answers on its vty socket
        self.configured = False  # … and was given its part of the text
        self.child: Child | None = None
        self.backoff = Backoff()
        self.late = False  # it did not answer in time, and has not since
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
        return f"failed: {self.last_end}" if self.failed else "starting"

    @property
    def failed(self) -> bool:
        """Tell whether it is of no use, and will not be soon."""
        return self.late or self.backoff.failed

    def cancel(self) -> None:
        """Forget a start or a limit that was due."""
        if self.timer:
            self.timer.cancel()
        self.timer = None


class FrrDaemons:
    """Runs FRR as its settings say; `etc` is where this process may write what the daemons have as /etc/frr."""

    def __init__(self, children: Children, section: Section, etc: str) -> None:
        self.settings, self.restarts = FrrSettings.parse(section), 0
        self._refused: dict[str, str] = {}  # by what was loaded: a daemon, "" for all of them
        self._children, self._reactor, self._etc = children, children.reactor, etc
        self._uid, self._gid, self._vty_gid = section["ids"]
        self._daemons = {name: Daemon(name) for name in self.settings.daemons}
        self._loaded = False  # vtysh -b went through since zebra started
        self._falling = False  # zebra died: waiting for the others to be gone
        self._pause_s = 0.0  # before zebra starts again
        self._stopping = False
        ids = (self._uid, self._gid, self._vty_gid)
        self._jobs = FrrJobs(children, ids, lambda: self.settings.job_limit_s, self._job_ended)
        self._load_again: Timer | None = None
        self._doubtful = False  # the daemons, or the file, may have of a refused text what they took
        self._change: tuple[FrrSettings, Reply] | None = None  # waits for new daemons or for the first load
        self._inotify = watch_directory(SOCKETS)
        self._reactor.add_reader(self._inotify, self._directory_changed)
        self._fpm = SourceWatch(self._reactor, self._look_at_fpm, self._connect_fpm)

    @property
    def config_error(self) -> str:
        """What FRR refused of the text, in one line; empty where it took all of it."""
        return next(iter(self._refused.values()), "")

    def tell_states(self) -> dict[str, str]:
        """Return the state by daemon, ``config`` where FRR refused a line, and ``fpm`` where zebra sends no routes,
        or did not and nobody has asked since."""
        states = {name: daemon.state for name, daemon in self._daemons.items()}
        failed = {"config": self.config_error, "fpm": _SILENT if self._fpm.tell() else ""}
        return states | {name: f"failed: {why}" for name, why in failed.items() if why}

    def start(self) -> None:
        """Start everything from nothing."""
        for directory in _OWN_DIRECTORIES:
            os.makedirs(directory, exist_ok=True)
        for directory in (*_OWN_DIRECTORIES, FRR_STATE):
            with contextlib.suppress(FileNotFoundError):  # before FRR 10 there is no FRR_STATE
                os.chown(directory, self._uid, self._gid)
        self._write_text(self.settings.text)
        self._begin()

    def stop(self, number: int = signal.SIGTERM) -> None:
        """Signal every daemon and start none again."""
        self._stopping = True
        self._clear_jobs()
        for daemon in self._daemons.values():
            daemon.cancel()
            if daemon.child:
                daemon.child.kill(number)

    @property
    def running(self) -> bool:
        """Tell whether any process of FRR is left."""
        return self._jobs.running or any(daemon.running for daemon in self._daemons.values())

    @property
    def _leaders(self) -> list[Daemon]:
        return [self._daemons[name] for name in _LEADERS if name in self._daemons]

    # ── start and death ──

    def _begin(self) -> None:
        self._falling = self._loaded = False
        empty_directory(SOCKETS)
        self._spawn(self._leaders[0])

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
        daemon.child.prompt = daemon.name in _PROMPT
        try:
            self._children.spawn(daemon.child)
        except OSError as error:
            daemon.child.last_line = f"setpriv: {error.strerror}"
            self._died(daemon, 127)
            return
        daemon.timer = self._reactor.call_later(self.settings.start_limit_s, lambda: self._too_slow(daemon))

    def _too_slow(self, daemon: Daemon) -> None:
        if not daemon.ready and daemon.child:
            daemon.late, daemon.last_end = True, late(self.settings.start_limit_s)
            daemon.child.overran = daemon.last_end
            daemon.child.kill(signal.SIGKILL)

    def _died(self, daemon: Daemon, exit_status: int) -> None:
        daemon.ready = daemon.configured = False
        daemon.cancel()
        overran, said = (daemon.child.overran, daemon.child.last_line) if daemon.child else ("", "")
        daemon.late, daemon.last_end = bool(overran), overran or describe_end(exit_status, said)
        if self._stopping or self._daemons.get(daemon.name) is not daemon:
            return
        self._children.log.write("vr-guest", f"{daemon.name} ended: {daemon.last_end}")
        self.restarts += 1
        if self._falling:
            self._fallen()
            return
        pause_s = daemon.backoff.delay_s(0.0 if daemon.late else time.monotonic() - daemon.started)
        if daemon.name == "zebra":
            self._fall(pause_s)
            return
        daemon.timer = self._reactor.call_later(pause_s, lambda: self._spawn(daemon))
        if daemon.name in _LEADERS and daemon.failed:
            self._refuse_change(f"{daemon.name}: {daemon.last_end}")
        self._advance()

    def _fall(self, pause_s: float) -> None:
        self._falling, self._loaded, self._pause_s = True, False, pause_s
        self._clear_jobs()
        if self._change:  # what is about to start may as well start with the new text
            settings, reply = self._change
            try:
                self._adopt(settings)
                reply("")
            except OSError as error:
                self._refuse_change(unwritten(error))
        for daemon in self._daemons.values():
            daemon.cancel()
            daemon.ready = daemon.configured = False
            if daemon.child:
                daemon.child.kill(signal.SIGKILL)
        self._fallen()

    def _fallen(self) -> None:
        if not self.running:
            first = self._leaders[0]
            first.cancel()
            first.timer = self._reactor.call_later(self._pause_s, self._begin)

    # ── readiness ──

    def _directory_changed(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self._inotify, 65536)
        for daemon in list(self._daemons.values()):
            if daemon.running and not daemon.ready:
                self._probe(daemon)

    def _probe(self, daemon: Daemon) -> None:
        # One that was killed takes connections until it is gone.
        if self._falling or self._stopping or daemon.ready or not daemon.running:
            return
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK) as vty:
            try:
                vty.connect(f"{SOCKETS}/{daemon.name}.vty")
            except FileNotFoundError:
                return
            except OSError:  # bound, but not listening yet
                self._reactor.call_later(_PROBE_AGAIN_S, lambda: self._probe(daemon))
                return
        daemon.ready, daemon.late = True, False
        daemon.cancel()
        self._became_ready(daemon)

    def _became_ready(self, daemon: Daemon) -> None:
        if daemon.name == "zebra":
            for other in self._daemons.values():
                if other.name not in _LEADERS:
                    self._spawn(other)
        elif daemon.name == "mgmtd" and not self._daemons["zebra"].running:
            self._spawn(self._daemons["zebra"])
        elif self._loaded and not (self._change and daemon.name not in self.settings.daemons):
            self._load(daemon.name)
        self._advance()

    def _let_fpm_interrupt(self, zebra: Daemon) -> None:
        """Take zebra's FPM thread out of what is batch work in a guest.

        The data plane thread of FRR 10.3 asks it again and again, without a pause, for as long as it has 100
        routes before it (dplane_thread_loop): if it had to wait for its turn, that would take both cores.
        """
        assert zebra.child
        with contextlib.suppress(OSError):  # it ended, or there is no chrt: then it only costs more
            for thread in os.scandir(f"/proc/{zebra.child.pid}/task"):
                with open(f"{thread.path}/comm") as comm:
                    if comm.read().strip() == _FPM_THREAD:
                        # As zebra's user and with all that zebra may have, or it is refused (cap_safe_nice). By the
                        # real user id too: where there are no new privileges, kernels before 6.16 let a command have
                        # no other effective one.
                        zebra_s = as_user(self._uid, self._gid, *_CAPABILITIES_KEPT)
                        argv = [*zebra_s, "/usr/bin/chrt", "--other", "--pid", "0", thread.name]
                        self._children.spawn(Child("chrt", argv, ENVIRONMENT, lambda _child, _status: None))

    def _advance(self) -> None:
        """Load or reload as soon as no daemon is left that has not yet come up or failed once."""
        if self._falling or self._jobs.running or not all(leader.ready for leader in self._leaders):
            return
        if any(not daemon.ready and not daemon.backoff.deaths for daemon in self._daemons.values()):
            return
        if not self._loaded:
            self._loaded = True
            self._load("")
        elif self._change and not self._jobs.busy:
            self._reload()

    # ── configuration ──

    def _load(self, name: str) -> None:
        names = [name] if name else [daemon.name for daemon in self._daemons.values() if daemon.ready]
        self._jobs.load(name, lambda job, status: self._load_done(name, names, job, status), self._has_mgmtd)
        if not name and self.settings.fpm:
            self._let_fpm_interrupt(self._daemons["zebra"])

    def _load_done(self, name: str, names: list[str], job: Child, exit_status: int) -> None:
        self._refused = refusals(self._refused, name, job_error(job, self.settings) if exit_status else "")
        if job.overran:
            self._load_later(name)
        else:
            self._mark_configured(names)
        self._advance()

    def _load_later(self, name: str) -> None:
        if self._load_again:  # of another daemon: then all at once
            self._load_again.cancel()
            name = ""
        self._load_again = self._reactor.call_later(LOAD_AGAIN_S, lambda: self._try_load(name))

    def _try_load(self, name: str) -> None:
        self._load_again = None
        self._load(name)

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
        if settings == self.settings and not self._doubtful:
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
        self._write_text(settings.text)
        former, self._change, self.settings = self._daemons, None, settings
        self._doubtful = False
        self._daemons = {name: former.get(name) or Daemon(name) for name in settings.daemons}
        for name, daemon in former.items():
            daemon.backoff = Backoff()
            if name not in self._daemons and daemon.child:
                daemon.cancel()
                daemon.child.kill(signal.SIGKILL)

    def _reload(self) -> None:
        assert self._change
        settings, reply = self._change
        try:
            self._write_text(settings.text)
        except OSError as error:
            self._refuse_change(unwritten(error))
            return
        self._jobs.reload(lambda job, status: self._reload_done(settings, reply, job, status), self._has_mgmtd)

    def _reload_done(self, settings: FrrSettings, reply: Reply, job: Child, exit_status: int) -> None:
        self._change = None
        if exit_status == 0:
            self.settings, self._refused, self._doubtful = settings, {}, False
            self._mark_configured(self._daemons)
            self._stop_unneeded()
            reply("")
            return
        objection, self._doubtful = job_error(job, settings), True
        try:
            self._write_text(self.settings.text)
        except OSError as error:
            self._refused = {"": f"the former text is not back: {unwritten(error)}"}
            self._stop_unneeded()
        else:
            self._jobs.reload(self._taken_back, self._has_mgmtd)
        reply(f"{objection}; see vrctl logs" if job.overran else objection)

    def _taken_back(self, job: Child, exit_status: int) -> None:
        self._doubtful = exit_status != 0
        if job.overran:  # who knows what the daemons have
            self._refused = {"": job.overran}
            self._load_later("")
        self._stop_unneeded()

    def _refuse_change(self, why: str) -> None:
        """Give up a change that waits for a daemon which does not come."""
        if not self._change or self._jobs.busy:
            return
        _, reply = self._change
        self._change = None
        self._stop_unneeded()
        reply(f"{why}; the former text stays; see vrctl logs")

    def _stop_unneeded(self) -> None:
        waiting = self._change[0].daemons if self._change else ()  # a text that came while another was taken back
        needed = {*self.settings.daemons, *waiting}
        for name in [name for name in self._daemons if name not in needed]:
            daemon = self._daemons.pop(name)
            daemon.cancel()
            if daemon.child:
                daemon.child.kill(signal.SIGTERM)
        self._advance()

    def _write_text(self, text: str) -> None:
        texts = {"frr.conf": text, "vtysh.conf": "service integrated-vtysh-config\n"}
        write_files(self._etc, texts, self._gid)

    # ── routes go to the VRC ──

    def _look_at_fpm(self, tell: Tell) -> None:
        tell(self._sends_routes() and fpm_is_missing())

    def _sends_routes(self) -> bool:
        """Whether zebra is to be connected: it was given a text that says so, and nothing is being changed."""
        moving = self._falling or self._stopping or self._jobs.running or self._change
        return self.settings.fpm and self._loaded and not moving and self._daemons["zebra"].configured

    def _connect_fpm(self) -> None:
        self._children.log.write("vr-guest", f"zebra has no FPM connection and is told: {FPM_LINE}")
        self._jobs.configure(FPM_LINE, lambda _job, _status: self._advance())

    # ── jobs ──

    @property
    def _has_mgmtd(self) -> bool:
        return "mgmtd" in self._daemons

    def _job_ended(self) -> bool:
        """Go on with a fall that waited for a job; tells whether what came of it still counts."""
        if self._falling:
            self._fallen()
            return False
        return not self._stopping

    def _clear_jobs(self) -> None:
        if self._load_again:
            self._load_again.cancel()
        self._load_again = None
        self._jobs.clear()


def job_error(job: Child, settings: FrrSettings) -> str:
    """Return in one line what became of a job that failed."""
    return job.overran or first_error(job.lines or [], settings.text, settings.lines_before)
