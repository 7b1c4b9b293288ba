"""A program that the supervisor keeps running: its process, its output, and when it is started again."""

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

from vrc.guest.log import GuestLog
from vrc.guest.reactor import Reactor, Timer
from wire.scheduling import short_turns

FIRST_DELAY_S, MAX_DELAY_S = 0.1, 5.0
FAILED_AFTER = 5
"""This many deaths in a row, each sooner than SETTLED_S after its start, make a child `failed`."""
FAILED_DELAY_S = 30.0
SETTLED_S = 10.0
END_LIMIT_S = 5.0
"""How long a child that is replaced may take to end by itself."""
_READ_BYTES = 16384
_TO_DEFAULT = [signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGPIPE, signal.SIGXFSZ]
"""Signals that Python ignores, and that nohup or a shell's background may have had the controller ignore: a program
could not be told by SIGHUP to read its files again."""
_MAX_READS = 8  # at one wake-up, so that one program that floods its output starves nobody
PAUSE_S = 0.01
"""For so long nothing is read of a program that is kept running once it has said something. Else one that floods its
output wakes this process for each line, which then costs it 25 µs instead of 3.5. What it says meanwhile is in the
pipe, 64 KiB."""


class Backoff:
    """How long to wait before the next start."""

    def __init__(self) -> None:
        self.deaths = 0

    def delay_s(self, lived_s: float) -> float:
        """Return the pause after a life of ``lived_s`` seconds."""
        self.deaths = 1 if lived_s >= SETTLED_S else self.deaths + 1
        if self.failed:
            return FAILED_DELAY_S
        return float(min(FIRST_DELAY_S * 2 ** (self.deaths - 1), MAX_DELAY_S))

    @property
    def failed(self) -> bool:
        """Tell whether it only dies."""
        return self.deaths >= FAILED_AFTER


def reap() -> Iterator[tuple[int, int]]:
    """Yield pid and exit status (negative: killed by that signal) of every process that has ended."""
    with contextlib.suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            yield ended[0], os.waitstatus_to_exitcode(ended[1])


class Children:
    """Every process the supervisor started, by pid; as pid 1 it also reaps those it inherited."""

    def __init__(self, reactor: Reactor, log: GuestLog, reaped: Callable[[], None] = lambda: None) -> None:
        """``reaped`` is called after any child has ended."""
        self.reactor, self.log = reactor, log
        self._by_pid: dict[int, Child] = {}
        self._paused: dict[int, Timer] = {}  # by output: when it is read again
        self._reaped = reaped
        reactor.on_signal(signal.SIGCHLD, self._reap)

    def spawn(self, child: "Child") -> None:
        """Start the child's program in a session of its own; its output goes to the log."""
        read, write = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(read, False)
        typed = -1
        stdin = (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0)
        try:
            if child.input:
                typed = _memory_file(child.input)
            with short_turns() if child.prompt else contextlib.nullcontext():
                child.pid = os.posix_spawn(
                    child.argv[0],
                    child.argv,
                    child.environment,
                    file_actions=[
                        (os.POSIX_SPAWN_DUP2, typed, 0) if child.input else stdin,
                        (os.POSIX_SPAWN_DUP2, write, 1),
                        (os.POSIX_SPAWN_DUP2, write, 2),
                    ],
                    setsid=True,
                    setsigdef=_TO_DEFAULT,
                )
        except OSError:
            os.close(read)
            raise
        finally:
            os.close(write)
            if typed >= 0:
                os.close(typed)
        child.output, child.overran = read, ""
        self._by_pid[child.pid] = child
        if child.limit_s:
            child.timer = self.reactor.call_later(child.limit_s, lambda: self._overrun(child))
        self._listen(child, read)

    def _listen(self, child: "Child", fd: int) -> None:
        self._paused.pop(fd, None)
        self.reactor.add_reader(fd, lambda: self._heard(child, fd))

    def _heard(self, child: "Child", fd: int) -> None:
        if self._read(child, fd) and child.pause_s:
            self.reactor.remove_reader(fd)
            self._paused[fd] = self.reactor.call_later(child.pause_s, lambda: self._listen(child, fd))

    def _read(self, child: "Child", fd: int) -> bool:
        """Log what it has said; tell whether it may say more."""
        for _ in range(_MAX_READS):
            try:
                data = os.read(fd, _READ_BYTES)
            except BlockingIOError:
                break
            if not data:
                self._close(child, fd)
                return False
            child.said(data, self.log)
        return True

    def _close(self, child: "Child", fd: int) -> None:
        if pause := self._paused.pop(fd, None):
            pause.cancel()
        else:
            self.reactor.remove_reader(fd)
        os.close(fd)
        if child.output == fd:
            child.output = -1

    def _overrun(self, child: "Child") -> None:
        child.overran = f"{child.name} did not end within {child.limit_s:g} s"
        self.log.write("vr-guest", f"{child.overran} and is killed")
        child.kill_all()

    def _reap(self) -> None:
        for pid, exit_status in reap():
            if child := self._by_pid.pop(pid, None):
                if child.output >= 0:
                    self._read(child, child.output)  # what it said last
                child.died(exit_status)
        self._reaped()


