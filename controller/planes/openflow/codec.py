"""OpenFlow 1.3 messages as bytes: flows, groups, bundles, meters' users and the replies that list them.

Only what this plane needs is here, in the one form in which Open vSwitch reads it back, so that a flow that was
written and a flow that was read are compared as bytes. Section numbers are those of the OpenFlow 1.3.5 specification;
NX actions are described in ovs-actions(7).
"""

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import IntEnum

VERSION = 4
EXPERIMENTER_NX = 0x00002320
EXPERIMENTER_ONF = 0x4F4E4600
NO_BUFFER = 0xFFFFFFFF
PORT_ANY = GROUP_ANY = 0xFFFFFFFF
PORT_CONTROLLER = 0xFFFFFFFD
GROUP_ALL = 0xFFFFFFFC
TABLE_ALL = 0xFF
MAX_LENGTH_NO_BUFFER = 0xFFFF
METADATA_VRF = 0xFFFFFFFF_00000000  # the upper half of the metadata


class MalformedMessage(Exception):
    """The switch sent octets that are not OpenFlow 1.3; the text names what is wrong."""


class Type(IntEnum):
    """Message types (A.1)."""

    HELLO = 0
    ERROR = 1
    ECHO_REQUEST = 2
    ECHO_REPLY = 3
    EXPERIMENTER = 4
    FEATURES_REQUEST = 5
    FEATURES_REPLY = 6
    SET_CONFIG = 9
    PACKET_IN = 10
    PORT_STATUS = 12
    PACKET_OUT = 13
    FLOW_MOD = 14
    GROUP_MOD = 15
    MULTIPART_REQUEST = 18
    MULTIPART_REPLY = 19
    BARRIER_REQUEST = 20
    BARRIER_REPLY = 21
    ROLE_REPLY = 25


class Multipart(IntEnum):
    """Multipart types (A.3.5)."""

    FLOW = 1
    GROUP = 6
    GROUP_DESC = 7
    METER = 9
    METER_CONFIG = 10
    TABLE_FEATURES = 12
    PORT_DESC = 13


class Command(IntEnum):
    """Flow-mod commands (A.3.4.1)."""

    ADD = 0
    MODIFY_STRICT = 2
    DELETE = 3
    DELETE_STRICT = 4


class GroupCommand(IntEnum):
    """Group-mod commands (A.3.4.2)."""

    ADD = 0
    MODIFY = 1
    DELETE = 2


class GroupType(IntEnum):
    """Group types (5.6.1)."""

    SELECT = 1
    INDIRECT = 2


class BundleControl(IntEnum):
    """Bundle control types (ONF extension 230)."""

    OPEN_REQUEST = 0
    COMMIT_REQUEST = 4
    DISCARD_REQUEST = 6


_HEADER = struct.Struct("!BBHI")


def message(kind: int, xid: int, body: bytes = b"") -> bytes:
    """Return a message of one header and a body."""
    return _HEADER.pack(VERSION, kind, 8 + len(body), xid) + body


# -- OXM and NXM fields: class, field and length as they stand in a header without mask (A.2.3.2) --------------------
class Oxm(IntEnum):
    """Match fields of this pipeline."""

    IN_PORT = 0x80000004
    METADATA = 0x80000408
    ETH_DST = 0x80000606
    ETH_SRC = 0x80000806
    ETH_TYPE = 0x80000A02
    VLAN_VID = 0x80000C02
    IP_PROTO = 0x80001401
    TCP_SRC = 0x80001A02
    TCP_DST = 0x80001C02
    UDP_DST = 0x80002002
    IPV4_SRC = 0x80001604
    IPV4_DST = 0x80001804
    IPV6_SRC = 0x80003410
    IPV6_DST = 0x80003610
    ICMPV6_TYPE = 0x80003A01
    REG0 = 0x00010004
    REG1 = 0x00010204
    REG2 = 0x00010404
    REG3 = 0x00010604
    XREG2 = 0x80010408  # registers 4 and 5
    IP_TTL = 0x00013A01
    NXM_ETH_DST = 0x00000206  # the name under which ETH_DST is moved to


