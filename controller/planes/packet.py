"""Frames and IP packets, read and changed as far as a router does: the octets under the reference pipeline."""

import struct
from dataclasses import dataclass

IPV4, IPV6, VLAN = 0x0800, 0x86DD, 0x8100
_TCP, _UDP, _SCTP = 6, 17, 132
_ICMPV6 = 58
_WITH_PORTS = (_TCP, _UDP, _SCTP)
_HOP_BY_HOP = 0
_ETHERNET_OCTETS, _TAG_OCTETS = 14, 4
_IPV4_OCTETS, _IPV6_OCTETS = 20, 40
_IPV4_HEADER = struct.Struct("!BBHHHBBH4s4s")
_IPV6_HEADER = struct.Struct("!IHBB16s16s")
_MORE_FRAGMENTS_OR_OFFSET = 0x3FFF


@dataclass(frozen=True, slots=True)
class Frame:
    """An Ethernet frame, with one tag at most taken off."""

    dst_mac: bytes
    vlan: int | None  # the tag's VLAN id, None without a tag
    ether_type: int  # behind the tag
    payload: bytes
    untagged: bytes

    @classmethod
    def read(cls, octets: bytes) -> "Frame":
        """Read a frame; ValueError below 14 octets."""
        if len(octets) < _ETHERNET_OCTETS:
            raise ValueError(f"{len(octets)} octets are no Ethernet frame")
        vlan = None
        if octets[12:14] == b"\x81\0" and len(octets) >= _ETHERNET_OCTETS + _TAG_OCTETS:
            vlan = int.from_bytes(octets[14:16], "big") & 0xFFF
            octets = octets[:12] + octets[16:]
        return cls(octets[:6], vlan, int.from_bytes(octets[12:14], "big"), octets[14:], octets)

    @property
    def group_addressed(self) -> bool:
        """Whether it is sent to a multicast MAC or to all."""
        return bool(self.dst_mac[0] & 1)

    @property
    def is_ip(self) -> bool:
        """Whether its EtherType says IPv4 or IPv6."""
        return self.ether_type in (IPV4, IPV6)


def with_tag(vlan: int, octets: bytes) -> bytes:
    """Return an untagged frame with the tag of a VLAN, priority 0; as it is for VLAN 0."""
    return octets[:12] + struct.pack("!HH", VLAN, vlan) + octets[12:] if vlan else octets


@dataclass(frozen=True, slots=True)
class IpPacket:
    """The IP packet in a frame, with whatever the frame holds behind it."""

    family: int
    length: int  # by its own word, octets
    ttl: int
    protocol: int  # IPv6: the next header
    src: bytes
    dst: bytes
    header_octets: int
    octets: bytes

    @classmethod
    def find(cls, frame: Frame) -> "IpPacket | None":
        """Return the packet of a frame, None where it holds none or one that is not well formed: RFC 1812 section
        5.2.2, RFC 8200 section 3. The checksum is another matter."""
        if frame.ether_type == IPV4:
            return cls._find_ipv4(frame.payload)
        if frame.ether_type == IPV6:
            return cls._find_ipv6(frame.payload)
        return None

    @classmethod
    def _find_ipv4(cls, octets: bytes) -> "IpPacket | None":
        if len(octets) < _IPV4_OCTETS:
            return None
        first, _, length, _, _, ttl, protocol, _, src, dst = _IPV4_HEADER.unpack_from(octets)
        header_octets = (first & 0xF) * 4
        if first >> 4 != 4 or not _IPV4_OCTETS <= header_octets <= length <= len(octets):
            return None
        return cls(4, length, ttl, protocol, src, dst, header_octets, octets)

    @classmethod
    def _find_ipv6(cls, octets: bytes) -> "IpPacket | None":
        if len(octets) < _IPV6_OCTETS:
            return None
        first, payload, protocol, ttl, src, dst = _IPV6_HEADER.unpack_from(octets)
        if first >> 28 != 6 or payload + _IPV6_OCTETS > len(octets):
            return None
        return cls(6, payload + _IPV6_OCTETS, ttl, protocol, src, dst, _IPV6_OCTETS, octets)

    @property
    def checksum_holds(self) -> bool:
        """Whether the header's checksum is right, as far as a switch looks: not beside options. 0xffff, which is zero
        too, is not: no sender writes it (RFC 1624 section 3)."""
        if self.family == 6 or self.has_options:
            return True
        return internet_checksum(self.octets[:_IPV4_OCTETS]) == 0 and self.octets[10:12] != b"\xff\xff"

    @property
    def has_options(self) -> bool:
        """Whether there are IPv4 options."""
        return self.family == 4 and self.header_octets > _IPV4_OCTETS

    @property
    def has_hop_by_hop(self) -> bool:
        """Whether there is a hop-by-hop header, which can only be the first (RFC 8200 section 4.1)."""
        return self.family == 6 and self.protocol == _HOP_BY_HOP

    @property
    def ports(self) -> bytes:
        """Source and destination port; zeros of a fragment, behind options, or where there are none."""
        fragment = self.family == 4 and int.from_bytes(self.octets[6:8], "big") & _MORE_FRAGMENTS_OR_OFFSET
        has_ports = self.protocol in _WITH_PORTS and not fragment and not self.has_options
        end = self.header_octets + 4
        return self.octets[self.header_octets : end] if has_ports and self.length >= end else bytes(4)

    @property
    def source_port(self) -> int:
        """The source port, 0 where there is none."""
        return int.from_bytes(self.ports[:2], "big")

    @property
    def destination_port(self) -> int:
        """The destination port, 0 where there is none."""
        return int.from_bytes(self.ports[2:], "big")

    @property
    def icmp_type(self) -> int:
        """The type of ICMPv6, 0 of another packet."""
        is_there = self.protocol == _ICMPV6 and self.family == 6 and self.length >= self.header_octets + 4
        return self.octets[self.header_octets] if is_there else 0

    @property
    def flow(self) -> bytes:
        """The 5-tuple as octets; of a fragment, or where there are no ports, the 3-tuple and zeros."""
        return self.src.rjust(16, b"\0") + self.dst.rjust(16, b"\0") + bytes((self.protocol,)) + self.ports

    def one_hop_on(self) -> bytes:
        """Return the octets with the TTL one lower and the checksum adjusted, right or wrong (RFC 1624)."""
        octets = bytearray(self.octets)
        if self.family == 6:
            octets[7] -= 1
            return bytes(octets)
        octets[8] -= 1
        # The TTL is the upper octet of its word: ~(~HC + ~m + m') with m' = m - 0x0100, equation 3.
        total = (~int.from_bytes(octets[10:12], "big") & 0xFFFF) + 0xFEFF
        octets[10:12] = (~((total & 0xFFFF) + (total >> 16)) & 0xFFFF).to_bytes(2, "big")
        return bytes(octets)


def internet_checksum(octets: bytes) -> int:
    """Return the Internet checksum (RFC 1071) of an even number of octets."""
    total: int = sum(struct.unpack(f"!{len(octets) // 2}H", octets))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF
