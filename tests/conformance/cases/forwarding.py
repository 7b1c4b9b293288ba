"""What a router changes of a packet, and all that it leaves alone."""

from case import Case, arrives, lan, leaves, stray, to_up
from frames import (
    DESTINATION_OPTIONS,
    FRAGMENT,
    ICMP,
    IPV4,
    MORE_FRAGMENTS,
    ROUTING,
    TCP,
    checksum,
    ethernet,
    extension,
    fragment_header,
    ipv4,
    ipv6,
    tagged,
    udp,
)

from controller.planes.base import DropReason

V4, V6 = "10.2.0.9", "2001:db8:2::9"
PAYLOAD = udp()


def with_checksum(wanted: int) -> dict[str, int]:
    """An identification that makes the right checksum of the packet with TTL 64 the wanted one."""
    others = checksum(ipv4(V4, identification=0, header_checksum=0)[:20]) ^ 0xFFFF
    return {"identification": ((wanted ^ 0xFFFF) - others) % 0xFFFF}


def unchanged(name: str, **fields: object) -> Case:
    build = ipv6 if "next_header" in fields or "flow_label" in fields or "traffic_class" in fields else ipv4
    dst = V6 if build is ipv6 else V4
    return Case(name, arrives(lan, build(dst, **fields)), leaves(to_up, build(dst, **{**fields, "ttl": 63})))


CASES = [
    unchanged("all bits of DSCP and ECN", tos=0xFF),
    unchanged("congestion experienced", tos=0x03),
    unchanged("don't fragment", fragment=0x4000),
    unchanged("the reserved flag", fragment=0x8000),
    unchanged("a first fragment", fragment=MORE_FRAGMENTS),
    unchanged("a middle fragment", fragment=MORE_FRAGMENTS | 185),
    unchanged("a last fragment", fragment=370),
    unchanged("the largest offset", fragment=0x1FFF),
    unchanged("a TCP segment", protocol=TCP, payload=bytes(20)),
    unchanged("a TCP header cut short", protocol=TCP, payload=bytes(3)),
    unchanged("ICMP", protocol=ICMP, payload=bytes.fromhex("0800f7fd00010001")),
    unchanged("protocol 0", protocol=0),
    unchanged("protocol 255", protocol=255),
    unchanged("an odd length", payload=udp(payload=b"odd")),
    unchanged("traffic class and flow label", traffic_class=0xFF, flow_label=0xFFFFF),
    unchanged("destination options", next_header=DESTINATION_OPTIONS, payload=extension(17) + PAYLOAD),
    unchanged(
        "a routing header", next_header=ROUTING, payload=extension(17, bytes.fromhex("000000000000")) + PAYLOAD
    ),
    unchanged("an IPv6 fragment", next_header=FRAGMENT, payload=fragment_header(0, True) + PAYLOAD),
    unchanged("a later IPv6 fragment", next_header=FRAGMENT, payload=fragment_header(99, False) + PAYLOAD),
    unchanged(
        "a chain of headers",
        next_header=DESTINATION_OPTIONS,
        payload=extension(ROUTING) + extension(FRAGMENT, bytes(6)) + fragment_header(0, False) + PAYLOAD,
    ),
    unchanged("no next header", next_header=59, payload=b""),
    unchanged("no next header, with octets behind", next_header=59, payload=b"octets"),
    unchanged("an unknown next header", next_header=253, payload=b"octets"),
    unchanged("a TCP header cut short, IPv6", next_header=TCP, payload=b"cut"),
    unchanged("an extension header cut short", next_header=DESTINATION_OPTIONS, payload=b"\x11\x09"),
    *(
        unchanged(f"checksum {wanted:04x}", **with_checksum(wanted))
        for wanted in (0x0000, 0x0001, 0x00FF, 0xFEFE, 0xFEFF, 0xFF00, 0xFFFE)
    ),
    Case(
        "a source of the router's own",
        arrives(lan, ipv4(V4, "10.1.0.1")),
        leaves(to_up, ipv4(V4, "10.1.0.1", ttl=63)),
    ),
    Case("source and destination alike", arrives(lan, ipv4(V4, V4)), leaves(to_up, ipv4(V4, V4, ttl=63))),
    Case(
        "a source MAC of the router's own",
        stray(1, ethernet(lan.mac, IPV4, ipv4(V4), src=lan.mac.hex())).by(lan),
        leaves(to_up, ipv4(V4, ttl=63)),
    ),
    Case(
        "a group source MAC",
        stray(1, ethernet(lan.mac, IPV4, ipv4(V4), src="030000000001")).by(lan),
        leaves(to_up, ipv4(V4, ttl=63)),
    ),
    Case(
        "a service tag (802.1ad)",
        stray(1, tagged(ethernet(lan.mac, IPV4, ipv4(V4)), 10, ether_type=0x88A8)).by(lan),
        DropReason.ETHERTYPE,
    ),
    Case(
        "IPv4 behind SNAP",
        stray(1, ethernet(lan.mac, 44, bytes.fromhex("aaaa030000000800") + ipv4(V4))).by(lan),
        DropReason.ETHERTYPE,
    ),
    Case(
        "ARP behind SNAP",
        stray(1, ethernet("ffffffffffff", 36, bytes.fromhex("aaaa030000000806") + bytes(28))).by(lan),
        DropReason.ETHERTYPE,
    ),
]