_HAS_MASK = 0x100


def oxm(field: Oxm, value: int | bytes, mask: int | bytes | None = None) -> bytes:
    """Return one TLV; ``value`` and ``mask`` as an unsigned number or as octets."""
    size = field & 0xFF
    octets = value if isinstance(value, bytes) else value.to_bytes(size, "big")
    if mask is None:
        return field.to_bytes(4, "big") + octets
    mask_octets = mask if isinstance(mask, bytes) else mask.to_bytes(size, "big")
    header = (field & ~0xFF) | _HAS_MASK | size * 2
    return header.to_bytes(4, "big") + octets + mask_octets


def oxm_fields(match: Iterable[bytes]) -> dict[int, tuple[bytes, bytes | None]]:
    """Return value and mask of each TLV by its header without mask."""
    fields: dict[int, tuple[bytes, bytes | None]] = {}
    for tlv in match:
        header = int.from_bytes(tlv[:4], "big")
        if header & _HAS_MASK:
            size = (header & 0xFF) // 2
            fields[(header & ~0x1FF) | size] = tlv[4 : 4 + size], tlv[4 + size :]
        else:
            fields[header] = tlv[4:], None
    return fields


def split_oxms(octets: bytes) -> Iterator[bytes]:
    """Yield the TLVs of a match; MalformedMessage where one is cut off."""
    at, end = 0, len(octets)
    while at < end:
        if end - at < 4 or at + 4 + octets[at + 3] > end:
            raise MalformedMessage("a match field is cut off")
        size = 4 + octets[at + 3]
        yield octets[at : at + size]
        at += size


# -- actions (A.2.5) and instructions (A.2.4) ------------------------------------------------------------------------
def output(port: int) -> bytes:
    """Return the action that sends the whole frame to a port."""
    return struct.pack("!HHIH6x", 0, 16, port, MAX_LENGTH_NO_BUFFER if port == PORT_CONTROLLER else 0)


def group(group_id: int) -> bytes:
    """Return the action that executes a group."""
    return struct.pack("!HHI", 22, 8, group_id)


def set_field(field: Oxm, value: int | bytes) -> bytes:
    """Return the action that sets a whole field."""
    tlv = oxm(field, value)
    size = (4 + len(tlv) + 7) & ~7
    return (struct.pack("!HH", 25, size) + tlv).ljust(size, b"\0")


PUSH_VLAN = struct.pack("!HHH2x", 17, 8, 0x8100)
POP_VLAN = struct.pack("!HH4x", 18, 8)
DEC_TTL = struct.pack("!HH4x", 24, 8)


def resubmit(table: int) -> bytes:
    """Return the NX action that looks up ``table`` and comes back."""
    return struct.pack("!HHIHHB3x", 0xFFFF, 16, EXPERIMENTER_NX, 14, 0xFFF8, table)


def move(source: int, target: int, bits: int) -> bytes:
    """Return the NX action that copies the lowest ``bits`` of one field into another."""
    return struct.pack("!HHIHHHHII", 0xFFFF, 24, EXPERIMENTER_NX, 6, bits, 0, 0, source, target)


CLEAR_IN_PORT = struct.pack("!HHIHHIQ", 0xFFFF, 24, EXPERIMENTER_NX, 7, 15, 0x00000002, 0)
"""Forget the ingress port, so that output to it is not suppressed (ovs-fields(7), in_port)."""


def check_packet_larger(octets: int, field: Oxm, bit: int) -> bytes:
    """Return the NX action that sets one register bit to whether the frame is longer than ``octets``."""
    return struct.pack("!HHIHHHI6x", 0xFFFF, 24, EXPERIMENTER_NX, 49, octets, bit, field)


def goto(table: int) -> bytes:
    """Return the Goto-Table instruction."""
    return struct.pack("!HHB3x", 1, 8, table)


def write_metadata(value: int) -> bytes:
    """Return the Write-Metadata instruction for all 64 bits."""
    return struct.pack("!HH4xQQ", 2, 24, value, 0xFFFFFFFF_FFFFFFFF)


