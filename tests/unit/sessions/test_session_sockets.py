"""Session sockets: few connections of a router at once, none of them keeps another router's out or is waited for."""

import asyncio
import contextlib
import os
import resource
import socket
import struct
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from controller.sessions import sockets as session_sockets
from controller.sessions.guest_socket import Closer, GuestSocket
from controller.sessions.sockets import CONNECTIONS, FrameProtocol, SessionSockets
from wire.frames import MAGIC

Slow = tuple[socket.socket, socket.socket]
LINGER_S = 20
"""How long the loop would wait for one."""


class Frames(FrameProtocol):
    """Keeps what comes."""

    def __init__(self, kept: dict[int, bytes], vrf_id: int, gone: Callable[[], object]) -> None:
        self._kept, self._vrf_id, self._gone = kept, vrf_id, gone
        self._transport: asyncio.BaseTransport | None = None

    def cut(self) -> None:
        assert isinstance(self._transport, asyncio.Transport)
        self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._kept[self._vrf_id] = self._kept.get(self._vrf_id, b"") + data

    def connection_lost(self, _error: Exception | None) -> None:
        self._gone()


class Bed:
    """Sockets in front of a service that answers with what it is told, in capitals."""

    def __init__(self, directory: Path) -> None:
        self.directory, self.refused, self.frames_of = directory, list[int](), dict[int, bytes]()
        self.served = self.serving = 0
        self.names: list[bytes] = []  # that connections to the service have
        self.sockets = SessionSockets(directory, directory / "session.sock", self.frames, self.refused.append)

    def frames(self, vrf_id: int, gone: Callable[[], object]) -> FrameProtocol:
        return Frames(self.frames_of, vrf_id, gone)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.served += 1
        self.serving += 1
        self.names.append(writer.get_extra_info("peername"))
        with contextlib.suppress(ConnectionError):
            while piece := await reader.read(65536):
                writer.write(piece.upper())
                await writer.drain()
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()
        self.serving -= 1

    async def connect(self, vrf_id: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_unix_connection(str(self.directory / str(vrf_id) / "session.sock"))


@pytest.fixture
async def bed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Bed]:
    monkeypatch.setattr(session_sockets, "LOOK_EVERY_S", 0.0)
    made = Bed(tmp_path)
    for vrf_id in (1, 2):
        (tmp_path / str(vrf_id)).mkdir()
        made.sockets.open(vrf_id, os.geteuid())
    async with await asyncio.start_unix_server(made.serve, tmp_path / "session.sock"):
        yield made
        made.sockets.close_all()
        await until(lambda: not made.serving)


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not holds():  # noqa: ASYNC110
            await asyncio.sleep(0)


async def test_octets_pass_both_ways_and_who_reads_slowly_stops_who_writes(bed: Bed) -> None:
    reader, writer = await bed.connect(1)
    content = b"abcdefgh" * (1 << 19)
    sending = asyncio.create_task(writer.drain())
    writer.write(content)
    assert await reader.readexactly(len(content)) == content.upper()
    await sending
    writer.close()
    await writer.wait_closed()


async def test_one_too_many_is_closed_and_told_and_an_ended_one_makes_room(bed: Bed) -> None:
    held = [await bed.connect(1) for _ in range(CONNECTIONS)]
    for _, writer in held:
        writer.write(b"x")
    await until(lambda: bed.served == CONNECTIONS)
    for expected in (1, 2):
        reader, writer = await bed.connect(1)
        assert await reader.read() == b""
        assert bed.refused == [1] * expected
        writer.close()
    other, its = await bed.connect(2)
    its.write(b"x")
    assert await other.readexactly(1) == b"X"
    held[0][1].close()
    await until(lambda: len(bed.sockets._listeners[1]._open) < CONNECTIONS)
    again, its_again = await bed.connect(1)
    its_again.write(b"y")
    assert await again.readexactly(1) == b"Y"
    for writer in (its, its_again, *(one for _, one in held[1:])):
        writer.close()
    assert bed.refused == [1, 1]


async def test_a_closed_router_s_connections_are_cut_and_its_socket_is_gone(bed: Bed) -> None:
    reader, writer = await bed.connect(1)
    writer.write(b"x")
    assert await reader.readexactly(1) == b"X"
    bed.sockets.close(1)
    assert await reader.read() == b""
    writer.close()
    assert list((bed.directory / "1").iterdir()) == []
    bed.sockets.close(1)  # once more is no error


