"""The outermost layer of WriteRequests and ReadResponses, joined and cut here so that protobuf need not copy it."""

from collections.abc import Iterator

from finsy.proto import p4r

from controller.planes.base import Op
from controller.planes.p4runtime.channel import ChannelClosed, ElectionId

_UPDATES_TAG = b"\x22"  # WriteRequest.updates
_ENTITIES_TAG = 0x0A  # ReadResponse.entities
_MORE = 0x80  # of a varint


def varint(value: int) -> bytes:
    """Return a protobuf varint."""
    octets = bytearray()
    while value >= _MORE:
        octets.append(value & 0x7F | _MORE)
        value >>= 7
    octets.append(value)
    return bytes(octets)


def request_head(device_id: int, election_id: ElectionId) -> bytes:
    """Return a WriteRequest without updates: they follow it."""
    return p4r.WriteRequest(device_id=device_id, election_id=election_id.message()).SerializeToString()


def update_of(op: Op, what: p4r.TableEntry | p4r.Entity) -> bytes:
    """Return an update as a part of a WriteRequest."""
    kind = p4r.Update.Type.ValueType(op)
    entity = p4r.Entity(table_entry=what) if isinstance(what, p4r.TableEntry) else what
    message = p4r.Update(type=kind, entity=entity).SerializeToString()
    return _UPDATES_TAG + varint(len(message)) + message


def entities_of(response: bytes) -> Iterator[bytes]:
    """Yield the entities of a ReadResponse, undecoded; ChannelClosed where the octets are no ReadResponse."""
    at, total = 0, len(response)
    while at < total:
        if response[at] != _ENTITIES_TAG:
            raise ChannelClosed("the device sent a malformed ReadResponse")
        size, shift, at = 0, 0, at + 1
        while at < total:
            octet = response[at]
            at += 1
            size |= (octet & 0x7F) << shift
            shift += 7
            if octet < _MORE:
                break
        if at + size > total:
            raise ChannelClosed("the device sent a malformed ReadResponse")
        yield response[at : at + size]
        at += size
