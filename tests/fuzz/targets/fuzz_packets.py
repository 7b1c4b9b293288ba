"""Frames that guests send and that hosts have punted: their connection, and what answers for a guest that is away.

input: one octet, even for what a guest sends after its ticket, odd for a frame that the plane punts with that reason.
"""

from contextlib import suppress

import fuzz_session

from controller.planes.base import PuntReason
from wire.frames import BadFrame, FrameReader, pack_frame

INSTRUMENTED = ("controller.shard", "controller.planes.packet", "wire.frames")

_REASONS = list(PuntReason)
_PIECE = 64
_world: list[fuzz_session.World] = []


def try_one(octets: bytes) -> None:
    """Send, or be punted; what is no frame is refused by `BadFrame`, and nothing else is raised."""
    if not _world:
        _world.append(fuzz_session.World())
    world = _world[0]
    if not octets:
        return
    if octets[0] & 1:
        reason = _REASONS[(octets[0] >> 1) % len(_REASONS)]
        world.loop.run_until_complete(_punted(world, reason, octets[1:]))
        return
    reader = FrameReader()
    with suppress(BadFrame):
        for start in range(1, len(octets), _PIECE):
            reader.feed(octets[start : start + _PIECE])
            for interface_id, _, frame in reader.frames(len(octets)):
                world.shards.packet_out(world.router, interface_id, frame)


async def _punted(world: fuzz_session.World, reason: PuntReason, frame: bytes) -> None:
    world.shards.by_plane["s"].packet_in(1, reason, frame)


def seeds() -> list[bytes]:
    """An ARP request, a neighbor solicitation, a tagged frame, and packet-outs."""
    mac, own = b"\2\0\0\0\1\1", b"\2\0\0\0\0\1"
    arp = b"\xff" * 6 + mac + b"\x08\x06\0\1\x08\0\6\4\0\1" + mac + b"\xc0\0\2\2" + bytes(6) + b"\xc0\0\2\1"
    head = b"\x60\0\0\0\0\x20\x3a\xff" + b"\xfe\x80" + bytes(13) + b"\2" + b"\xff\2" + bytes(9) + b"\1\xff\0\0\1"
    solicit = b"\x33\x33\xff\0\0\1" + mac + b"\x86\xdd" + head + b"\x87\0\0\0\0\0\0\0\xfd" + bytes(15) + b"\1\1" + mac
    outs = pack_frame(1, arp[:6] + own + arp[12:])
    reasons = [2 * number + 1 for number in range(len(_REASONS))]
    return [*(bytes((one,)) + frame for one in reasons for frame in (arp, solicit)), b"\0" + outs]
