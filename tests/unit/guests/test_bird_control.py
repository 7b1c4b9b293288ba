"""BIRD's control socket: a command and its answer, and ends of all kinds."""

import errno
import os
import select
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from test_machine_control import run_until

from vrc.guest.children import Children
from vrc.guest.log import GuestLog
from vrc.guest.reactor import Reactor
from vrc.guest.suites import bird
from vrc.guest.suites.bird_control import MAX_LINE_BYTES, MAX_LINES, Answer, BirdCommand, Silence

GREETING = b"0001 BIRD 2.0.12 ready.\n"


class Bed:
    """A socket at BIRD's place, and what the command was told."""

    def __init__(self, path: Path) -> None:
        self.reactor, self.path = Reactor(), str(path)
        self.told: list[Answer | Silence] = []
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.listener.bind(self.path)
        self.listener.listen()

    def ask(self, command: str, limit_s: float = 30.0) -> socket.socket:
        BirdCommand(self.reactor, self.path, command, limit_s, self.told.append)
        return self.listener.accept()[0]

    def answered(self) -> Answer | Silence:
        run_until(self.reactor, lambda: bool(self.told))
        (answer,) = self.told
        return answer


@pytest.fixture
def bed(tmp_path: Path) -> Iterator[Bed]:
    bed = Bed(tmp_path / "bird.ctl")
    yield bed
    bed.listener.close()


def test_a_command_is_sent_after_the_greeting_and_its_last_line_is_the_answer(bed: Bed) -> None:
    with bed.ask("configure") as end:
        end.sendall(GREETING[:5])
        end.sendall(GREETING[5:])
        run_until(bed.reactor, lambda: bool(select.select([end], [], [], 0)[0]))
        assert end.recv(100) == b"configure\n"
        end.sendall(b"0002-Reading configuration from x\n more\n0003 Reconfigured\n")
        assert bed.answered() == Answer(3, "Reconfigured")
        assert end.recv(1) == b""


def test_without_a_command_the_greeting_is_the_answer(bed: Bed) -> None:
    with bed.ask("") as end:
        end.sendall(GREETING)
        assert bed.answered() == Answer(1, "BIRD 2.0.12 ready.")


def test_one_that_goes_away_gives_no_answer(bed: Bed) -> None:
    bed.ask("configure").close()
    assert bed.answered() is Silence.GONE


def test_one_that_says_nothing_gives_no_answer(bed: Bed) -> None:
    with bed.ask("configure", limit_s=0.01):
        assert bed.answered() is Silence.LATE


@pytest.mark.parametrize("flood", [b"x" * (MAX_LINE_BYTES + 1) + b"\n", b"0000-\n" * (MAX_LINES + 1)])
def test_one_that_says_too_much_gives_no_answer(bed: Bed, flood: bytes) -> None:
    with bed.ask("configure") as end:
        end.sendall(flood)
        assert bed.answered() is Silence.NONSENSE


def test_where_nobody_listens_is_an_error_at_once(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        BirdCommand(Reactor(), str(tmp_path / "none"), "", 1.0, lambda _: None)


class Process:
    """Stands for BIRD's process, which is not reaped yet."""

    pid, argv = 7, list[str]()

    def __init__(self) -> None:
        self.signals: list[int] = []

    def restart(self, number: int) -> None:
        self.signals.append(number)


@pytest.fixture
def daemon(bed: Bed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[bird.BirdDaemon]:
    """A BIRD that is up, and is being changed from one text to another."""
    monkeypatch.setattr(bird, "SOCKET", bed.path)
    monkeypatch.setattr(bird, "watch_directory", lambda _: os.eventfd(0))
    monkeypatch.setattr(bird, "CONFIGURE_LIMIT_S", 1.0)
    children = Children(bed.reactor, GuestLog(str(tmp_path / "guest.log")))
    made = bird.BirdDaemon(children, {"text": "old", "ids": [os.getuid(), os.getgid()]}, str(tmp_path))
    made._bird, made._greeted = Process(), Process.pid  # type: ignore[assignment]
    yield made
    os.close(made._inotify)


def change(bed: Bed, daemon: bird.BirdDaemon, text: str, said: bytes) -> list[str]:
    """Change the text, with a BIRD that says this (and goes after its greeting alone); returns what is told of it."""
    replies: list[str] = []
    daemon.change({"text": text, "ids": []}, replies.append)
    assert select.select([bed.listener], [], [], 0)[0], "BIRD is not asked"
    with bed.listener.accept()[0] as end:
        end.sendall(said)
        if said != GREETING:
            run_until(bed.reactor, lambda: bool(replies))
    run_until(bed.reactor, lambda: bool(replies))
    return replies


def test_a_bird_that_dies_while_it_is_configured_starts_again_with_the_new_text(
    bed: Bed, daemon: bird.BirdDaemon, tmp_path: Path
) -> None:
    assert change(bed, daemon, "new", GREETING) == [""]
    assert (tmp_path / "bird.conf").read_text() == daemon.settings.text == "new"
    assert daemon._bird.signals == [signal.SIGKILL]  # type: ignore[attr-defined]


def test_a_bird_that_makes_no_sense_keeps_the_former_text(bed: Bed, daemon: bird.BirdDaemon, tmp_path: Path) -> None:
    assert change(bed, daemon, "new", b"x" * (MAX_LINE_BYTES + 1) + b"\n") == [
        "BIRD's answer makes no sense; the former text stays"
    ]
    assert (tmp_path / "bird.conf").read_text() == daemon.settings.text == "old"


@pytest.mark.parametrize("kept", [True, False])
def test_a_former_text_is_handed_over_again_where_bird_may_have_another(
    bed: Bed, daemon: bird.BirdDaemon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept: bool
) -> None:
    """As it made no sense, or as the file could not be put back."""

    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    refused = GREETING + b"8002 bird.conf:1:1 syntax error\n"
    with monkeypatch.context() as full:
        put_back = daemon._put_back
        full.setattr(daemon, "_put_back", lambda: (kept or full.setattr(bird, "write_files", fail), put_back()))
        assert change(bed, daemon, "new", b"x" * (MAX_LINE_BYTES + 1) + b"\n" if kept else refused) != [""]
    assert (tmp_path / "bird.conf").read_text() == ("old" if kept else "new")
    assert change(bed, daemon, "old", GREETING + b"0003 Reconfigured\n") == [""]
    assert (tmp_path / "bird.conf").read_text() == daemon.settings.text == "old"
    daemon.change({"text": "old", "ids": []}, lambda _: None)
    assert not select.select([bed.listener], [], [], 0)[0]  # now it has it for certain
