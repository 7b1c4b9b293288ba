"""Connections of frames: their ticket, what they cost, and that they give way to each other."""

import asyncio

import pytest
from peers import Frames, Peer, refusals
from worlds import mac

from controller.events.token_bucket import TokenBucket
from controller.planes.base import PuntReason
from controller.sessions import frame_connection
from controller.sessions import server as sessions
from controller.shard import loop_share
from controller.shard.loop_share import TURN_S
from controller.shard.punt_relay import TURN_FRAMES
from wire import MAX_FRAME_BYTES
from wire.frames import MAGIC, TICKET_BYTES, pack_frame

FRAME = bytes(6) + mac(1) + b"\x08\x00" + bytes(46)


class Clock:
    now_s = 0.0

    def perf_counter(self) -> float:
        return self.now_s

    thread_time = perf_counter


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "REFUSAL_PAUSE_S", 0.0)


async def test_frames_go_both_ways(service, red):
    world, _, _ = service
    await red.begin()
    await world.settle()
    frames = await red.frames()
    await frames.send((1, FRAME))
    await world.until(lambda: world.plane.packets_out)
    world.plane.punt(1, PuntReason.LOCAL, b"for red")
    assert await frames.read() == [(1, PuntReason.LOCAL, b"for red")]
    assert world.router().punts.counters["from_guest"] == world.router().punts.counters["to_guest"] == 1


@pytest.mark.parametrize("ticket", [bytes(TICKET_BYTES), "another's", "an earlier one"])
async def test_a_connection_without_the_ticket_of_its_session_is_refused(service, red, ticket):
    world, server, pki = service
    earlier = (await red.begin()).frame_ticket
    if ticket == "an earlier one":
        other, ticket = Peer(server, pki.identity(1), 1), earlier
        await other.begin()
    else:
        other = Peer(server, pki.identity(2), 2)
        await other.begin("blue/r2")
        ticket = other.declared.frame_ticket if ticket == "another's" else ticket
    connection = await Frames.open(red.path, ticket)
    await connection.send((1, FRAME))
    await connection.ended()
    assert not world.plane.packets_out
    assert "a connection of frames without the ticket of its session" in refusals(world)
    assert world.router().punts.counters["streams_refused"] == 1
    await other.channel.close()


async def test_what_is_no_preface_is_refused(service, red):
    world, _, _ = service
    await red.begin()
    reader, writer = await asyncio.open_unix_connection(str(red.path))
    writer.write(MAGIC[:1] + bytes(len(MAGIC) + TICKET_BYTES))
    assert await reader.read() == b""
    writer.close()
    assert "a connection that begins neither with TLS nor as one of frames" in refusals(world)


async def test_half_a_preface_gives_its_place_up(service, red, monkeypatch):
    monkeypatch.setattr(frame_connection, "SILENT_S", 0.01)
    await red.begin()
    connection = await Frames.open(red.path, b"")
    await connection.ended()


async def test_the_latest_connection_counts_and_ends_with_its_session(service, red):
    world, _, _ = service
    await red.begin()
    await world.settle()
    first, second = await red.frames(), await red.frames()
    await first.ended()
    world.plane.punt(1, PuntReason.LOCAL, b"for red")
    assert await second.read() == [(1, PuntReason.LOCAL, b"for red")]
    red.control.cancel()
    await second.ended()


async def test_a_frame_that_is_too_long_ends_the_connection_after_what_came_before(service, red):
    world, _, _ = service
    await red.begin()
    await world.settle()
    frames = await red.frames()
    await frames.send((1, FRAME), (1, bytes(MAX_FRAME_BYTES + 1)))
    await frames.ended()
    reason = f"a frame of {MAX_FRAME_BYTES + 1} octets; at most {MAX_FRAME_BYTES} are taken"
    assert reason in refusals(world)
    assert [sent for _, sent in world.plane.packets_out] == [FRAME]


async def test_who_reads_slowly_gets_the_most_urgent_first(service, red):
    world, _, _ = service
    await red.begin()
    frames = await red.frames()
    await world.until(lambda: 1 in service[1]._frames)
    counters = world.router().punts.counters
    number = 0
    while not counters["drop_queue_full_ttl"]:
        world.plane.punt(1, PuntReason.TTL_EXPIRED, number.to_bytes(2, "big") + bytes(1400))
        number += 1
        assert number < 10_000
    world.plane.punt(1, PuntReason.CONTROL, b"hello")
    waiting = number - 1 - counters["to_guest"]
    taken = await frames.read(number)
    before = [frame for _, _, frame in taken].index(b"hello")
    assert before <= len(taken) - waiting + TURN_FRAMES
    assert counters["to_guest"] == number


async def test_many_at_once_take_turns(service, red, monkeypatch):
    """A hundred pieces of frames that take a fifth of a turn each: without turns they would be one."""
    world, server, _ = service
    await red.begin()
    await world.settle()
    clock = Clock()
    monkeypatch.setattr(loop_share, "time", clock)
    sent = 0

    def packet_out(*_: object) -> None:
        nonlocal sent
        clock.now_s += TURN_S / 5
        sent += 1

    monkeypatch.setattr(server._shards, "packet_out", packet_out)
    connection = await red.frames()
    await connection.send(*[(1, FRAME)] * 500)
    longest, before = 0.0, clock.now_s
    async with asyncio.timeout(10):
        while sent < 500:
            await asyncio.sleep(0)
            longest, before = max(longest, clock.now_s - before), clock.now_s
    assert longest <= 2 * TURN_FRAMES * TURN_S / 5


async def test_who_sends_more_than_it_may_is_read_no_faster(service, red, monkeypatch):
    """Two hundred frames at once, at a rate of a thousand a second: all but a few wait instead of being refused."""
    world, _, _ = service
    await red.begin()
    await world.settle()
    monkeypatch.setattr(world.router().punts, "_sending", TokenBucket(1000, TURN_FRAMES))
    connection = await red.frames()
    await connection.send(*[(1, FRAME)] * 200)
    counters = world.router().punts.counters
    await world.until(lambda: counters["from_guest"] + counters["refused_packet_out_rate"] == 200)
    assert counters["refused_packet_out_rate"] <= 100


async def test_a_cut_frame_is_put_together(service, red):
    world, _, _ = service
    await red.begin()
    await world.settle()
    connection = await red.frames()
    for octet in pack_frame(1, FRAME):
        connection.writer.write(bytes((octet,)))
        await connection.writer.drain()
    await world.until(lambda: world.plane.packets_out)
    assert [sent for _, sent in world.plane.packets_out] == [FRAME]
