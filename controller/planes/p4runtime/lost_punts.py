"""Punts that a device lost on their way to the controller, as vr-forwarder tells them.

forwarder/server/punt_drops.h:

    ExternEntry{0x81, 0x81000001, P4Data: struct{router interface, place, class, packets}}

The pipeline has no such extern: only a device that says what it does beyond the pipeline answers. It is one that
divides its policers among the interfaces of a router, too, for that is what it counts by.
"""

from finsy.proto import p4d, p4r
from google.protobuf.message import DecodeError

from controller.planes.base import LostPunts, PuntClass, PuntPlace
from controller.planes.p4runtime.channel import Channel, ChannelClosed, RequestRefused, decoded
from controller.planes.p4runtime.messages import entities_of

EXTERN_TYPE, EXTERN_ID = 0x81, 0x81000001
_NUMBER_OCTETS = 8

PLACES = (PuntPlace.POLICER, PuntPlace.RING, PuntPlace.OUTBOX)
"""By the number that a device gives them."""


async def read_lost_punts(channel: Channel) -> LostPunts | None:
    """Read them by router interface; None from a device that does not tell. ChannelClosed for what is no answer."""
    wanted = p4r.Entity(extern_entry=p4r.ExternEntry(extern_type_id=EXTERN_TYPE, extern_id=EXTERN_ID))
    lost: LostPunts = {}
    try:
        async for response in channel.read([wanted]):
            for octets in entities_of(response):
                take(lost, octets)
    except RequestRefused:
        return None
    return lost


def take(lost: LostPunts, octets: bytes) -> None:
    """Add what one entity of an answer tells; a class or place that nobody knows is left out."""
    interface_id, place, punt_class, packets = _numbers(decoded(p4r.Entity, octets))
    if place < len(PLACES) and punt_class < len(PuntClass):
        lost[interface_id, PuntClass(punt_class), PLACES[place]] = packets


def _numbers(entity: p4r.Entity) -> tuple[int, int, int, int]:
    data = p4d.P4Data()
    try:
        told = entity.extern_entry.entry.Unpack(data)
    except DecodeError as error:
        raise ChannelClosed(f"the device answered a read of lost punts with {error}") from error
    members = [member.bitstring for member in data.struct.members]
    if not told or len(members) != 4 or max(map(len, members)) > _NUMBER_OCTETS:
        raise ChannelClosed("the device answered a read of lost punts with something else")
    interface_id, place, punt_class, packets = (int.from_bytes(member, "big") for member in members)
    return interface_id, place, punt_class, packets
