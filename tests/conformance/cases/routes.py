"""ipv4_route and ipv6_route: the longest prefix of the router, and no other's."""

from case import (
    FAST,
    Case,
    arrives,
    blue_lan,
    blue_to_lan,
    blue_to_up,
    interface,
    lan,
    leaves,
    nexthop,
    to_trunk,
    to_up,
    to_wan,
    up,
    via,
)
from entries import installed
from frames import ipv4, ipv6

from controller.planes.base import (
    BLACKHOLE,
    GLEAN,
    LOCAL,
    UNREACHABLE,
    DropReason,
    Nexthop,
    Policer,
    PuntReason,
    RouterInterface,
)


def to(dst: str, ttl: int = 64) -> bytes:
    return ipv6(dst, ttl=ttl) if ":" in dst else ipv4(dst, ttl=ttl)


def hit(name: str, dst: str, by: Nexthop, at: RouterInterface = lan) -> Case:
    return Case(f"{name}: {dst}", arrives(at, to(dst)), leaves(by, to(dst, 63)))


# Routers with few routes, so that every length is the longest there is.
_edge = interface(31, 3, 1, vlan=31)
_edge_up = interface(32, 3, 2, vlan=31)
_a, _b, _c = (nexthop(number, _edge_up) for number in (131, 132, 133))
_EDGE = installed(
    [Policer(3, FAST), _edge, _edge_up, _a, _b, _c],
    {
        3: {
            "0.0.0.0/0": via(_a),
            "0.0.0.0/1": via(_b),
            "128.0.0.0/1": via(_c),
            "192.0.2.0/31": via(_a),
            "192.0.2.2/31": via(_b),
            "192.0.2.3/32": via(_c),
            "223.255.255.255/32": via(_b),
            "::/0": via(_a),
            "2000::/3": via(_b),
            "2001:db8::/127": via(_c),
            "2001:db8::2/127": via(_a),
            "2001:db8::3/128": via(_c),
            "2001:db8:0:0:8000::/65": via(_a),
            "2001:db8:0:1::/64": via(_c),
        }
    },
)
_EMPTY = installed([Policer(3, FAST), _edge], {})
_MIXED = installed(
    [Policer(3, FAST), _edge, _edge_up, _a],
    {
        3: {
            "10.0.0.0/8": via(_a),
            "10.1.0.0/16": BLACKHOLE,
            "10.1.1.0/24": GLEAN,
            "10.1.1.1/32": LOCAL,
            "10.1.2.0/24": UNREACHABLE,
            "2001:db8::/32": via(_a),
            "2001:db8:1::/48": BLACKHOLE,
            "2001:db8:1:1::/64": GLEAN,
            "2001:db8:1:1::1/128": LOCAL,
            "2001:db8:1:2::/64": UNREACHABLE,
        }
    },
)


def edge(dst: str, by: Nexthop) -> Case:
    expected = leaves(by, to(dst, 63), entries=_EDGE)
    return Case(f"longest: {dst}", arrives(_edge, to(dst)), expected, entries=_EDGE)


