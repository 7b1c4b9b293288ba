"""What the committed P4Info promises to controllers, and that the pipeline's codes are those of the contract."""

import json
import re
from collections.abc import Iterable
from pathlib import Path

import pytest
from finsy.proto import p4i
from google.protobuf import text_format

from controller.planes.base import DropReason, PuntClass, PuntReason

SOURCES = Path(__file__).parents[3] / "p4src"
IDS = {
    name: int(value, 0)
    for name, value in re.findall(r"^#define (\w+) (\w+)$", (SOURCES / "common/ids.p4").read_text(), re.MULTILINE)
}
EXACT, LPM, TERNARY = p4i.MatchField.EXACT, p4i.MatchField.LPM, p4i.MatchField.TERNARY

KEYS = {
    "interface_classifier": [("ingress_port", EXACT), ("vlan_id", EXACT)],
    "l3_admit": [("router_interface_id", EXACT), ("dst_mac", EXACT)],
    "punt": [(name, TERNARY) for name in ("ether_type", "dst_mac", "ip_source", "ip_destination")],
    "ipv4_route": [("vrf_id", EXACT), ("ipv4_dst", LPM)],
    "ipv6_route": [("vrf_id", EXACT), ("ipv6_dst", LPM)],
    "fallback_link": [("router_interface_id", EXACT)],
    "nexthop_group": [("nexthop_group_id", EXACT)],
    "nexthop": [("nexthop_id", EXACT)],
    "router_interface": [("router_interface_id", EXACT)],
    "router_interface_egress": [("router_interface_id", EXACT)],
    "reason": [("vrf_id", EXACT), ("reason", EXACT)],
    "punt_class": [
        (name, TERNARY)
        for name in ("reason", "ether_type", "ip_protocol", "ttl", "l4_source", "l4_destination", "icmp_type")
    ],
    "policer": [("vrf_id", EXACT), ("punt_class", EXACT)],
}


@pytest.fixture(scope="module")
def p4info() -> p4i.P4Info:
    return text_format.Parse((SOURCES / "golden/v1model.p4info.txtpb").read_text(), p4i.P4Info())


def test_tables_and_keys_are_those_of_the_contract(p4info: p4i.P4Info) -> None:
    keys = {each.preamble.name: [(key.name, key.match_type) for key in each.match_fields] for each in p4info.tables}
    assert keys == KEYS


def test_every_id_is_given_in_ids_p4_and_to_one_object_only(p4info: p4i.P4Info) -> None:
    given = {value for name, value in IDS.items() if value >= 1 << 24}
    objects: tuple[Iterable[p4i.Table], ...] = (
        p4info.tables,
        (each for each in p4info.actions if each.preamble.name != "NoAction"),  # P4's own
        p4info.action_profiles,
        p4info.direct_counters,
        p4info.direct_meters,
        p4info.controller_packet_metadata,
    )
    used = [each.preamble.id for group in objects for each in group]
    assert sorted(used) == sorted(given)


def test_counters_and_meters_belong_to_the_tables_they_are_read_by(p4info: p4i.P4Info) -> None:
    tables = {each.preamble.id: each.preamble.name for each in p4info.tables}
    direct = [*p4info.direct_counters, *p4info.direct_meters]
    assert {each.preamble.name: tables[each.direct_table_id] for each in direct} == {
        "interface_classifier_counter": "interface_classifier",
        "ipv4_route_counter": "ipv4_route",
        "ipv6_route_counter": "ipv6_route",
        "router_interface_egress_counter": "router_interface_egress",
        "reason_counter": "reason",
        "policer_meter": "policer",
    }
    assert [each.spec.unit for each in p4info.direct_meters] == [p4i.MeterSpec.PACKETS]


def test_a_nexthop_group_takes_weights_of_256_in_all(p4info: p4i.P4Info) -> None:
    (selector,) = p4info.action_profiles
    assert selector.with_selector
    assert selector.max_group_size == IDS["GROUP_WEIGHT"] == 256


def test_packets_carry_router_interface_and_reason(p4info: p4i.P4Info) -> None:
    headers = {
        each.preamble.name: [(field.name, field.bitwidth) for field in each.metadata]
        for each in p4info.controller_packet_metadata
    }
    assert headers == {
        "packet_in": [("router_interface_id", 32), ("punt_reason", 8)],
        "packet_out": [("router_interface_id", 32)],
    }


def test_reasons_have_the_codes_of_the_contract() -> None:
    assert {reason: IDS[f"PUNT_{reason.name}"] for reason in PuntReason} == {each: each.value for each in PuntReason}
    drops = {reason: IDS[f"DROP_{reason.name}"] for reason in DropReason}
    assert drops == {reason: IDS["FIRST_DROP"] + position for position, reason in enumerate(DropReason)}
    assert IDS["REASONS"] == len(PuntReason) + len(DropReason)


def test_punt_classes_have_the_codes_of_the_contract() -> None:
    assert {each: IDS[f"CLASS_{each.name}"] for each in PuntClass} == {each: each.value for each in PuntClass}
    assert IDS["PUNT_CLASSES"] == len(PuntClass)


def test_the_program_names_no_place_of_the_machine_that_compiled_it() -> None:
    program = (SOURCES / "golden/v1model.json").read_text()
    assert "source_info" not in program
    assert not re.search(r'"[^"]*\.p4"', program)
    assert json.loads(program)["parsers"]
