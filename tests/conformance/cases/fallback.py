"""The fallback link: to the plane that holds all routes, and back from it."""

from case import (
    FAST,
    Arrival,
    Case,
    Expected,
    Leaves,
    arrives,
    comes_back,
    falls_back,
    interface,
    leaves,
    leaves_again,
    nexthop,
    stray,
    via,
)
from entries import installed
from frames import (
    ARP,
    FRAGMENT,
    IPV4,
    ROUTER_ALERT,
    ethernet,
    extension,
    fragment_header,
    ipv4,
    ipv6,
    mac,
    tagged,
    udp,
)

from controller.planes.base import (
    BLACKHOLE,
    FALLBACK,
    GLEAN,
    LOCAL,
    DropReason,
    FallbackLink,
    NexthopState,
    Policer,
    PuntReason,
    RouterInterface,
)

UNKNOWN, UNREACHABLE, EXPIRED = DropReason.UNKNOWN_INTERFACE, PuntReason.UNREACHABLE, PuntReason.TTL_EXPIRED
LINK, OTHERS = 4, 6  # the link's port; vrf_id


def linked(interface_id: int, port: int, vlan: int = 0, mtu: int = 1500, enabled: bool = True) -> RouterInterface:
    link = FallbackLink(LINK, 300 + interface_id)
    return interface(interface_id, OTHERS, port, vlan, mtu, enabled=enabled, fallback=link)


near, near_vlan, far, far_vlan = linked(61, 1), linked(62, 1, 62), linked(63, 2), linked(64, 3, 64, mtu=8900)
by_the_links_port, down = linked(65, LINK, 65), linked(66, 3, 66, enabled=False)
unlinked = interface(67, OTHERS, 2, vlan=67)
to_far, unresolved = nexthop(161, far), nexthop(162, far, NexthopState.GLEAN)
WORLD = installed(
    [
        Policer(OTHERS, FAST),
        *(near, near_vlan, far, far_vlan, by_the_links_port, down, unlinked),
        *(to_far, unresolved),
    ],
    {
        OTHERS: {
            "0.0.0.0/0": FALLBACK,
            "10.1.0.1/32": LOCAL,
            "10.2.0.0/16": via(to_far),
            "10.2.3.0/24": FALLBACK,
            "10.9.0.0/24": GLEAN,
            "10.9.1.0/24": via(unresolved),
            "10.10.0.0/24": BLACKHOLE,
            "::/0": FALLBACK,
            "2001:db8:1::1/128": LOCAL,
            "2001:db8:2::/48": via(to_far),
            "2001:db8:2:3::/64": FALLBACK,
        }
    },
)
V4, V6 = "10.2.3.9", "2001:db8:2:3::9"


def case(name: str, arrival: Arrival, expected: Expected) -> Case:
    return Case(name, arrival, expected, entries=WORLD)


def goes(name: str, arrival: Arrival) -> Case:
    return case(f"to the fallback plane: {name}", arrival, falls_back(arrival))


def stays(name: str, arrival: Arrival, expected: Expected) -> Case:
    return case(f"beside the fallback plane: {name}", arrival, expected)


def returns(name: str, by: RouterInterface, packet: bytes, priority: int = 0, src: bytes | None = None) -> Case:
    arrival = comes_back(by, packet, priority, src)
    return case(f"from the fallback plane: {name}", arrival, leaves_again(by, packet))


def _sized(octets: int) -> bytes:
    return ipv4(V4, payload=udp(payload=bytes(octets - 28)))


_strays = ethernet(far.mac, IPV4, ipv4(V4))

