"""What a punt is policed as: with one class open and all others shut, what comes up is of that class.

Fragments, options and extension headers stand in the way of ports: docs/planes.md, Punts.
"""

import struct
from dataclasses import dataclass

import pytest
from cases.punts import HELLO
from entries import installed
from frames import (
    ARP,
    DESTINATION_OPTIONS,
    FRAGMENT,
    HOP_BY_HOP,
    ICMP,
    MORE_FRAGMENTS,
    ROUTER_ALERT,
    TCP,
    UDP,
    ether_type_of,
    ethernet,
    extension,
    fragment_header,
    ipv4,
    ipv6,
    mac,
    tcp,
)
from wired import WiredPlane

from controller.planes.base import (
    GLEAN,
    LOCAL,
    Capability,
    Installed,
    Nexthop,
    Policer,
    PuntClass,
    RouteKind,
    RouterInterface,
    route_action,
)

VRF, RATE = 1, 10_000
MAC, BROADCAST, ALL_OSPF = mac("0200000000aa"), mac("ffffffffffff"), mac("01005e000005")
OWN, OWN_6, LINK_LOCAL, GROUP = "10.9.0.1", "2001:db8::1", "fe80::1", "224.0.0.5"
OSPF, EIGRP, VRRP, ICMPV6 = 89, 88, 112, 58
INTERFACE, SHORT = RouterInterface(1, VRF, 1, 0, MAC, 1500), RouterInterface(2, VRF, 2, 0, MAC, 100)
TO_SHORT = Nexthop(1, SHORT.id, mac("020000010001"))
ROUTES = {
    "10.8.0.0/16": route_action(RouteKind.NEXTHOP, TO_SHORT.id),
    "10.9.0.1/32": LOCAL,
    "10.9.0.0/24": GLEAN,
    "2001:db8::1/128": LOCAL,
    "2001:db8::/64": GLEAN,
    "2001:db8:8::/48": route_action(RouteKind.NEXTHOP, TO_SHORT.id),
}


@dataclass(frozen=True)
class Punt:
    """A frame that goes up, and its class."""

    name: str
    punt_class: PuntClass
    frame: bytes
    needs: Capability | None = None


def ip(name: str, punt_class: PuntClass, packet: bytes, needs: Capability | None = None, to: bytes = MAC) -> Punt:
    return Punt(name, punt_class, ethernet(to, ether_type_of(packet), packet), needs)


def ports(source: int, destination: int) -> bytes:
    return struct.pack("!HH", source, destination) + bytes(16)


def own(destination: str, protocol: int, payload: bytes = bytes(20), ttl: int = 64) -> bytes:
    """A packet of either family."""
    if ":" in destination:
        return ipv6(destination, "fe80::9", next_header=protocol, payload=payload, ttl=ttl)
    return ipv4(destination, protocol=protocol, payload=payload, ttl=ttl)


def udp_to(port: int, ttl: int, destination: str = OWN) -> bytes:
    return own(destination, UDP, ports(50_000, port), ttl)


def nd(icmp_type: int, ttl: int = 255, destination: str = OWN_6) -> bytes:
    return own(destination, ICMPV6, bytes((icmp_type,)) + bytes(23), ttl)