def write_actions(*actions: bytes) -> bytes:
    """Return the Write-Actions instruction."""
    body = b"".join(actions)
    return struct.pack("!HH4x", 3, 8 + len(body)) + body


def apply_actions(*actions: bytes) -> bytes:
    """Return the Apply-Actions instruction."""
    body = b"".join(actions)
    return struct.pack("!HH4x", 4, 8 + len(body)) + body


CLEAR_ACTIONS = struct.pack("!HH4x", 5, 8)


def meter(meter_id: int) -> bytes:
    """Return the Meter instruction."""
    return struct.pack("!HHI", 6, 8, meter_id)


# -- flows -----------------------------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Flow:
    """One flow entry; ``match`` holds its TLVs in one order."""

    table: int
    priority: int
    cookie: int
    match: tuple[bytes, ...]
    instructions: bytes

    @property
    def key(self) -> tuple[int, int, tuple[bytes, ...]]:
        """What makes it the same entry for the switch."""
        return self.table, self.priority, self.match


def flow(table: int, priority: int, cookie: int, match: Iterable[bytes], instructions: bytes) -> Flow:
    """Return a flow with its match in order."""
    return Flow(table, priority, cookie, _ordered(match), instructions)


def _ordered(match: Iterable[bytes]) -> tuple[bytes, ...]:
    """Return TLVs in ascending order, but OXM before NXM, because what the latter match needs an EtherType first."""
    return tuple(sorted(match, key=lambda tlv: (tlv[0] ^ 0x80, tlv)))


_FLOW_MOD = struct.Struct("!QQBBHHHIIIHxx")
ALL_BITS = 0xFFFFFFFF_FFFFFFFF


def _match(tlvs: Iterable[bytes]) -> bytes:
    body = b"".join(tlvs)
    size = 4 + len(body)
    return (struct.pack("!HH", 1, size) + body).ljust((size + 7) & ~7, b"\0")


def flow_mod_fixed(command: Command, table: int, priority: int, cookie: int, cookie_mask: int) -> bytes:
    """Return what stands between the header and the match of a flow-mod."""
    fixed = (cookie, cookie_mask, table, command, 0, 0, priority, NO_BUFFER, PORT_ANY, GROUP_ANY, 0)
    return _FLOW_MOD.pack(*fixed)


def flow_mod(command: Command, entry: Flow, xid: int, cookie_mask: int = 0) -> bytes:
    """Return a flow-mod for one flow; with a cookie mask it leaves flows of other cookies alone."""
    body = flow_mod_fixed(command, entry.table, entry.priority, entry.cookie, cookie_mask) + _match(entry.match)
    deletes = command in (Command.DELETE, Command.DELETE_STRICT)
    return message(Type.FLOW_MOD, xid, body if deletes else body + entry.instructions)


def delete_by_cookie(table: int, cookie: int, cookie_mask: int, xid: int) -> bytes:
    """Return a flow-mod that deletes every flow of a table whose masked cookie is ``cookie``."""
    body = flow_mod_fixed(Command.DELETE, table, 0, cookie, cookie_mask) + _match(())
    return message(Type.FLOW_MOD, xid, body)


def flow_stats_request(table: int, cookie: int = 0, cookie_mask: int = 0) -> bytes:
    """Return the body of a flow statistics request."""
    return struct.pack("!B3xII4xQQ", table, PORT_ANY, GROUP_ANY, cookie, cookie_mask) + _match(())


@dataclass(frozen=True, slots=True)
class FlowStatistics:
    """One flow as the switch tells it."""

    flow: Flow
    packets: int
    octets: int


_FLOW_STATS = struct.Struct("!HBxIIHHHH4xQQQHH")


def decode_flow(entry: bytes) -> FlowStatistics:
    """Decode one flow statistics entry (A.3.5.2); MalformedMessage where it does not fit its own lengths."""
    if len(entry) < _FLOW_STATS.size:
        raise MalformedMessage("a flow entry is cut off")
    _, table, _, _, priority, _, _, _, cookie, packets, octets, kind, size = _FLOW_STATS.unpack_from(entry)
    end = 48 + ((size + 7) & ~7)
    if kind != 1 or size < 4 or end > len(entry):
        raise MalformedMessage("a flow entry has no OXM match")
    match = _ordered(split_oxms(entry[52 : 48 + size]))
    return FlowStatistics(Flow(table, priority, cookie, match, entry[end:]), packets, octets)


