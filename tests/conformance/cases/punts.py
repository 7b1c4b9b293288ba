"""punt: link scope goes up; what no router may forward ends."""

from case import Case, arrives, blue_lan, lan, lan_vlan, stray, wan
from frames import ARP, IPV4, IPV6, ethernet, ipv4, ipv6, mac, tagged

from controller.planes.base import DropReason, PuntReason

CONTROL = PuntReason.CONTROL
MULTICAST, L2_MULTICAST, MARTIAN, ETHERTYPE = (
    DropReason.MULTICAST,
    DropReason.L2_MULTICAST,
    DropReason.MARTIAN,
    DropReason.ETHERTYPE,
)
BROADCAST = mac("ffffffffffff")
HELLO = bytes.fromhex("fefe03831b0100") + bytes(40)  # an IS-IS PDU behind its LLC header
TO_UP, TO_UP_6 = "10.2.0.9", "2001:db8:2::9"


LONG = 0x8870  # EtherType of LLC in a frame that is too long for a length


def llc(group: str, length: int = len(HELLO)) -> bytes:
    return ethernet(group, length, HELLO)


def long_llc(group: str) -> bytes:
    return ethernet(group, LONG, HELLO + bytes(1500))


CASES = [
    Case("ARP in a broadcast", arrives(lan, bytes(28), to=BROADCAST, ether_type=ARP), CONTROL),
    Case("ARP, tagged, goes up untagged", arrives(wan, bytes(28), to=BROADCAST, ether_type=ARP), CONTROL),
    Case("ARP that is short", arrives(lan, b"\0\1", to=BROADCAST, ether_type=ARP), CONTROL),
    Case("OSPF hello", arrives(lan, ipv4("224.0.0.5", ttl=1, protocol=89), to=mac("01005e000005")), CONTROL),
    Case("OSPF in a unicast frame", arrives(lan, ipv4("224.0.0.6", ttl=1, protocol=89)), CONTROL),
    Case(
        "VRRP, TTL 255", arrives(lan_vlan, ipv4("224.0.0.18", ttl=255, protocol=112), to=mac("01005e000012")), CONTROL
    ),
    Case("the last of 224.0.0.0/24", arrives(lan, ipv4("224.0.0.255", ttl=0), to=BROADCAST), CONTROL),
    Case(
        "IGMP with a router alert",
        arrives(
            lan, ipv4("224.0.0.22", ttl=1, protocol=2, options=bytes.fromhex("94040000")), to=mac("01005e000016")
        ),
        CONTROL,
    ),
    Case("DHCP from nobody", arrives(lan, ipv4("255.255.255.255", "0.0.0.0"), to=BROADCAST), CONTROL),
    Case("link scope from a martian", arrives(lan, ipv4("224.0.0.5", "127.0.0.1"), to=BROADCAST), CONTROL),
    Case("RIPng", arrives(lan, ipv6("ff02::9", "fe80::9", ttl=255), to=mac("333300000009")), CONTROL),
    Case(
        "duplicate address detection",
        arrives(lan, ipv6("ff02::1:ff00:1", "::", ttl=255), to=mac("3333ff000001")),
        CONTROL,
    ),
    Case(
        "MLD with hop-by-hop",
        arrives(
            lan,
            ipv6("ff02::16", "fe80::9", ttl=1, next_header=0, payload=bytes.fromhex("3a00050200000000") + bytes(8)),
            to=mac("333300000016"),
        ),
        CONTROL,
    ),
    Case("to a link-local address", arrives(lan, ipv6("fe80::1", "fe80::9")), CONTROL),
    Case("to a link-local address from afar", arrives(lan, ipv6("fe80::1", ttl=0)), CONTROL),
    Case("the last of fe80::/10", arrives(blue_lan, ipv6("febf:ffff::1")), CONTROL),
    Case("IS-IS, all L1", stray(1, llc("0180c2000014")).by(lan), CONTROL),
    Case("IS-IS, all L2", stray(1, llc("0180c2000015")).by(lan), CONTROL),
    Case("IS-IS, all end systems", stray(1, llc("09002b000005")).by(lan), CONTROL),
    Case("IS-IS, tagged", stray(3, tagged(llc("0180c2000014"), 100)).by(wan), CONTROL),
    Case("IS-IS with a jumbo's length", stray(1, llc("0180c2000014", 0x05DC)).by(lan), CONTROL),
    Case("a long IS-IS PDU, all L1", stray(1, long_llc("0180c2000014")).by(lan), CONTROL),
    Case("a long IS-IS PDU, all L2", stray(1, long_llc("0180c2000015")).by(lan), CONTROL),
    Case("a long IS-IS PDU, all end systems", stray(1, long_llc("09002b000005")).by(lan), CONTROL),
    Case("a long IS-IS PDU, tagged", stray(3, tagged(long_llc("0180c2000015"), 100)).by(wan), CONTROL),
    Case("long LLC to another group", stray(1, long_llc("0180c2000000")).by(lan), ETHERTYPE),
    Case("long LLC to the router", stray(1, long_llc(lan.mac.hex())).by(lan), ETHERTYPE),
    Case("LLC to another group", stray(1, llc("0180c2000000")).by(lan), ETHERTYPE),
    Case("LLC to the router", stray(1, llc(lan.mac.hex())).by(lan), ETHERTYPE),
    Case(
        "the IS-IS group with an EtherType",
        arrives(lan, bytes(40), to=mac("0180c2000014"), ether_type=0x88CC),
        ETHERTYPE,
    ),
    Case("LLDP", arrives(lan, bytes(40), to=mac("0180c200000e"), ether_type=0x88CC), ETHERTYPE),
    Case("MPLS", arrives(lan, bytes.fromhex("00010140") + ipv4(TO_UP), ether_type=0x8847), ETHERTYPE),
    Case("RARP", arrives(lan, bytes(28), to=BROADCAST, ether_type=0x8035), ETHERTYPE),
    Case("an EtherType that nobody knows", arrives(lan, ipv4(TO_UP), ether_type=0x88B5), ETHERTYPE),
    Case("nothing behind an unknown EtherType", arrives(lan, b"", ether_type=0x88B5), ETHERTYPE),
    Case("other multicast", arrives(lan, ipv4("239.1.1.1"), to=mac("01005e010101")), MULTICAST),
    Case("the first behind link scope", arrives(lan, ipv4("224.0.1.0"), to=mac("01005e000100")), MULTICAST),
    Case("the last of 224.0.0.0/4", arrives(lan, ipv4("239.255.255.255"), to=mac("01005e7fffff")), MULTICAST),
    Case("multicast in a unicast frame", arrives(lan, ipv4("232.0.0.1")), MULTICAST),
    Case("multicast from a martian", arrives(lan, ipv4("239.1.1.1", "127.0.0.1")), MULTICAST),
    Case("IPv6 multicast of site scope", arrives(lan, ipv6("ff05::2"), to=mac("333300000002")), MULTICAST),
    Case("IPv6 multicast of interface scope", arrives(lan, ipv6("ff01::1"), to=mac("333300000001")), MULTICAST),
    Case("IPv6 multicast with flags", arrives(lan, ipv6("ff12::1"), to=mac("333300000001")), MULTICAST),
    Case("unicast in a broadcast", arrives(lan, ipv4(TO_UP), to=BROADCAST), L2_MULTICAST),
    Case("an own address in a broadcast", arrives(lan, ipv4("10.1.0.1"), to=BROADCAST), L2_MULTICAST),
    Case("unicast in a multicast frame", arrives(lan, ipv4(TO_UP), to=mac("01005e000001")), L2_MULTICAST),
    Case("IPv6 unicast in a multicast frame", arrives(lan, ipv6(TO_UP_6), to=mac("333300000001")), L2_MULTICAST),
    Case("a martian in a broadcast", arrives(lan, ipv4(TO_UP, "127.0.0.1"), to=BROADCAST), L2_MULTICAST),
    *(
        Case(f"from {src}", arrives(lan, ipv4(TO_UP, src)), MARTIAN)
        for src in (
            "127.0.0.1",
            "0.0.0.0",
            "0.255.255.255",
            "224.0.0.1",
            "239.255.255.255",
            "240.0.0.1",
            "255.255.255.255",
        )
    ),
    *(
        Case(f"to {dst}", arrives(lan, ipv4(dst)), MARTIAN)
        for dst in ("127.0.0.1", "127.255.255.255", "0.0.0.0", "0.1.2.3", "240.0.0.1", "255.255.255.254")
    ),
    *(Case(f"from {src}", arrives(lan, ipv6(TO_UP_6, src)), MARTIAN) for src in ("::", "::1", "ff02::1", "ffff::1")),
    *(Case(f"to {dst}", arrives(lan, ipv6(dst)), MARTIAN) for dst in ("::", "::1")),
    Case("a martian to an own address", arrives(lan, ipv4("10.1.0.1", "127.0.0.1")), MARTIAN),
    Case("::2 is no martian", arrives(blue_lan, ipv6("2001:db8:2::9", "::2")), PuntReason.LOCAL),
    Case("IPv4 under IPv6's EtherType", arrives(lan, ipv4(TO_UP), ether_type=IPV6), DropReason.MALFORMED),
    Case("IPv6 under IPv4's EtherType", arrives(lan, ipv6(TO_UP_6), ether_type=IPV4), DropReason.MALFORMED),
]
