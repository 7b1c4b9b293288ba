"""Encodes and decodes rtnetlink links, addresses and neighbors; pure."""

import struct
from dataclasses import dataclass

from vrc.errors import MalformedNetlink
from vrc.interfaces import Link
from vrc.rtnetlink import attributes

RTM_NEWLINK, RTM_DELLINK, RTM_GETLINK = 16, 17, 18
RTM_NEWADDR, RTM_DELADDR, RTM_GETADDR = 20, 21, 22
RTM_NEWNEIGH, RTM_DELNEIGH, RTM_GETNEIGH = 28, 29, 30

IFLA_ADDRESS, IFLA_IFNAME, IFLA_MTU, IFLA_LINK, IFLA_LINKINFO = 1, 3, 4, 5, 18
IFLA_INFO_KIND, IFLA_INFO_DATA, IFLA_MACVLAN_MODE = 1, 2, 1
IFLA_EXT_MASK, RTEXT_FILTER_SKIP_STATS = 29, 8
MACVLAN_MODE_BRIDGE = 4
IFA_ADDRESS, IFA_LOCAL, IFA_FLAGS, IFA_PROTO = 1, 2, 8, 11
NDA_DST, NDA_LLADDR, NDA_FLAGS_EXT = 1, 2, 15
NTF_EXT_MANAGED = 1

NUD_INCOMPLETE, NUD_REACHABLE, NUD_STALE, NUD_DELAY, NUD_PROBE = 0x01, 0x02, 0x04, 0x08, 0x10
NUD_FAILED, NUD_NOARP, NUD_PERMANENT = 0x20, 0x40, 0x80
NUD_RESOLVED = NUD_REACHABLE | NUD_STALE | NUD_DELAY | NUD_PROBE | NUD_PERMANENT

ADDRESS_OF_DECLARATION = 0x53
"""The IFA_PROTO by which addresses of the declaration are told from those of the daemons (kernel 5.18)."""

_IFINFO = struct.Struct("=BxHiII")
_IFADDR = struct.Struct("=BBBBi")
_NDMSG = struct.Struct("=BxxxiHBB")
_U32 = struct.Struct("=I")
_ATTRIBUTE = struct.Struct("=HH")

_SIZE = {2: 4, 10: 16}
_FAMILY = {4: 2, 16: 10}


@dataclass(frozen=True, slots=True)
class Address:
    """An own address on a link, with who set it (IFA_PROTO, 0 unknown)."""

    ifindex: int
    address: bytes
    prefix_length: int
    scope: int
    protocol: int = 0

    @property
    def link_local(self) -> bool:
        """Whether it is fe80::/10."""
        return len(self.address) == 16 and self.address[0] == 0xFE and self.address[1] & 0xC0 == 0x80


@dataclass(frozen=True, slots=True)
class KernelNeighbor:
    """An entry of the kernel's neighbor table; ``mac`` is empty where it has none of 6 octets."""

    ifindex: int
    address: bytes
    mac: bytes
    state: int
    managed: bool = False


def decode_link(body: bytes) -> Link:
    """Decode struct ifinfomsg and its attributes; MalformedNetlink otherwise."""
    if len(body) < 16:
        raise MalformedNetlink("link message shorter than its header")
    _, _, ifindex, flags, _ = _IFINFO.unpack_from(body)
    link = Link(ifindex, "", flags, 0, b"")
    for kind, start, end in attributes(body, 16, len(body)):
        if kind == IFLA_IFNAME:
            link.name = _text(body[start:end])
        elif kind == IFLA_ADDRESS:
            link.mac = body[start:end]
        elif kind == IFLA_MTU:
            link.mtu = _u32(body[start:end])
        elif kind == IFLA_LINK:
            link.parent = _u32(body[start:end])
        elif kind == IFLA_LINKINFO:
            for nested, at, stop in attributes(body, start, end):
                if nested == IFLA_INFO_KIND:
                    link.kind = _text(body[at:stop])
    return link


def decode_address(body: bytes) -> Address | None:
    """Decode struct ifaddrmsg; None for another family than IPv4 and IPv6; MalformedNetlink otherwise."""
    if len(body) < 8:
        raise MalformedNetlink("address message shorter than its header")
    family, bits, _, scope, ifindex = _IFADDR.unpack_from(body)
    local = remote = b""
    protocol = 0
    for kind, start, end in attributes(body, 8, len(body)):
        if kind == IFA_LOCAL:
            local = body[start:end]
        elif kind == IFA_ADDRESS:
            remote = body[start:end]
        elif kind == IFA_PROTO and end > start:
            protocol = body[start]
    own = local or remote
    if family not in _SIZE:
        return None
    if len(own) != _SIZE[family]:
        raise MalformedNetlink(f"address of {len(own)} octets")
    return Address(ifindex, own, bits, scope, protocol)


