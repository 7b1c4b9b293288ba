"""A terminal in a machine, both ends of it: `vrctl exec`'s program on a pseudo terminal, and vr-machine's end."""

import base64
import contextlib
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from terminals import Operator
from test_machine_control import run_until

from controller.guests.machine import terminal as ours
from controller.guests.machine.exec_client import FAILED
from vrc.guest.reactor import Reactor
from vrc.machine import terminal as machine_terminal
from vrc.machine.control import ControlChannel, Refused
from vrc.machine.terminal import MAX_KEYS_BYTES, Terminal

LIMIT_S = 30.0
INTERRUPTED = r"""
import os, signal, time
caught = []
signal.signal(signal.SIGINT, lambda *_: caught.append(os.write(1, b"caught\n")))
os.write(1, b"ready\n")
while not caught:
    time.sleep(0.01)
signal.signal(signal.SIGINT, signal.SIG_DFL)
os.write(1, b"on\n")
time.sleep(1000)
"""
ENVIRONMENT = {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"}


class Machine(threading.Thread):
    """The ports of a machine's terminals, served as vr-machine does, in a thread."""

    def __init__(self, directory: Path) -> None:
        super().__init__(daemon=True)
        self._reactor, self._channels = Reactor(), list[ControlChannel]()
        self._ending, self._end = os.pipe()
        self._reactor.add_reader(self._ending, self._reactor.stop)
        self._listeners, self._terminals = [], []
        for number in range(ours.TERMINALS):
            listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            listener.bind(str(directory / ours.socket_of(number)))
            listener.listen()
            terminal = Terminal(self._reactor, list, ENVIRONMENT)
            self._listeners.append(listener)
            self._terminals.append(terminal)
            self._reactor.add_reader(listener.fileno(), lambda one=listener, its=terminal: self._accept(one, its))
        self._reap()

    def _accept(self, listener: socket.socket, terminal: Terminal) -> None:
        client, _ = listener.accept()
        operations = {"machine": lambda _request, reply: reply({"ok": True}), **terminal.operations}
        self._channels.append(ControlChannel(self._reactor, client.detach(), operations, terminal.hang_up))

    def _reap(self) -> None:
        for terminal in self._terminals:
            if terminal._pid:
                pid, status = os.waitpid(terminal._pid, os.WNOHANG)
                assert not pid or terminal.reaped(pid, os.waitstatus_to_exitcode(status))
        self._reactor.call_later(0.005, self._reap)

    def run(self) -> None:
        self._reactor.run()

    def close(self) -> None:
        os.write(self._end, b".")
        self.join(LIMIT_S)
        for one in (*self._listeners, *self._channels):
            one.close()
        for terminal in self._terminals:
            terminal.hang_up()
        for fd in (self._ending, self._end, self._reactor._wake_read, self._reactor._wake_write):
            os.close(fd)
        self._reactor._selector.close()


def inside(directory: Path, *argv: str) -> Operator:
    """Run a command in a machine from a terminal."""
    command = [sys.executable, "-P", "-m", "controller.guests.machine.exec_client", str(directory), "--", *argv]
    return Operator(command, os.environ)


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    made = Machine(tmp_path)
    made.start()
    yield made
    made.close()


@pytest.fixture
def sit_down(machine: Machine, tmp_path: Path) -> Iterator[Callable[..., Operator]]:
    """Run a command from a terminal."""
    operators: list[Operator] = []

    def run(*argv: str) -> Operator:
        operators.append(inside(tmp_path, *argv))
        return operators[-1]

    yield run
    for operator in operators:
        operator.close()


SitDown = Callable[..., Operator]


def test_a_command_has_a_terminal_of_this_size_and_its_status_comes_back(sit_down: SitDown) -> None:
    at = sit_down("sh", "-c", "tty >/dev/null && echo $TERM $(stty size); read word; echo got $word; exit 3")
    at.sees(b"xterm 24 80")
    at.type(b"something\r")
    at.sees(b"something\r\ngot something\r\n")  # the first is the terminal's echo
    assert at.ends() == 3


def test_control_c_is_a_signal_for_the_command_alone(sit_down: SitDown) -> None:
    at = sit_down(sys.executable, "-S", "-c", INTERRUPTED)
    at.sees(b"ready")
    at.type(b"\x03")
    at.sees(b"caught")
    at.sees(b"on\r\n")
    at.type(b"\x03")
    assert at.ends() == 128 + signal.SIGINT


def test_a_changed_window_size_arrives(sit_down: SitDown) -> None:
    at = sit_down("sh", "-c", "trap 'stty size' WINCH; echo ready; while :; do sleep 0.05; done")
    at.sees(b"ready")
    at.resize(50, 132)
    at.sees(b"50 132")


def test_much_output_arrives_whole(sit_down: SitDown) -> None:
    at = sit_down("seq", "100000")
    assert at.ends() == 0
    assert at.screen.split() == [str(number).encode() for number in range(1, 100_001)]


def test_what_is_pasted_arrives_whole(sit_down: SitDown, tmp_path: Path) -> None:
    pasted = b"".join(b"line %05d of a long configuration\n" % number for number in range(2000))
    at = sit_down("sh", "-c", f"stty -echo; echo ready; cat >{tmp_path}/pasted")
    at.sees(b"ready")
    threading.Thread(target=at.type, args=(pasted + b"\x04",)).start()
    assert at.ends() == 0
    assert (tmp_path / "pasted").read_bytes() == pasted


def test_an_operator_who_goes_away_hangs_up(sit_down: SitDown, tmp_path: Path) -> None:
    told = tmp_path / "told"
    os.mkfifo(told)
    at = sit_down("sh", "-c", f"trap 'echo hung up >{told}; exit' HUP; echo ready; while :; do sleep 0.05; done")
    at.sees(b"ready")
    at.close()
    assert told.read_text() == "hung up\n"


def test_it_hangs_up_also_where_we_were_started_with_that_signal_ignored(sit_down: SitDown) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as by nohup(1)
    try:
        at = sit_down("sh", "-c", "trap 'echo hung up; exit' HUP; echo ready; kill -HUP $$; echo ignored")
        at.sees(b"hung up")
    finally:
        signal.signal(signal.SIGHUP, before)


def test_one_terminal_too_many_is_one_line_and_an_ended_one_makes_room(sit_down: SitDown) -> None:
    several = [sit_down("sh", "-c", "echo ready; read word") for _ in range(ours.TERMINALS)]
    for one in several:
        one.sees(b"ready")
    at = sit_down("sh")
    assert at.ends() == FAILED
    assert at.screen == f"vrctl: sh: all {ours.TERMINALS} terminals of the machine are in use; end one\r\n".encode()
    several[0].type(b"\r")
    several[0].ends()
    assert sit_down("true").ends() == 0


def test_a_command_that_is_not_there_is_one_line(sit_down: SitDown) -> None:
    at = sit_down("nonsense")
    assert at.ends() not in (0, 128 + signal.SIGINT)
    assert b"nonsense" in at.screen


def test_a_machine_without_terminals_is_one_line(tmp_path: Path) -> None:
    at = inside(tmp_path, "true")
    assert at.ends() == FAILED
    assert at.screen == b"vrctl: true: the machine was started without terminals; vrctl console has one\r\n"
    at.close()


@pytest.mark.parametrize("answer", [b"7\n", b"{\n", b"[" * 100_000 + b"\n", b"x" * 200_000, b'{"ok": 1, "id": []}\n'])
def test_a_hostile_machine_is_one_line_and_the_terminal_is_as_before(tmp_path: Path, answer: bytes) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(tmp_path / ours.socket_of(0)))
        listener.listen()
        at = inside(tmp_path, "sh")
        client, _ = listener.accept()
        with client, contextlib.suppress(OSError):
            client.recv(1000)
            client.sendall(answer)
        assert at.ends() == FAILED
    assert at.screen.count(b"\n") == 1
    assert b"vrctl: sh: the machine " in at.screen
    at.close()


