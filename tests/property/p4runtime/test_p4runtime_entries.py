"""Any entry as rows and back, any damage to a row, any number as P4Runtime writes it."""

import contextlib

from finsy.proto import p4r
from google.protobuf.message import DecodeError
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.planes.base import (
    FallbackLink,
    RouterInterface,
)
from controller.planes.p4runtime.p4info import canonical
from tests.property import entry_strategies
from tests.property.entry_strategies import macs
from tests.unit.p4runtime.entry_rows import PROGRAM, Entry, found, rows_of

quick = settings(max_examples=60, deadline=None)

numbers = st.integers(0, 0xFFFFFFFF)
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
nexthops = entry_strategies.nexthops(numbers)
groups = entry_strategies.groups(st.integers(0, 511))
policers = entry_strategies.policers(numbers)


@quick
@given(interfaces | nexthops | groups | policers)
def test_what_is_written_is_found(entry: Entry) -> None:
    assert found(entry) == entry


@quick
@given(interfaces | nexthops | groups | policers, st.data())
def test_a_damaged_row_is_an_entry_or_none(entry: Entry, data: st.DataObject) -> None:
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


@settings(deadline=None)
@given(st.integers(0, (1 << 128) - 1))
def test_canonical_is_the_shortest_that_holds_the_number(value: int) -> None:
    octets = canonical(value, 128)
    assert int.from_bytes(octets, "big") == value
    assert len(octets) == 1 or octets[0]
