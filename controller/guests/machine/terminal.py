"""Gives a command inside a machine this terminal; what `vrctl exec` does where it is run from one.

A machine has a few ports for terminals besides its control channel, so that a dialogue of an hour keeps neither the
controller nor another operator from it. Who holds the lock of a port's file has the port; at its other end is
vrc/machine/terminal.py. Every key goes to the machine, whose terminal makes signals of Ctrl-C and the like; a
changed window size is passed on; the end of this process hangs up there.
"""

import base64
import contextlib
import fcntl
import json
import os
import select
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

from controller.events.untrusted_text import printable
from controller.guests.guest_files import short_path
from controller.guests.handshake import LIMIT_S, SETTLE_S
from controller.guests.machine.console import raw_terminal

TERMINALS = 4
"""Of one machine, each with a virtio port and a socket of its own."""

UNHEARD_S = 30.0
"""After so long in which a machine does not take what is typed, it is given up."""

_ENDED = "the machine ended"
_KEYS_BYTES = 4096
_LINE_BYTES = 64 << 10
_ENDINGS = (signal.SIGHUP, signal.SIGTERM)


class TerminalError(Exception):
    """There is no terminal, or no more; the text says why in one line."""


class _Nonsense(TerminalError):
    """The machine says what is no answer."""

    def __init__(self) -> None:
        super().__init__("the machine says what makes no sense")


def socket_of(number: int) -> str:
    """The file name of a terminal's socket in the machine's directory."""
    return f"terminal{number}.sock"


def wanted() -> bool:
    """Tell whether standard input, output and error are a terminal."""
    return all(os.isatty(number) for number in (0, 1, 2))


def run(directory: Path, argv: list[str]) -> int:
    """Run a command with this terminal until it ends; its exit status, that of a shell where a signal ended it.

    TerminalError where there is no terminal to be had, or the machine ends.
    """
    with _port(directory) as channel:
        line = _Line(channel)
        line.settle()
        columns, rows = os.get_terminal_size(0)
        size = {"rows": rows, "columns": columns}
        line.ask({"op": "terminal", "argv": argv, "term": os.environ.get("TERM", ""), **size})
        with _woken_by(signal.SIGWINCH) as resized, raw_terminal():
            return _carry(line, resized)


@contextlib.contextmanager
def _port(directory: Path) -> Iterator[socket.socket]:
    """Connect with the first terminal that nobody has."""
    with contextlib.ExitStack() as held:
        for number in range(TERMINALS):
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
            lock = held.enter_context(open(os.open(directory / f"terminal{number}.lock", flags, 0o600)))
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            channel = held.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
            try:
                with short_path(directory, socket_of(number)) as path:
                    channel.connect(path)
            except (FileNotFoundError, ConnectionRefusedError):
                raise TerminalError("the machine was started without terminals; vrctl console has one") from None
            yield channel
            return
        raise TerminalError(f"all {TERMINALS} terminals of the machine are in use; end one")