def _memory_file(content: bytes) -> int:
    """Return a descriptor to read ``content`` from; unlike with a pipe, nobody waits for the reader."""
    fd = os.memfd_create("input", os.MFD_CLOEXEC)
    try:
        with open(fd, "wb", closefd=False) as file:
            file.write(content)
        os.lseek(fd, 0, os.SEEK_SET)
    except OSError:
        os.close(fd)
        raise
    return fd


class Child:
    """One program; ``on_exit`` is told its exit status (negative: killed by that signal)."""

    def __init__(
        self, name: str, argv: Sequence[str], environment: Mapping[str, str], on_exit: Callable[["Child", int], None]
    ) -> None:
        self.name, self.argv, self.environment = name, list(argv), dict(environment)
        self.pid, self.output = 0, -1
        self.last_line = ""
        self.lines: list[str] | None = None  # a list here also collects what it says
        self.input = b""  # what it reads on standard input
        self.prompt = False  # it answers in milliseconds, and so takes short turns
        self.pause_s = 0.0  # so long nothing is read of it, once it has said something
        self.limit_s = 0.0  # one that has not ended by then is killed with what it started; 0: it may run for ever
        self.timer: Timer | None = None  # that limit
        self.overran = ""  # what it did not do in time, where it is killed for that; why it did not end by itself
        self._on_exit = on_exit
        self._partial = b""

    def said(self, data: bytes, log: GuestLog) -> None:
        """Log complete lines and remember the last one."""
        *lines, self._partial = (self._partial + data).split(b"\n")
        if len(self._partial) > _READ_BYTES:
            lines, self._partial = [*lines, self._partial], b""
        for raw in lines:
            if line := raw.decode(errors="replace").strip():
                self.last_line = line
                log.write(self.name, line)
                if self.lines is not None and len(self.lines) < 1000:
                    self.lines.append(line)

    def died(self, exit_status: int) -> None:
        """Called by `Children` when the process is gone."""
        self.pid = 0
        if self.timer:
            self.timer.cancel()
        self._on_exit(self, exit_status)

    def kill(self, number: int) -> None:
        """Send a signal to its process, if there is one."""
        if self.pid:
            os.kill(self.pid, number)

    def kill_all(self) -> None:
        """Kill its process and what that has started, all of which are in one session."""
        if self.pid:
            os.killpg(self.pid, signal.SIGKILL)