HEADER = extension(UDP) + bytes(8)
ALERT = Capability.IP_OPTIONS
HEADERS = Capability.HOP_BY_HOP
PUNTS = [
    ip("OSPF to its group", PuntClass.ROUTING, own(GROUP, OSPF, ttl=1), to=ALL_OSPF),
    ip("OSPF to an own address", PuntClass.ROUTING, own(OWN, OSPF, ttl=1)),
    ip("OSPFv3 to a link-local address", PuntClass.ROUTING, own(LINK_LOCAL, OSPF, ttl=1)),
    ip("OSPFv3 over a virtual link", PuntClass.ROUTING, own(OWN_6, OSPF)),
    ip("a first fragment of OSPF", PuntClass.ROUTING, ipv4(OWN, protocol=OSPF, fragment=MORE_FRAGMENTS)),
    ip("another fragment of OSPF", PuntClass.ROUTING, ipv4(OWN, protocol=OSPF, fragment=185)),
    ip("OSPF with options", PuntClass.ROUTING, ipv4(OWN, protocol=OSPF, options=ROUTER_ALERT)),
    ip("EIGRP", PuntClass.ROUTING, own("224.0.0.10", EIGRP, ttl=2), to=mac("01005e00000a")),
    ip("VRRP", PuntClass.ROUTING, own("224.0.0.18", VRRP, ttl=255), to=mac("01005e000012")),
    ip("VRRP, IPv6", PuntClass.ROUTING, own("ff02::12", VRRP, ttl=255), to=mac("333300000012")),
    ip("VRRP from afar", PuntClass.LOCAL, own(OWN, VRRP, ttl=254)),
    ip("RIP", PuntClass.ROUTING, udp_to(520, 1, "224.0.0.9"), to=mac("01005e000009")),
    ip("RIP to an own address", PuntClass.ROUTING, udp_to(520, 1)),
    ip("RIPng", PuntClass.ROUTING, udp_to(521, 255, "ff02::9"), to=mac("333300000009")),
    ip("Babel", PuntClass.ROUTING, udp_to(6696, 1, "ff02::1:6"), to=mac("333300010006")),
    ip("Babel to a link-local address", PuntClass.ROUTING, udp_to(6696, 1, LINK_LOCAL)),
    Punt("IS-IS", PuntClass.ROUTING, ethernet("0180c2000014", len(HELLO), HELLO)),
    Punt("a long IS-IS PDU", PuntClass.ROUTING, ethernet("0180c2000015", 0x8870, HELLO + bytes(1500))),
    ip("BGP that was called", PuntClass.BGP, own(OWN, TCP, tcp(40_000, 179))),
    ip("BGP that calls", PuntClass.BGP, own(OWN, TCP, tcp(179, 40_000), ttl=1)),
    ip("BGP, IPv6", PuntClass.BGP, own(OWN_6, TCP, tcp(40_000, 179))),
    ip("BGP over link-local addresses", PuntClass.BGP, own(LINK_LOCAL, TCP, tcp(179, 40_000), ttl=255)),
    ip(
        "a first fragment of BGP",
        PuntClass.LOCAL,
        ipv4(OWN, protocol=TCP, fragment=MORE_FRAGMENTS, payload=tcp(179, 179)),
    ),
    ip("another fragment of BGP", PuntClass.LOCAL, ipv4(OWN, protocol=TCP, fragment=3, payload=tcp(179, 179))),
    ip(
        "BGP with options",
        PuntClass.LOCAL,
        ipv4(OWN, protocol=TCP, options=ROUTER_ALERT, payload=tcp(179, 179)),
        ALERT,
    ),
    ip("UDP port 179", PuntClass.LOCAL, udp_to(179, 64)),
    ip("BFD", PuntClass.BFD, udp_to(3784, 255)),
    ip("BFD, IPv6", PuntClass.BFD, udp_to(3784, 255, LINK_LOCAL)),
    ip("BFD from afar", PuntClass.LOCAL, udp_to(3784, 254)),
    ip("an echo of BFD", PuntClass.BFD, udp_to(3785, 255)),
    ip("an echo of BFD that comes back", PuntClass.BFD, udp_to(3785, 254)),
    ip("an echo of BFD from afar", PuntClass.LOCAL, udp_to(3785, 253)),
    ip("BFD over several hops", PuntClass.BFD, udp_to(4784, 12)),
    ip("BFD over several hops, IPv6", PuntClass.BFD, udp_to(4784, 12, OWN_6)),
    Punt("ARP", PuntClass.ARP, ethernet(BROADCAST, ARP, bytes(28))),
    Punt("ARP to the router", PuntClass.ARP, ethernet(MAC, ARP, bytes(28))),
    ip("a neighbor solicitation", PuntClass.ARP, nd(135, destination="ff02::1:ff00:1"), to=mac("3333ff000001")),
    *(ip(f"neighbor discovery, type {number}", PuntClass.ARP, nd(number)) for number in range(133, 138)),
    ip("neighbor discovery from afar", PuntClass.ICMP, nd(135, ttl=254)),
    ip("ping", PuntClass.ICMP, own(OWN, ICMP, b"\x08" + bytes(19))),
    ip("ping, IPv6", PuntClass.ICMP, nd(128)),
    ip("ping of a link-local address", PuntClass.ICMP, nd(128, destination=LINK_LOCAL)),
    ip("a fragment of a ping", PuntClass.ICMP, ipv4(OWN, protocol=ICMP, fragment=185)),
    ip("ICMPv6 in IPv4", PuntClass.LOCAL, own(OWN, ICMPV6, bytes((135,)) + bytes(23), ttl=255)),
    ip("ICMP in IPv6", PuntClass.LOCAL, own(OWN_6, ICMP, bytes(20))),
    ip("ssh", PuntClass.LOCAL, own(OWN, TCP, tcp(40_000, 22))),
    ip("DHCP", PuntClass.LOCAL, ipv4("255.255.255.255", "0.0.0.0", payload=ports(68, 67)), to=BROADCAST),
    ip("IGMP", PuntClass.LOCAL, ipv4("224.0.0.22", ttl=1, protocol=2, options=ROUTER_ALERT), to=mac("01005e000016")),
    ip(
        "MLD with hop-by-hop",
        PuntClass.LOCAL,
        ipv6("ff02::16", "fe80::9", ttl=1, next_header=HOP_BY_HOP, payload=extension(ICMPV6) + bytes(20)),
        HEADERS,
        mac("333300000016"),
    ),
    ip(
        "OSPFv3 behind destination options",
        PuntClass.LOCAL,
        own(OWN_6, DESTINATION_OPTIONS, extension(OSPF) + bytes(20)),
        HEADERS,
    ),
    ip(
        "a first fragment of OSPFv3",
        PuntClass.LOCAL,
        own(OWN_6, FRAGMENT, fragment_header(0, True, OSPF) + bytes(24)),
        HEADERS,
    ),
    ip(
        "another fragment of OSPFv3",
        PuntClass.LOCAL,
        own(OWN_6, FRAGMENT, fragment_header(3, False, OSPF) + bytes(24)),
    ),
    ip("glean", PuntClass.GLEAN, own("10.9.0.77", TCP, tcp(179, 179))),
    ip("TTL 1", PuntClass.TTL, own("10.9.0.77", OSPF, ttl=1)),
    ip("too long", PuntClass.MTU, own("10.8.0.1", OSPF, bytes(81))),
    ip("options", PuntClass.OPTIONS, ipv4("10.8.0.1", options=ROUTER_ALERT), ALERT),
    ip("hop-by-hop", PuntClass.OPTIONS, ipv6("2001:db8:8::1", next_header=HOP_BY_HOP, payload=HEADER), HEADERS),
    ip("no route", PuntClass.UNREACHABLE, own("192.0.2.1", UDP, ports(3784, 3784), 255)),
]


def test_names_and_frames_are_unique() -> None:
    assert len({punt.name for punt in PUNTS}) == len({punt.frame for punt in PUNTS}) == len(PUNTS)


def world(open_class: PuntClass) -> Installed:
    rates = tuple(RATE if each is open_class else 0 for each in PuntClass)
    return installed([Policer(VRF, rates), INTERFACE, SHORT, TO_SHORT], {VRF: ROUTES})


@pytest.mark.asyncio(loop_scope="session")
@pytest.mark.parametrize("open_class", PuntClass, ids=lambda each: each.name.lower())
async def test_a_class_lets_through_what_is_of_it_alone(wired: WiredPlane, open_class: PuntClass) -> None:
    sent = [punt for punt in PUNTS if punt.needs is None or punt.needs in wired.plane.capabilities]
    await wired.program(world(open_class))
    seen = await wired.observe(1, *(punt.frame for punt in sent))
    name_of = {punt.frame: punt.name for punt in sent}
    wanted = {punt.name for punt in sent if punt.punt_class is open_class}
    assert {name_of[frame] for _, _, frame in seen.punts} == wanted
    assert len(seen.punts) == len({frame for _, _, frame in seen.punts}), "each once"
