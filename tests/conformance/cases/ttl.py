"""ttl: what may not be forwarded as it is, now that its route is known."""

from case import Case, arrives, blue_lan, lan, leaves, to_lan, to_trunk, to_up
from frames import ROUTER_ALERT, extension, ipv4, ipv6, udp

from controller.planes.base import Capability, DropReason, PuntReason

EXPIRED, UNREACHABLE, OPTIONS, HOP_BY_HOP = (
    PuntReason.TTL_EXPIRED,
    PuntReason.UNREACHABLE,
    PuntReason.IP_OPTIONS,
    PuntReason.HOP_BY_HOP,
)
WITH_OPTIONS, WITH_HOP_BY_HOP = Capability.IP_OPTIONS, Capability.HOP_BY_HOP
V4, V6 = "10.2.0.9", "2001:db8:2::9"


def optioned(dst: str, ttl: int = 64, src: str = "10.1.0.99") -> bytes:
    return ipv4(dst, src, ttl=ttl, options=ROUTER_ALERT)


def hop_by_hop(dst: str, ttl: int = 64, src: str = "2001:db8:1::99") -> bytes:
    return ipv6(dst, src, ttl=ttl, next_header=0, payload=extension(17) + udp())


CASES = [
    *(Case(f"TTL {ttl}", arrives(lan, ipv4(V4, ttl=ttl)), EXPIRED) for ttl in (0, 1)),
    *(
        Case(f"TTL {ttl}", arrives(lan, ipv4(V4, ttl=ttl)), leaves(to_up, ipv4(V4, ttl=ttl - 1)))
        for ttl in (2, 3, 255)
    ),
    *(Case(f"hop limit {ttl}", arrives(lan, ipv6(V6, ttl=ttl)), EXPIRED) for ttl in (0, 1)),
    *(
        Case(f"hop limit {ttl}", arrives(lan, ipv6(V6, ttl=ttl)), leaves(to_up, ipv6(V6, ttl=ttl - 1)))
        for ttl in (2, 3, 255)
    ),
    *(
        Case(f"TTL {ttl} to an own address", arrives(lan, ipv4("10.1.0.1", ttl=ttl)), PuntReason.LOCAL)
        for ttl in (0, 1)
    ),
    *(
        Case(f"hop limit {ttl} to an own address", arrives(lan, ipv6("2001:db8:1::1", ttl=ttl)), PuntReason.LOCAL)
        for ttl in (0, 1)
    ),
    Case("TTL 1 to a blackhole", arrives(lan, ipv4("10.10.0.2", ttl=1)), DropReason.BLACKHOLE),
    Case("TTL 1 to a connected prefix", arrives(lan, ipv4("10.9.0.1", ttl=1)), EXPIRED),
    Case("TTL 2 to a connected prefix", arrives(lan, ipv4("10.9.0.1", ttl=2)), PuntReason.GLEAN),
    Case("TTL 1 to an unreachable route", arrives(lan, ipv4("10.11.0.1", ttl=1)), EXPIRED),
    Case("TTL 1 without a route", arrives(lan, ipv4("192.0.2.1", ttl=1)), EXPIRED),
    Case("TTL 1 to a neighbor that is not resolved", arrives(lan, ipv4("10.9.1.1", ttl=1)), EXPIRED),
    Case("TTL 1 to a neighbor that failed", arrives(lan, ipv4("10.10.1.1", ttl=1)), EXPIRED),
    Case("TTL 1 to a group", arrives(lan, ipv4("10.8.0.1", ttl=1)), EXPIRED),
    Case("TTL 1 and too long", arrives(lan, ipv4("10.3.0.1", ttl=1, payload=bytes(1400))), EXPIRED),
    Case("hop limit 1 without a route", arrives(lan, ipv6("2001:db8:ffff::1", ttl=1)), EXPIRED),
    Case("hop limit 1 to a connected prefix", arrives(lan, ipv6("2001:db8:9::1", ttl=1)), EXPIRED),
    Case("hop limit 1 to a group", arrives(lan, ipv6("2001:db8:8::1", ttl=1)), EXPIRED),
    Case("hop limit 1 to a blackhole", arrives(lan, ipv6("2001:db8:10::1", ttl=1)), DropReason.BLACKHOLE),
    Case("link-local source, transit", arrives(lan, ipv6(V6, "fe80::9")), UNREACHABLE),
    Case("link-local source, last of its prefix", arrives(lan, ipv6(V6, "febf::9")), UNREACHABLE),
    Case(
        "behind the link-local prefix", arrives(lan, ipv6(V6, "fec0::9")), leaves(to_up, ipv6(V6, "fec0::9", ttl=63))
    ),
    Case("link-local source, own address", arrives(lan, ipv6("2001:db8:1::1", "fe80::9")), PuntReason.LOCAL),
    Case("link-local source, connected prefix", arrives(lan, ipv6("2001:db8:9::1", "fe80::9")), UNREACHABLE),
    Case("link-local source, group", arrives(lan, ipv6("2001:db8:8::1", "fe80::9")), UNREACHABLE),
    Case("link-local source, blackhole", arrives(lan, ipv6("2001:db8:10::1", "fe80::9")), DropReason.BLACKHOLE),
    Case("link-local source, hop limit 1", arrives(lan, ipv6(V6, "fe80::9", ttl=1)), EXPIRED),
    Case("link-local source, failed neighbor", arrives(lan, ipv6("2001:db8:10:1::1", "fe80::9")), UNREACHABLE),
    Case(
        "IPv4 link-local source is forwarded",
        arrives(lan, ipv4(V4, "169.254.0.9")),
        leaves(to_up, ipv4(V4, "169.254.0.9", ttl=63)),
    ),
    Case("options", arrives(lan, optioned(V4)), OPTIONS, WITH_OPTIONS),
    Case("options to a group", arrives(lan, optioned("10.7.0.1")), OPTIONS, WITH_OPTIONS),
    Case(
        "options and too long",
        arrives(lan, ipv4("10.3.0.1", options=ROUTER_ALERT, payload=bytes(1400))),
        OPTIONS,
        WITH_OPTIONS,
    ),
    Case("options to a neighbor that is not resolved", arrives(lan, optioned("10.9.1.1")), OPTIONS, WITH_OPTIONS),
    Case("forty octets of options", arrives(lan, ipv4(V4, options=bytes([1] * 40))), OPTIONS, WITH_OPTIONS),
    Case("options to an own address", arrives(lan, optioned("10.1.0.1")), PuntReason.LOCAL),
    Case("options to a connected prefix", arrives(lan, optioned("10.9.0.1")), PuntReason.GLEAN),
    Case("options without a route", arrives(lan, optioned("192.0.2.1")), UNREACHABLE),
    Case("options to a blackhole", arrives(lan, optioned("10.10.0.2")), DropReason.BLACKHOLE),
    Case("options, TTL 1", arrives(lan, optioned(V4, ttl=1)), EXPIRED),
    Case("options from a martian", arrives(lan, optioned(V4, src="127.0.0.1")), DropReason.MARTIAN),
    Case("hop-by-hop", arrives(lan, hop_by_hop(V6)), HOP_BY_HOP, WITH_HOP_BY_HOP),
    Case("hop-by-hop to a group", arrives(lan, hop_by_hop("2001:db8:7::1")), HOP_BY_HOP, WITH_HOP_BY_HOP),
    Case(
        "hop-by-hop to a neighbor that is not resolved",
        arrives(lan, hop_by_hop("2001:db8:9:1::1")),
        HOP_BY_HOP,
        WITH_HOP_BY_HOP,
    ),
    Case("hop-by-hop to an own address", arrives(lan, hop_by_hop("2001:db8:1::1")), PuntReason.LOCAL),
    Case("hop-by-hop to a connected prefix", arrives(lan, hop_by_hop("2001:db8:9::1")), PuntReason.GLEAN),
    Case("hop-by-hop to a blackhole", arrives(lan, hop_by_hop("2001:db8:10::1")), DropReason.BLACKHOLE),
    Case("hop-by-hop, hop limit 1", arrives(lan, hop_by_hop(V6, ttl=1)), EXPIRED),
    Case("hop-by-hop, link-local source", arrives(lan, hop_by_hop(V6, src="fe80::9")), UNREACHABLE),
    Case("TTL 2, the other router", arrives(blue_lan, ipv4("10.2.0.9", ttl=2)), PuntReason.LOCAL),
    Case(
        "TTL 2, back out of the port", arrives(lan, ipv4("10.1.0.9", ttl=2)), leaves(to_lan, ipv4("10.1.0.9", ttl=1))
    ),
    Case("TTL 2, tagged out", arrives(lan, ipv4("10.4.0.9", ttl=2)), leaves(to_trunk, ipv4("10.4.0.9", ttl=1))),
]