CASES = [
    hit("a /16", "10.2.255.1", to_up),
    hit("a /24 in it", "10.2.3.1", to_wan),
    hit("a /32 in that", "10.2.3.4", to_trunk),
    hit("beside the /32", "10.2.3.5", to_wan),
    hit("a /31, first", "10.2.3.6", to_up),
    hit("a /31, second", "10.2.3.7", to_up),
    hit("behind the /31", "10.2.3.8", to_wan),
    hit("the first of the /24", "10.2.3.0", to_wan),
    hit("the last of the /24", "10.2.3.255", to_wan),
    hit("behind the /24", "10.2.4.0", to_up),
    hit("before the /24", "10.2.2.255", to_up),
    hit("a /48", "2001:db8:2:4::1", to_up),
    hit("a /64 in it", "2001:db8:2:3::1", to_wan),
    hit("a /128 in that", "2001:db8:2:3::4", to_trunk),
    hit("beside the /128", "2001:db8:2:3::5", to_wan),
    hit("a /127, first", "2001:db8:2:3::6", to_up),
    hit("a /127, second", "2001:db8:2:3::7", to_up),
    hit("the last of the /64", "2001:db8:2:3:ffff:ffff:ffff:ffff", to_wan),
    Case("no route", arrives(lan, to("192.0.2.1")), PuntReason.UNREACHABLE),
    Case("no route, IPv6", arrives(lan, to("2001:db8:ffff::1")), PuntReason.UNREACHABLE),
    Case("an unreachable route", arrives(lan, to("10.11.0.1")), PuntReason.UNREACHABLE),
    Case("an unreachable route, IPv6", arrives(lan, to("2001:db8:11::1")), PuntReason.UNREACHABLE),
    Case("an own address", arrives(lan, to("10.1.0.1")), PuntReason.LOCAL),
    Case("an own address by another interface", arrives(up, to("10.1.0.1")), PuntReason.LOCAL),
    Case("an own address, IPv6", arrives(lan, to("2001:db8:1::1")), PuntReason.LOCAL),
    Case("a connected prefix", arrives(lan, to("10.9.0.1")), PuntReason.GLEAN),
    Case("a connected prefix, IPv6", arrives(lan, to("2001:db8:9::1")), PuntReason.GLEAN),
    Case("a blackhole", arrives(lan, to("10.10.0.2")), DropReason.BLACKHOLE),
    hit("a hole in a blackhole", "10.10.0.1", to_up),
    Case("a blackhole, IPv6", arrives(lan, to("2001:db8:10::1")), DropReason.BLACKHOLE),
    hit("the other router's default", "10.11.0.1", blue_to_up, blue_lan),
    hit("the other router's default, IPv6", "2001:db8:11::1", blue_to_up, blue_lan),
    hit("red's own address is blue's neighbor's", "10.1.0.1", blue_to_up, blue_lan),
    hit("a prefix red does not have", "10.9.9.1", blue_to_lan, blue_lan),
    Case("red's transit is blue's own", arrives(blue_lan, to("10.2.0.9")), PuntReason.LOCAL),
    Case("red's transit is blue's own, IPv6", arrives(blue_lan, to("2001:db8:2::9")), PuntReason.LOCAL),
    Case("red's host route is blue's blackhole", arrives(blue_lan, to("10.2.3.4")), DropReason.BLACKHOLE),
    edge("1.2.3.4", _b),
    edge("126.255.255.255", _b),
    edge("128.0.0.1", _c),
    edge("192.0.1.255", _c),
    edge("192.0.2.0", _a),
    edge("192.0.2.1", _a),
    edge("192.0.2.2", _b),
    edge("192.0.2.3", _c),
    edge("192.0.2.4", _c),
    edge("223.255.255.255", _b),
    edge("223.255.255.254", _c),
    edge("4000::1", _a),
    edge("2001:db8::", _c),
    edge("2001:db8::1", _c),
    edge("2001:db8::2", _a),
    edge("2001:db8::3", _c),
    edge("2001:db8::4", _b),
    edge("2001:db8::8000:0:0:0", _a),
    edge("2001:db8:0:1::1", _c),
    edge("3fff:ffff::1", _b),
    Case("a router without routes", arrives(_edge, to("10.2.0.9")), PuntReason.UNREACHABLE, entries=_EMPTY),
    Case("a router without routes, IPv6", arrives(_edge, to("2001:db8::9")), PuntReason.UNREACHABLE, entries=_EMPTY),
    *(
        Case(f"kinds in each other: {dst}", arrives(_edge, to(dst)), expected, entries=_MIXED)
        for dst, expected in {
            "10.1.9.9": DropReason.BLACKHOLE,
            "10.1.1.9": PuntReason.GLEAN,
            "10.1.1.1": PuntReason.LOCAL,
            "10.1.2.1": PuntReason.UNREACHABLE,
            "2001:db8:1:9::": DropReason.BLACKHOLE,
            "2001:db8:1:1::9": PuntReason.GLEAN,
            "2001:db8:1:1::1": PuntReason.LOCAL,
            "2001:db8:1:2::1": PuntReason.UNREACHABLE,
        }.items()
    ),
]
