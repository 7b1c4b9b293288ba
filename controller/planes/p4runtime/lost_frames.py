"""Frames that a device's ports lost outside of the pipeline, as vr-forwarder tells them.

forwarder/server/port_losses.h:

    ExternEntry{0x81, 0x81000003, P4Data: struct{port, place, loss, frames}}

Place and loss are text: what the kernel did not send, by its reasons, and what the network device says itself, by the
names of its counters, which are its driver's.
"""

import re

from finsy.proto import p4d, p4r
from google.protobuf.message import DecodeError

from controller.planes.base import LostFrames
from controller.planes.p4runtime.channel import Channel, ChannelClosed, RequestRefused, decoded
from controller.planes.p4runtime.lost_punts import EXTERN_TYPE
from controller.planes.p4runtime.messages import entities_of

EXTERN_ID = 0x81000003
_NUMBER_OCTETS = 8
_PLACES = {b"egress": "egress", b"device": "device"}
_NAME = re.compile(rb"[!-~]{1,32}")  # ETH_GSTRING_LEN

MAX_LOSSES = 65_536
"""Of all ports: a driver has some dozens of counters for each."""


async def read_lost_frames(channel: Channel) -> LostFrames:
    """Read them by port; nothing from a device that does not tell. ChannelClosed for what is no answer."""
    wanted = p4r.Entity(extern_entry=p4r.ExternEntry(extern_type_id=EXTERN_TYPE, extern_id=EXTERN_ID))
    lost: LostFrames = {}
    try:
        async for response in channel.read([wanted]):
            for octets in entities_of(response):
                take(lost, octets)
    except RequestRefused:
        return {}
    return lost


def take(lost: LostFrames, octets: bytes) -> None:
    """Add what one entity of an answer tells; a place that nobody knows, and a name that no counter can have, are
    left out."""
    port, place, name, frames = _members(decoded(p4r.Entity, octets))
    if place in _PLACES and _NAME.fullmatch(name):
        lost[port, _PLACES[place], name.decode("ascii")] = frames
    if len(lost) > MAX_LOSSES:
        raise ChannelClosed(f"the device tells more than {MAX_LOSSES} losses of its ports")


def _members(entity: p4r.Entity) -> tuple[int, bytes, bytes, int]:
    data = p4d.P4Data()
    try:
        told = entity.extern_entry.entry.Unpack(data)
    except DecodeError as error:
        raise ChannelClosed(f"the device answered a read of lost frames with {error}") from error
    members = [member.bitstring for member in data.struct.members]
    if not told or len(members) != 4 or max(len(members[0]), len(members[3])) > _NUMBER_OCTETS:
        raise ChannelClosed("the device answered a read of lost frames with something else")
    port, place, name, frames = members
    return int.from_bytes(port, "big"), place, name, int.from_bytes(frames, "big")
