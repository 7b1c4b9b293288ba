"""vrctl does not wait for ever for a controller that hangs, but does for what has not happened yet, and takes no part
of an answer for the whole of it."""

import socket
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from controller.vrctl import client
from controller.vrctl.client import Client, CutOff, Refused, Unreachable
from controller.vrctl.files import write_private
from controller.vrctl.progress import follow

Vrctl = Callable[..., Awaitable[tuple[int, str, str]]]
HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.fixture
def listener(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    monkeypatch.setattr(client, "ANSWER_LIMIT_S", 0.05)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "api.sock"))
        listener.listen()
        yield listener


def test_a_controller_that_hangs_is_said(listener: socket.socket) -> None:
    with pytest.raises(Unreachable, match=r"\(it did not answer within 0.05 s; see its log\)"):
        Client(Path(listener.getsockname())).get("routers")


def test_one_that_hangs_in_its_answer_is_said(listener: socket.socket) -> None:
    lines = _answered(listener, follow=False)
    assert next(lines) == 1
    with pytest.raises(Unreachable, match=r"\(it went away: it did not answer within 0.05 s; see its log\)"):
        next(lines)


@pytest.mark.parametrize("sent", [b"", b"12345"])
def test_an_answer_that_is_cut_off_is_no_backup(listener: socket.socket, tmp_path: Path, sent: bytes) -> None:
    answering = _Answering(listener, b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n" + sent, ends=True)
    answering.start()
    with pytest.raises(Unreachable, match=r"\(it went away: it ended in the middle of its answer\)"):
        write_private(tmp_path / "backup", Client(Path(listener.getsockname())).pieces("POST", "/v1/backup"))
    answering.join()
    assert not (tmp_path / "backup").exists()


@pytest.mark.parametrize("more", [b"", b"2", b"2\r\n", b"4\r\n[2]\n", b"2\r\n[2"])
def test_a_list_that_is_cut_off_is_no_whole_one(listener: socket.socket, more: bytes) -> None:
    def lines() -> Iterator[object]:
        answering = _Answering(listener, HEAD + b"2\r\n1\n\r\n" + more, ends=True)
        answering.start()
        yield from Client(Path(listener.getsockname())).lines("GET", "/v1/routers/red/r1/routes")

    with pytest.raises(CutOff, match=r"\(it went away: it ended in the middle of its answer\)"):
        list(lines())
    with pytest.raises(Refused, match="the controller went away before it was done; run vrctl again"):
        follow({"progress": line} for line in lines())


def test_a_list_that_has_its_end_is_whole(listener: socket.socket) -> None:
    answering = _Answering(listener, HEAD + b"2\r\n1\n\r\n0\r\n\r\n", ends=True)
    answering.start()
    assert list(Client(Path(listener.getsockname())).lines("GET", "/v1/routers/red/r1/routes")) == [1]


def test_what_is_followed_may_take_its_time(listener: socket.socket, monkeypatch: pytest.MonkeyPatch) -> None:
    limits: list[float | None] = []

    class Connection(client._Connection):
        def close(self) -> None:
            limits.append(self.held.gettimeout())
            super().close()

    monkeypatch.setattr(client, "_Connection", Connection)
    lines = _answered(listener, follow=True)
    assert next(lines) == 1
    lines.close()  # type: ignore[attr-defined]
    assert limits == [None]


LINES = """
for line in client.lines("GET", "/v1/events", follow=True):
    print(line, flush=True)
"""
PIECES = """
for piece in client.pieces("GET", "/v1/capture", follow=True, shown=True):
    os.write(1, piece)
"""
LOG = """
terminal.show_log(["tail", "-n", "+1", "-f", sys.argv[2]])
"""
FOLLOWING = """
import os, sys
from pathlib import Path
from controller.vrctl.client import Client
from controller.vrctl.live import terminal
client = Client(Path(sys.argv[1]))
try:
    exec(sys.argv[3])
except BrokenPipeError:
    raise SystemExit(7)
"""


@pytest.mark.parametrize("how", [LINES, PIECES, LOG], ids=["lines", "pieces", "log"])
def test_what_is_followed_ends_with_its_reader(listener: socket.socket, tmp_path: Path, how: str) -> None:
    """Also where nothing more comes."""
    (log := tmp_path / "guest.log").write_text("1\n")
    answering = _Answering(listener)
    if how is not LOG:
        answering.start()
    command = [sys.executable, "-c", FOLLOWING, listener.getsockname(), str(log), how]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as following:
        try:
            assert following.stdout is not None
            assert following.stdout.read(1) == b"1"
            following.stdout.close()
            assert following.wait(timeout=30) == 7
        finally:
            following.kill()
    if how is not LOG:
        answering.join()
        answering.end.close()


def _answered(listener: socket.socket, follow: bool) -> Iterator[object]:
    """Ask, and have the first line of an answer ready before."""
    lines = Client(Path(listener.getsockname())).lines("GET", "/v1/events", follow=follow)
    answering = _Answering(listener)
    answering.start()
    first = next(lines)
    answering.join()

    def rest() -> Iterator[object]:
        try:
            yield first
            yield from lines
        finally:
            lines.close()  # type: ignore[attr-defined]
            answering.end.close()

    return rest()


class _Answering(threading.Thread):
    """The controller's end: what it sends of an answer, and no more; it hangs, or ends."""

    def __init__(self, listener: socket.socket, sent: bytes = HEAD + b"2\r\n1\n\r\n", ends: bool = False) -> None:
        super().__init__()
        self.listener, self.sent, self.ends = listener, sent, ends

    def run(self) -> None:
        self.end, _ = self.listener.accept()
        self.end.recv(1 << 16)
        self.end.sendall(self.sent)
        if self.ends:
            self.end.close()


async def test_an_interrupted_change_is_said_to_go_on_if_it_may_have_begun(
    vrctl: Vrctl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("controller.vrctl.progress.follow", interrupt)
    (tmp_path / "net.yaml").write_text("version: 1\n")
    told = "vrctl: a change that has begun goes on; vrctl audit shows what became of it\n"
    for command in ("apply", "delete"):
        assert await vrctl(command, "-f", str(tmp_path / "net.yaml")) == (130, "", told)
    monkeypatch.setattr("controller.vrctl.documents.read_document", interrupt)  # such as standard input's
    assert await vrctl("apply", "-f", "-") == (130, "", "")
