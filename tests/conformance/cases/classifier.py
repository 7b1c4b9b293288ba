"""interface_classifier: whose packet it is, by port and VLAN."""

from case import (
    Case,
    arrives,
    blue_lan,
    blue_to_up,
    down,
    lan,
    lan_vlan,
    leaves,
    stray,
    to_lan,
    to_trunk,
    to_up,
    to_wan,
    trunk,
    up,
    wan,
)
from frames import ARP, IPV4, IPV6, ethernet, ipv4, ipv6, tagged

from controller.planes.base import DropReason, PuntReason

UNKNOWN = DropReason.UNKNOWN_INTERFACE
to_24 = ipv4("10.2.0.9")
frame = ethernet(lan.mac, IPV4, to_24)

CASES = [
    Case("untagged in, untagged out", arrives(lan, to_24), leaves(to_up, ipv4("10.2.0.9", ttl=63))),
    Case("tagged in, untagged out", arrives(lan_vlan, to_24), leaves(to_up, ipv4("10.2.0.9", ttl=63))),
    Case("untagged in, tagged out", arrives(up, ipv4("10.4.0.9")), leaves(to_trunk, ipv4("10.4.0.9", ttl=63))),
    Case("tagged in, tagged out", arrives(wan, ipv4("10.4.0.9")), leaves(to_trunk, ipv4("10.4.0.9", ttl=63))),
    Case(
        "tagged in, tagged out, IPv6",
        arrives(trunk, ipv6("2001:db8:3::9")),
        leaves(to_wan, ipv6("2001:db8:3::9", ttl=63)),
    ),
    Case("a tag with a priority", arrives(lan_vlan, to_24, priority=7), leaves(to_up, ipv4("10.2.0.9", ttl=63))),
    Case(
        "the priority does not go on",
        arrives(lan_vlan, ipv4("10.4.0.9"), priority=5),
        leaves(to_trunk, ipv4("10.4.0.9", ttl=63)),
    ),
    Case(
        "the drop-eligible bit does not go on",
        stray(1, tagged(ethernet(lan_vlan.mac, IPV4, ipv4("10.4.0.9")), 0x1000 | 10)).by(lan_vlan),
        leaves(to_trunk, ipv4("10.4.0.9", ttl=63)),
    ),
    Case("the same VLAN on another port", stray(2, tagged(frame, 10)), UNKNOWN),
    Case("an unknown VLAN", stray(1, tagged(frame, 11)), UNKNOWN),
    Case("VLAN 4095", stray(1, tagged(frame, 4095)), UNKNOWN),
    Case(
        "a priority tag",
        stray(1, tagged(frame, 0, priority=3)).by(lan),
        leaves(to_up, ipv4("10.2.0.9", ttl=63)),
    ),
    Case(
        "a priority tag, tagged out",
        stray(2, tagged(ethernet(up.mac, IPV6, ipv6("2001:db8:3::9")), 0, priority=7)).by(up),
        leaves(to_wan, ipv6("2001:db8:3::9", ttl=63)),
    ),
    Case(
        "VLAN 0 without a priority",
        stray(1, tagged(frame, 0)).by(lan),
        leaves(to_up, ipv4("10.2.0.9", ttl=63)),
    ),
    Case(
        "a priority tag does not reach the guest",
        stray(1, tagged(ethernet("ffffffffffff", ARP, bytes(46)), 0, priority=6)).by(lan),
        PuntReason.CONTROL,
    ),
    Case("a priority tag on a port with VLANs only", stray(3, tagged(frame, 0, priority=3)), UNKNOWN),
    Case(
        "a second tag behind a priority tag",
        stray(1, tagged(tagged(frame, 10), 0, priority=3)).by(lan),
        DropReason.ETHERTYPE,
    ),
    Case("untagged on a port with VLANs only", stray(3, frame), UNKNOWN),
    Case("tagged with another's VLAN bits", stray(4, tagged(frame, 100)), UNKNOWN),
    Case("an interface that is down", arrives(down, to_24), UNKNOWN),
    Case("a broadcast on an unknown VLAN", stray(2, tagged(ethernet("ffffffffffff", IPV4, to_24), 9)), UNKNOWN),
    Case(
        "a second tag",
        stray(1, tagged(tagged(ethernet(lan_vlan.mac, IPV4, to_24), 10), 10)).by(lan_vlan),
        DropReason.ETHERTYPE,
    ),
    Case("a second tag inside an unknown one", stray(1, tagged(tagged(frame, 10), 77)), UNKNOWN),
    Case(
        "a tag and two octets",
        stray(1, tagged(ethernet(lan_vlan.mac, 0x88B5, bytes(2)), 10)).by(lan_vlan),
        DropReason.ETHERTYPE,
    ),
    Case(
        "the other router's VLAN on a shared port",
        arrives(blue_lan, ipv4("10.3.0.9")),
        leaves(blue_to_up, ipv4("10.3.0.9", ttl=63)),
    ),
    Case(
        "back out of the port it came in by", arrives(lan, ipv4("10.1.0.9")), leaves(to_lan, ipv4("10.1.0.9", ttl=63))
    ),
]