CASES = [
    goes("IPv4", arrives(near, ipv4(V4))),
    goes("IPv6", arrives(near, ipv6(V6))),
    goes("IPv4, tagged", arrives(near_vlan, ipv4(V4))),
    goes("IPv6, tagged", arrives(near_vlan, ipv6(V6))),
    goes("a tag with a priority", arrives(near_vlan, ipv4(V4), priority=7)),
    goes("by the default", arrives(near, ipv4("198.51.100.1"))),
    goes("by the default, IPv6", arrives(near, ipv6("2001:db8:ffff::1"))),
    goes("TTL 2", arrives(near, ipv4(V4, ttl=2))),
    goes("hop limit 2", arrives(near_vlan, ipv6(V6, ttl=2))),
    goes("a fragment", arrives(near, ipv4(V4, fragment=100))),
    goes("an IPv6 fragment", arrives(near, ipv6(V6, next_header=FRAGMENT, payload=fragment_header(9, True) + udp()))),
    goes("options", arrives(near, ipv4(V4, options=ROUTER_ALERT))),
    goes("hop-by-hop", arrives(near, ipv6(V6, next_header=0, payload=extension(17) + udp()))),
    goes("protocol 0", arrives(near, ipv4(V4, protocol=0))),
    goes("1500 octets", arrives(near, _sized(1500))),
    goes("8900 octets", arrives(near_vlan, _sized(8900))),
    goes("back out of the port it came in by", arrives(by_the_links_port, ipv4(V4))),
    stays(
        "a shorter prefix in hardware",
        arrives(near, ipv4("10.2.0.9")),
        leaves(to_far, ipv4("10.2.0.9", ttl=63), WORLD),
    ),
    *(stays(f"TTL {ttl}", arrives(near, ipv4(V4, ttl=ttl)), EXPIRED) for ttl in (0, 1)),
    *(stays(f"hop limit {ttl}", arrives(near_vlan, ipv6(V6, ttl=ttl)), EXPIRED) for ttl in (0, 1)),
    stays("TTL 1 and options", arrives(near, ipv4(V4, ttl=1, options=ROUTER_ALERT)), EXPIRED),
    stays("a link-local source", arrives(near, ipv6(V6, "fe80::9")), UNREACHABLE),
    stays("no link", arrives(unlinked, ipv4(V4)), UNREACHABLE),
    stays("no link, IPv6", arrives(unlinked, ipv6(V6)), UNREACHABLE),
    stays("no link and TTL 1", arrives(unlinked, ipv4(V4, ttl=1)), EXPIRED),
    stays("ARP", arrives(near, bytes(28), to=mac("ffffffffffff"), ether_type=ARP), PuntReason.CONTROL),
    stays(
        "OSPF", arrives(near_vlan, ipv4("224.0.0.5", ttl=1, protocol=89), to=mac("01005e000005")), PuntReason.CONTROL
    ),
    stays("an own address", arrives(near, ipv4("10.1.0.1", ttl=1)), PuntReason.LOCAL),
    stays("an own address, IPv6", arrives(near_vlan, ipv6("2001:db8:1::1")), PuntReason.LOCAL),
    stays("a connected prefix", arrives(near, ipv4("10.9.0.9")), PuntReason.GLEAN),
    stays("an unresolved neighbor", arrives(near, ipv4("10.9.1.9")), PuntReason.GLEAN),
    stays("a blackhole", arrives(near, ipv4("10.10.0.9")), DropReason.BLACKHOLE),
    stays("another's MAC", arrives(near, ipv4(V4), to=far.mac), DropReason.NOT_FOR_US),
    stays("a broadcast frame", arrives(near, ipv4(V4), to=mac("ffffffffffff")), DropReason.L2_MULTICAST),
    returns("IPv4", far, ipv4(V4, ttl=63)),
    returns("IPv6", far, ipv6(V6, ttl=63)),
    returns("IPv4, tagged", far_vlan, ipv4(V4, ttl=63)),
    returns("IPv6, tagged", far_vlan, ipv6(V6, ttl=63)),
    returns("a tag with a priority", far_vlan, ipv4(V4, ttl=63), priority=7),
    returns("by the interface it came in by", near, ipv4(V4, ttl=63)),
    returns("back out of the link's port", by_the_links_port, ipv4(V4, ttl=63)),
    returns("an interface that is down", down, ipv4(V4, ttl=63)),
    *(returns(f"TTL {ttl}", far, ipv4(V4, ttl=ttl)) for ttl in (0, 1)),
    *(returns(f"hop limit {ttl}", far_vlan, ipv6(V6, ttl=ttl)) for ttl in (0, 1)),
    returns("options", far, ipv4(V4, options=ROUTER_ALERT)),
    returns("hop-by-hop", far, ipv6(V6, next_header=0, payload=extension(17) + udp())),
    returns("protocol 0", far, ipv4(V4, protocol=0)),
    returns("a wrong checksum", far, ipv4(V4, header_checksum=0x1234)),
    returns("a prefix of this plane", far_vlan, ipv4("10.2.0.9")),
    returns("an own address", far, ipv4("10.1.0.1")),
    returns("1500 octets", far, _sized(1500)),
    returns("more than the MTU, which the fallback plane has looked at", far, _sized(1501)),
    returns("8900 octets", far_vlan, _sized(8900)),
    returns("the source MAC is the interface's own", far, ipv4(V4), src=mac("020000000001")),
    case(
        "from the fallback plane: no IP",
        stray(LINK, tagged(ethernet(far.mac, ARP, bytes(28)), 364)),
        Leaves(far_vlan, tagged(far.mac + far_vlan.mac + ARP.to_bytes(2, "big") + bytes(28), 64)),
    ),
    case("an unknown VLAN on the fallback link", stray(LINK, tagged(_strays, 399)), UNKNOWN),
    case("no VLAN on the fallback link", stray(LINK, _strays), UNKNOWN),
    case("VLAN 0 on the fallback link", stray(LINK, tagged(_strays, 0)), UNKNOWN),
    case("a fallback link's VLAN on another port", stray(1, tagged(_strays, 363)), UNKNOWN),
]
