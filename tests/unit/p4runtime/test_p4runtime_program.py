"""Entries as rows and back; what is not exactly an entry's rows is no entry."""

import contextlib

import pytest
from finsy.proto import p4r
from google.protobuf.message import DecodeError
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.planes.base import (
    DROP_CODE,
    MAX_OBJECT_ID,
    FallbackLink,
    GroupMember,
    Nexthop,
    NexthopGroup,
    NexthopState,
    Policer,
    PuntClass,
    PuntReason,
    RouterInterface,
    burst,
)
from controller.planes.p4runtime.p4info import golden_pipeline
from controller.planes.p4runtime.program import Program, Row

PROGRAM = Program(golden_pipeline().schema)
quick = settings(max_examples=60, deadline=None)

numbers = st.integers(0, 0xFFFFFFFF)
objects = st.integers(0, MAX_OBJECT_ID)
macs = st.binary(min_size=6, max_size=6)
interfaces = st.builds(
    RouterInterface,
    id=numbers,
    vrf_id=numbers,
    port=st.integers(0, 511),
    vlan=st.integers(0, 4094),
    mac=macs,
    mtu=st.integers(0, 0xFFFF),
    virtual_macs=st.just(()),
    enabled=st.booleans(),
    fallback=st.none() | st.builds(FallbackLink, st.integers(0, 511), st.integers(1, 4094)),
).filter(lambda each: each.fallback != FallbackLink(each.port, each.vlan))
nexthops = st.builds(Nexthop, objects, numbers, macs) | st.builds(
    Nexthop, objects, numbers, st.just(bytes(6)), st.sampled_from([NexthopState.GLEAN, NexthopState.DROP])
)
members = st.builds(GroupMember, objects, st.integers(1, 256), st.integers(0, 511))
groups = st.builds(NexthopGroup, objects, st.lists(members, min_size=1, max_size=8).map(tuple))
rates = st.integers(0, 1_000_000)
policers = st.builds(Policer, numbers, st.tuples(rates, rates, rates, rates))


def rows_of(entry: RouterInterface | Nexthop | NexthopGroup | Policer) -> list[Row]:
    match entry:
        case RouterInterface():
            ways_in = PROGRAM.way_back_rows(entry) + PROGRAM.classifier_rows(entry)
            return [*PROGRAM.egress_rows(entry), *PROGRAM.admit_rows(entry), *ways_in]
        case Nexthop():
            return PROGRAM.nexthop_rows(entry)
        case NexthopGroup():
            return PROGRAM.group_rows(entry)
        case Policer():
            return PROGRAM.policer_rows(entry)


def loosely(content: bytes) -> p4r.TableEntry:
    """The same entry as a device may return it: other order, leading zeros, and what it adds of its own."""
    entry = p4r.TableEntry.FromString(content)
    matches = list(entry.match)
    del entry.match[:]
    entry.match.extend(reversed(matches))
    for match in entry.match:
        match.exact.value = b"\0" + match.exact.value
    params = list(entry.action.action.params)
    if params:
        del entry.action.action.params[:]
        entry.action.action.params.extend(reversed(params))
        entry.action.action.params[0].value = b"\0" + entry.action.action.params[0].value
    entry.counter_data.packet_count = 7
    return entry


def found(entry: RouterInterface | Nexthop | NexthopGroup | Policer) -> object:
    """What is made of an entry's rows after a device had them."""
    owners, rows = set(), {}
    for row in rows_of(entry):
        read = PROGRAM.find_row(loosely(row.content))
        assert read is not None
        back, owner = read
        assert back == row
        assert owner is not None
        owners.add(owner)
        rows[back.key] = back.content
    (owner,) = owners
    return PROGRAM.find_entry(owner, rows)


@quick
@given(interfaces | nexthops | groups | policers)
def test_what_is_written_is_found(entry: RouterInterface | Nexthop | NexthopGroup | Policer) -> None:
    assert found(entry) == entry


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
    rows = rows_of(Policer(7, (100, 0, 5, 1000)))
    classes = {key[1] for table, key in (row.key for row in rows) if table == "policer"}
    codes = {key[1] for table, key in (row.key for row in rows) if table == "reason"}
    assert classes == {PuntClass.CONTROL, PuntClass.GLEAN, PuntClass.EXCEPTION}
    assert codes == {reason for reason in PuntReason if reason != PuntReason.LOCAL} | set(DROP_CODE.values())


def test_a_policer_lets_a_tenth_of_a_second_through_at_once_and_ten_packets_at_least() -> None:
    (row, *_) = [row for row in rows_of(Policer(7, (1000, 0, 0, 0))) if row.key[0] == "policer"]
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


@quick
@given(interfaces | nexthops | groups | policers, st.data())
def test_a_damaged_row_is_an_entry_or_none(
    entry: RouterInterface | Nexthop | NexthopGroup | Policer, data: st.DataObject
) -> None:
    rows = rows_of(entry)
    row = data.draw(st.sampled_from(rows))
    octets = bytearray(row.content)
    octets[data.draw(st.integers(0, len(octets) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(DecodeError):
        damaged = p4r.TableEntry.FromString(bytes(octets))
        if damaged.table_id != p4r.TableEntry.FromString(row.content).table_id:
            return  # refused where it is read
        read = PROGRAM.find_row(damaged)
        if read is not None and read[1] is not None:
            held = {one.key: one.content for one in rows if one is not row} | {read[0].key: read[0].content}
            back = PROGRAM.find_entry(read[1], held)
            assert back is None or {one.key: one.content for one in rows_of(back)} == held  # type: ignore[arg-type]