# -- the machine's end alone -----------------------------------------------------------------------------------------


class Bed:
    """A terminal whose operations are called as they come from the channel."""

    def __init__(self) -> None:
        self.reactor = Reactor()
        self.terminal = Terminal(self.reactor, list, ENVIRONMENT)
        self.started: list[int] = []

    def ask(self, op: str, **fields: Any) -> list[dict[str, Any]]:
        """Return the list in which the answer will be."""
        answers: list[dict[str, Any]] = []
        self.terminal.operations[op]({"op": op, **fields}, answers.append)
        if op == "terminal":
            self.started.append(self.terminal._pid)
        return answers

    def begin(self, *argv: str) -> None:
        assert self.ask("terminal", argv=list(argv), rows=24, columns=80, term="\x1b]") == [{"ok": True}]

    def close(self) -> None:
        self.terminal.hang_up()
        for pid in self.started:
            os.waitpid(pid, 0)


@pytest.fixture
def bed() -> Iterator[Bed]:
    made = Bed()
    yield made
    made.close()


def test_without_a_terminal_nothing_can_be_asked(bed: Bed) -> None:
    for op in ("screen", "keys", "size"):
        with pytest.raises(Refused, match="no terminal is open"):
            bed.ask(op, text="", rows=1, columns=1)


