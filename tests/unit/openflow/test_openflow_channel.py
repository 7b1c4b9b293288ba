"""One connection: greeting, keepalive, replies, errors by transaction id, and everything a bad switch can send."""

import asyncio
import struct
import time

import pytest
from switch_end import DATAPATH_ID, connected, plain

from controller.planes.openflow.channel import LISTINGS, Channel, ChannelClosed, RequestRefused
from controller.planes.openflow.codec import Multipart, Type, message


async def closed(channel: Channel) -> str:
    """Return why a channel ends, which it does soon."""
    async with asyncio.timeout(30):
        with pytest.raises(ChannelClosed) as caught:
            await channel.request(Type.ECHO_REQUEST)
    return str(caught.value)


def hello(version: int, *versions: int) -> bytes:
    bitmap = struct.pack("!HHI", 1, 8, sum(1 << each for each in versions)) if versions else b""
    return struct.pack("!BBHI", version, Type.HELLO, 8 + len(bitmap), 1) + bitmap


@pytest.mark.parametrize("greeting", [hello(4), hello(6), hello(6, 1, 4, 6)])
async def test_a_greeting_leads_to_features(greeting: bytes) -> None:
    async with connected(identified=False) as (channel, switch):
        switch.send(greeting)
        assert (await channel.greet(5)).datapath_id == DATAPATH_ID


@pytest.mark.parametrize("greeting", [hello(1), hello(3), hello(6, 1, 6)])
async def test_a_switch_without_1_3_is_told_so(greeting: bytes) -> None:
    async with connected(identified=False) as (channel, switch):
        switch.send(greeting)
        with pytest.raises(ChannelClosed, match=r"does not speak OpenFlow 1\.3"):
            await channel.greet(5)


async def test_a_switch_that_says_nothing_is_not_waited_for() -> None:
    async with connected(identified=False) as (channel, switch):
        switch.silent = True
        with pytest.raises(ChannelClosed, match=r"no OpenFlow greeting within 0\.02 s"):
            await channel.greet(0.02)


async def test_features_of_the_wrong_length_end_the_connection() -> None:
    async with connected(identified=False) as (channel, switch):
        switch.features = b"\0" * 20
        switch.send(hello(4))
        with pytest.raises(ChannelClosed, match="features reply has the wrong length"):
            await channel.greet(5)


async def test_echo_is_answered_and_asked() -> None:
    async with connected(echo_s=0.005) as (channel, switch):
        switch.send(message(Type.ECHO_REQUEST, 77, b"ping"))
        assert await channel.answers(5)
        while (Type.ECHO_REPLY, 77, b"ping") not in switch.received:
            await channel.request(Type.ECHO_REQUEST)


async def test_a_silent_switch_is_given_up() -> None:
    async with connected(echo_s=0.01, dead_s=0.03) as (channel, switch):
        switch.silent = True
        assert (await closed(channel)).startswith("no answer for")


async def test_a_switch_that_answers_nothing_but_echoes_is_given_up() -> None:
    async with connected(echo_s=0.01, dead_s=5, stalled_s=0.05) as (channel, switch):
        switch.deaf.add(Type.BARRIER_REQUEST)
        with pytest.raises(ChannelClosed, match=r"^it answers echoes, and none of 1 requests for 0.06 s$"):
            await channel.barrier()


async def test_a_switch_without_a_request_is_not_given_up() -> None:
    async with connected(echo_s=0.005, dead_s=5, stalled_s=0.01) as (channel, switch):
        await switch.until(Type.ECHO_REQUEST, 8)
        assert channel.closed is None


async def test_a_switch_is_not_given_up_because_this_process_was_held_up() -> None:
    async with connected(echo_s=0.01, dead_s=0.03) as (channel, _):
        assert await channel.answers(5)
        time.sleep(0.06)  # noqa: ASYNC251 - that is what is tried: nobody asks the switch meanwhile
        assert await channel.answers(5)
        assert channel.closed is None


