"""The session relay between real sockets: octets, ends, bounds."""

import os
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from test_machine_control import run_until

from vrc.guest.reactor import Reactor
from vrc.machine.relay import MAX_JOINED, SessionRelay


class Bed:
    """A relay, the place it leads to, and what it said."""

    def __init__(self, path: str) -> None:
        self.path, self.said = path, list[str]()
        self.reactor = Reactor()
        self.far = socket.create_server(("127.0.0.1", 0), backlog=16)
        self.relay = SessionRelay(self.reactor, path, os.getuid(), self.far.getsockname(), self.said.append)

    def client(self) -> socket.socket:
        client = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        client.connect(self.path)
        return client

    def joined(self) -> tuple[socket.socket, socket.socket]:
        client, wanted = self.client(), self.relay.counts["open"] + 1
        self.until(lambda: self.relay.counts["open"] == wanted)
        far, _ = self.far.accept()
        return client, far

    def until(self, condition: Callable[[], bool]) -> None:
        run_until(self.reactor, condition)


@pytest.fixture
def bed(tmp_path: Path) -> Iterator[Bed]:
    bed = Bed(str(tmp_path / "session.sock"))
    yield bed
    bed.relay.close()
    bed.far.close()


def test_octets_go_both_ways_in_any_amount(bed: Bed) -> None:
    client, far = bed.joined()
    octets = os.urandom(3_000_000)
    got: dict[str, bytes] = {}

    def pump(name: str, end: socket.socket) -> None:
        received = bytearray()
        sender = threading.Thread(target=end.sendall, args=(octets,))
        sender.start()
        while len(received) < len(octets):
            received += end.recv(1 << 16)
        sender.join()
        got[name] = bytes(received)

    threads = [threading.Thread(target=pump, args=pair) for pair in (("client", client), ("far", far))]
    for thread in threads:
        thread.start()
    bed.until(lambda: len(got) == 2)
    assert got == {"client": octets, "far": octets}
    client.close()
    far.close()
    bed.until(lambda: bed.relay.counts["open"] == 0)


def test_an_end_is_passed_on_and_the_other_direction_goes_on(bed: Bed) -> None:
    client, far = bed.joined()
    client.sendall(b"last words")
    client.shutdown(socket.SHUT_WR)
    far.setblocking(False)
    received = bytearray()

    def ended() -> bool:
        try:
            data = far.recv(100)
        except BlockingIOError:
            return False
        received.extend(data)
        return not data

    bed.until(ended)
    assert received == b"last words"
    far.sendall(b"answer")
    far.close()
    bed.until(lambda: bed.relay.counts["open"] == 0)
    assert client.recv(100) == b"answer"
    assert client.recv(100) == b""
    client.close()


def test_a_reader_who_waits_stops_the_writer(bed: Bed) -> None:
    client, far = bed.joined()
    client.setblocking(False)
    sent = 0

    def stuck() -> bool:
        nonlocal sent
        try:
            while True:
                sent += client.send(bytes(1 << 16))
        except BlockingIOError:
            before, stuck.seen = stuck.seen, sent  # type: ignore[attr-defined]
            stuck.turns = stuck.turns + 1 if before == sent else 0  # type: ignore[attr-defined]
        return stuck.turns > 50  # type: ignore[attr-defined]

    stuck.seen, stuck.turns = -1, 0  # type: ignore[attr-defined]
    bed.until(stuck)
    assert sent < 64 << 20
    client.close()
    far.close()


def test_more_than_four_sessions_are_refused_and_counted(bed: Bed) -> None:
    joined = [bed.joined() for _ in range(MAX_JOINED)]
    over = [bed.client() for _ in range(3)]
    bed.until(lambda: bed.relay.counts["refused"] == 3)
    assert [client.recv(1) for client in over] == [b""] * 3
    assert bed.said == [f"more than {MAX_JOINED} sessions at once: refused"]
    joined[0][0].close()
    joined[0][1].close()
    bed.until(lambda: bed.relay.counts["open"] == MAX_JOINED - 1)
    again = bed.joined()
    for end in (*again, *over, *(end for pair in joined[1:] for end in pair)):
        end.close()


def test_a_host_that_cannot_be_reached_ends_the_connection_and_is_said_once(bed: Bed) -> None:
    bed.far.close()
    for _ in range(2):
        client = bed.client()
        before = bed.relay.failed
        bed.until(lambda before=before: bed.relay.failed > before)
        assert client.recv(1) == b""
        client.close()
    assert bed.relay.counts == {"open": 0, "refused": 0, "failed": 2}
    assert len(bed.said) == 1
    assert "cannot be reached: Connection refused" in bed.said[0]
