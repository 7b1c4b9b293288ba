"""router_interface: the length, by the packet's own word, against the MTU."""

from case import FAST, Case, arrives, interface, lan, leaves, nexthop, to_trunk, to_up, to_wan, trunk, via
from entries import installed
from frames import MORE_FRAGMENTS, ipv4, ipv6, udp

from controller.planes.base import Capability, Policer, PuntReason

TOO_LONG, MTU = PuntReason.MTU_EXCEEDED, Capability.MTU
IPV4_OCTETS, IPV6_OCTETS = 28, 48  # headers, with UDP's


def v4(dst: str, octets: int, ttl: int = 64, fragment: int = 0) -> bytes:
    return ipv4(dst, ttl=ttl, fragment=fragment, payload=udp(payload=bytes(octets - IPV4_OCTETS)))


def v6(dst: str, octets: int, ttl: int = 64) -> bytes:
    return ipv6(dst, ttl=ttl, payload=udp(payload=bytes(octets - IPV6_OCTETS)))


# MTUs at both ends of what is allowed.
_in = interface(51, 5, 1, vlan=51, mtu=9000)
_small, _jumbo = interface(52, 5, 2, vlan=52, mtu=68), interface(53, 5, 3, mtu=8900)
_to_small, _to_jumbo = nexthop(151, _small), nexthop(152, _jumbo)
_SIZES = installed(
    [Policer(5, FAST), _in, _small, _jumbo, _to_small, _to_jumbo],
    {5: {"10.1.0.0/16": via(_to_small), "10.2.0.0/16": via(_to_jumbo), "2001:db8:2::/48": via(_to_jumbo)}},
)

CASES = [
    *(
        Case(
            f"{octets} octets into MTU 1500",
            arrives(lan, v4("10.2.0.9", octets)),
            leaves(to_up, v4("10.2.0.9", octets, 63)),
        )
        for octets in (28, 1499, 1500)
    ),
    Case("1501 octets into MTU 1500", arrives(lan, v4("10.2.0.9", 1501)), TOO_LONG, MTU),
    Case(
        "1500 octets into MTU 1500, tagged",
        arrives(lan, v4("10.4.0.9", 1500)),
        leaves(to_trunk, v4("10.4.0.9", 1500, 63)),
    ),
    Case("1501 octets into MTU 1500, tagged", arrives(lan, v4("10.4.0.9", 1501)), TOO_LONG, MTU),
    Case(
        "1500 octets, tagged in and out",
        arrives(trunk, v4("10.4.0.9", 1500)),
        leaves(to_trunk, v4("10.4.0.9", 1500, 63)),
    ),
    Case("1400 octets into MTU 1400", arrives(lan, v4("10.3.0.9", 1400)), leaves(to_wan, v4("10.3.0.9", 1400, 63))),
    Case("1401 octets into MTU 1400", arrives(lan, v4("10.3.0.9", 1401)), TOO_LONG, MTU),
    Case(
        "1401 octets into MTU 1400, don't fragment",
        arrives(lan, v4("10.3.0.9", 1401, fragment=0x4000)),
        TOO_LONG,
        MTU,
    ),
    Case(
        "1401 octets into MTU 1400, a fragment",
        arrives(lan, v4("10.3.0.9", 1401, fragment=MORE_FRAGMENTS)),
        TOO_LONG,
        MTU,
    ),
    Case(
        "1400 octets into MTU 1400, IPv6",
        arrives(lan, v6("2001:db8:3::9", 1400)),
        leaves(to_wan, v6("2001:db8:3::9", 1400, 63)),
    ),
    Case("1401 octets into MTU 1400, IPv6", arrives(lan, v6("2001:db8:3::9", 1401)), TOO_LONG, MTU),
    Case("1401 octets to an own address", arrives(lan, v4("10.1.0.1", 1600)), PuntReason.LOCAL),
    Case(
        "a trailer that does not fill the MTU",
        arrives(lan, v4("10.3.0.9", 1390) + bytes(10)),
        leaves(to_wan, v4("10.3.0.9", 1390, 63) + bytes(10)),
    ),
    Case(
        "a trailer beyond the MTU",
        arrives(lan, v4("10.3.0.9", 1390) + bytes(11)),
        leaves(to_wan, v4("10.3.0.9", 1390, 63) + bytes(11)),
    ),
    Case(
        "68 octets into MTU 68",
        arrives(_in, v4("10.1.0.9", 68)),
        leaves(_to_small, v4("10.1.0.9", 68, 63), _SIZES),
        entries=_SIZES,
    ),
    Case("69 octets into MTU 68", arrives(_in, v4("10.1.0.9", 69)), TOO_LONG, MTU, _SIZES),
    Case(
        "a jumbo",
        arrives(_in, v4("10.2.0.9", 8900)),
        leaves(_to_jumbo, v4("10.2.0.9", 8900, 63), _SIZES),
        entries=_SIZES,
    ),
    Case("a jumbo too long", arrives(_in, v4("10.2.0.9", 8901)), TOO_LONG, MTU, _SIZES),
    Case(
        "a jumbo, IPv6",
        arrives(_in, v6("2001:db8:2::9", 8900)),
        leaves(_to_jumbo, v6("2001:db8:2::9", 8900, 63), _SIZES),
        entries=_SIZES,
    ),
]
