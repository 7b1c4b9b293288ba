"""What calls itself IP and is not: RFC 1812 section 5.2.2, RFC 8200 section 3."""

from case import Case, arrives, lan, lan_vlan, leaves, to_up
from frames import IPV4, IPV6, ROUTER_ALERT, checksum, ipv4, ipv6, mac, udp

from controller.planes.base import Capability, DropReason, PuntReason

MALFORMED = DropReason.MALFORMED
CHECKSUM = Capability.IPV4_CHECKSUM
BROADCAST = mac("ffffffffffff")
V4, V6 = "10.2.0.9", "2001:db8:2::9"
MAKES_IT_0 = checksum(ipv4(V4, identification=0, header_checksum=0)[:20])  # an identification: a right checksum is 0

CASES = [
    Case("IPv4: nothing", arrives(lan, b"", ether_type=IPV4), MALFORMED),
    Case("IPv4: one octet", arrives(lan, b"\x45", ether_type=IPV4), MALFORMED),
    Case("IPv4: 19 octets", arrives(lan, ipv4(V4)[:19]), MALFORMED),
    Case("IPv4: 19 octets, tagged", arrives(lan_vlan, ipv4(V4)[:19]), MALFORMED),
    Case("IPv4: cut behind its header", arrives(lan, ipv4(V4)[:20]), MALFORMED),
    Case("IPv4: one octet missing", arrives(lan, ipv4(V4)[:-1]), MALFORMED),
    Case("IPv4: version 6", arrives(lan, ipv4(V4, version=6), ether_type=IPV4), MALFORMED),
    Case("IPv4: version 0", arrives(lan, ipv4(V4, version=0), ether_type=IPV4), MALFORMED),
    Case("IPv4: IHL 0", arrives(lan, ipv4(V4, header_words=0)), MALFORMED),
    Case("IPv4: IHL 4", arrives(lan, ipv4(V4, header_words=4)), MALFORMED),
    Case("IPv4: IHL longer than the packet", arrives(lan, ipv4(V4, header_words=15)), MALFORMED),
    Case("IPv4: length 0", arrives(lan, ipv4(V4, length=0)), MALFORMED),
    Case("IPv4: length 19", arrives(lan, ipv4(V4, length=19)), MALFORMED),
    Case("IPv4: length shorter than its options", arrives(lan, ipv4(V4, options=ROUTER_ALERT, length=20)), MALFORMED),
    Case("IPv4: length longer than the frame", arrives(lan, ipv4(V4, length=37)), MALFORMED),
    Case("IPv4: length 65535", arrives(lan, ipv4(V4, length=65535)), MALFORMED),
    Case("IPv4: malformed to an own address", arrives(lan, ipv4("10.1.0.1", length=65535)), MALFORMED),
    Case("IPv4: malformed to link scope", arrives(lan, ipv4("224.0.0.5")[:30], to=mac("01005e000005")), MALFORMED),
    Case("IPv4: malformed in a broadcast", arrives(lan, ipv4(V4, length=5), to=BROADCAST), MALFORMED),
    Case("IPv4: an empty packet", arrives(lan, ipv4(V4, payload=b"")), leaves(to_up, ipv4(V4, payload=b"", ttl=63))),
    Case(
        "IPv4: a trailer behind the packet",
        arrives(lan, ipv4(V4) + b"trailer"),
        leaves(to_up, ipv4(V4, ttl=63) + b"trailer"),
    ),
    Case(
        "IPv4: padded to 46 octets",
        arrives(lan, ipv4(V4, payload=udp(payload=b"")) + bytes(18)),
        leaves(to_up, ipv4(V4, payload=udp(payload=b""), ttl=63) + bytes(18)),
    ),
    Case("IPv4: a wrong checksum", arrives(lan, ipv4(V4, header_checksum=0xBEEF)), MALFORMED, CHECKSUM),
    Case("IPv4: checksum 0", arrives(lan, ipv4(V4, header_checksum=0)), MALFORMED, CHECKSUM),
    Case("IPv4: a checksum one off", arrives(lan, ipv4(V4)[:11] + b"\0" + ipv4(V4)[12:]), MALFORMED, CHECKSUM),
    Case(
        "IPv4: checksum ffff in place of 0000",
        arrives(lan, ipv4(V4, identification=MAKES_IT_0, header_checksum=0xFFFF)),
        MALFORMED,
        CHECKSUM,
    ),
    Case(
        "IPv4: a wrong checksum to an own address",
        arrives(lan, ipv4("10.1.0.1", header_checksum=1)),
        MALFORMED,
        CHECKSUM,
    ),
    Case(
        "IPv4: a wrong checksum to link scope",
        arrives(lan, ipv4("224.0.0.5", header_checksum=1)),
        MALFORMED,
        CHECKSUM,
    ),
    Case(
        "IPv4: a checksum beside options is not looked at",
        arrives(lan, ipv4("10.1.0.1", options=ROUTER_ALERT, header_checksum=1)),
        PuntReason.LOCAL,
    ),
    Case("IPv6: nothing", arrives(lan, b"", ether_type=IPV6), MALFORMED),
    Case("IPv6: 39 octets", arrives(lan, ipv6(V6)[:39]), MALFORMED),
    Case("IPv6: 39 octets, tagged", arrives(lan_vlan, ipv6(V6)[:39]), MALFORMED),
    Case("IPv6: one octet missing", arrives(lan, ipv6(V6)[:-1]), MALFORMED),
    Case("IPv6: length longer than the frame", arrives(lan, ipv6(V6, length=17)), MALFORMED),
    Case("IPv6: length 65535", arrives(lan, ipv6(V6, length=65535)), MALFORMED),
    Case("IPv6: version 4", arrives(lan, ipv6(V6, version=4), ether_type=IPV6), MALFORMED),
    Case("IPv6: malformed to an own address", arrives(lan, ipv6("2001:db8:1::1", length=99)), MALFORMED),
    Case("IPv6: malformed to link scope", arrives(lan, ipv6("ff02::1")[:50], to=mac("333300000001")), MALFORMED),
    Case("IPv6: malformed in a broadcast", arrives(lan, ipv6(V6, length=99), to=BROADCAST), MALFORMED),
    Case(
        "IPv6: an empty packet",
        arrives(lan, ipv6(V6, payload=b"", next_header=59)),
        leaves(to_up, ipv6(V6, payload=b"", next_header=59, ttl=63)),
    ),
    Case(
        "IPv6: a trailer behind the packet",
        arrives(lan, ipv6(V6) + b"trailer"),
        leaves(to_up, ipv6(V6, ttl=63) + b"trailer"),
    ),
]
