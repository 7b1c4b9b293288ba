"""The TAP holder's socket: what it keeps, what it refuses, and that nothing said to it is fatal."""

import contextlib
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from holder_wire import Wire

from vrc.guest.tapholder import MAX_CLIENTS, MAX_HELD


@pytest.fixture
def wire(tmp_path: Path) -> Iterator[Wire]:
    with contextlib.closing(Wire(str(tmp_path / "holder.sock"))) as made:
        yield made


def test_a_held_descriptor_outlives_its_owner(wire: Wire) -> None:
    read, write = os.pipe()
    assert wire.ask("hold", "eth0", write) == {"ok": True}
    os.close(write)
    os.set_blocking(read, False)
    with pytest.raises(BlockingIOError):  # not at its end: somebody still holds the other side
        os.read(read, 1)
    assert wire.ask("list") == {"ok": True, "names": ["eth0"]}
    assert wire.ask("drop") == {"ok": True}
    assert os.read(read, 1) == b""
    os.close(read)


def test_a_second_hold_of_a_name_replaces_the_first(wire: Wire) -> None:
    first, second = os.pipe(), os.pipe()
    wire.ask("hold", "eth0", first[1])
    os.close(first[1])
    assert wire.ask("hold", "eth0", second[1]) == {"ok": True}
    assert os.read(first[0], 1) == b""
    assert wire.holder.names == ["eth0"]
    for fd in (first[0], *second):
        os.close(fd)


@pytest.mark.parametrize(
    ("message", "error"),
    [
        (b"{", "not a JSON object"),
        (b"\xff\xfe", "not a JSON object"),
        (b"[" * 4000, "not a JSON object"),
        (b"[]", "op is none of hold, drop, list"),
        (b'{"op": ["hold"]}', "op is none of hold, drop, list"),
        (b'{"op": "drop", "name": "eth9"}', "eth9 is not held"),
        (b'{"op": "drop", "name": 5}', "name is not a string of 1 to 15 octets"),
        (b'{"op": "hold", "name": "sixteen-octets-x"}', "name is not a string of 1 to 15 octets"),
        (b'{"op": "hold", "name": "eth0"}', "hold needs one descriptor, not 0"),
    ],
)
def test_nonsense_is_refused_by_name_and_the_client_stays(wire: Wire, message: bytes, error: str) -> None:
    assert wire.say(message) == {"ok": False, "error": error}
    assert wire.ask("list") == {"ok": True, "names": []}


def test_refused_descriptors_are_closed(wire: Wire) -> None:
    read, write = os.pipe()
    assert not wire.ask("hold", "eth0", write, write)["ok"]
    assert not wire.ask("drop", "eth0", write)["ok"]
    os.close(write)
    assert os.read(read, 1) == b""
    os.close(read)


def test_the_number_of_held_descriptors_is_bounded(wire: Wire) -> None:
    null = os.open("/dev/null", os.O_RDONLY)
    for number in range(MAX_HELD):
        assert wire.ask("hold", f"eth{number}", null)["ok"]
    assert wire.ask("hold", "one-more", null) == {"ok": False, "error": "256 descriptors are held already"}
    assert wire.ask("hold", "eth0", null) == {"ok": True}
    os.close(null)


def test_a_client_that_leaves_is_forgotten_and_what_it_gave_is_kept(wire: Wire, tmp_path: Path) -> None:
    null = os.open("/dev/null", os.O_RDONLY)
    wire.ask("hold", "eth0", null)
    os.close(null)
    wire.client.close()
    wire.turn()
    assert wire.holder.names == ["eth0"]
    wire.client = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    wire.client.connect(str(tmp_path / "holder.sock"))
    assert wire.ask("list") == {"ok": True, "names": ["eth0"]}


def test_clients_at_once_are_bounded_and_counted(wire: Wire, tmp_path: Path) -> None:
    others = [socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in range(MAX_CLIENTS)]
    for other in others:
        other.connect(str(tmp_path / "holder.sock"))
        wire.turn()
    assert others[-1].recv(1) == b""
    assert wire.holder._listener.refused == 1
    assert wire.ask("list") == {"ok": True, "names": []}
    for other in others:
        other.close()
