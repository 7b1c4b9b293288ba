"""Entries as the rows of a device, and what is made of them when they are read back."""

from finsy.proto import p4r

from controller.planes.base import Nexthop, NexthopGroup, Policer, RouterInterface
from controller.planes.p4runtime.p4info import golden_pipeline
from controller.planes.p4runtime.program import Program, Row

Entry = RouterInterface | Nexthop | NexthopGroup | Policer
PROGRAM = Program(golden_pipeline().schema)


def rows_of(entry: Entry) -> list[Row]:
    """Return all rows that an entry becomes."""
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


def found(entry: Entry) -> object:
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