def decode_neighbor(body: bytes) -> KernelNeighbor | None:
    """Decode struct ndmsg; None for another family than IPv4 and IPv6; MalformedNetlink otherwise."""
    if len(body) < 12:
        raise MalformedNetlink("neighbor message shorter than its header")
    family, ifindex, state, _, _ = _NDMSG.unpack_from(body)
    address = mac = b""
    extended = 0
    for kind, start, end in attributes(body, 12, len(body)):
        if kind == NDA_DST:
            address = body[start:end]
        elif kind == NDA_LLADDR:
            mac = body[start:end]
        elif kind == NDA_FLAGS_EXT:
            extended = _u32(body[start:end])
    if family not in _SIZE:
        return None
    if len(address) != _SIZE[family]:
        raise MalformedNetlink(f"neighbor address of {len(address)} octets")
    return KernelNeighbor(ifindex, address, mac if len(mac) == 6 else b"", state, bool(extended & NTF_EXT_MANAGED))


def _text(value: bytes) -> str:
    return value.rstrip(b"\0").decode("utf-8", "replace")


def _u32(value: bytes) -> int:
    if len(value) != 4:
        raise MalformedNetlink(f"{len(value)} octets where 4 belong")
    number: int = _U32.unpack(value)[0]
    return number


def attribute(kind: int, payload: bytes) -> bytes:
    """Return one attribute, padded to four octets."""
    return _ATTRIBUTE.pack(len(payload) + 4, kind) + payload + bytes(-len(payload) % 4)


def link_request(
    ifindex: int, *, flags: int = 0, change: int = 0, mtu: int = 0, mac: bytes = b"", name: str = ""
) -> bytes:
    """Return the body of RTM_NEWLINK that sets what is given, or of RTM_DELLINK and RTM_GETLINK."""
    body = _IFINFO.pack(0, 0, ifindex, flags, change)
    if mtu:
        body += attribute(IFLA_MTU, _U32.pack(mtu))
    if mac:
        body += attribute(IFLA_ADDRESS, mac)
    if name:
        body += attribute(IFLA_IFNAME, name.encode() + b"\0")
    return body


def link_dump() -> bytes:
    """Return the body of a RTM_GETLINK dump, without statistics."""
    return _IFINFO.pack(0, 0, 0, 0, 0) + attribute(IFLA_EXT_MASK, _U32.pack(RTEXT_FILTER_SKIP_STATS))


def macvlan_request(parent: int, name: str, mac: bytes) -> bytes:
    """Return the body of RTM_NEWLINK that makes a macvlan in bridge mode."""
    mode = attribute(IFLA_INFO_DATA, attribute(IFLA_MACVLAN_MODE, _U32.pack(MACVLAN_MODE_BRIDGE)))
    info = attribute(IFLA_LINKINFO, attribute(IFLA_INFO_KIND, b"macvlan") + mode)
    return link_request(0, mac=mac, name=name) + attribute(IFLA_LINK, _U32.pack(parent)) + info


def address_request(ifindex: int, address: bytes, prefix_length: int) -> bytes:
    """Return the body of RTM_NEWADDR or RTM_DELADDR for an address of the declaration."""
    body = _IFADDR.pack(_FAMILY[len(address)], prefix_length, 0, 0, ifindex)
    body += attribute(IFA_LOCAL, address) + attribute(IFA_ADDRESS, address)
    return body + attribute(IFA_PROTO, bytes((ADDRESS_OF_DECLARATION,)))


def neighbor_request(ifindex: int, address: bytes, *, managed: bool | None = None) -> bytes:
    """Return the body of RTM_NEWNEIGH that sets NTF_EXT_MANAGED or takes it from a failed neighbor, or of
    RTM_DELNEIGH with None."""
    state = NUD_FAILED if managed is False else 0
    body = _NDMSG.pack(_FAMILY[len(address)], ifindex, state, 0, 0) + attribute(NDA_DST, address)
    if managed is not None:
        body += attribute(NDA_FLAGS_EXT, _U32.pack(NTF_EXT_MANAGED if managed else 0))
    return body


def family_dump(family: int, size: int) -> bytes:
    """Return the body of a dump request whose header of ``size`` octets begins with the family."""
    return bytes((family,)) + bytes(size - 1)
