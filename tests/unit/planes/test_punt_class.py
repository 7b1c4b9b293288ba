"""Rules of punt classes: that P4's constant table says the same, and what no plane delivers."""

import json
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from frames import ethernet, ipv4, ipv6

from controller.model import PuntRates
from controller.planes.base import PuntClass, PuntReason
from controller.planes.packet import IPV4, IPV6
from controller.planes.punt_class import ARP, FOR_THE_ROUTER, OF_REASON, punt_class

PROGRAM = json.loads((Path(__file__).parents[3] / "p4src/golden/v1model.json").read_text())
TO = bytes(6)
PROTOCOLS = (0, 1, 2, 6, 17, 44, 58, 88, 89, 112, 132)
PORTS = (0, 179, 520, 521, 3784, 3785, 4784, 6696, 40_000)
TTLS = (0, 1, 253, 254, 255)
TYPES = (0, 1, 128, 132, 133, 134, 135, 136, 137, 138, 255)


def table(name: str) -> tuple[list[tuple[list[tuple[int, int]], int]], int]:
    """Return keys with masks and the parameter of each entry of a constant table, and the default's."""
    tables = [one for pipeline in PROGRAM["pipelines"] for one in pipeline["tables"]]
    found: dict[str, Any] = next(one for one in tables if one["name"] == name)
    entries = sorted(found["entries"], key=lambda entry: entry["priority"])
    keys = [[(int(key["key"], 0), int(key["mask"], 0)) for key in entry["match_key"]] for entry in entries]
    values = [int(entry["action_entry"]["action_data"][0], 0) for entry in entries]
    return list(zip(keys, values, strict=True)), int(found["default_entry"]["action_data"][0], 0)


ENTRIES, MISS = table("punt_class")


def of_the_program(*fields: int) -> PuntClass:
    """The class by P4: reason, EtherType, protocol, TTL, source port, destination port, ICMPv6 type."""
    for key, value in ENTRIES:
        if all(field & mask == wanted & mask for field, (wanted, mask) in zip(fields, key, strict=True)):
            return PuntClass(value)
    return PuntClass(MISS)


def l4(source: int, destination: int) -> bytes:
    return source.to_bytes(2, "big") + destination.to_bytes(2, "big") + bytes(16)


@pytest.mark.parametrize("reason", FOR_THE_ROUTER)
@pytest.mark.parametrize("family", [4, 6])
def test_the_program_has_the_same_rules(family: int, reason: PuntReason) -> None:
    ether_type = IPV4 if family == 4 else IPV6
    for protocol, ttl, source, destination in product(PROTOCOLS, TTLS, PORTS, PORTS):
        ports = (source, destination) if protocol in (6, 17, 132) else (0, 0)
        icmp_types = TYPES if (family, protocol) == (6, 58) and not source + destination else (0,)
        for icmp_type in icmp_types:
            payload = bytes((icmp_type,)) + bytes(19) if protocol == 58 else l4(source, destination)
            if family == 4:
                packet = ipv4("10.0.0.1", protocol=protocol, ttl=ttl, payload=payload)
            else:
                packet = ipv6("2001:db8::1", next_header=protocol, ttl=ttl, payload=payload)
            theirs = of_the_program(reason, ether_type, protocol, ttl, *ports, icmp_type)
            assert punt_class(reason, ethernet(TO, ether_type, packet)) is theirs


def test_other_frames_have_the_same_class_in_the_program() -> None:
    for ether_type in (ARP, 40, 0x05DC, 0x8870):
        theirs = of_the_program(PuntReason.CONTROL, ether_type, 0, 0, 0, 0, 0)
        assert punt_class(PuntReason.CONTROL, ethernet(TO, ether_type, bytes(40))) is theirs
    for reason, its_class in OF_REASON.items():
        assert of_the_program(reason, IPV4, 89, 255, 179, 179, 0) is its_class


@pytest.mark.parametrize("frame", [b"", b"hello", bytes(13), bytes(12) + b"\x08\x00", bytes(12) + b"\x86\xdd\x60"])
def test_what_is_no_whole_packet_is_local(frame: bytes) -> None:
    assert punt_class(PuntReason.LOCAL, frame) is PuntClass.LOCAL


def test_quotas_have_a_rate_for_each_class_in_its_order() -> None:
    assert PuntRates._fields == tuple(each.name.lower() for each in PuntClass)