@pytest.mark.parametrize("size", [{"rows": -1, "columns": 1}, {"rows": 1, "columns": 1 << 20}, {"rows": "x"}, {}])
def test_a_size_that_is_none_is_no_request(bed: Bed, size: dict[str, Any]) -> None:
    with pytest.raises((ValueError, KeyError)):
        bed.ask("terminal", argv=["true"], **size)


def test_keys_are_bounded_and_a_screen_is_asked_for_once(bed: Bed) -> None:
    bed.begin("/bin/sleep", "1000")
    with pytest.raises(Refused, match=f"keys: more than {MAX_KEYS_BYTES} octets"):
        bed.ask("keys", text=base64.b64encode(bytes(MAX_KEYS_BYTES + 1)).decode())
    with pytest.raises(Refused, match="keys: the text is not base64"):
        bed.ask("keys", text="ä")
    keys = base64.b64encode(b"x\n" * (MAX_KEYS_BYTES // 2)).decode()
    while bed.ask("keys", text=keys):  # until the terminal is full, as nobody reads it
        pass
    with pytest.raises(Refused, match="keys: earlier ones wait"):
        bed.ask("keys", text="")
    bed.reactor.call_later(0.0, bed.reactor.stop)
    first = bed.ask("screen")
    while first:
        first = bed.ask("screen")
    with pytest.raises(Refused, match="screen: it is asked for already"):
        bed.ask("screen")


def test_who_comes_next_has_a_terminal_of_its_own_and_what_was_unanswered_is_refused(bed: Bed) -> None:
    bed.begin("/bin/sleep", "1000")
    screen = bed.ask("screen")
    assert not screen
    bed.begin("/bin/sh", "-c", "echo $TERM")
    assert screen == [{"ok": False, "error": "the terminal is closed"}]
    screen = bed.ask("screen")
    run_until(bed.reactor, lambda: bool(screen))
    assert base64.b64decode(screen[0]["text"]) == b"vt100\r\n"


def test_a_client_that_is_gone_when_it_is_refused_hangs_up_once(bed: Bed) -> None:
    bed.begin("/bin/sleep", "1000")
    told: list[dict[str, Any]] = []

    def refused(answer: dict[str, Any]) -> None:
        told.append(answer)
        bed.terminal.hang_up()  # as the channel does where it cannot be written to

    bed.terminal.operations["screen"]({"op": "screen"}, refused)
    bed.terminal.hang_up()
    assert told == [{"ok": False, "error": "the terminal is closed"}]


def test_what_a_command_leaves_running_does_not_keep_its_terminal(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine_terminal, "AFTERGLOW_S", 0.05)
    bed.begin("/bin/sh", "-c", "trap '' HUP; sleep 1000 & echo $!")
    screen = bed.ask("screen")
    run_until(bed.reactor, lambda: bool(screen))
    left = int(base64.b64decode(screen[0]["text"]))
    screen = bed.ask("screen")
    pid, status = os.waitpid(bed.started.pop(), 0)
    assert bed.terminal.reaped(pid, os.waitstatus_to_exitcode(status))
    run_until(bed.reactor, lambda: bool(screen))
    assert screen == [{"ok": True, "status": 0}]
    os.kill(left, signal.SIGKILL)
