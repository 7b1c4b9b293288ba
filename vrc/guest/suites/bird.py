"""BIRD in one guest: started, started again, and given changed texts.

    start:     bird ── its control socket appears, it greets ──→ up
    it hangs:  is killed at its limit, its state says so, and it is started again
    it dies:   starts again with -R: a `protocol kernel` with `graceful restart on` then leaves the kernel's routes
               alone until the protocols have recovered, at most for `graceful restart wait`
    new text:  `configure` over the control socket; where BIRD refuses it, the former text is put back

Routes that BIRD wrote stay in the kernel when it is killed. They are its own to clean up after a restart: the VRC
mirrors what the kernel has.
"""

import contextlib
import os
import re
import signal
from collections.abc import Iterable
from dataclasses import dataclass

from vrc.guest.children import Children, KeptChild
from vrc.guest.kernel import watch_directory
from vrc.guest.suites.base import (
    ENVIRONMENT,
    Reply,
    Section,
    as_user,
    empty_directory,
    start_limit_of,
    unwritten,
    write_files,
)
from vrc.guest.suites.bird_control import Answer, BirdCommand, Done, Each, Silence
from vrc.guest.suites.source_watch import SourceWatch, Tell

BINARY = "/usr/sbin/bird"
CONFIGURATION = "/etc/bird/bird.conf"
RUN = "/run/bird"
SOCKET = f"{RUN}/bird.ctl"
CONFIGURE_LIMIT_S = 60.0
_GREETING_LIMIT_S = 10.0
_GREET_AGAIN_S = 0.02
_CAPABILITIES = ("net_admin", "net_raw", "net_bind_service")
_RECONFIGURED = frozenset({3, 4, 5})  # done; protocols restart meanwhile; follows the one that is under way


@dataclass(frozen=True, slots=True)
class BirdSettings:
    """What BIRD is to run with."""

    text: str  # the whole of bird.conf
    kernel_disabled: bool  # the text wants a `protocol kernel` down
    kernel_protocols: int  # how many the text has
    start_limit_s: float  # a BIRD that does not greet for so long after its start is killed and started again

    @classmethod
    def parse(cls, section: Section) -> "BirdSettings":
        """Take BIRD's section of guest.json; KeyError or TypeError where it is none."""
        kernel = section.get("kernel_disabled", False), section.get("kernel_protocols", 0)
        return cls(section["text"], *kernel, start_limit_of(section))


class BirdDaemon:
    """Runs BIRD as its settings say; `etc` is where this process may write what is /etc/bird to BIRD."""

    def __init__(self, children: Children, section: Section, etc: str) -> None:
        self.settings = BirdSettings.parse(section)
        self._reactor, self._log, self._etc = children.reactor, children.log, etc
        uid, self._gid = section["ids"]
        self._command = [*as_user(uid, self._gid, *_CAPABILITIES), BINARY, "-f", "-c", CONFIGURATION, "-s", SOCKET]
        self._bird = KeptChild(children, "bird", self._command, ENVIRONMENT, self.settings.start_limit_s)
        self._greeted = 0  # the process that has greeted us
        self._greeting = False
        self._changing = False
        self._doubtful = False  # BIRD, or its file, may have a text that was refused
        self._down: list[str] = []  # protocols that should write to the kernel and did not when last seen
        self._gone = False  # there were fewer of them than in the text, which so is not the one in force
        self._watch = SourceWatch(self._reactor, self._look_at_kernel, self._bring_kernel_back)
        self._inotify = watch_directory(RUN)
        self._reactor.add_reader(self._inotify, self._directory_changed)

    def tell_states(self) -> dict[str, str]:
        """Return the state of BIRD, and ``kernel`` where it does not write its routes there, or did not and nobody
        has asked since."""
        states = {"bird": self._bird.state}
        if self._watch.tell():
            states["kernel"] = f"failed: BIRD writes no routes {self._why_silent}"
        return states

    @property
    def _why_silent(self) -> str:
        if self._down:
            return f"(protocol {self._down[0]} is down); it is enabled every 30 s"
        return "(a text without its protocol kernel is in force); its own is loaded every 30 s"

    @property
    def restarts(self) -> int:
        """How often BIRD was started again."""
        return self._bird.restarts

    @property
    def running(self) -> bool:
        """Tell whether its process is left."""
        return self._bird.pid != 0

    @property
    def _up(self) -> bool:
        return self.running and self._greeted == self._bird.pid

    def start(self) -> None:
        """Start it."""
        self._write(self.settings)
        empty_directory(RUN)
        self._bird.start()

    def stop(self, number: int = signal.SIGTERM) -> None:
        """Signal it and do not start it again."""
        self._bird.stop(number)

    # ── readiness ──

    def _directory_changed(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self._inotify, 65536)
        self._greet()

    def _greet(self) -> None:
        """Connect with a BIRD that has not greeted us yet: it does when it has read its configuration."""
        if self._greeting or self._up or not self.running:
            return
        pid = self._bird.pid
        try:
            BirdCommand(self._reactor, SOCKET, "", _GREETING_LIMIT_S, lambda answer: self._has_greeted(pid, answer))
        except FileNotFoundError:
            return
        except OSError:  # bound, but not listening yet
            self._reactor.call_later(_GREET_AGAIN_S, self._greet)
            return
        self._greeting = True

    def _has_greeted(self, pid: int, answer: Answer | Silence) -> None:
        self._greeting = False
        if isinstance(answer, Silence) or pid != self._bird.pid:
            self._reactor.call_later(_GREET_AGAIN_S, self._greet)
            return
        self._greeted = pid
        self._bird.answered()
        self._bird.again_with([*self._command, "-R"])

    # ── whether it hands its routes on ──

    def _look_at_kernel(self, tell: Tell) -> None:
        if not self._up or self._changing or self.settings.kernel_disabled:
            tell(False)
            return
        rows: list[str] = []

        def done(answer: Answer | Silence) -> None:
            states = kernel_protocols(rows) if isinstance(answer, Answer) else {}
            down = [name for name, state in states.items() if state != "up"]
            gone = isinstance(answer, Answer) and len(states) < self.settings.kernel_protocols
            if down or gone:  # else what was seen last is shown for a while
                self._down, self._gone = down, gone
            tell(bool(down) or gone)

        self._ask("show protocols", done, rows.append)

    def _bring_kernel_back(self) -> None:
        if self._changing:
            return
        if self._gone:
            self._ask("configure", lambda _: None)
        for name in self._down:
            self._ask(f'enable "{name}"', lambda _: None)

    def _ask(self, command: str, done: Done, each: Each = lambda _: None) -> None:
        try:
            BirdCommand(self._reactor, SOCKET, command, _GREETING_LIMIT_S, done, each)
        except OSError:  # it is about to end, or to begin
            done(Silence.GONE)

    # ── configuration ──

    def change(self, section: Section, reply: Reply) -> None:
        """Run with another section; ``reply`` is told when that is done."""
        settings = BirdSettings.parse(section)
        if self._changing:
            reply("is being changed already; try again")
        elif settings == self.settings and not self._doubtful:
            reply("")
        elif not self._up:  # it may have read the former text already
            self._write(settings)
            self._begin_with(settings)
            reply("")
        else:
            self._configure(settings, reply)

    def _configure(self, settings: BirdSettings, reply: Reply) -> None:
        pid = self._bird.pid

        def answered(answer: Answer | Silence) -> None:
            self._changing = False
            if isinstance(answer, Answer) and answer.code not in _RECONFIGURED:
                self._put_back()
                reply(objection(answer, settings.text))
            elif pid != self._bird.pid or isinstance(answer, Answer):
                self._adopt(settings)  # one that died starts again with the new text
                reply("")
            elif answer is Silence.GONE:  # it is dying: its connections end before it does
                self._begin_with(settings)
                reply("")
            else:  # it may have taken the text, and not said so
                self._put_back()
                self._doubtful = True
                reply(f"{answer}; the former text stays")

        self._write(settings)
        try:
            BirdCommand(self._reactor, SOCKET, "configure", CONFIGURE_LIMIT_S, answered)
        except OSError as error:
            self._put_back()
            reply(f"BIRD cannot be asked: {error.strerror}")
            return
        self._changing = True

    def _begin_with(self, settings: BirdSettings) -> None:
        """Run with a written text from the next start on, which is now; BIRD's routes stay in the kernel."""
        self._adopt(settings)
        self._bird.restart(signal.SIGKILL)

    def _adopt(self, settings: BirdSettings) -> None:
        self.settings, self._bird.start_limit_s = settings, settings.start_limit_s
        self._doubtful = False

    def _put_back(self) -> None:
        try:
            self._write(self.settings)
        except OSError as error:  # BIRD runs on with the former text until it is started again
            self._doubtful = True
            self._log.write("vr-guest", f"bird.conf is not the former one again: {unwritten(error)}")

    def _write(self, settings: BirdSettings) -> None:
        write_files(self._etc, {"bird.conf": settings.text}, self._gid)


def kernel_protocols(rows: Iterable[str]) -> dict[str, str]:
    """Return the state of each kernel protocol, of what `show protocols` answers: name, protocol, table, state."""
    fields = (row.split() for row in rows)
    return {row[0]: row[3] for row in fields if len(row) > 3 and row[1] == "Kernel"}


_OBJECTION = re.compile(r"[^:]*:(?P<line>\d+):\d+ (?P<reason>.*)")


def objection(answer: Answer, text: str) -> str:
    """Return in one line why BIRD did not take ``text``, with the line it names."""
    match = _OBJECTION.fullmatch(answer.text)
    if match is None:
        return answer.text or "no reason given"
    number, lines = int(match["line"]), text.split("\n")
    command = lines[number - 1].strip() if 0 < number <= len(lines) else ""
    return f"line {number}: {match['reason']}" + (f": {command}" if command else "")
