"""What a device does beyond what the pipeline's P4Info says, as vr-forwarder tells it.

forwarder/server/device_features.h:

    ExternEntry{0x81, 0x81000002, P4Data: struct{names of capabilities}}

The pipeline has no such extern: a device that knows nothing of it refuses the read, and has none of these.
"""

from finsy.proto import p4d, p4r
from google.protobuf.message import DecodeError

from controller.planes.base import Capability
from controller.planes.p4runtime.channel import Channel, ChannelClosed, RequestRefused, decoded
from controller.planes.p4runtime.lost_punts import EXTERN_TYPE
from controller.planes.p4runtime.messages import entities_of

EXTERN_ID = 0x81000002

_NAMES = (
    Capability.RESILIENT_HASH,
    Capability.LOCAL_FAILOVER,
    Capability.HASH_BY_ROUTER,
    Capability.SHARES,
    Capability.SAMPLED_ROUTE_COUNTERS,
)

TOLD = {name.encode(): name for name in _NAMES}
"""By the name that a device gives them; others are left out."""


async def read_features(channel: Channel) -> frozenset[Capability]:
    """Return those of `TOLD` that the device has. ChannelClosed for what is no answer."""
    wanted = p4r.Entity(extern_entry=p4r.ExternEntry(extern_type_id=EXTERN_TYPE, extern_id=EXTERN_ID))
    has: set[Capability] = set()
    try:
        async for response in channel.read([wanted]):
            for octets in entities_of(response):
                has |= features_of(octets)
    except RequestRefused:
        return frozenset()
    return frozenset(has)


def features_of(octets: bytes) -> set[Capability]:
    """Return what one entity of an answer tells. ChannelClosed for what is no answer."""
    data = p4d.P4Data()
    try:
        told = decoded(p4r.Entity, octets).extern_entry.entry.Unpack(data)
    except DecodeError as error:
        raise ChannelClosed(f"the device answered a read of its features with {error}") from error
    if not told:
        raise ChannelClosed("the device answered a read of its features with something else")
    return {TOLD[member.bitstring] for member in data.struct.members if member.bitstring in TOLD}
