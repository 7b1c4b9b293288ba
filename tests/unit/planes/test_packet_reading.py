"""What of a frame and an IP packet decides: the flow that a hash sees, where headers end, what a checksum covers."""

import pytest
from frames import ICMPV6, MORE_FRAGMENTS, ROUTER_ALERT, TCP, UDP, ipv4, ipv6

from controller.planes.packet import Frame, IpPacket, internet_checksum, with_tag

SCTP = 132
PORTS = (1024).to_bytes(2, "big") + (53).to_bytes(2, "big")
SRC, DST = bytes((10, 1, 0, 99)), bytes((10, 2, 0, 9))
NONE = bytes(4)


def packet(octets: bytes) -> IpPacket:
    ether_type = b"\x86\xdd" if octets[0] >> 4 == 6 else b"\x08\0"
    found = IpPacket.find(Frame.read(bytes(12) + ether_type + octets))
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("changes", "ports"),
    [
        ({}, PORTS),
        ({"protocol": TCP}, PORTS),
        ({"protocol": SCTP}, PORTS),
        ({"protocol": 50}, NONE),
        ({"fragment": MORE_FRAGMENTS}, NONE),  # a first one too: the others have no ports, and all go one way
        ({"fragment": 1}, NONE),
        ({"fragment": 0x4000}, PORTS),  # DF: no fragment
        ({"options": ROUTER_ALERT}, NONE),
        ({"payload": PORTS}, PORTS),
        ({"payload": PORTS[:3]}, NONE),
    ],
)
def test_the_flow_of_an_ipv4_packet(changes: dict, ports: bytes) -> None:
    flow = packet(ipv4("10.2.0.9", **changes)).flow
    assert flow == bytes(12) + SRC + bytes(12) + DST + bytes((changes.get("protocol", UDP),)) + ports


def test_the_flow_of_an_ipv6_packet() -> None:
    found = packet(ipv6("2001:db8:2::9"))
    assert found.flow == found.src + found.dst + bytes((UDP,)) + PORTS
    assert packet(ipv6("2001:db8:2::9", payload=b"")).flow == found.src + found.dst + bytes((UDP,)) + NONE


def test_octets_behind_the_packet_are_no_ports() -> None:
    assert packet(ipv4("10.2.0.9", payload=b"") + PORTS).flow[-4:] == NONE


def test_the_type_of_an_icmpv6_packet_is_read_where_four_octets_are_there() -> None:
    for octets, icmp_type in ((4, 135), (3, 0)):
        found = packet(ipv6("2001:db8:2::9", next_header=ICMPV6, payload=bytes((135, 0, 0, 0))[:octets]) + bytes(4))
        assert found.icmp_type == icmp_type
    assert packet(ipv6("2001:db8:2::9", payload=bytes((135, 0, 0, 0)))).icmp_type == 0


def test_only_a_header_without_options_is_summed() -> None:
    assert packet(ipv4("10.2.0.9")).checksum_holds
    assert not packet(ipv4("10.2.0.9", header_checksum=1)).checksum_holds
    assert packet(ipv4("10.2.0.9", header_checksum=1, options=ROUTER_ALERT)).checksum_holds
    assert packet(ipv6("2001:db8:2::9")).checksum_holds


def test_a_sum_carries_as_often_as_it_overflows() -> None:
    assert internet_checksum(b"\x00\x01\xf2\x03\xf4\xf5\xf6\xf7") == 0x220D  # the example of RFC 1071 section 3
    assert internet_checksum(b"\xff\xff" * 2 + b"\0\1") == 0xFFFE
    assert internet_checksum(b"\xff\xff" * 0x10001) == 0


def test_a_tag_that_is_cut_off_is_none() -> None:
    cut = bytes(12) + b"\x81\0" + b"\0\x0a\x08"
    assert (Frame.read(cut).vlan, Frame.read(cut).ether_type) == (None, 0x8100)
    whole = Frame.read(cut + b"\0")
    assert (whole.vlan, whole.ether_type, whole.payload) == (10, 0x0800, b"")
    assert Frame.read(bytes(12) + b"\x81\0" + b"\xe0\x0a\x08\0").vlan == 10  # priority 7


def test_vlan_0_is_no_tag() -> None:
    frame = bytes(12) + b"\x08\0payload"
    assert with_tag(0, frame) == frame
    assert with_tag(10, frame) == bytes(12) + b"\x81\0\0\x0a" + b"\x08\0payload"


def test_the_group_bit_is_the_last_of_the_first_octet() -> None:
    assert Frame.read(b"\x01" + bytes(13)).group_addressed
    assert not Frame.read(b"\x02" + bytes(13)).group_addressed
