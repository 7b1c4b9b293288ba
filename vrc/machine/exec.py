"""Runs the operator's commands inside the machine, within bounds: how many, for how long, with how much output."""

import binascii
import contextlib
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from vrc.guest.reactor import Reactor, Timer

MAX_COMMANDS = 4
MAX_OUTPUT_BYTES = 4 << 20
"""Of one command, both outputs together; what comes after it is read and thrown away."""
MAX_INPUT_BYTES = 4 << 20
MAX_LIMIT_S = 600.0
_MAX_ARGV_BYTES = 128 << 10
_READ_BYTES = 65536


class ExecError(Exception):
    """The command is not run; the text says why."""


@dataclass(frozen=True, slots=True)
class Ended:
    """How a command ended."""

    status: int  # negative: killed by that signal
    stdout: bytes
    stderr: bytes
    note: str  # "", or what was cut


class Commands:
    """The commands that run now; whoever reaps processes tells `reaped`."""

    def __init__(self, reactor: Reactor) -> None:
        self._reactor = reactor
        self._running: dict[int, _Command] = {}

    def run(
        self,
        argv: Sequence[str],
        environment: Mapping[str, str],
        stdin: bytes,
        limit_s: float,
        on_end: Callable[[Ended], None],
    ) -> None:
        """Start ``argv`` (its first word is a path) and tell ``on_end`` of its end; ExecError where it cannot."""
        if len(self._running) >= MAX_COMMANDS:
            raise ExecError(f"{MAX_COMMANDS} commands run already")
        if len(stdin) > MAX_INPUT_BYTES:
            raise ExecError(f"its input is longer than {MAX_INPUT_BYTES} octets")
        if not 0 < limit_s <= MAX_LIMIT_S:
            raise ExecError(f"its limit is not within 0 and {MAX_LIMIT_S:.0f} s")
        command = _Command(self._reactor, stdin, limit_s, on_end)
        self._running[command.start(argv, environment)] = command

    def reaped(self, pid: int, exit_status: int) -> bool:
        """Tell whether ``pid`` was one of the commands; its end is then reported."""
        command = self._running.pop(pid, None)
        if command:
            command.finish(exit_status)
        return command is not None


def words_of(argv: object) -> list[str]:
    """Return the words of a command; ExecError where it is none, or too long."""
    if not isinstance(argv, list) or not all(isinstance(word, str) for word in argv):
        raise ExecError("argv is not a list of words")
    if not argv or sum(len(word.encode(errors="replace")) + 1 for word in argv) > _MAX_ARGV_BYTES:
        raise ExecError(f"a command has 1 to {_MAX_ARGV_BYTES} octets")
    return argv


def decode_base64(text: object) -> bytes:
    """Return what the base64 ``text`` stands for; ExecError where it is none."""
    if not isinstance(text, str):
        raise ExecError("not base64")
    try:
        return binascii.a2b_base64(text, strict_mode=True)
    except ValueError as error:
        raise ExecError(f"not base64: {error}") from None


class _Command:
    def __init__(self, reactor: Reactor, stdin: bytes, limit_s: float, on_end: Callable[[Ended], None]) -> None:
        self._reactor, self._unsent, self._limit_s, self._on_end = reactor, memoryview(stdin), limit_s, on_end
        self._input = -1
        self._outputs: dict[int, bytearray] = {}
        self._stdout, self._stderr = bytearray(), bytearray()
        self._notes: list[str] = []
        self._timer: Timer | None = None
        self._pid = 0

    def start(self, argv: Sequence[str], environment: Mapping[str, str]) -> int:
        pipes = [os.pipe2(os.O_CLOEXEC) for _ in range(3)]
        inside = [pipes[0][0], pipes[1][1], pipes[2][1]]
        self._input = pipes[0][1]
        self._outputs = {pipes[1][0]: self._stdout, pipes[2][0]: self._stderr}
        try:
            self._pid = os.posix_spawn(
                argv[0],
                list(argv),
                dict(environment),
                file_actions=[(os.POSIX_SPAWN_DUP2, fd, number) for number, fd in enumerate(inside)],
                setsid=True,
                setsigdef=[signal.SIGPIPE, signal.SIGXFSZ],
            )
        except (OSError, ValueError) as error:
            for fd in (self._input, *self._outputs):
                os.close(fd)
            raise ExecError(f"{argv[0]}: {getattr(error, 'strerror', None) or error}") from None
        finally:
            for fd in inside:
                os.close(fd)
        os.set_blocking(self._input, False)
        self._reactor.add_writer(self._input, self._write)
        for fd in self._outputs:
            os.set_blocking(fd, False)
            self._reactor.add_reader(fd, partial(self._read, fd))
        self._timer = self._reactor.call_later(self._limit_s, self._too_long)
        return self._pid

    def _write(self) -> None:
        try:
            while self._unsent:
                self._unsent = self._unsent[os.write(self._input, self._unsent[:_READ_BYTES]) :]
        except BlockingIOError:
            return
        except OSError:
            pass  # it does not want to read it all
        self._close_input()

    def _close_input(self) -> None:
        if self._input >= 0:
            self._reactor.remove_writer(self._input)
            os.close(self._input)
            self._input = -1

    def _read(self, fd: int) -> None:
        self._take(fd)

    def _take(self, fd: int) -> bool:
        """Take what there is; False when there is no more at the moment, or ever."""
        try:
            data = os.read(fd, _READ_BYTES)
        except OSError:
            return False
        if not data:
            self._close_output(fd)
            return False
        room = MAX_OUTPUT_BYTES - len(self._stdout) - len(self._stderr)
        if len(data) > room and not self._notes:
            self._notes.append(f"output cut at {MAX_OUTPUT_BYTES} octets")
        self._outputs[fd] += data[: max(0, room)]
        return True

    def _close_output(self, fd: int) -> None:
        self._reactor.remove_reader(fd)
        os.close(fd)
        del self._outputs[fd]

    def _too_long(self) -> None:
        self._notes.append(f"killed after {self._limit_s:g} s")
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._pid, signal.SIGKILL)

    def finish(self, exit_status: int) -> None:
        """The process is gone; a child of it that still holds its output is not waited for."""
        if self._timer:
            self._timer.cancel()
        self._close_input()
        for fd in list(self._outputs):
            left = MAX_OUTPUT_BYTES // _READ_BYTES
            while fd in self._outputs and left and self._take(fd):
                left -= 1
            if fd in self._outputs:
                self._close_output(fd)
        self._on_end(Ended(exit_status, bytes(self._stdout), bytes(self._stderr), "; ".join(self._notes)))
