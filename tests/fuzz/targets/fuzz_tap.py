"""Frames between a guest's TAPs and its session: what daemons and hosts make of them, and what the controller sends.

input: one octet, even for frames that TAPs say, odd for octets of the connection of frames; of the former, then,
(an octet for the TAP and for how the other end reads, two of length, frame)….
"""

import asyncio
import logging
import socket
from collections import Counter
from collections.abc import Iterator
from typing import Any

from vrc.packets import FrameLink, PacketRelay
from wire import MAX_FRAME_BYTES
from wire.frames import MAGIC, TICKET_BYTES, FrameReader, pack_frame

INSTRUMENTED = ("vrc.packets", "wire.frames")
_MIN_FRAME_BYTES = 14
_INTERFACES = (101, 7)
_MOST_PIECES = 64


class _Transport(asyncio.Transport):
    """What a link writes; it takes no more while it is told so."""

    def __init__(self) -> None:
        super().__init__()
        self.written = bytearray()
        self.aborted = False

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def write(self, data: Any) -> None:
        self.written += data

    def abort(self) -> None:
        self.aborted = True


class World:
    """A relay with two TAPs, for which pairs of sockets stand: they keep frames apart, as TAPs do."""

    def __init__(self) -> None:
        logging.disable()
        self.loop = asyncio.new_event_loop()
        self.loop.run_until_complete(self._start())

    async def _start(self) -> None:
        self.relay = PacketRelay()
        self.kernel, ours = {}, []
        for interface_id in _INTERFACES:
            kernel, tap = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK)
            self.kernel[interface_id] = kernel
            self.relay.attach(tap.fileno(), interface_id)
            ours.append(tap)
        self._ours = ours

    async def outbound(self, octets: bytes) -> None:
        """Have TAPs say frames: each is sent once, as it was, or lost under one name."""
        relay, lost, sent = self.relay, Counter(self.relay.lost), self.relay.sent
        link, transport = FrameLink(relay, bytes(TICKET_BYTES)), _Transport()
        link.connection_made(transport)
        said: list[tuple[int, bytes]] = []
        for choice, frame in _split(octets):
            interface_id = _INTERFACES[choice & 1]
            self.kernel[interface_id].send(frame)
            relay._readable(relay._by_fd[relay._by_id[interface_id]])
            said.append((interface_id, frame))
            if choice & 2:
                link.pause_writing()
            elif not link.writable:
                link.resume_writing()
        if not link.writable:
            link.resume_writing()
        whole = [one for one in said if _MIN_FRAME_BYTES <= len(one[1]) <= MAX_FRAME_BYTES]
        assert transport.written[: len(MAGIC) + TICKET_BYTES] == MAGIC + bytes(TICKET_BYTES)
        arrived = _read(bytes(transport.written[len(MAGIC) + TICKET_BYTES :]))
        assert arrived == whole, "a frame as it was, and in its order"
        assert relay.sent == sent + len(whole)
        gone = relay.lost - lost
        assert gone == Counter(frame_size=len(said) - len(whole)), gone
        link.connection_lost(None)
        await link.lost

    async def inbound(self, octets: bytes) -> None:
        """Hear the controller: each frame reaches its TAP, as it was, or is lost under one name."""
        relay, lost, received = self.relay, Counter(self.relay.lost), self.relay.received
        link, transport = FrameLink(relay, b""), _Transport()
        link.connection_made(transport)
        for piece in _pieces(octets):
            link.data_received(piece)
            if transport.aborted:
                break
        there = {one: _drained(self.kernel[one]) for one in _INTERFACES}
        expected, ends = _expected(octets)
        assert transport.aborted == ends, "what cannot be a frame ends the connection, and nothing else does"
        for interface_id, frames in there.items():
            known = [frame for one, frame in expected if one == interface_id and _is_taken(frame)]
            assert frames == known, "a frame as it was"
        assert relay.received - received == sum(map(len, there.values()))
        gone = relay.lost - lost
        assert gone.total() == len(expected) - (relay.received - received), gone
        assert gone.keys() <= {"unknown_interface", "frame_size"}, gone
        link.connection_lost(None)
        await link.lost


def _is_taken(frame: bytes) -> bool:
    return _MIN_FRAME_BYTES <= len(frame) <= MAX_FRAME_BYTES


def _drained(tap: socket.socket) -> list[bytes]:
    found = []
    try:
        while True:
            found.append(tap.recv(MAX_FRAME_BYTES + 1))
    except BlockingIOError:
        return found


def _split(octets: bytes) -> list[tuple[int, bytes]]:
    """Return the frames of an input; an empty one is none, for a TAP."""
    found, at = [], 0
    while at + 3 < len(octets):
        size = int.from_bytes(octets[at + 1 : at + 3], "big") % (MAX_FRAME_BYTES + 2)
        if frame := octets[at + 3 : at + 3 + size]:
            # A frame longer than any input is made of this one, again and again.
            found.append((octets[at], (frame * (size // len(frame) + 1))[:size]))
        at += 3 + size
    return found


def _pieces(octets: bytes) -> Iterator[bytes]:
    """Cut a stream anywhere: into small pieces, as far as those are not too many."""
    size = max(len(octets) % 61 + 1, len(octets) // _MOST_PIECES)
    return (octets[start : start + size] for start in range(0, len(octets), size))


def _read(octets: bytes) -> list[tuple[int, bytes]]:
    """Read what a link has written, in pieces, as the controller does."""
    reader, found = FrameReader(), []
    for piece in _pieces(octets):
        reader.feed(piece)
        found += [(interface_id, frame) for interface_id, _, frame in reader.frames(len(octets))]
    assert not len(reader), "whole frames"
    return found


def _expected(octets: bytes) -> tuple[list[tuple[int, bytes]], bool]:
    """Return the frames of a stream by the words of wire/frames.py alone, and whether it ends in what is none."""
    found, at = [], 0
    while at + 8 <= len(octets):
        size = int.from_bytes(octets[at : at + 2], "big")
        if size > MAX_FRAME_BYTES:
            return found, True
        if at + 8 + size > len(octets):
            break
        found.append((int.from_bytes(octets[at + 4 : at + 8], "big"), octets[at + 8 : at + 8 + size]))
        at += 8 + size
    return found, False


_world: list[World] = []


def try_one(octets: bytes) -> None:
    """Let frames pass one way; nothing is raised."""
    if not octets:
        return
    if not _world:
        _world.append(World())
    world = _world[0]
    work = world.inbound if octets[0] & 1 else world.outbound
    world.loop.run_until_complete(work(octets[1:]))


def seeds() -> list[bytes]:
    """A few frames each way: whole, short, too long, of unknown interfaces; a connection that waits."""
    frame = bytes(range(60))
    said = b"".join(bytes((choice, 0, len(one))) + one for choice, one in ((0, frame), (3, frame), (1, b"short")))
    long = b"\0" + (MAX_FRAME_BYTES + 1).to_bytes(2, "big") + frame
    told = ((101, 1, frame), (7, 8, frame), (9, 3, frame), (101, 2, b""), (7, 2, b"short"))
    heard = b"".join(pack_frame(interface_id, one, reason) for interface_id, reason, one in told)
    bad = (MAX_FRAME_BYTES + 1).to_bytes(2, "big") + bytes(6)
    return [b"\0" + said, b"\0" + long, b"\0" + said + long, b"\1" + heard, b"\1" + heard + bad, b"\1" + heard[:-2]]
