"""What a VRC's Packets stream says: messages of a few frames, looked at before they are decoded, in turns.

A message is decoded only where it is no more than so many frames of a bounded length: protobuf takes a quarter of a
second for the half a million empty ones that fit in 1 MiB. All streams together have the event loop for one turn at a
time, which is not that of the Control streams: a frame does not wait behind route work. What frames cost is charged
to their router in both.
"""

from collections.abc import AsyncIterator
from typing import Any

from controller.errors import SessionRefused
from controller.events.log import EventLog
from controller.sessions.control_stream import decode
from controller.shard.loop_share import LoopShare
from controller.shard.router import VirtualRouter
from controller.shard.shards import Shards
from wire import MAX_FRAME_BYTES, MAX_FRAMES_PER_MESSAGE, splitplane_pb2

_FRAME_TAG = 0x0A  # field 1, which has a length: protobuf.dev/programming-guides/encoding

MAX_ENCODED_BYTES = MAX_FRAME_BYTES + 32
"""Of one frame with its interface."""


async def take_packets(
    router: VirtualRouter, requests: AsyncIterator[bytes], shards: Shards, events: EventLog, share: LoopShare
) -> None:
    """Send the frames of a stream to the plane, in the turns of ``share``. SessionRefused where a message is none."""
    name, route_share = router.config.full_name, shards.loop_share
    account, of_routes = share.account(router.config), route_share.account(router.config)
    async for octets in requests:
        await share.turn(account)
        what = f"frames of {len(octets)} octets"
        with share.slice(account, what), route_share.slice(of_routes, what):
            for packet in decode_frames(octets).packets:
                reason = shards.packet_out(router, packet.interface_id, packet.frame)
                if reason is not None:
                    text = f"{reason} on interface {packet.interface_id}, {len(packet.frame)} octets"
                    events.report("error", "packet-out-refused", name, text, share=f"packet-out {reason}")


def decode_frames(octets: bytes) -> Any:
    """Return a message of frames; SessionRefused where it is none, or has too many or too long ones."""
    position, size = 0, len(octets)
    frames = 0
    while position < size:
        frames += 1
        if frames > MAX_FRAMES_PER_MESSAGE:
            raise SessionRefused(f"more than {MAX_FRAMES_PER_MESSAGE} frames in one message of the Packets stream")
        if octets[position] != _FRAME_TAG or position + 2 >= size:
            break  # none, or one that ends with an empty frame
        length = octets[position + 1]
        position += 2
        if length & 128:
            if octets[position] & 128:
                raise SessionRefused(f"a frame of more than {(1 << 14) - 1} octets in the Packets stream")
            length = length & 127 | octets[position] << 7
            position += 1
            if length > MAX_ENCODED_BYTES:
                raise SessionRefused(f"a frame of {length} octets in the Packets stream")
        position += length
    if position < size and octets[position:] != b"\x0a\x00":
        raise SessionRefused(f"{size} octets that are no PacketOuts")
    return decode(splitplane_pb2.PacketOuts, octets)