def split_entries(body: bytes) -> Iterator[bytes]:
    """Yield entries that begin with their own 16-bit length; MalformedMessage where one is cut off."""
    at, end = 0, len(body)
    while at < end:
        size = int.from_bytes(body[at : at + 2], "big")
        if size < 8 or at + size > end:
            raise MalformedMessage("a list entry does not fit its message")
        yield body[at : at + size]
        at += size


# -- groups ----------------------------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Bucket:
    """One bucket of a group."""

    actions: bytes
    weight: int = 0
    watch_port: int = PORT_ANY


@dataclass(frozen=True, slots=True)
class Group:
    """One group entry."""

    id: int
    type: int
    buckets: tuple[Bucket, ...]


def group_mod(command: GroupCommand, entry: Group, xid: int) -> bytes:
    """Return a group-mod."""
    buckets = [
        struct.pack("!HHII4x", 16 + len(b.actions), b.weight, b.watch_port, GROUP_ANY) + b.actions
        for b in (() if command is GroupCommand.DELETE else entry.buckets)
    ]
    return message(Type.GROUP_MOD, xid, struct.pack("!HBxI", command, entry.type, entry.id) + b"".join(buckets))


def decode_group(entry: bytes) -> Group:
    """Decode one group description (A.3.5.10); MalformedMessage where it does not fit its own lengths."""
    _, kind, group_id = struct.unpack_from("!HBxI", entry)
    buckets = []
    for bucket in split_entries(entry[8:]):
        if len(bucket) < 16:
            raise MalformedMessage("a bucket is cut off")
        _, weight, watch_port = struct.unpack_from("!HHI", bucket)
        buckets.append(Bucket(bucket[16:], weight, watch_port))
    return Group(group_id, kind, tuple(buckets))


# -- bundles (ONF extension 230) -------------------------------------------------------------------------------------
BUNDLE_ID = 1  # one at a time, so one number does
BUNDLE_FLAGS = 3  # atomic and ordered
BUNDLE_ADD_HEAD = struct.pack("!IIIxxH", EXPERIMENTER_ONF, 2301, BUNDLE_ID, BUNDLE_FLAGS)


def bundle_control(control: BundleControl, xid: int) -> bytes:
    """Return a bundle control message."""
    return message(
        Type.EXPERIMENTER, xid, struct.pack("!IIIHH", EXPERIMENTER_ONF, 2300, BUNDLE_ID, control, BUNDLE_FLAGS)
    )


# -- packets ---------------------------------------------------------------------------------------------------------
def packet_out(actions: bytes, frame: bytes, xid: int) -> bytes:
    """Return a packet-out from the controller."""
    fixed = struct.pack("!IIH6x", NO_BUFFER, PORT_CONTROLLER, len(actions))
    return message(Type.PACKET_OUT, xid, fixed + actions + frame)


@dataclass(frozen=True, slots=True)
class PacketIn:
    """A frame the switch sent up, with the cookie of the flow and the metadata it had there."""

    cookie: int
    metadata: int
    frame: bytes


_METADATA = Oxm.METADATA.to_bytes(4, "big")


def decode_packet_in(body: bytes) -> PacketIn:
    """Decode a packet-in without its header (A.4.1); MalformedMessage where it does not fit its own lengths."""
    if len(body) < 22:
        raise MalformedMessage("a packet-in is cut off")
    cookie, kind, size = struct.unpack_from("!QHH", body, 8)
    start = 16 + ((size + 7) & ~7) + 2
    if kind != 1 or size < 4 or start > len(body):
        raise MalformedMessage("a packet-in has no OXM match")
    metadata = 0
    for tlv in split_oxms(body[20 : 16 + size]):
        if tlv[:4] == _METADATA and len(tlv) == 12:
            metadata = int.from_bytes(tlv[4:], "big")
    return PacketIn(cookie, metadata, body[start:])
