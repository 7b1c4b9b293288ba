"""Frames that guests send and that hosts have punted: their connection, and what answers for a guest that is away.

input: one octet, even for what a guest sends after its ticket, odd for a frame that the plane punts with that reason.
"""

from contextlib import suppress

import fuzz_session

from controller.events.token_bucket import TokenBucket
from controller.planes.base import PuntReason, RouterInterface
from wire.frames import BadFrame, FrameReader, pack_frame

INSTRUMENTED = ("controller.shard", "controller.planes.packet", "wire.frames")

_REASONS = list(PuntReason)
_PIECE = 64
_MTU, _ETHERNET = 1500, 14
_TAGGED = (b"\x81\x00", b"\x88\xa8", b"\x91\x00")
_RESERVED = bytes.fromhex("0180c20000")  # and an octet of 0x00 to 0x0f or 0x20 to 0x2f: IEEE 802.1Q, tables 8-1, 10-1
_OF_CISCOS_BRIDGES = (bytes.fromhex("01000ccccccc"), bytes.fromhex("01000ccccccd"))
_MAC_CONTROL = b"\x88\x08"


class World(fuzz_session.World):
    """A router that may send as much as it likes, and what its plane was given."""

    def __init__(self) -> None:
        super().__init__()
        self.left: list[tuple[RouterInterface, bytes]] = []
        self.router.punts._sending = TokenBucket(1e12, 1e12)
        self.loop.run_until_complete(self.shards.converged(1))
        self.shards.by_plane["s"].plane.packet_out = self._packet_out  # type: ignore[method-assign]

    def _packet_out(self, interface: RouterInterface, frame: bytes) -> bool:
        self.left.append((interface, frame))
        return True


_world: list[World] = []


def try_one(octets: bytes) -> None:
    """Send, or be punted; what is no frame is refused by `BadFrame`, and nothing else is raised."""
    if not _world:
        _world.append(World())
    world = _world[0]
    if not octets:
        return
    world.left.clear()
    if octets[0] & 1:
        reason = _REASONS[(octets[0] >> 1) % len(_REASONS)]
        world.loop.run_until_complete(_punted(world, reason, octets[1:]))
        for interface, frame in world.left:  # an answer for a guest that is away
            assert (interface.id, frame[6:12]) == (1, interface.mac), frame
        return
    reader = FrameReader()
    with suppress(BadFrame):
        for start in range(1, len(octets), _PIECE):
            reader.feed(octets[start : start + _PIECE])
            for interface_id, _, frame in reader.frames(len(octets)):
                _send(world, interface_id, frame)


def _send(world: World, interface_id: int, frame: bytes) -> None:
    """Send a frame: it leaves by its own interface as it is, or is refused under one count."""
    counters = world.router.punts.counters
    before = dict(counters)
    reason = world.shards.packet_out(world.router, interface_id, frame)
    grown = {name: more for name, count in counters.items() if (more := count - before.get(name, 0))}
    if reason is not None:
        assert (grown, world.left) == ({f"refused_{reason}": 1}, []), (reason, grown)
        assert not _may_leave(interface_id, frame), reason
        return
    assert grown == {"from_guest": 1}, grown
    [(interface, left)] = world.left
    world.left.clear()
    assert (interface.id, left) == (interface_id, frame)
    assert _may_leave(interface_id, frame), frame


def _may_leave(interface_id: int, frame: bytes) -> bool:
    """Tell by the rules of ARCHITECTURE.md, "The way of a packet", what leaves."""
    if interface_id not in fuzz_session.INTERFACES or not _ETHERNET <= len(frame) <= _MTU + _ETHERNET:
        return False
    is_own = frame[6:12] == bytes((2, 0, 0, 0, 0, interface_id))
    is_of_bridges = (frame[:5] == _RESERVED and frame[5] >> 4 in (0, 2)) or frame[:6] in _OF_CISCOS_BRIDGES
    return is_own and frame[12:14] not in (*_TAGGED, _MAC_CONTROL) and not is_of_bridges


async def _punted(world: World, reason: PuntReason, frame: bytes) -> None:
    world.shards.by_plane["s"].packet_in(1, reason, frame)


def seeds() -> list[bytes]:
    """An ARP request, a neighbor solicitation, a tagged frame, and packet-outs."""
    mac, own = b"\2\0\0\0\1\1", b"\2\0\0\0\0\1"
    arp = b"\xff" * 6 + mac + b"\x08\x06\0\1\x08\0\6\4\0\1" + mac + b"\xc0\0\2\2" + bytes(6) + b"\xc0\0\2\1"
    head = b"\x60\0\0\0\0\x20\x3a\xff" + b"\xfe\x80" + bytes(13) + b"\2" + b"\xff\2" + bytes(9) + b"\1\xff\0\0\1"
    solicit = b"\x33\x33\xff\0\0\1" + mac + b"\x86\xdd" + head + b"\x87\0\0\0\0\0\0\0\xfd" + bytes(15) + b"\1\1" + mac
    ends = [arp[:6], *(_RESERVED + bytes((last,)) for last in (0x0F, 0x14, 0x21)), *_OF_CISCOS_BRIDGES]
    outs = [pack_frame(1, end + own + arp[12:]) for end in ends] + [
        pack_frame(1, mac + own + _MAC_CONTROL + arp[14:])
    ]
    reasons = [2 * number + 1 for number in range(len(_REASONS))]
    return [*(bytes((one,)) + frame for one in reasons for frame in (arp, solicit)), *(b"\0" + one for one in outs)]
