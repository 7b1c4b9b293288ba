"""Frames between TAPs and the session: bounded, and every loss has a name. Socket pairs stand in for TAPs."""

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Iterator

import pytest

from vrc.losses import OF_THE_GUEST
from vrc.packets import FRAMES_PER_TURN, QUEUE_FRAMES, FrameLink, PacketRelay
from wire import MAX_FRAME_BYTES
from wire.frames import MAGIC, pack_frame

FRAME = bytes(range(60))


@pytest.fixture
def tap() -> Iterator[tuple[socket.socket, socket.socket]]:
    """(the kernel's side, the side a relay has)"""
    kernel, ours = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK)
    with kernel, ours:
        yield kernel, ours


@pytest.fixture
async def relay(tap: tuple[socket.socket, socket.socket]) -> AsyncIterator[PacketRelay]:
    relay = PacketRelay()
    relay.attach(tap[1].fileno(), 101)
    yield relay
    relay.close()


async def turns(count: int = 20) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


class Link(FrameLink):
    """What a session sends, by write; it takes no more while it is ``stuck``."""

    def __init__(self, relay: PacketRelay) -> None:
        super().__init__(relay, b"")
        self.writes: list[list[tuple[int, bytes]]] = []
        self.stuck = False

    def write(self, frames: list[tuple[int, bytes]]) -> None:
        self.writes.append(frames)
        self.writable = not self.stuck

    @property
    def frames(self) -> list[tuple[int, bytes]]:
        return [frame for frames in self.writes for frame in frames]


async def test_frames_out(relay: PacketRelay, tap: tuple[socket.socket, socket.socket]) -> None:
    tap[0].send(FRAME)
    await turns()
    assert relay.lost["no_session"] == 1
    link = Link(relay)
    relay.connect(link)
    for frame in (FRAME, b"short", bytes(MAX_FRAME_BYTES + 1), FRAME):
        tap[0].send(frame)
    await turns()
    assert link.frames == [(101, FRAME)] * 2
    assert (relay.sent, relay.lost["frame_size"]) == (2, 2)
    relay.attach(tap[1].fileno(), 107)
    tap[0].send(FRAME)
    await turns()
    assert link.frames[-1] == (107, FRAME)


async def test_a_session_that_is_stuck_costs_the_oldest_frames(
    relay: PacketRelay, tap: tuple[socket.socket, socket.socket]
) -> None:
    link = Link(relay)
    link.stuck = True
    relay.connect(link)
    tap[0].send(bytes(2) + FRAME)
    await turns()
    for number in range(1, QUEUE_FRAMES + 11):
        while True:
            try:
                tap[0].send(number.to_bytes(2, "big") + FRAME)
                break
            except BlockingIOError:
                await turns(1)
    await turns()
    assert relay.lost["queue_full"] == 10
    link.stuck = False
    link.resume_writing()
    numbers = [[int.from_bytes(frame[:2], "big") for _, frame in frames] for frames in link.writes]
    assert numbers[0] == [0]  # nothing waited for it to fill, and it was already being written
    assert [number for write in numbers[1:] for number in write] == list(range(11, QUEUE_FRAMES + 11))
    assert [len(write) for write in numbers[1:]] == [FRAMES_PER_TURN] * (QUEUE_FRAMES // FRAMES_PER_TURN)


@pytest.fixture
async def linked(relay: PacketRelay) -> AsyncIterator[tuple[FrameLink, socket.socket]]:
    """A link, and the controller's end of its connection."""
    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    with there:
        there.setblocking(False)
        link = FrameLink(relay, b"ticket")
        await asyncio.get_running_loop().connect_accepted_socket(lambda: link, here)
        assert there.recv(100) == MAGIC + b"ticket"
        yield link, there
        link.close()
        await link.lost


async def test_what_was_being_written_when_the_session_ended_is_counted(
    relay: PacketRelay, linked: tuple[FrameLink, socket.socket]
) -> None:
    link, there = linked
    accepted = 0
    while link.writable:
        accepted = relay.sent
        relay._outbound(101, bytes(9000))
        relay.flush()
    relay._outbound(101, FRAME)
    relay.flush()  # waits
    there.close()
    await link.lost
    assert (relay.sent, relay.lost["no_session"]) == (accepted, 2)
    assert relay.losses.look({}, "")
    assert dict(relay.losses.due) == {(OF_THE_GUEST, "no_session"): 2}


async def test_frames_in(
    relay: PacketRelay, tap: tuple[socket.socket, socket.socket], linked: tuple[FrameLink, socket.socket]
) -> None:
    _, there = linked
    octets = pack_frame(101, FRAME) + pack_frame(999, FRAME) + pack_frame(101, b"x")
    for start in range(0, len(octets), 7):  # cut anywhere
        there.send(octets[start : start + 7])
        await turns(3)
    assert tap[0].recv(100) == FRAME
    assert relay.received == 1
    assert dict(relay.lost) == {"unknown_interface": 1, "frame_size": 1}
    assert relay.losses.look({}, "")
    assert dict(relay.losses.due) == {(999, "unknown_interface"): 1, (101, "frame_size"): 1}


async def test_a_controller_that_says_what_is_no_frame_is_left(linked: tuple[FrameLink, socket.socket]) -> None:
    link, there = linked
    there.send(pack_frame(101, bytes(MAX_FRAME_BYTES + 1)))
    assert await link.lost == f"the controller says a frame of {MAX_FRAME_BYTES + 1} octets; at most 9234 are taken"


async def test_a_tap_that_cannot_take_it(relay: PacketRelay, tap: tuple[socket.socket, socket.socket]) -> None:
    while relay.lost["tap_full"] == 0:
        relay.inbound(101, FRAME)
        assert relay.received < 100_000
    tap[0].close()
    relay.inbound(101, FRAME)
    assert relay.lost["refused"] == 1


async def test_a_tap_that_vanished_is_let_go() -> None:
    relay = PacketRelay()
    kernel, ours = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    with kernel, ours:
        ours.setblocking(False)
        relay.attach(ours.fileno(), 101)
        kernel.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        ours.send(b"unread")
        os.close(kernel.detach())  # unread bytes: the other end gets ECONNRESET
        await turns()
        assert relay.lost["interface_gone"] == 1
        relay.inbound(101, FRAME)
        assert relay.lost["unknown_interface"] == 1