async def test_errors_go_to_the_message_they_are_about() -> None:
    async with connected() as (channel, switch):
        switch.refuse = lambda kind, body: (5, 1) if body == b"bad" else None
        watch = channel.watch(3)
        for position, body in enumerate((b"good", b"bad", b"good")):
            channel.send(message(Type.FLOW_MOD, watch.first + position, body))
        await channel.barrier()
        assert {position: error.full for position, error in watch.errors.items()} == {1: True}
        channel.unwatch(watch)
        with pytest.raises(RequestRefused, match="OFPFMFC_TABLE_FULL"):
            await channel.request(Type.ECHO_REQUEST, b"bad")
        channel.send(message(Type.FLOW_MOD, channel.take_xids(), b"bad"))
        await channel.barrier()
        assert channel.stray_errors == 1


async def test_a_list_comes_in_parts() -> None:
    async with connected() as (channel, switch):
        switch.silent = True
        parts: list[bytes] = []
        listing = asyncio.create_task(channel.list(Multipart.PORT_DESC, b"", parts.append))
        await switch.until(Type.MULTIPART_REQUEST)
        xid = switch.received[0][1]
        for flags, body in ((1, b"one"), (1, b"two"), (0, b"three")):
            switch.send(message(Type.MULTIPART_REPLY, xid, struct.pack("!HH4x", Multipart.PORT_DESC, flags) + body))
        await listing
        assert parts == [b"one", b"two", b"three"]


def listing(channel: Channel) -> "asyncio.Task[None]":
    return asyncio.create_task(channel.list(Multipart.FLOW, b"", lambda body: None))


async def test_more_lists_than_may_be_under_way_wait_their_turn() -> None:
    async with connected() as (channel, switch):
        switch.silent = True
        lists = [listing(channel) for _ in range(3 * LISTINGS)]
        await switch.until(Type.MULTIPART_REQUEST, LISTINGS)
        for _ in range(50):
            await asyncio.sleep(0)
        assert len(switch.sent(Type.MULTIPART_REQUEST)) == LISTINGS
        switch.silent = False
        for kind, xid, body in list(switch.received):
            switch.answer(kind, xid, body)
        await asyncio.gather(*lists)
        assert len(switch.sent(Type.MULTIPART_REQUEST)) == len(lists)


async def test_whoever_waits_is_told_that_the_connection_ended() -> None:
    async with connected() as (channel, switch):
        switch.silent = True
        waiting = channel.barrier(), *(listing(channel) for _ in range(3 * LISTINGS))
        await switch.until(Type.MULTIPART_REQUEST, LISTINGS)
        switch.writer.close()
        for each in waiting:
            with pytest.raises(ChannelClosed, match="connection lost"):
                await each


MALFORMED = {
    "length": struct.pack("!BBHI", 4, Type.ECHO_REPLY, 7, 1),
    "version": struct.pack("!BBHI", 1, Type.ECHO_REPLY, 8, 1),
    "error": message(Type.ERROR, 1, b"\0\5"),
    "packet-in": message(Type.PACKET_IN, 1, b"\0" * 21),
    "multipart": message(Type.MULTIPART_REPLY, 1, b"\0\1"),
}


@pytest.mark.parametrize("octets", MALFORMED.values(), ids=MALFORMED)
async def test_a_malformed_message_ends_the_connection_by_name(octets: bytes) -> None:
    async with connected() as (channel, switch):
        switch.send(octets)
        assert (await closed(channel)).startswith("malformed message: ")


async def test_a_switch_that_floods_and_does_not_read_is_cut_off() -> None:
    async with connected() as (channel, _):
        flood = bytes(64 << 20)
        channel.send(flood)
        with pytest.raises(ChannelClosed, match="does not read"):
            channel.send(flood)


async def test_a_switch_that_is_left_has_a_moment_to_read_what_is_unsent() -> None:
    near, far = await plain()
    channel = Channel(*near, echo_interval_s=0.01)
    channel.send(bytes(16 << 20))
    channel.close("it is not wanted any more")
    async with asyncio.timeout(30):
        await near[1].wait_closed()
    far[1].close()


@pytest.mark.parametrize("tls", [False, True])
async def test_packet_outs_are_held_up_only_where_whoever_drains_waits(tls: bool) -> None:
    async with connected(tls=tls) as (channel, switch):
        while not channel._packet_outs._held_up:
            channel.send(message(Type.FLOW_MOD, channel.take_xids(), bytes(10_000)))
        draining = asyncio.create_task(channel.drain())
        await asyncio.sleep(0)
        assert not draining.done()
        assert channel.send_packet(7, message(Type.PACKET_OUT, channel.take_xids()))
        await switch.until(Type.PACKET_OUT)
        await draining
