"""Decodes rtnetlink links, addresses and neighbors; pure. vrc/netlink/requests.py has what is asked for."""

import struct
from dataclasses import dataclass

from vrc.errors import MalformedNetlink
from vrc.interfaces import Link, OwnAddress
from vrc.netlink.requests import (
    IFA_ADDRESS,
    IFA_LOCAL,
    IFA_PROTO,
    IFLA_ADDRESS,
    IFLA_IFNAME,
    IFLA_INFO_KIND,
    IFLA_LINK,
    IFLA_LINKINFO,
    IFLA_MASTER,
    IFLA_MTU,
    NDA_DST,
    NDA_FLAGS_EXT,
    NDA_LLADDR,
    NTF_EXT_MANAGED,
    NUD_PERMANENT,
)
from vrc.netlink.route_messages import attributes

NUD_INCOMPLETE, NUD_REACHABLE, NUD_STALE, NUD_DELAY, NUD_PROBE = 0x01, 0x02, 0x04, 0x08, 0x10
NUD_NOARP = 0x40
IFA_F_DADFAILED = 0x08
FRA_PRIORITY = 6
NUD_RESOLVED = NUD_REACHABLE | NUD_STALE | NUD_DELAY | NUD_PROBE | NUD_PERMANENT | NUD_NOARP

_IFINFO = struct.Struct("=BxHiII")
_IFADDR = struct.Struct("=BBBBi")
_NDMSG = struct.Struct("=BxxxiHBB")
_U32 = struct.Struct("=I")

_SIZE = {2: 4, 10: 16}

Rule = tuple[int, int]
"""(family, priority) of a rule of policy routing"""


@dataclass(frozen=True, slots=True)
class Address:
    """An own address on a link, with who set it (IFA_PROTO, 0 unknown), and the other end's where it has one."""

    ifindex: int
    address: bytes
    prefix_length: int
    scope: int
    protocol: int = 0
    peer: bytes = b""
    duplicate: bool = False  # somebody else has it (RFC 4862 section 5.4): the kernel does not use it

    @property
    def own(self) -> OwnAddress:
        """What tells it from the others of its link."""
        return self.address, self.prefix_length, self.peer

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
        elif kind == IFLA_MASTER:
            link.master = _u32(body[start:end])
        elif kind == IFLA_LINKINFO:
            for nested, at, stop in attributes(body, start, end):
                if nested == IFLA_INFO_KIND:
                    link.kind = _text(body[at:stop])
    return link


def decode_address(body: bytes) -> Address | None:
    """Decode struct ifaddrmsg; None for another family than IPv4 and IPv6; MalformedNetlink otherwise."""
    if len(body) < 8:
        raise MalformedNetlink("address message shorter than its header")
    family, bits, flags, scope, ifindex = _IFADDR.unpack_from(body)
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
    peer = remote if remote != own else b""
    return Address(ifindex, own, bits, scope, protocol, peer, bool(flags & IFA_F_DADFAILED))


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


def decode_rule(body: bytes) -> Rule | None:
    """Decode struct fib_rule_hdr; None for another family than IPv4 and IPv6; MalformedNetlink otherwise."""
    if len(body) < 12:
        raise MalformedNetlink("rule message shorter than its header")
    found = (_u32(body[start:end]) for kind, start, end in attributes(body, 12, len(body)) if kind == FRA_PRIORITY)
    return (body[0], next(found, 0)) if body[0] in _SIZE else None


def _text(value: bytes) -> str:
    return value.rstrip(b"\0").decode("utf-8", "replace")


def _u32(value: bytes) -> int:
    if len(value) != 4:
        raise MalformedNetlink(f"{len(value)} octets where 4 belong")
    number: int = _U32.unpack(value)[0]
    return number