class _Line:
    """Requests to the machine and its answers, which may come in another order."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel, self._held, self._count = channel, b"", 0
        self._own = os.urandom(6).hex()
        self.waiting: dict[str, str] = {}  # id → operation

    def fileno(self) -> int:
        return self._channel.fileno()

    def send(self, request: dict[str, Any]) -> None:
        self._count += 1
        name = f"{self._own}-{self._count}"
        self.waiting[name] = request["op"]
        try:
            self._channel.sendall(f"\n{json.dumps(request | {'id': name})}\n".encode())
        except OSError:
            raise TerminalError(_ENDED) from None

    def answers(self) -> list[tuple[str, dict[str, Any]]]:
        """Return what has come: the operation and its answer; TerminalError where the machine ended or refuses."""
        try:
            piece = self._channel.recv(_LINE_BYTES)
        except OSError:
            piece = b""
        if not piece:
            raise TerminalError(_ENDED)
        *lines, self._held = (self._held + piece).split(b"\n")
        if len(self._held) > _LINE_BYTES:
            raise _Nonsense
        found = []
        for line in filter(None, lines):
            try:
                answer = json.loads(line)
                operation = self.waiting.pop(answer.get("id"), "")
                if operation and not answer["ok"]:
                    raise TerminalError(printable(str(answer["error"])))
            except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
                raise _Nonsense from None
            if operation:  # else of somebody who did not wait for it
                found.append((operation, answer))
        return found

    def settle(self) -> None:
        """Wait until the machine hears us and is heard (handshake.py)."""
        deadline = time.monotonic() + LIMIT_S
        torn = True  # what comes first may be the rest of an answer to somebody who broke off
        while True:
            self.send({"op": "machine"})
            try:
                if select.select([self], [], [], SETTLE_S)[0] and self.answers():
                    return
            except _Nonsense:
                if not torn:
                    raise
                torn = False
            if time.monotonic() > deadline:
                raise TerminalError(f"the machine did not answer in {LIMIT_S:.0f} s; it may still boot")

    def ask(self, request: dict[str, Any]) -> None:
        """Send a request and wait for its answer."""
        self.send(request)
        while not any(operation == request["op"] for operation, _ in self._awaited()):
            pass

    def _awaited(self) -> list[tuple[str, dict[str, Any]]]:
        if not select.select([self], [], [], LIMIT_S)[0]:
            raise TerminalError(f"the machine did not answer in {LIMIT_S:.0f} s")
        return self.answers()


def exit_status(status: object) -> int:
    """Return what a shell makes of a status, which is negative where a signal ended the command; ValueError."""
    if not isinstance(status, int) or not -64 <= status < 256:
        raise ValueError("the machine tells no exit status")
    return status if status >= 0 else 128 - status


def _carry(line: _Line, resized: int) -> int:
    """Carry keys in and the screen out until the command ends."""
    line.send({"op": "screen"})
    typed_s = 0.0
    hearing = True  # standard input has not ended
    while True:
        busy = "keys" in line.waiting.values()
        reading: list[Any] = [line, resized] if busy or not hearing else [line, resized, 0]
        patience_s = max(0.0, typed_s + UNHEARD_S - time.monotonic()) if busy else None
        ready, _, _ = select.select(reading, [], [], patience_s)
        if busy and not ready:
            raise TerminalError(f"the machine has not taken what was typed for {UNHEARD_S:.0f} s")
        if resized in ready:
            os.read(resized, 4096)
            columns, rows = os.get_terminal_size(0)
            line.send({"op": "size", "rows": rows, "columns": columns})
        if 0 in ready:
            keys = os.read(0, _KEYS_BYTES)
            hearing, typed_s = bool(keys), time.monotonic()
            line.send({"op": "keys", "text": base64.b64encode(keys).decode()})
        for operation, answer in line.answers() if line in ready else ():
            if operation == "screen":
                if (status := _shown(answer)) is not None:
                    return status
                line.send({"op": "screen"})


def _shown(answer: dict[str, Any]) -> int | None:
    """Write what is to be shown; the exit status where that was all."""
    try:
        if "status" in answer:
            return exit_status(answer["status"])
        left = base64.b64decode(answer["text"], validate=True)
    except (ValueError, KeyError, TypeError, OverflowError):
        raise _Nonsense from None
    while left:
        left = left[os.write(1, left) :]
    return None


@contextlib.contextmanager
def _woken_by(number: signal.Signals) -> Iterator[int]:
    """A descriptor that can be read after the signal.

    What would end this process raises SystemExit meanwhile, so that the terminal is put back as it was.
    """

    def end(ending: int, _frame: FrameType | None) -> None:
        raise SystemExit(128 + ending)

    def wake(_number: int, _frame: FrameType | None) -> None:
        with contextlib.suppress(BlockingIOError):
            os.write(writing, b"\0")

    reading, writing = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    before = {one: signal.getsignal(one) for one in (number, *_ENDINGS)}
    signal.signal(number, wake)
    for ending in _ENDINGS:
        signal.signal(ending, end)
    try:
        yield reading
    finally:
        for one, action in before.items():
            signal.signal(one, action)
        os.close(reading)
        os.close(writing)
