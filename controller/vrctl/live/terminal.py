"""Runs a command of a guest beside us, never with the operator's terminal.

    operator's terminal ◄─► vrctl: keys, window size; a filter on what is to be shown ◄─► pseudoterminal ◄─► command

Whoever has a terminal open, or as its controlling one, can type there as if the operator did (TIOCSTI of
tty_ioctl(4)) and read what is typed later. So the command is a session of its own, and each of standard input, output
and error that is a terminal is a pseudoterminal there. Files and pipes are its own, unfiltered.
"""

import contextlib
import ctypes
import fcntl
import os
import pty
import select
import signal
import subprocess
import sys
import termios
from collections.abc import Iterator, Sequence
from types import FrameType

from controller.events.terminal_filter import TerminalFilter, shown_lines
from controller.guests.machine.console import raw_terminal
from controller.vrctl import output
from controller.vrctl.live import pipe_reader

_PIECE_BYTES = 1 << 16
_LAST_WORDS_S = 0.2
"""How long what a command has written may take to come once it has ended: others may keep its terminal open."""

_PASSED_ON = (signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGHUP)
_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)


def run_apart(command: Sequence[str]) -> int:
    """Run a command to its end; its exit status, that of a shell where a signal ended it. OSError where it cannot be
    run."""
    terminals = [number for number in (1, 2, 0) if os.isatty(number)]
    if not terminals:
        with _passing_on() as group, _start(command, [0, 1, 2], None) as process:
            group.append(process.pid)
            return _status(process.wait())
    master, slave = pty.openpty()
    screen = terminals[0]
    termios.tcsetattr(slave, termios.TCSANOW, termios.tcgetattr(screen))
    _copy_size(screen, master)
    shown = TerminalFilter()
    try:
        with _passing_on() as group, _resized(screen, master):
            standard = [slave if os.isatty(number) else number for number in (0, 1, 2)]
            try:
                process = _start(command, standard, slave)
            finally:
                os.close(slave)
            group.append(process.pid)
            with process, raw_terminal():
                _carry(process, master, screen, shown)
                status = _status(process.wait())
    finally:
        os.close(master)  # which hangs up on whatever else is there
        _write(screen, shown.restoring)
    if shown.dropped:
        output.warn(f"{shown.dropped} control sequences were not passed on to this terminal")
    return status


def show_log(command: Sequence[str]) -> int:
    """Run a command that prints a guest's log, and print that without its control characters; its exit status."""
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        held = b""
        log = process.stdout.fileno()
        while piece := _read_while_shown(log):
            whole, end, held = (held + piece).rpartition(b"\n")
            if len(held) > _PIECE_BYTES:
                whole, end, held = whole + end + held, b"", b""
            sys.stdout.write(shown_lines(whole + end))
            sys.stdout.flush()
        sys.stdout.write(shown_lines(held))
        return _status(process.wait())


def _read_while_shown(log: int) -> bytes:
    pipe_reader.wait_for(log)
    return os.read(log, _PIECE_BYTES)


def _start(command: Sequence[str], standard: list[int], terminal: int | None) -> subprocess.Popen[bytes]:
    parent = os.getpid()

    def prepare() -> None:
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGHUP)
        if os.getppid() != parent:
            os.kill(os.getpid(), signal.SIGHUP)
        if terminal is not None:
            fcntl.ioctl(terminal, termios.TIOCSCTTY, 0)

    stdin, stdout, stderr = standard
    return subprocess.Popen(
        command, stdin=stdin, stdout=stdout, stderr=stderr, start_new_session=True, preexec_fn=prepare
    )


def _status(returned: int) -> int:
    return returned if returned >= 0 else 128 - returned


def _carry(process: subprocess.Popen[bytes], master: int, screen: int, shown: TerminalFilter) -> None:
    """Carry keys in and what is shown out, until the command has ended and said its last words.

    What is not read is not waited for, or both would wait for each other.
    """
    os.set_blocking(master, False)
    ended = os.pidfd_open(process.pid)
    hearing, keys = os.isatty(0), b""
    try:
        while True:
            reading = [master, ended] + ([0] if hearing and not keys else [])
            ready, writable, _ = select.select(reading, [master] if keys else [], [])
            if 0 in ready:
                keys = os.read(0, _PIECE_BYTES)
                hearing = bool(keys)
            if master in writable:
                with contextlib.suppress(BlockingIOError):
                    keys = keys[os.write(master, keys) :]
            if master in ready:
                if not _show(master, screen, shown):
                    return
            elif ended in ready:
                break
        while select.select([master], [], [], _LAST_WORDS_S)[0] and _show(master, screen, shown):
            pass
    finally:
        os.close(ended)


def _show(master: int, screen: int, shown: TerminalFilter) -> bool:
    """Show what there is; tells whether there may be more."""
    try:
        piece = os.read(master, _PIECE_BYTES)
    except OSError:  # nobody has the other end any more
        return False
    _write(screen, shown.feed(piece))
    return bool(piece)


def _write(descriptor: int, octets: bytes) -> None:
    while octets:
        octets = octets[os.write(descriptor, octets) :]


def _copy_size(terminal: int, other: int) -> None:
    with contextlib.suppress(OSError):
        size = fcntl.ioctl(terminal, termios.TIOCGWINSZ, bytes(8))
        fcntl.ioctl(other, termios.TIOCSWINSZ, size)


@contextlib.contextmanager
def _resized(terminal: int, other: int) -> Iterator[None]:
    before = signal.signal(signal.SIGWINCH, lambda *_: _copy_size(terminal, other))
    try:
        yield
    finally:
        signal.signal(signal.SIGWINCH, before)


@contextlib.contextmanager
def _passing_on() -> Iterator[list[int]]:
    """Let a process group, once there is one, have the signals that are meant to end us."""
    group: list[int] = []

    def pass_on(number: int, _frame: FrameType | None) -> None:
        if not group:
            raise SystemExit(128 + number)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(group[0], number)

    before = {number: signal.signal(number, pass_on) for number in _PASSED_ON}
    try:
        yield group
    finally:
        for number, action in before.items():
            signal.signal(number, action)
