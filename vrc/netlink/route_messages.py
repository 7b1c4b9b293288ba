"""Decodes rtnetlink routes and nexthops, as the kernel and zebra's FPM send them; pure.

A route message is split into its prefix key and its *shape*: everything else, as bytes. Routes share few shapes, so
a shape is looked up in a dict and decoded only once.

    nlmsghdr 16 | rtmsg 12: family, dst_len, [src_len .. flags] | [RTA_DST header] address | [attributes]
                                             '---------------- shape: the parts in [ ] ----------------'

FPM puts RTA_DST first; the kernel puts RTA_TABLE before it. These are cut by `vrc.netlink._loops`, in C, as this is
the VRC's hot path; every other order takes the general walk here, which gives the same key and shape.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import IntEnum

from vrc.errors import MalformedNetlink
from vrc.netlink import _loops

NLMSG_ERROR, NLMSG_DONE = 2, 3
RTM_NEWROUTE, RTM_DELROUTE, RTM_GETROUTE = 24, 25, 26
RTM_NEWNEXTHOP, RTM_DELNEXTHOP, RTM_GETNEXTHOP = 104, 105, 106
NLM_F_MULTI, NLM_F_DUMP_INTR = 0x2, 0x10
NLM_F_APPEND = 0x800
RT_TABLE_MAIN = 254
RTM_F_CLONED, RTNH_F_DEAD = 0x200, 0x1
AF_INET, AF_INET6 = 2, 10

RTA_DST, RTA_OIF, RTA_GATEWAY, RTA_PRIORITY, RTA_MULTIPATH = 1, 4, 5, 6, 9
RTA_TABLE, RTA_VIA, RTA_ENCAP, RTA_NH_ID = 15, 18, 22, 30
NHA_ID, NHA_GROUP, NHA_BLACKHOLE, NHA_OIF, NHA_GATEWAY, NHA_ENCAP = 1, 2, 4, 5, 6, 8

HEADER = struct.Struct("=IHHII")
_NEXT = struct.Struct("=II")
_ATTRIBUTE = struct.Struct("=HH")
_RTNEXTHOP = struct.Struct("=HBBi")
_GROUP_MEMBER = struct.Struct("=IBBH")
_U32 = struct.Struct("=I")

_DST4, _DST6 = 0x00010008, 0x00010014
_LENGTH = tuple(bytes((length,)) for length in range(129))
_SHAPE_HEAD = 14  # src_len, tos, table, protocol, scope, type, flags (4), RTA_DST header (4)
_FOR_ALL_PACKETS = bytes((0, 0, RT_TABLE_MAIN))  # src_len, tos, table
_MAX_HOPS = 256

Change = tuple[int, bytes, bytes, int]
"""(message type, prefix key, shape, nlmsg flags); for nexthops the key is empty and the shape the whole body."""


class RouteType(IntEnum):
    """Route types that mean something to a plane (RTN_*)."""

    UNICAST = 1
    BLACKHOLE = 6
    UNREACHABLE = 7
    PROHIBIT = 8
    THROW = 9  # on to the next table: behind the main one there is nothing


@dataclass(frozen=True, slots=True)
class Hop:
    """One way out: kernel ifindex, gateway (4 or 16 octets, or empty: on link), weight (1 or more), and whether its
    packets are labelled or put into others, which no plane does."""

    ifindex: int
    gateway: bytes
    weight: int = 1
    encapsulated: bool = False


@dataclass(frozen=True, slots=True)
class RouteSpec:
    """All of a route but its prefix.

    ``reduced`` is True where the kernel has set hops aside, whose link or last address is gone: it tells neither when
    that begins nor when it ends.
    """

    type: int
    metric: int
    nexthop_id: int
    hops: tuple[Hop, ...]
    reduced: bool = False

    def same_ways(self, other: "RouteSpec") -> bool:
        """Whether both lead the same way: the kernel lists the hops of a route in more than one order."""
        if (self.type, self.nexthop_id, len(self.hops)) != (other.type, other.nexthop_id, len(other.hops)):
            return False
        return set(self.hops) == set(other.hops)

    def grown_from(self, other: "RouteSpec") -> bool:
        """Whether it has all hops of another and more, as an IPv6 route to which the kernel adds a way."""
        return set(self.hops) > set(other.hops) != set()


@dataclass(frozen=True, slots=True)
class NexthopObject:
    """A kernel nexthop: one hop, a blackhole, or a group of (nexthop id, weight)."""

    id: int
    hop: Hop | None = None
    blackhole: bool = False
    members: tuple[tuple[int, int], ...] = ()


@dataclass(slots=True)
class Batch:
    """What a run of messages said, in order, and what of it was not understood."""

    changes: list[Change] = field(default_factory=list)
    foreign: int = 0
    """Routes of other tables, for packets of some sources or of a TOS alone, and what the kernel learned of single
    destinations (path MTUs, redirects), which its dumps list as routes and of which it says no word besides."""
    malformed: int = 0
    problem: str = ""  # of the last malformed message


def messages(buffer: bytes, offset: int = 0) -> Iterator[tuple[int, int, int, int]]:
    """Yield (type, flags, body start, end) of each message; MalformedNetlink where a length is wrong."""
    size = len(buffer)
    while offset < size:
        if offset + 16 > size:
            raise MalformedNetlink(f"{size - offset} octets are no netlink header")
        length, kind, flags, _, _ = HEADER.unpack_from(buffer, offset)
        if length < 16 or offset + length > size:
            raise MalformedNetlink(f"netlink length {length} with {size - offset} octets left")
        yield kind, flags, offset + 16, offset + length
        offset += (length + 3) & ~3


def attributes(buffer: bytes, start: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Yield (type, payload start, payload end) of each attribute; MalformedNetlink where a length is wrong."""
    while start + 4 <= end:
        length, kind = _ATTRIBUTE.unpack_from(buffer, start)
        if length < 4 or start + length > end:
            raise MalformedNetlink(f"attribute {kind & 0x3FFF} of length {length} with {end - start} octets left")
        yield kind & 0x3FFF, start + 4, start + length
        start += (length + 3) & ~3


def scan(buffer: bytes, offset: int, end: int, batch: Batch) -> None:
    """Append the route and nexthop messages of ``buffer[offset:end]`` to a batch; others are passed over.

    A message that does not decode is counted; MalformedNetlink where the next one cannot be found.
    """
    while offset < end:
        offset = _loops.messages(buffer, offset, end, batch.changes)
        if offset < end:
            offset += _scan_odd(buffer[offset:end], batch)


def _scan_odd(buffer: bytes, batch: Batch) -> int:
    """Take the route that a buffer begins with, whatever it looks like; returns where the next message begins."""
    _, _, _, stop = next(messages(buffer))
    try:
        batch.changes.append(_general_shape(buffer, stop))
    except MalformedNetlink as error:
        batch.malformed += 1
        batch.problem = str(error)
    except LookupError:
        batch.foreign += 1
    return (stop + 3) & ~3


def _general_shape(buffer: bytes, stop: int) -> Change:
    # Any order of attributes; LookupError for another family and for what is foreign (`Batch`).
    if stop < 28:
        raise MalformedNetlink("route message shorter than its header")
    kind, flags = HEADER.unpack_from(buffer)[1:3]
    family, bits = buffer[16], buffer[17]
    if family not in (AF_INET, AF_INET6) or buffer[18:21] != _FOR_ALL_PACKETS:
        raise LookupError
    if _U32.unpack_from(buffer, 24)[0] & RTM_F_CLONED:
        raise LookupError
    size = 4 if family == AF_INET else 16
    address = bytes(size)
    rest = []
    for attribute, start, end in attributes(buffer, 28, stop):
        if attribute == RTA_DST:
            address = buffer[start:end]
        elif attribute == RTA_TABLE:
            if buffer[start:end] != _U32.pack(RT_TABLE_MAIN):
                raise LookupError
        else:
            rest.append(buffer[start - 4 : start + ((end - start + 3) & ~3)])
    if len(address) != size or bits > size * 8:
        raise MalformedNetlink(f"{len(address)} octets and {bits} bits are no prefix of family {family}")
    network = int.from_bytes(address, "big") & ~_HOST[size][bits]
    head = buffer[18:28] + _U32.pack(_DST4 if size == 4 else _DST6)
    return kind, network.to_bytes(size, "big") + _LENGTH[bits], head + b"".join(rest), flags


def decode_shape(shape: bytes) -> RouteSpec:
    """Decode a shape; MalformedNetlink where it is none."""
    if len(shape) < _SHAPE_HEAD:
        raise MalformedNetlink("shape shorter than its header")
    metric = nexthop_id = ifindex = 0
    gateway = b""
    hops: tuple[Hop, ...] = ()
    encapsulated = reduced = False
    for kind, start, end in attributes(shape, _SHAPE_HEAD, len(shape)):
        if kind == RTA_PRIORITY:
            metric = _u32(shape, start, end)
        elif kind == RTA_NH_ID:
            nexthop_id = _u32(shape, start, end)
        elif kind == RTA_OIF:
            ifindex = _u32(shape, start, end)
        elif kind == RTA_MULTIPATH:
            hops, reduced = _multipath(shape, start, end)
        elif kind == RTA_ENCAP:
            encapsulated = True
        elif kind in (RTA_GATEWAY, RTA_VIA):
            gateway = _gateway(kind, shape[start:end])
    if ifindex and not hops:
        hops = (Hop(ifindex, gateway, encapsulated=encapsulated),)
    return RouteSpec(shape[5], metric, nexthop_id, hops, reduced)


def _multipath(shape: bytes, start: int, end: int) -> tuple[tuple[Hop, ...], bool]:
    """Return the hops in use, and whether there are others."""
    hops: list[Hop] = []
    reduced = False
    while start + 8 <= end:
        length, flags, weight, ifindex = _RTNEXTHOP.unpack_from(shape, start)
        if length < 8 or start + length > end or ifindex < 0 or len(hops) == _MAX_HOPS:
            raise MalformedNetlink(f"multipath hop {len(hops)} of length {length}")
        gateway, encapsulated = b"", False
        for kind, at, stop in attributes(shape, start + 8, start + length):
            if kind in (RTA_GATEWAY, RTA_VIA):
                gateway = _gateway(kind, shape[at:stop])
            elif kind == RTA_ENCAP:
                encapsulated = True
        if flags & RTNH_F_DEAD:
            reduced = True
        else:
            hops.append(Hop(ifindex, gateway, weight + 1, encapsulated))
        start += (length + 3) & ~3
    return tuple(hops), reduced


def _gateway(kind: int, value: bytes) -> bytes:
    if kind == RTA_VIA:  # struct rtvia: family, then the address
        value = value[2:]
    if len(value) not in (4, 16):
        raise MalformedNetlink(f"gateway of {len(value)} octets")
    return value


def _u32(buffer: bytes, start: int, end: int) -> int:
    if end - start != 4:
        raise MalformedNetlink(f"{end - start} octets where 4 belong")
    value: int = _U32.unpack_from(buffer, start)[0]
    return value


def decode_nexthop(body: bytes) -> NexthopObject:
    """Decode the body of RTM_NEWNEXTHOP or RTM_DELNEXTHOP (struct nhmsg and NHA_*); MalformedNetlink otherwise."""
    if len(body) < 8:
        raise MalformedNetlink("nexthop message shorter than its header")
    id_ = ifindex = 0
    gateway = b""
    blackhole = encapsulated = False
    members: tuple[tuple[int, int], ...] = ()
    for kind, start, end in attributes(body, 8, len(body)):
        if kind == NHA_ID:
            id_ = _u32(body, start, end)
        elif kind == NHA_OIF:
            ifindex = _u32(body, start, end)
        elif kind == NHA_GATEWAY:
            gateway = _gateway(RTA_GATEWAY, body[start:end])
        elif kind == NHA_GROUP:
            members = _group(body[start:end])
        elif kind == NHA_BLACKHOLE:
            blackhole = True
        elif kind == NHA_ENCAP:
            encapsulated = True
    if not id_:
        raise MalformedNetlink("nexthop without an id")
    hop = Hop(ifindex, gateway, encapsulated=encapsulated) if ifindex else None
    return NexthopObject(id_, hop, blackhole, members)


def _group(value: bytes) -> tuple[tuple[int, int], ...]:
    if len(value) % 8 or len(value) > 8 * _MAX_HOPS:
        raise MalformedNetlink(f"nexthop group of {len(value)} octets")
    # Linux 6.12 has given a weight its higher octet; before, it is 0.
    return tuple((id_, (high << 8 | low) + 1) for id_, low, high, _ in _GROUP_MEMBER.iter_unpack(value))


_HOST = {size: tuple((1 << (size * 8 - bits)) - 1 for bits in range(size * 8 + 1)) for size in (4, 16)}