async def test_without_a_service_a_connection_is_closed_and_not_told(tmp_path: Path) -> None:
    bed = Bed(tmp_path)
    (tmp_path / "1").mkdir()
    bed.sockets.open(1, os.geteuid())
    reader, writer = await bed.connect(1)
    writer.write(b"x")
    with contextlib.suppress(ConnectionError):  # where it was not read
        assert await reader.read() == b""
    writer.close()
    bed.sockets.close_all()
    assert bed.refused == []


async def test_the_first_octet_tells_frames_from_all_else(bed: Bed) -> None:
    _, writer = await bed.connect(2)
    writer.write(MAGIC + b"rest")
    await until(lambda: bed.frames_of.get(2) == MAGIC + b"rest")
    assert not bed.served
    bed.sockets.close(2)
    await until(lambda: not bed.sockets._listeners.get(2))
    writer.close()


async def test_who_says_nothing_gives_its_place_up(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_sockets, "SILENT_S", 0.01)
    held = [await bed.connect(1) for _ in range(CONNECTIONS)]
    for reader, writer in held:
        assert await reader.read() == b""
        writer.close()
    reader, writer = await bed.connect(1)
    writer.write(b"x")
    assert await reader.readexactly(1) == b"X"
    writer.close()
    assert not bed.refused


async def test_who_sees_the_names_of_connections_cannot_take_the_next_one(bed: Bed) -> None:
    reader, writer = await bed.connect(1)
    writer.write(b"x")
    assert await reader.readexactly(1) == b"X"
    before, dash, last = bed.names[0].rpartition(b"-")
    with contextlib.ExitStack() as taken:
        for number in range(int(last, 16) + 1, int(last, 16) + 9):
            taken.enter_context(socket.socket(socket.AF_UNIX)).bind(before + dash + f"{number:x}".encode())
        other, its = await bed.connect(1)
        its.write(b"y")
        assert await other.readexactly(1) == b"Y"
    for one in (writer, its):
        one.close()


async def test_the_socket_of_an_earlier_controller_is_replaced(bed: Bed) -> None:
    bed.sockets.close_all()
    later = SessionSockets(bed.directory, bed.directory / "session.sock", bed.frames, bed.refused.append)
    later.open(1, os.geteuid())
    reader, writer = await bed.connect(1)
    writer.write(b"x")
    assert await reader.readexactly(1) == b"X"
    writer.close()
    later.close_all()
    assert sorted(path.name for path in bed.directory.iterdir()) == ["1", "2", "session.sock"]


