"""Frames between TAPs and the session: bounded, and every loss has a name. Socket pairs stand in for TAPs."""

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Iterator

import pytest

from vrc.packets import QUEUE_FRAMES, PacketRelay
from wire import MAX_FRAME_BYTES, MAX_FRAMES_PER_MESSAGE
from wire import splitplane_pb2 as pb

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


async def test_frames_out(relay: PacketRelay, tap: tuple[socket.socket, socket.socket]) -> None:
    sent: list[pb.PacketOut] = []

    async def write(message: pb.PacketOuts) -> None:
        sent.extend(message.packets)

    tap[0].send(FRAME)
    await turns()
    assert relay.lost["no_session"] == 1
    task = asyncio.ensure_future(relay.send(write))
    await turns()
    for frame in (FRAME, b"short", bytes(MAX_FRAME_BYTES + 1), FRAME):
        tap[0].send(frame)
    await turns()
    assert [(packet.interface_id, packet.frame) for packet in sent] == [(101, FRAME)] * 2
    assert (relay.sent, relay.lost["frame_size"]) == (2, 2)
    relay.attach(tap[1].fileno(), 107)
    tap[0].send(FRAME)
    await turns()
    assert sent[-1].interface_id == 107
    task.cancel()


async def test_a_session_that_is_stuck_costs_the_oldest_frames(
    relay: PacketRelay, tap: tuple[socket.socket, socket.socket]
) -> None:
    stuck = asyncio.Event()
    messages: list[list[int]] = []

    async def write(message: pb.PacketOuts) -> None:
        await stuck.wait()
        messages.append([int.from_bytes(packet.frame[:2], "big") for packet in message.packets])

    task = asyncio.ensure_future(relay.send(write))
    await turns()
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
    stuck.set()
    await turns()
    assert messages[0] == [0]  # nothing waited for it to fill, and it was already being written
    assert [number for message in messages[1:] for number in message] == list(range(11, QUEUE_FRAMES + 11))
    assert [len(message) for message in messages[1:]] == [MAX_FRAMES_PER_MESSAGE] * (
        QUEUE_FRAMES // MAX_FRAMES_PER_MESSAGE
    )
    task.cancel()


async def test_what_was_being_written_when_the_session_ended_is_counted(
    relay: PacketRelay, tap: tuple[socket.socket, socket.socket]
) -> None:
    async def write(message: pb.PacketOuts) -> None:
        await asyncio.Event().wait()

    task = asyncio.ensure_future(relay.send(write))
    await turns()
    for _ in range(3):
        tap[0].send(FRAME)
    await turns()
    task.cancel()
    await turns()
    assert (relay.sent, relay.lost["no_session"]) == (0, 3)


async def test_frames_in(relay: PacketRelay, tap: tuple[socket.socket, socket.socket]) -> None:
    async def stream() -> AsyncIterator[pb.PacketIns]:
        foreign = pb.PacketIn(interface_id=999, frame=FRAME)
        yield pb.PacketIns(packets=[pb.PacketIn(interface_id=101, frame=FRAME), foreign])
        yield pb.PacketIns(packets=[pb.PacketIn(interface_id=101, frame=b"x")])

    await relay.receive(stream())
    assert tap[0].recv(100) == FRAME
    assert relay.received == 1
    assert dict(relay.lost) == {"unknown_interface": 1, "frame_size": 1}


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
