"""nexthop_group and nexthop: which way, and where that is."""

from case import (
    FAST,
    Case,
    arrives,
    group,
    interface,
    lan,
    lan_vlan,
    leaves,
    nexthop,
    to_down,
    to_lan,
    to_lan_vlan,
    to_trunk,
    to_up,
    to_wan,
    up,
    via_group,
)
from entries import installed
from frames import MORE_FRAGMENTS, fragment_header, ipv4, ipv6, udp

from controller.planes.base import DropReason, NexthopState, Policer, PuntReason


def either(packet: bytes) -> tuple:
    return leaves(to_up, packet), leaves(to_wan, packet)


V4, V6 = "10.8.0.1", "2001:db8:8::1"

# A group whose members are of every kind.
_in = interface(41, 4, 1, vlan=41)
_out, _short, _back = (
    interface(42, 4, 2, vlan=42),
    interface(43, 4, 3, vlan=43, mtu=100),
    interface(44, 4, 1, vlan=44),
)
_way, _short_way, _back_way = nexthop(141, _out), nexthop(142, _short), nexthop(143, _back)
_gleaned, _failed = nexthop(144, _out, NexthopState.GLEAN), nexthop(145, _out, NexthopState.DROP)
_every_kind = group(241, (_way, 1), (_short_way, 2), (_back_way, 1), (_gleaned, 1), (_failed, 1))
_KINDS = installed(
    [Policer(4, FAST), _in, _out, _short, _back, _way, _short_way, _back_way, _gleaned, _failed, _every_kind],
    {4: {"0.0.0.0/0": via_group(_every_kind), "::/0": via_group(_every_kind)}},
)


def any_kind(dst: str, octets: int) -> Case:
    packet, routed = (
        (ipv6 if ":" in dst else ipv4)(dst, ttl=ttl, payload=udp(payload=bytes(octets))) for ttl in (64, 63)
    )
    too_long = len(packet) > _short.mtu
    expected = (
        leaves(_way, routed, _KINDS),
        leaves(_back_way, routed, _KINDS),
        PuntReason.MTU_EXCEEDED if too_long else leaves(_short_way, routed, _KINDS),
        PuntReason.GLEAN,
        DropReason.NEIGHBOR_FAILED,
    )
    return Case(f"a group of every kind: {dst}, {octets} octets", arrives(_in, packet), expected, entries=_KINDS)


CASES = [
    Case("a group of one", arrives(lan, ipv4("10.7.0.1")), leaves(to_up, ipv4("10.7.0.1", ttl=63))),
    Case("a group of one, IPv6", arrives(lan, ipv6("2001:db8:7::1")), leaves(to_up, ipv6("2001:db8:7::1", ttl=63))),
    Case("a group of two", arrives(lan, ipv4(V4)), either(ipv4(V4, ttl=63))),
    Case("a group of two, IPv6", arrives(lan, ipv6(V6)), either(ipv6(V6, ttl=63))),
    Case(
        "a group, TCP",
        arrives(lan, ipv4(V4, protocol=6, payload=bytes(20))),
        either(ipv4(V4, protocol=6, payload=bytes(20), ttl=63)),
    ),
    Case(
        "a group, SCTP",
        arrives(lan, ipv6(V6, next_header=132, payload=bytes(12))),
        either(ipv6(V6, next_header=132, payload=bytes(12), ttl=63)),
    ),
    Case(
        "a group, no ports",
        arrives(lan, ipv4(V4, protocol=50, payload=bytes(20))),
        either(ipv4(V4, protocol=50, payload=bytes(20), ttl=63)),
    ),
    Case(
        "a group, ports cut off", arrives(lan, ipv4(V4, payload=b"\0\1")), either(ipv4(V4, payload=b"\0\1", ttl=63))
    ),
    Case(
        "a group, nothing behind the header",
        arrives(lan, ipv6(V6, payload=b"")),
        either(ipv6(V6, payload=b"", ttl=63)),
    ),
    Case(
        "a group, first fragment",
        arrives(lan, ipv4(V4, fragment=MORE_FRAGMENTS)),
        either(ipv4(V4, fragment=MORE_FRAGMENTS, ttl=63)),
    ),
    Case("a group, later fragment", arrives(lan, ipv4(V4, fragment=100)), either(ipv4(V4, fragment=100, ttl=63))),
    Case(
        "a group, IPv6 fragment",
        arrives(lan, ipv6(V6, next_header=44, payload=fragment_header(0, True) + udp())),
        either(ipv6(V6, next_header=44, payload=fragment_header(0, True) + udp(), ttl=63)),
    ),
    Case("a group that gleans", arrives(lan, ipv4("10.9.2.1")), PuntReason.GLEAN),
    Case("a group that fails", arrives(lan, ipv4("10.10.2.1")), DropReason.NEIGHBOR_FAILED),
    any_kind("192.0.2.1", 10),
    any_kind("192.0.2.2", 72),
    any_kind("192.0.2.3", 73),
    any_kind("2001:db8::1", 52),
    any_kind("2001:db8::2", 53),
    Case("not resolved", arrives(lan, ipv4("10.9.1.1")), PuntReason.GLEAN),
    Case("not resolved, IPv6", arrives(lan, ipv6("2001:db8:9:1::1")), PuntReason.GLEAN),
    Case("not resolved and too long", arrives(lan, ipv4("10.9.1.1", payload=bytes(1600))), PuntReason.GLEAN),
    Case("failed", arrives(lan, ipv4("10.10.1.1")), DropReason.NEIGHBOR_FAILED),
    Case("failed, IPv6", arrives(lan, ipv6("2001:db8:10:1::1")), DropReason.NEIGHBOR_FAILED),
    Case(
        "out by a VLAN of the ingress port",
        arrives(lan, ipv4("10.5.0.1")),
        leaves(to_lan_vlan, ipv4("10.5.0.1", ttl=63)),
    ),
    Case("out by the same VLAN", arrives(lan_vlan, ipv4("10.5.0.1")), leaves(to_lan_vlan, ipv4("10.5.0.1", ttl=63))),
    Case("from a VLAN out untagged", arrives(lan_vlan, ipv4("10.1.0.9")), leaves(to_lan, ipv4("10.1.0.9", ttl=63))),
    Case(
        "back out of the port, IPv6",
        arrives(lan, ipv6("2001:db8:1::9")),
        leaves(to_lan, ipv6("2001:db8:1::9", ttl=63)),
    ),
    Case("back out of a second port", arrives(up, ipv4("10.2.0.1")), leaves(to_up, ipv4("10.2.0.1", ttl=63))),
    Case(
        "out by an interface that is down", arrives(lan, ipv4("10.6.0.1")), leaves(to_down, ipv4("10.6.0.1", ttl=63))
    ),
    Case("by a third port", arrives(lan, ipv6("2001:db8:4::1")), leaves(to_trunk, ipv6("2001:db8:4::1", ttl=63))),
]