@pytest.fixture
def slow() -> Iterator[Slow]:
    """A connection whose last descriptor is slow to close, as its peer reads nothing; and that peer."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        ours = socket.create_connection(listener.getsockname())
        peer, _ = listener.accept()
    ours.setblocking(False)
    with contextlib.suppress(BlockingIOError):
        while ours.send(bytes(1 << 16)):
            pass
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, LINGER_S))
    with ours, peer:
        yield ours, peer


def sent(path: Path, octets: bytes, passed: socket.socket) -> socket.socket:
    """Connect, say something and send the last descriptor of a file with it."""
    one = socket.socket(socket.AF_UNIX)
    one.connect(str(path))
    socket.send_fds(one, [octets], [passed.fileno()])
    passed.close()
    return one


async def answered(bed: Bed, vrf_id: int) -> None:
    reader, writer = await bed.connect(vrf_id)
    writer.write(b"x")
    assert await reader.readexactly(1) == b"X"
    writer.close()


async def ended(one: socket.socket) -> None:
    """Wait until the other end of a connection has closed it; what was sent may be lost with it."""
    one.setblocking(False)
    with contextlib.suppress(ConnectionError):
        assert await asyncio.get_running_loop().sock_recv(one, 1) == b""
    one.close()


def waits(bed: Bed, vrf_id: int) -> bool:
    return bed.sockets._listeners[vrf_id]._closer.busy


@pytest.mark.parametrize("first", [b"", b"x"], ids=["with the first octet", "later"])
async def test_a_descriptor_ends_its_connection_and_nobody_waits_for_its_close(
    bed: Bed, slow: Slow, first: bytes
) -> None:
    passed, peer = slow
    path = bed.directory / "1/session.sock"
    if first:
        one = socket.socket(socket.AF_UNIX)
        one.connect(str(path))
        one.send(first)
        await until(lambda: bed.served == 1)
        socket.send_fds(one, [b"y"], [passed.fileno()])
        passed.close()
    else:
        one = sent(path, b"y", passed)
    await ended(one)
    await answered(bed, 2)
    assert waits(bed, 1)
    peer.close()  # with octets unread: a reset, and nobody waits any more
    await until(lambda: not waits(bed, 1))
    await answered(bed, 1)


async def test_nothing_more_is_taken_from_a_guest_until_all_that_it_sent_is_closed(bed: Bed, slow: Slow) -> None:
    passed, peer = slow
    await ended(sent(bed.directory / "1/session.sock", b"y", passed))
    served = bed.served
    reader, writer = await bed.connect(1)
    writer.write(b"x")
    await answered(bed, 2)
    assert (bed.served, waits(bed, 1)) == (served + 1, True)
    peer.close()
    assert await reader.readexactly(1) == b"X"
    writer.close()


async def test_what_nobody_read_is_closed_by_nobody_who_is_waited_for(
    bed: Bed, slow: Slow, monkeypatch: pytest.MonkeyPatch
) -> None:
    passed, peer = slow
    monkeypatch.setattr(session_sockets, "LOOK_EVERY_S", 1e6)
    one = socket.socket(socket.AF_UNIX)
    one.connect(str(bed.directory / "1/session.sock"))  # it is the last that is looked at
    one.send(b"x")
    await until(lambda: bed.served == 1)
    waiting = sent(bed.directory / "1/session.sock", b"y", passed)
    closer = bed.sockets._listeners[1]._closer
    bed.sockets.close(1)
    await ended(waiting)
    await answered(bed, 2)
    assert closer.busy
    peer.close()
    await until(lambda: not closer.busy)
    one.close()


@pytest.fixture
def unclosed(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """What the thread would close: here nobody does before the end."""
    held: list[int] = []
    monkeypatch.setattr(Closer, "close", lambda _self, descriptor: held.append(descriptor))
    yield held
    for descriptor in held:
        os.close(descriptor)


@contextlib.contextmanager
def no_more_descriptors() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize("band", [0, socket.MSG_OOB], ids=["in band", "out of band"])
def test_a_descriptor_does_not_enter_the_process_and_who_receives_does_not_close_it(
    unclosed: list[int], band: int
) -> None:
    guest, plain = socket.socketpair()
    ours = GuestSocket.over(plain, Closer())
    end, passed = os.pipe()
    os.set_blocking(end, False)
    guest.sendmsg([b"y"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, struct.pack("i", passed))], band)
    os.close(passed)
    guest.send(b"z")
    with no_more_descriptors(), pytest.raises(PermissionError):
        ours.recv(100)
    ours.close()
    with pytest.raises(BlockingIOError):
        os.read(end, 1)  # somebody has the other end of the pipe
    os.close(unclosed.pop())
    assert os.read(end, 1) == b""
    os.close(end)
    guest.close()


async def test_a_connection_that_nobody_has_begun_to_look_at_is_left_to_the_thread_too(
    bed: Bed, unclosed: list[int]
) -> None:
    one = socket.socket(socket.AF_UNIX)
    one.connect(str(bed.directory / "1/session.sock"))
    bed.sockets._listeners[1]._accept()
    bed.sockets.close(1)
    assert len(unclosed) == 2  # it, and where it came from
    await ended(one)


def test_what_is_to_be_closed_waits_where_there_is_no_thread_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    closer, first, second = Closer(), socket.socketpair(), socket.socketpair()
    with monkeypatch.context() as changed:
        changed.setattr(threading.Thread, "start", refuse)
        closer.close(first[0].detach())
    assert not closer.busy
    closer.close(second[0].detach())
    for _, other in (first, second):
        assert other.recv(1) == b""
        other.close()


async def test_a_router_whose_socket_could_not_be_made_is_admitted_later(service):
    _, server, _ = service
    directory = server.directory_for(9)
    directory.mkdir()
    (directory / "session.sock").mkdir()  # in its way
    with pytest.raises(OSError, match="directory"):
        server.admit(9, os.geteuid())
    assert not (directory.parent / ".9.sock").exists()
    (directory / "session.sock").rmdir()
    server.admit(9, os.geteuid())
    assert (directory / "session.sock").is_socket()
    server.revoke(9)
    assert not directory.exists()
