"""Entries as rows and back; what is not exactly an entry's rows is no entry."""

import pytest
from finsy.proto import p4r

from controller.planes.base import (
    DROP_CODE,
    FallbackLink,
    Nexthop,
    Policer,
    PuntClass,
    PuntReason,
    RouterInterface,
    burst,
    same_rate,
)
from controller.planes.p4runtime.p4info import golden_pipeline
from tests.unit.p4runtime.entry_rows import PROGRAM, found, rows_of


def test_virtual_macs_are_found_in_their_order() -> None:
    virtual = tuple(bytes((0, 0, 0x5E, 0, 1, n)) for n in (9, 1, 5))
    interface = RouterInterface(3, 7, 1, 0, bytes((2, 0, 0, 0, 0, 1)), 1500, virtual)
    assert found(interface) == interface


@pytest.mark.parametrize("missing", range(4))
def test_an_interface_without_one_of_its_rows_is_another_or_none(missing: int) -> None:
    interface = RouterInterface(3, 7, 1, 0, bytes((2, 0, 0, 0, 0, 1)), 1500)
    rows = {row.key: row.content for row in rows_of(interface)}
    table, _ = list(rows)[missing]
    del rows[list(rows)[missing]]
    left = PROGRAM.find_entry(("router_interface", 3), rows)
    if table == "interface_classifier":
        assert left == RouterInterface(3, 7, 1, 0, interface.mac, 1500, (), enabled=False)
    else:
        assert left is None


def test_rows_with_other_content_are_no_entry() -> None:
    (row,) = rows_of(Nexthop(1, 2, bytes(range(6))))
    entry = p4r.TableEntry.FromString(row.content)
    entry.action.action.action_id += 100
    assert PROGRAM.find_entry(("nexthop", 1), {row.key: entry.SerializeToString()}) is None
    entry.action.Clear()
    assert PROGRAM.find_entry(("nexthop", 1), {row.key: entry.SerializeToString()}) is None


def test_a_class_with_rate_nothing_is_neither_punted_nor_counted() -> None:
    shut = {PuntClass.GLEAN, PuntClass.BGP}
    rows = rows_of(Policer(7, tuple(0 if each in shut else 100 for each in PuntClass)))
    classes = {key[1] for table, key in (row.key for row in rows) if table == "policer"}
    codes = {key[1] for table, key in (row.key for row in rows) if table == "reason"}
    assert classes == set(PuntClass) - shut
    assert codes == {reason for reason in PuntReason if reason != PuntReason.GLEAN} | set(DROP_CODE.values())


def test_a_policer_lets_a_tenth_of_a_second_through_at_once_and_ten_packets_at_least() -> None:
    (row, *_) = [row for row in rows_of(Policer(7, same_rate(1000))) if row.key[0] == "policer"]
    meter = p4r.TableEntry.FromString(row.content).meter_config
    assert (meter.cir, meter.cburst, meter.pir, meter.pburst) == (1000, 100, 1000, 100)
    assert burst(5) == 10


@pytest.mark.parametrize("missing", ["fallback_link", "interface_classifier"])
def test_half_a_fallback_link_is_a_damaged_interface(missing: str) -> None:
    interface = RouterInterface(3, 7, 1, 0, bytes(6), 1500, enabled=False, fallback=FallbackLink(4, 300))
    rows = {row.key: row.content for row in rows_of(interface) if row.key[0] != missing}
    assert len(rows) == 4
    assert PROGRAM.find_entry(("router_interface", 3), rows) is None


def test_an_entry_without_its_key_is_no_row() -> None:
    table = golden_pipeline().schema.table("l3_admit")
    assert PROGRAM.find_row(p4r.TableEntry(table_id=table.id)) is None


def test_what_does_not_fit_its_field_is_an_error_of_the_caller() -> None:
    with pytest.raises(ValueError, match="512 does not fit 9 bits"):
        PROGRAM.egress_rows(RouterInterface(3, 7, 512, 0, bytes(6), 1500))
