"""Programs of the operator's choice in one guest: started, started again, and told of changed files.

    start:            all of them, in their order; one is up as long as its process is there
    one dies:         it is started again after a growing pause; what it wrote to the kernel stays until then
    its command:      changed: it ends, and the new one is started
    files change:     each program takes them as its ``reload`` says: started anew, by a signal, or by a command,
                      whose failure puts the former files back

The programs must stay in the foreground. They find their files in FILES and may write to OWN.
"""

import os
import signal
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass

from vrc.guest.children import END_LIMIT_S, Child, Children, KeptChild, describe_end
from vrc.guest.suites.base import ENVIRONMENT, Reply, Section, as_user, unwritten, write_files

FILES, OWN = "/run/command/etc", "/run/command/run"
RELOAD_LIMIT_S = 30.0
_CAPABILITIES = ("net_admin", "net_raw", "net_bind_service")
_RESTART = "restart"


@dataclass(frozen=True, slots=True)
class Program:
    """One program and how it takes changed files."""

    name: str
    argv: tuple[str, ...]
    reload: str | tuple[str, ...]  # "restart", a signal's name without SIG, or a command


@dataclass(frozen=True, slots=True)
class AnyDaemonSettings:
    """What is to run, and its files by name."""

    user: str
    programs: tuple[Program, ...]
    files: Mapping[str, str]

    @classmethod
    def parse(cls, section: Section) -> "AnyDaemonSettings":
        """Take the section of guest.json; KeyError, TypeError or ValueError where it is none."""
        programs = tuple(_program(one) for one in section["daemons"])
        for program in programs:
            if isinstance(program.reload, str) and program.reload != _RESTART:
                signal.Signals[f"SIG{program.reload}"]
        files = {str(name): str(text) for name, text in section["files"].items()}
        if any(os.path.basename(name) != name for name in files):
            raise ValueError("a file's name has a folder")
        return cls(section["user"], programs, files)


def _program(fields: Mapping[str, object]) -> Program:
    argv, how = fields["argv"], fields["reload"]
    if not isinstance(argv, list) or not argv or not isinstance(how, str | list):
        raise TypeError("a command is a list of words")
    return Program(str(fields["name"]), tuple(argv), how if isinstance(how, str) else tuple(how))


class AnyDaemon:
    """Runs what its settings name; `etc` is where this process may write what is FILES to the programs."""

    def __init__(self, children: Children, section: Section, etc: str) -> None:
        self.settings = AnyDaemonSettings.parse(section)
        self._children, self._reactor, self._etc = children, children.reactor, etc
        uid, self._gid = section["ids"]
        self._as_user = as_user(uid, self._gid, *_CAPABILITIES)
        self._kept = {program.name: self._keep(program) for program in self.settings.programs}
        self._ended: list[KeptChild] = []  # of former settings; their processes may still be there
        self._former_restarts = 0  # of programs that are gone
        self._changing = False
        self._stopping = False

    def tell_states(self) -> dict[str, str]:
        """Return the state by program."""
        return {name: kept.state for name, kept in self._kept.items()}

    @property
    def restarts(self) -> int:
        """How often a program was started again."""
        here = sum(kept.restarts for kept in (*self._kept.values(), *self._ended))
        return self._former_restarts + here

    @property
    def running(self) -> bool:
        """Tell whether a process of any is left."""
        return any(kept.pid for kept in (*self._kept.values(), *self._ended))

    def start(self) -> None:
        """Start all."""
        self._write({}, self.settings.files)
        for kept in self._kept.values():
            kept.start()

    def stop(self, number: int = signal.SIGTERM) -> None:
        """Signal all and start none again."""
        self._stopping = True
        for kept in (*self._kept.values(), *self._ended):
            kept.stop(number)

    def change(self, section: Section, reply: Reply) -> None:
        """Run with another section; ``reply`` is told when that is done."""
        settings = AnyDaemonSettings.parse(section)
        if self._changing:
            reply("is being changed already; try again")
            return
        self._write(self.settings.files, settings.files)
        former, self.settings = self.settings, settings
        stay = self._replace(former)
        if former.files == settings.files:
            reply("")
            return
        self._changing = True
        self._tell(stay, lambda problem: self._told(problem, former, reply))

    def _told(self, problem: str, former: AnyDaemonSettings, reply: Reply) -> None:
        if not problem or self._stopping:
            self._changed(problem, reply)
            return
        # Some were told of files that are not there any more.
        try:
            self._write(self.settings.files, former.files)
        except OSError as error:
            self._changed(f"{problem}; and for the former files: {unwritten(error)}", reply)
            return
        settings, self.settings = self.settings, former
        stay = self._replace(settings)
        self._tell(stay, lambda _: self._changed(f"{problem}; the former files are back", reply))

    def _changed(self, problem: str, reply: Reply) -> None:
        self._changing = False
        reply(problem)

    # ── programs ──

    def _keep(self, program: Program) -> KeptChild:
        return KeptChild(self._children, program.name, [*self._as_user, *program.argv], ENVIRONMENT)

    def _replace(self, former: AnyDaemonSettings) -> list[Program]:
        """Have the programs of the settings run instead of the former ones; returns those that go on as they are."""
        before = {program.name: program for program in former.programs}
        stay = []
        kept = {}
        for program in self.settings.programs:
            old = before.pop(program.name, None)
            if old is None:
                kept[program.name] = self._keep(program)
                kept[program.name].start()
                continue
            kept[program.name] = self._kept[program.name]
            if old.argv == program.argv:
                stay.append(program)
            else:
                kept[program.name].replace([*self._as_user, *program.argv], ENVIRONMENT)
        for name in before:
            self._end(self._kept[name])
        self._kept = kept
        return stay

    def _end(self, kept: KeptChild) -> None:
        gone = [one for one in self._ended if not one.pid]
        self._former_restarts += sum(one.restarts for one in gone)
        self._ended = [one for one in self._ended if one.pid]
        self._ended.append(kept)
        kept.stop()
        self._reactor.call_later(END_LIMIT_S, lambda: kept.stop(signal.SIGKILL))

    # ── files ──

    def _write(self, former: Mapping[str, str], files: Mapping[str, str]) -> None:
        write_files(self._etc, {name: text for name, text in files.items() if former.get(name) != text}, self._gid)
        for name in former.keys() - files.keys():
            with suppress(FileNotFoundError):
                os.unlink(f"{self._etc}/{name}")

    def _tell(self, programs: list[Program], done: Callable[[str], None]) -> None:
        """Have programs take changed files, one after the other; ``done`` hears why one did not."""
        if not programs:
            done("")
            return
        program, *rest = programs
        kept = self._kept[program.name]
        if program.reload == _RESTART or not kept.pid:  # one that is not there cannot be told: these may cure it
            kept.restart()
        elif isinstance(program.reload, tuple):
            self._run(program, lambda problem: done(problem) if problem else self._tell(rest, done))
            return
        else:
            os.kill(kept.pid, signal.Signals[f"SIG{program.reload}"])
        self._tell(rest, done)

    def _run(self, program: Program, done: Callable[[str], None]) -> None:
        name = f"{program.name} reload"

        def ended(job: Child, exit_status: int) -> None:
            failed = f"{name}: {describe_end(exit_status, job.last_line)}" if exit_status else ""
            done(job.overran or failed)

        job = Child(name, [*self._as_user, *program.reload], ENVIRONMENT, ended)
        job.limit_s = RELOAD_LIMIT_S
        try:
            self._children.spawn(job)
        except OSError as error:
            done(f"{name}: {error.strerror}")
