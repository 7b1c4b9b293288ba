"""The pipeline by names, and numbers as P4Runtime writes them."""

import re
from pathlib import Path

import pytest
from finsy.proto import p4r

from controller.planes.base import DROP_CODE, MAX_GROUP_WEIGHT, ROUTE_TABLE_NAME, PuntClass, PuntReason
from controller.planes.p4runtime.p4info import canonical, golden_pipeline
from controller.planes.p4runtime.program import SMALL_TABLES

SCHEMA = golden_pipeline().schema
IDS = Path(__file__).parents[3] / "p4src" / "common" / "ids.p4"


@pytest.mark.parametrize(("value", "bits"), [(512, 9), (-1, 9), (1 << 32, 32)])
def test_a_value_that_does_not_fit_is_refused(value: int, bits: int) -> None:
    with pytest.raises(ValueError, match=f"{value} does not fit {bits} bits"):
        canonical(value, bits)


@pytest.mark.parametrize("table", [*SMALL_TABLES, *ROUTE_TABLE_NAME.values()])
def test_every_table_of_the_contract_is_in_the_pipeline(table: str) -> None:
    assert SCHEMA.table(table).size > 0


def test_a_table_that_is_not_there_is_named() -> None:
    with pytest.raises(ValueError, match="no table nowhere"):
        SCHEMA.table("nowhere")
    with pytest.raises(ValueError, match="no controller header nothing"):
        SCHEMA.header("nothing")


def test_groups_take_the_contracts_weights() -> None:
    assert SCHEMA.table("nexthop_group").max_group_size == MAX_GROUP_WEIGHT


def test_the_codes_of_reasons_and_classes_are_those_of_the_program() -> None:
    numbers = {name: int(text, 0) for name, text in re.findall(r"#define (\w+) (0x\w+|\d+)\n", IDS.read_text())}
    for reason in PuntReason:
        assert numbers[f"PUNT_{reason.name}"] == reason
    for drop, code in DROP_CODE.items():
        assert numbers[f"DROP_{drop.name}"] == code
    for punt_class in PuntClass:
        assert numbers[f"CLASS_{punt_class.name}"] == punt_class


def test_an_action_with_a_value_too_large_or_missing_is_not_known() -> None:
    table = SCHEMA.table("nexthop")
    good = table.actions["glean_neighbor"].message({"router_interface_id": 7})
    assert table.find_action(good) == ("glean_neighbor", {"router_interface_id": 7})
    good.params[0].value = b"\1" * 5
    assert table.find_action(good) is None
    assert table.find_action(p4r.Action(action_id=good.action_id)) is None
    assert table.find_action(p4r.Action(action_id=1)) is None


def test_a_key_of_another_shape_is_not_known() -> None:
    table = SCHEMA.table("l3_admit")
    match = table.exact_match((3, 0x020000000001))
    assert table.find_key(p4r.TableEntry(match=match)) == (3, 0x020000000001)
    assert table.find_key(p4r.TableEntry(match=match[:1])) is None
    lpm = p4r.FieldMatch(field_id=match[0].field_id, lpm=p4r.FieldMatch.LPM(value=b"\3", prefix_len=1))
    assert table.find_key(p4r.TableEntry(match=[lpm, match[1]])) is None


def test_the_cookie_is_eight_octets_of_the_pipeline() -> None:
    pipeline = golden_pipeline()
    assert 0 < pipeline.cookie < 1 << 64
    assert pipeline.message.cookie.cookie == pipeline.cookie
    assert pipeline.message.p4_device_config == pipeline.device_config
