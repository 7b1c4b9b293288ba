"""Frames built from nothing, so that what a plane is held to does not come out of the plane's own code."""

import ipaddress
import struct

HOST_MAC = "02:00:00:00:00:99"
IPV4, IPV6, ARP, VLAN = 0x0800, 0x86DD, 0x0806, 0x8100
TCP, UDP, ICMP, ICMPV6, FRAGMENT, HOP_BY_HOP, DESTINATION_OPTIONS, ROUTING = 6, 17, 1, 58, 44, 0, 60, 43
MORE_FRAGMENTS = 0x2000
ROUTER_ALERT = bytes.fromhex("94040000")  # RFC 2113
EMPTY_HEADER = bytes.fromhex("0104 00000000")  # an extension header's options: PadN


def mac(text: str) -> bytes:
    return bytes.fromhex(text.replace(":", ""))


def ethernet(dst: bytes | str, ether_type: int, payload: bytes = b"", src: str = HOST_MAC) -> bytes:
    return (mac(dst) if isinstance(dst, str) else dst) + mac(src) + struct.pack("!H", ether_type) + payload


def tagged(frame: bytes, vlan: int, priority: int = 0, ether_type: int = VLAN) -> bytes:
    return frame[:12] + struct.pack("!HH", ether_type, priority << 13 | vlan) + frame[12:]


def checksum(octets: bytes) -> int:
    """RFC 1071, the slow way."""
    total = 0
    for at in range(0, len(octets), 2):
        total += int.from_bytes(octets[at : at + 2], "big")
        total = (total & 0xFFFF) + (total >> 16)
    return total ^ 0xFFFF


def udp(src: int = 1024, dst: int = 53, payload: bytes = b"payload!") -> bytes:
    return struct.pack("!HHHH", src, dst, 8 + len(payload), 0) + payload


def tcp(src: int = 1024, dst: int = 80) -> bytes:
    """A segment without data; Open vSwitch sees no ports where the header's own length is not right."""
    return struct.pack("!HHIIBBHHH", src, dst, 1, 1, 5 << 4, 0x10, 1024, 0, 0)


def ipv4(
    dst: str,
    src: str = "10.1.0.99",
    *,
    ttl: int = 64,
    payload: bytes | None = None,
    protocol: int = UDP,
    options: bytes = b"",
    fragment: int = 0,
    identification: int = 7,
    tos: int = 0,
    version: int = 4,
    header_words: int | None = None,
    length: int | None = None,
    header_checksum: int | None = None,
) -> bytes:
    """An IPv4 packet; what is given instead of the right value is taken as it is."""
    payload = udp() if payload is None else payload
    words = 5 + len(options) // 4 if header_words is None else header_words
    total = 20 + len(options) + len(payload) if length is None else length
    addresses = ipaddress.IPv4Address(src).packed + ipaddress.IPv4Address(dst).packed
    first = struct.pack("!BBHHHBB", version << 4 | words, tos, total, identification, fragment, ttl, protocol)
    if header_checksum is None:
        header_checksum = checksum(first + bytes(2) + addresses + options)
    return first + header_checksum.to_bytes(2, "big") + addresses + options + payload


def ipv6(
    dst: str,
    src: str = "2001:db8:1::99",
    *,
    ttl: int = 64,
    payload: bytes | None = None,
    next_header: int = UDP,
    traffic_class: int = 0,
    flow_label: int = 0,
    version: int = 6,
    length: int | None = None,
) -> bytes:
    """An IPv6 packet; what is given instead of the right value is taken as it is."""
    payload = udp() if payload is None else payload
    first = version << 28 | traffic_class << 20 | flow_label
    octets = len(payload) if length is None else length
    addresses = ipaddress.IPv6Address(src).packed + ipaddress.IPv6Address(dst).packed
    return struct.pack("!IHBB", first, octets, next_header, ttl) + addresses + payload


def extension(next_header: int, options: bytes = EMPTY_HEADER) -> bytes:
    """An extension header of eight octets: hop-by-hop, destination options (RFC 8200 section 4)."""
    return bytes((next_header, 0)) + options


def fragment_header(offset: int, more: bool, next_header: int = UDP) -> bytes:
    """RFC 8200 section 4.5; the offset in units of eight octets."""
    return struct.pack("!BBHI", next_header, 0, offset << 3 | more, 77)


def ether_type_of(packet: bytes) -> int:
    return IPV6 if packet[0] >> 4 == 6 else IPV4
