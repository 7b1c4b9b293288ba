"""The generator's frames: what another codec reads in them, and that they are told from everything else."""

from ipaddress import ip_address
from pathlib import Path

import pytest
from scapy.layers.inet import IP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Ether

from lab.traffic import PORT, Flow, destinations

OURS, ROUTER = bytes.fromhex("020000000001"), bytes.fromhex("020000000002")


@pytest.mark.parametrize("destination", ["198.51.100.7", "2001:db8:2::7"])
@pytest.mark.parametrize("number", [0, 1, 0xFFFF, 0x1_0000, 2**63])
def test_a_frame_is_a_whole_udp_packet(destination: str, number: int) -> None:
    flow = Flow.towards(ip_address(destination), 3, OURS, ROUTER)
    frame = Ether(flow.frame(number))
    assert (frame.dst, frame.src) == ("02:00:00:00:00:02", "02:00:00:00:00:01")
    ip, udp = frame.payload, frame[UDP]
    assert (ip.dst, udp.sport, udp.dport) == (destination, 10_003, PORT)
    assert int.from_bytes(bytes(udp.payload)[-8:], "big") == number
    assert len(bytes(udp)) == udp.len


@pytest.mark.parametrize("number", [0, 12345, 2**64 - 1])
def test_checksums_are_those_that_another_codec_makes(number: int) -> None:
    four = Ether(Flow.towards(ip_address("198.51.100.7"), 0, OURS, ROUTER).frame(number))
    given = four[IP].chksum
    del four[IP].chksum
    assert IP(bytes(four[IP])).chksum == given
    assert four[UDP].chksum == 0  # there is none
    six = Ether(Flow.towards(ip_address("2001:db8:2::7"), 0, OURS, ROUTER).frame(number))
    given = six[UDP].chksum
    del six[UDP].chksum
    assert IPv6(bytes(six[IPv6]))[UDP].chksum == given


def test_each_flow_goes_into_a_prefix_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "prefixes"
    path.write_text("198.51.100.0/30\n2001:db8:7::/64\n")
    found = destinations(path, 50)
    assert len(found) == 50
    assert {str(one).rpartition(".")[0] if one.version == 4 else one.exploded[:19] for one in found} == {
        "198.51.100",
        "2001:0db8:0007:0000",
    }
    assert found == destinations(path, 50)  # the same in every run
