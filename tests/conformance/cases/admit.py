"""l3_admit: whether the frame is for the router."""

from case import VRRP_4, VRRP_6, Case, arrives, blue_lan, lan, lan_vlan, leaves, to_up, up
from frames import ARP, ipv4, ipv6, mac

from controller.planes.base import DropReason, PuntReason

NOT_FOR_US = DropReason.NOT_FOR_US
to_24, from_24 = ipv4("10.2.0.9"), ipv4("10.2.0.9", ttl=63)

CASES = [
    Case("to a virtual MAC", arrives(lan, to_24, to=VRRP_4), leaves(to_up, from_24)),
    Case(
        "to the other virtual MAC, IPv6",
        arrives(lan, ipv6("2001:db8:2::9"), to=VRRP_6),
        leaves(to_up, ipv6("2001:db8:2::9", ttl=63)),
    ),
    Case("a virtual MAC is one interface's", arrives(lan_vlan, to_24, to=VRRP_4), NOT_FOR_US),
    Case("local by a virtual MAC", arrives(lan, ipv4("10.1.0.254"), to=VRRP_4), PuntReason.LOCAL),
    Case("to somebody else's MAC", arrives(lan, to_24, to=mac("020000007777")), NOT_FOR_US),
    Case("to another interface of the router", arrives(lan, to_24, to=up.mac), NOT_FOR_US),
    Case("to another router's interface", arrives(blue_lan, to_24, to=lan.mac), NOT_FOR_US),
    Case("one bit off", arrives(lan, to_24, to=lan.mac[:5] + bytes((lan.mac[5] ^ 1,))), NOT_FOR_US),
    Case("to zeros", arrives(lan, to_24, to=bytes(6)), NOT_FOR_US),
    Case("ARP to somebody else", arrives(lan, bytes(28), to=mac("020000007777"), ether_type=ARP), NOT_FOR_US),
    Case("link scope to somebody else", arrives(lan, ipv4("224.0.0.5"), to=mac("020000007777")), NOT_FOR_US),
    Case("malformed to somebody else", arrives(lan, ipv4("10.2.0.9", length=9), to=mac("020000007777")), NOT_FOR_US),
    Case("ARP to the router's own MAC", arrives(lan, bytes(28), ether_type=ARP), PuntReason.CONTROL),
]
