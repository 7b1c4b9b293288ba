"""Encodes requests to rtnetlink about links, addresses and neighbors; pure, and light, as pid 1 of a guest has it."""

import struct

RTM_NEWLINK, RTM_DELLINK, RTM_GETLINK = 16, 17, 18
RTM_NEWADDR, RTM_DELADDR, RTM_GETADDR = 20, 21, 22
RTM_NEWNEIGH, RTM_DELNEIGH, RTM_GETNEIGH = 28, 29, 30
RTM_NEWRULE, RTM_DELRULE, RTM_GETRULE = 32, 33, 34

NLM_F_REQUEST, NLM_F_ACK = 0x1, 0x4
NLM_F_REPLACE, NLM_F_EXCL, NLM_F_CREATE = 0x100, 0x200, 0x400

IFF_UP = 0x1
IFLA_ADDRESS, IFLA_IFNAME, IFLA_MTU, IFLA_LINK, IFLA_MASTER, IFLA_LINKINFO, IFLA_NET_NS_FD = 1, 3, 4, 5, 10, 18, 28
IFLA_INFO_KIND, IFLA_INFO_DATA, IFLA_MACVLAN_MODE = 1, 2, 1
IFLA_EXT_MASK, RTEXT_FILTER_SKIP_STATS = 29, 8
MACVLAN_MODE_BRIDGE = 4
IFA_ADDRESS, IFA_LOCAL, IFA_FLAGS, IFA_PROTO = 1, 2, 8, 11
NDA_DST, NDA_LLADDR, NDA_FLAGS_EXT = 1, 2, 15
NTF_EXT_MANAGED = 1
NUD_FAILED, NUD_PERMANENT = 0x20, 0x80

ADDRESS_OF_DECLARATION = 0x53
"""The IFA_PROTO by which addresses of the declaration are told from those of the daemons (kernel 5.18)."""

_IFINFO = struct.Struct("=BxHiII")
_IFADDR = struct.Struct("=BBBBi")
_NDMSG = struct.Struct("=BxxxiHBB")
_U32 = struct.Struct("=I")
_ATTRIBUTE = struct.Struct("=HH")
_FAMILY = {4: 2, 16: 10}


def attribute(kind: int, payload: bytes) -> bytes:
    """Return one attribute, padded to four octets."""
    return _ATTRIBUTE.pack(len(payload) + 4, kind) + payload + bytes(-len(payload) % 4)


def link_request(
    ifindex: int,
    *,
    flags: int = 0,
    change: int = 0,
    mtu: int = 0,
    mac: bytes = b"",
    name: str = "",
    namespace: int | None = None,
) -> bytes:
    """Return the body of RTM_NEWLINK that sets what is given, or of RTM_DELLINK and RTM_GETLINK.

    ``namespace`` is the descriptor of the network namespace that the link moves to.
    """
    body = _IFINFO.pack(0, 0, ifindex, flags, change)
    if mtu:
        body += attribute(IFLA_MTU, _U32.pack(mtu))
    if mac:
        body += attribute(IFLA_ADDRESS, mac)
    if name:
        body += attribute(IFLA_IFNAME, name.encode() + b"\0")
    if namespace is not None:
        body += attribute(IFLA_NET_NS_FD, _U32.pack(namespace))
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


def group_request(ifindex: int, address: bytes, mac: bytes) -> bytes:
    """Return the body of RTM_NEWNEIGH that enters a multicast group for good."""
    body = _NDMSG.pack(_FAMILY[len(address)], ifindex, NUD_PERMANENT, 0, 0)
    return body + attribute(NDA_DST, address) + attribute(NDA_LLADDR, mac)


def family_dump(family: int, size: int) -> bytes:
    """Return the body of a dump request whose header of ``size`` octets begins with the family."""
    return bytes((family,)) + bytes(size - 1)
