"""Answers for a guest that is away: who asks for the link-layer address of a router's own address still learns it.

While a guest restarts, its plane forwards on; but nobody would answer ARP (RFC 826) or Neighbor Solicitations (RFC
4861 section 7.2.4) for it, and a neighbor that gave the router up would send nothing more to be forwarded. What is
asked for in a probe (RFC 5227 section 2.1, RFC 4862 section 5.4.3) is defended the same way.
"""

import struct
from collections.abc import Collection

from controller.planes.packet import IPV6, Frame, IpPacket, internet_checksum

_ARP = 0x0806
_ARP_REQUEST, _ARP_REPLY = 1, 2
_ARP_HEADER = struct.Struct("!HHBBH")
_ARP_OF_IPV4 = (1, 0x0800, 6, 4)  # hardware type Ethernet, protocol IPv4, their lengths
_ICMPV6 = 58
_SOLICITATION, _ADVERTISEMENT = 135, 136
_HOP_LIMIT = 255  # as RFC 4861 section 7.1.1 asks for: nobody has routed it
_ROUTER, _SOLICITED, _OVERRIDE = 1 << 31, 1 << 30, 1 << 29
_TARGET_LINK_LAYER = b"\x02\x01"  # an option of eight octets
_ALL_NODES = bytes.fromhex("ff020000000000000000000000000001")


def answer(frame: bytes, mac: bytes, addresses: Collection[bytes]) -> bytes | None:
    """Return the answer to an untagged frame that asks for one of ``addresses`` (4 or 16 octets), None to any other.

    ``mac`` is that of the interface which the frame came in by.
    """
    if len(frame) < 14:
        return None
    read = Frame.read(frame)
    if read.ether_type == _ARP:
        return _arp(frame[6:12], read.payload, mac, addresses)
    packet = IpPacket.find(read) if read.ether_type == IPV6 else None
    if packet is not None and packet.protocol == _ICMPV6 and packet.ttl == _HOP_LIMIT:
        return _neighbor(frame[6:12], packet, mac, addresses)
    return None


def is_answer(frame: bytes) -> bool:
    """Whether an untagged frame is an ARP reply or a Neighbor Advertisement."""
    if len(frame) < 14:
        return False
    read = Frame.read(frame)
    if read.ether_type == _ARP:
        return read.payload[6:8] == _ARP_REPLY.to_bytes(2, "big")
    packet = IpPacket.find(read) if read.ether_type == IPV6 else None
    if packet is None or packet.protocol != _ICMPV6:
        return False
    return packet.octets[packet.header_octets : packet.header_octets + 1] == bytes((_ADVERTISEMENT,))


def _arp(asker: bytes, octets: bytes, mac: bytes, addresses: Collection[bytes]) -> bytes | None:
    if len(octets) < 28 or _ARP_HEADER.unpack_from(octets) != (*_ARP_OF_IPV4, _ARP_REQUEST):
        return None
    sender, wanted = octets[8:18], octets[24:28]
    if wanted not in addresses:
        return None
    reply = _ARP_HEADER.pack(*_ARP_OF_IPV4, _ARP_REPLY) + mac + wanted + sender
    return asker + mac + _ARP.to_bytes(2, "big") + reply


def _neighbor(asker: bytes, packet: IpPacket, mac: bytes, addresses: Collection[bytes]) -> bytes | None:
    message = packet.octets[packet.header_octets : packet.length]
    if len(message) < 24 or len(message) % 2 or message[:2] != bytes((_SOLICITATION, 0)):
        return None
    wanted = message[8:24]
    if wanted not in addresses or _icmpv6_checksum(packet.src, packet.dst, message):
        return None
    probe = not any(packet.src)
    to = _ALL_NODES if probe else packet.src
    flags = _ROUTER | _OVERRIDE | (0 if probe else _SOLICITED)
    body = struct.pack("!BBHI", _ADVERTISEMENT, 0, 0, flags) + wanted + _TARGET_LINK_LAYER + mac
    body = body[:2] + _icmpv6_checksum(wanted, to, body).to_bytes(2, "big") + body[4:]
    header = struct.pack("!IHBB", 6 << 28, len(body), _ICMPV6, _HOP_LIMIT) + wanted + to
    return (b"\x33\x33" + to[12:] if probe else asker) + mac + IPV6.to_bytes(2, "big") + header + body


def _icmpv6_checksum(src: bytes, dst: bytes, message: bytes) -> int:
    """Return the checksum over a message and its pseudo-header (RFC 8200 section 8.1); 0 over one that holds it."""
    return internet_checksum(src + dst + struct.pack("!II", len(message), _ICMPV6) + message)
