"""The control channel on a real socket: answers, ids, bounds, and hosts that come and go."""

import contextlib
import json
import os
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from vrc.guest import lines
from vrc.guest.lines import LineStream
from vrc.guest.reactor import Reactor
from vrc.machine.control import MAX_UNANSWERED, ControlChannel, Refused, Reply


def run_until(reactor: Reactor, condition: Callable[[], bool], limit_s: float = 5.0) -> None:
    """Let the loop work until something holds."""

    def look() -> None:
        if condition():
            reactor.stop()
        else:
            reactor.call_later(0.001, look)

    late = reactor.call_later(limit_s, lambda: pytest.fail("it never came"))
    reactor.call_later(0.0, look)
    reactor.run()
    late.cancel()


class Host:
    """The other end of the channel."""

    def __init__(self, reactor: Reactor, end: socket.socket) -> None:
        self.reactor, self.end, self.received = reactor, end, bytearray()

    def send(self, *lines: object) -> None:
        text = b"".join((line if isinstance(line, bytes) else json.dumps(line).encode()) + b"\n" for line in lines)
        threading.Thread(target=self.end.sendall, args=(text,)).start()

    def answers(self, count: int) -> list[dict[str, Any]]:
        def enough() -> bool:
            with contextlib.suppress(BlockingIOError):
                self.received += self.end.recv(1 << 20, socket.MSG_DONTWAIT)
            return self.received.count(b"\n") >= count

        run_until(self.reactor, enough)
        lines = self.received.splitlines()
        self.received.clear()
        return [json.loads(line) for line in lines]


@pytest.fixture
def waiting() -> list[Reply]:
    return []


@pytest.fixture
def host(waiting: list[Reply]) -> Iterator[Host]:
    reactor = Reactor()
    ours, theirs = socket.socketpair()

    def refuse(_request: dict[str, Any], _reply: Reply) -> None:
        raise Refused("the guest does not run")

    channel = ControlChannel(
        reactor,
        ours.detach(),
        {
            "echo": lambda request, reply: reply({"ok": True, "said": request["text"]}),
            "wait": lambda _request, reply: waiting.append(reply),
            "refuse": refuse,
            "limit": lambda request, reply: reply({"ok": True, "limit_s": float(request["limit_s"])}),
        },
    )
    yield Host(reactor, theirs)
    channel.close()
    theirs.close()


def test_each_request_gets_one_line_with_its_id(host: Host) -> None:
    host.send({"op": "echo", "text": "a", "id": 1}, b"", {"op": "echo", "text": "b"}, {"op": "refuse", "id": "x"})
    assert host.answers(3) == [
        {"ok": True, "said": "a", "id": 1},
        {"ok": True, "said": "b"},
        {"ok": False, "error": "the guest does not run", "id": "x"},
    ]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b"{", "not a request: "),
        (b"[1]", "not a request: "),
        (b'"op"', "not a request: "),
        (b"\xff\xfe", "not a request: "),
        (b"[" * 100_000, "not a request: "),
        ({"op": ["x"]}, "not a request: "),
        ({"op": "fly"}, "no operation 'fly'"),
        ({"op": "echo"}, "echo: not a request: KeyError('text')"),
        ({"op": "limit", "limit_s": 10**400}, "limit: not a request: OverflowError("),
    ],
)
def test_what_is_no_request_is_answered_and_the_channel_goes_on(host: Host, line: object, said: str) -> None:
    host.send(line, {"op": "echo", "text": "on", "id": 2})
    refused, answered = host.answers(2)
    assert not refused["ok"]
    assert refused["error"].startswith(said)
    assert answered == {"ok": True, "said": "on", "id": 2}


def test_an_answer_overtakes_that_of_a_longer_request(host: Host, waiting: list[Reply]) -> None:
    host.send({"op": "wait", "id": 1}, {"op": "echo", "text": "quick", "id": 2})
    assert [answer["id"] for answer in host.answers(1)] == [2]
    waiting[0]({"ok": True})
    waiting[0]({"ok": True, "again": True})  # is no second line
    host.send({"op": "echo", "text": "", "id": 3})
    assert [answer["id"] for answer in host.answers(2)] == [1, 3]


def test_requests_under_way_are_bounded(host: Host, waiting: list[Reply]) -> None:
    host.send(*({"op": "wait", "id": number} for number in range(MAX_UNANSWERED + 1)))
    (refused,) = host.answers(1)
    assert refused == {
        "ok": False,
        "error": f"{MAX_UNANSWERED} requests are under way already",
        "id": MAX_UNANSWERED,
    }
    waiting[0]({"ok": True})
    host.send({"op": "echo", "text": "", "id": "again"})
    assert host.answers(2)[1]["ok"]


def test_a_line_that_is_too_long_is_thrown_away_and_said(host: Host) -> None:
    host.send(b"x" * (lines.MAX_LINE_BYTES + 1), {"op": "echo", "text": "on", "id": 1})
    refused, answered = host.answers(2)
    assert refused["error"] == f"a request is longer than {lines.MAX_LINE_BYTES} octets"
    assert answered["id"] == 1


def test_a_stream_that_ended_is_heard_again_after_resume() -> None:
    # A pseudo terminal behaves as the port does: it reads as ended while its other side is closed, then works again.
    reactor, (master, other), lines, ends = Reactor(), os.openpty(), [], []
    name = os.ttyname(other)
    os.close(other)
    stream = LineStream(reactor, master, lines.append, lambda: ends.append(True))
    for turn in range(3):
        other = os.open(name, os.O_RDWR | os.O_NOCTTY)
        stream.resume()
        os.write(other, b"hello %d\n" % turn)
        run_until(reactor, lambda turn=turn: len(lines) > turn)
        os.close(other)
        run_until(reactor, lambda turn=turn: len(ends) > turn)
        stream.send(b"lost")
        assert stream.lost == turn + 1
    assert [line.strip() for line in lines] == [b"hello 0", b"hello 1", b"hello 2"]
    stream.close()


def test_answers_wait_for_a_slow_reader_and_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "MAX_UNSENT_BYTES", 1 << 20)
    reactor, (ours, theirs) = Reactor(), socket.socketpair()
    theirs.setblocking(False)
    stream = LineStream(reactor, ours.detach(), lambda line: None, lambda: None)
    line = b"x" * 100_000
    for _ in range(30):
        stream.send(line)
    assert stream.lost > 0
    received = bytearray()

    def drained() -> bool:
        with contextlib.suppress(BlockingIOError):
            received.extend(theirs.recv(1 << 20))
        return len(received) == (30 - stream.lost) * (len(line) + 1)

    run_until(reactor, drained)
    assert set(bytes(received).splitlines()) == {line}
    stream.close()
    theirs.close()
