"""Packets streams give way to each other and to all else, and a message costs what its frames do."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from peers import end_of
from worlds import mac, router_config

from controller.errors import SessionRefused
from controller.events.log import EventLog
from controller.sessions import packet_stream
from controller.sessions.packet_stream import decode_frames, take_packets
from controller.shard import loop_share
from controller.shard.loop_share import TURN_S, LoopShare
from wire import MAX_FRAME_BYTES, MAX_FRAMES_PER_MESSAGE, MAX_MESSAGE_BYTES
from wire import splitplane_pb2 as pb

FRAME = pb.PacketOut(interface_id=1, frame=bytes(6) + mac(1) + b"\x08\x00" + bytes(46))


class Clock:
    now_s = 0.0

    def perf_counter(self) -> float:
        return self.now_s

    thread_time = perf_counter


class Work:
    """Takes a millisecond for each frame, in the place of the shards."""

    def __init__(self, clock: Clock) -> None:
        self._clock, self.frames = clock, 0
        self.loop_share = LoopShare()

    def packet_out(self, *_: object) -> None:
        self._clock.now_s += TURN_S / 5
        self.frames += 1


async def test_many_streams_at_once_take_turns(make_world, monkeypatch):
    world = await make_world(router_config(1))
    clock = Clock()
    monkeypatch.setattr(loop_share, "time", clock)
    work, share = Work(clock), LoopShare()
    message = pb.PacketOuts(packets=[FRAME]).SerializeToString()

    async def requests() -> AsyncIterator[bytes]:
        for _ in range(5):
            await asyncio.sleep(0)
            yield message

    tasks = [
        asyncio.create_task(take_packets(world.router(), requests(), work, EventLog(), share)) for _ in range(100)
    ]
    longest, before = 0.0, clock.now_s
    while not all(task.done() for task in tasks):
        await asyncio.sleep(0)
        longest, before = max(longest, clock.now_s - before), clock.now_s
    assert work.frames == 500
    assert longest <= 4 * TURN_S  # without turns 100 frames of a fifth each would be one


@pytest.mark.parametrize(
    ("octets", "reason"),
    [
        (b"\x0a\x00" * (MAX_FRAMES_PER_MESSAGE + 1), f"more than {MAX_FRAMES_PER_MESSAGE} frames"),
        (b"\x78\x01" * (MAX_MESSAGE_BYTES // 2), f"{MAX_MESSAGE_BYTES} octets that are no PacketOuts"),
        (b"\x0a\x80\x80\x04" + b"\x78\x01" * (1 << 15), "a frame of more than 16383 octets"),
        (b"\x0a\xff\x7f" + bytes((1 << 14) - 1), "a frame of 16383 octets"),
        (b"\xff" * 20, "20 octets that are no PacketOuts"),
        (b"\x0b\x0c", "2 octets that are no PacketOuts"),
        (b"\x0a\x00\x0a", "3 octets that are no PacketOuts"),
        (b"\x0a", "1 octets that are no PacketOuts"),
    ],
)
def test_what_would_be_costly_to_decode_is_not_decoded(octets, reason, monkeypatch):
    decoded: list[object] = []
    monkeypatch.setattr(packet_stream, "decode", lambda *given: decoded.append(given))
    with pytest.raises(SessionRefused, match=reason):
        decode_frames(octets)
    assert not decoded


def test_what_a_vrc_says_is_decoded():
    message = pb.PacketOuts(packets=[FRAME] * MAX_FRAMES_PER_MESSAGE)
    assert decode_frames(message.SerializeToString()) == message
    longest = pb.PacketOuts(packets=[pb.PacketOut(interface_id=1 << 31, frame=bytes(MAX_FRAME_BYTES))])
    assert decode_frames(longest.SerializeToString()) == longest
    for count in range(3):
        few = pb.PacketOuts(packets=[pb.PacketOut()] * count)
        assert decode_frames(few.SerializeToString()) == few
    with pytest.raises(SessionRefused, match="4 octets that are no PacketOuts"):
        decode_frames(b"\x0a\x05ab")
    later = FRAME.SerializeToString() + b"\x18\x01\x25abcd\x29abcdefgh\x32\x01x"  # fields of a later version
    assert decode_frames(b"\x0a" + bytes((len(later),)) + later).packets[0].frame == FRAME.frame


async def test_half_a_million_empty_frames_are_refused_by_name(service, red):
    await red.begin()
    call = red.channel.stream_stream("/splitplane.v1.VrcSession/Packets")()
    await call.write(b"\x0a\x00" * (MAX_MESSAGE_BYTES // 2))
    assert f"more than {MAX_FRAMES_PER_MESSAGE} frames in one message" in await end_of(call)