class KeptChild:
    """A program that is started again whenever it ends, after a growing pause.

    One with a ``start_limit_s`` is up when `answered` is called for it, and is killed where that is not in time.
    """

    def __init__(
        self,
        children: Children,
        name: str,
        argv: Sequence[str],
        environment: Mapping[str, str],
        start_limit_s: float = 0.0,
    ) -> None:
        self.name, self.restarts, self.start_limit_s = name, 0, start_limit_s
        self._limit: Timer | None = None
        self._answered = False
        self._late = False  # it was killed for that, and has not answered since
        self._children = children
        self._child = Child(name, argv, environment, self._died)
        self._child.pause_s = PAUSE_S
        self._backoff = Backoff()
        self._timer: Timer | None = None
        self._started = 0.0
        self._wanted = False
        self._last_end = ""

    @property
    def pid(self) -> int:
        """Its process, 0 while there is none."""
        return self._child.pid

    @property
    def state(self) -> str:
        """``up``, ``starting`` or ``failed: …``."""
        failed = self._late or self._backoff.failed
        if self._late or (failed and time.monotonic() - self._started < SETTLED_S) or not self.pid:
            return f"failed: {self._last_end}" if failed else "starting"
        return "up" if self._answered or not self.start_limit_s else "starting"

    def start(self) -> None:
        """Start it now."""
        self._timer, self._wanted, self._started = None, True, time.monotonic()
        self._answered = False
        try:
            self._children.spawn(self._child)
        except OSError as error:
            self._late = False
            self._again(f"{self._child.argv[0]}: {error.strerror}")
            return
        if self.start_limit_s:
            self._limit = self._children.reactor.call_later(self.start_limit_s, self._too_slow)

    def answered(self) -> None:
        """Take note that its process does what it is for."""
        self._answered, self._late = True, False
        self._cancel_limit()

    def _too_slow(self) -> None:
        self._late, self._last_end = True, late(self.start_limit_s)
        self._child.overran = self._last_end
        self._child.kill(signal.SIGKILL)

    def _cancel_limit(self) -> None:
        if self._limit:
            self._limit.cancel()

    def replace(self, argv: Sequence[str], environment: Mapping[str, str]) -> None:
        """Run this from now on: the running process is asked to end, and its successor is the new program."""
        if (list(argv), dict(environment)) == (self._child.argv, self._child.environment):
            return
        self._child.argv, self._child.environment = list(argv), dict(environment)
        self.restart()

    def again_with(self, argv: Sequence[str]) -> None:
        """Run this when it is started again; the running process stays."""
        self._child.argv = list(argv)

    def restart(self, number: int = signal.SIGTERM) -> None:
        """Start it anew: its process is signalled; where it waits for its next start, that is now."""
        self._backoff, self._late = Backoff(), False
        if pid := self.pid:
            self._child.kill(number)
            self._children.reactor.call_later(END_LIMIT_S, lambda: self._end_by_force(pid))
        elif self._timer:
            self._timer.cancel()
            self.start()

    def _end_by_force(self, pid: int) -> None:
        if self.pid == pid:
            self._child.kill(signal.SIGKILL)

    def stop(self, number: int = signal.SIGTERM) -> None:
        """Signal it and do not start it again."""
        self._wanted = False
        if self._timer:
            self._timer.cancel()
        self._timer = None
        self._child.kill(number)

    def _died(self, child: Child, exit_status: int) -> None:
        self._cancel_limit()
        self._late = bool(child.overran)
        self._again(child.overran or describe_end(exit_status, child.last_line))

    def _again(self, end: str) -> None:
        self._last_end = end
        self._children.log.write("vr-guest", f"{self.name} ended: {end}")
        if not self._wanted:
            return
        self.restarts += 1
        lived_s = 0.0 if self._late else time.monotonic() - self._started
        self._timer = self._children.reactor.call_later(self._backoff.delay_s(lived_s), self.start)


def late(limit_s: float) -> str:
    """Say in one line what is wrong with a daemon that hangs at its start."""
    return f"did not answer within {limit_s:g} s of its start"


def describe_end(exit_status: int, last_line: str) -> str:
    """Say in one line how a process ended."""
    if exit_status < 0:
        try:
            return f"killed by {signal.Signals(-exit_status).name}"
        except ValueError:
            return f"killed by signal {-exit_status}"
    said = f": {last_line}" if last_line else ""
    return f"exit status {exit_status}{said}"
