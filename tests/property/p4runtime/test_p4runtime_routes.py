"""Routes to octets and back, against what the protobuf library makes of them."""

import contextlib

import pytest
from finsy.proto import p4r
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.planes import base
from controller.planes.base import Op, RouteKind, route_action
from controller.planes.p4runtime.channel import ChannelClosed
from controller.planes.p4runtime.messages import entities_of
from controller.planes.p4runtime.p4info import canonical, golden_pipeline
from controller.planes.p4runtime.routes import RouteEncoder, RouteReader, is_route_action
from wire.columns import ADDRESS_BYTES, mask

quick = settings(deadline=None)
SCHEMA = golden_pipeline().schema
Columns = tuple[int, int, list[Op], list[bytes], list[int]]
PLAIN = {
    base.LOCAL: "punt_local",
    base.GLEAN: "punt_glean",
    base.UNREACHABLE: "punt_unreachable",
    base.BLACKHOLE: "blackhole",
    base.FALLBACK: "fallback",
}


def prefix_key(family: int, octets: bytes) -> bytes:
    """A key of any length, of octets of which some begin with zeros."""
    size = ADDRESS_BYTES[family]
    length, zeros = octets[size] % (size * 8 + 1), (0, 0, 0, 8, 40, size * 8)[octets[size + 1] % 6]
    network = int.from_bytes(octets[:size], "big") >> zeros & int.from_bytes(mask(family, length), "big")
    return network.to_bytes(size, "big") + bytes((length,))


ids = st.integers(0, base.MAX_OBJECT_ID)
actions = st.one_of(
    st.sampled_from(list(PLAIN)),
    ids.map(lambda value: route_action(RouteKind.NEXTHOP, value)),
    ids.map(lambda value: route_action(RouteKind.GROUP, value)),
)


def rows(family: int) -> st.SearchStrategy[dict[bytes, tuple[Op, int]]]:
    """Routes by key, whose key is one choice of hypothesis."""
    size = ADDRESS_BYTES[family] + 2
    keys = st.binary(min_size=size, max_size=size).map(lambda octets: prefix_key(family, octets))
    return st.dictionaries(keys, st.tuples(st.sampled_from(Op), actions), max_size=20)


rows_of = {family: rows(family) for family in ADDRESS_BYTES}


@st.composite
def route_columns(draw: st.DrawFn) -> Columns:
    family = draw(st.sampled_from([4, 6]))
    routes = draw(rows_of[family])
    ops, chosen = [op for op, _ in routes.values()], [action for _, action in routes.values()]
    return draw(st.integers(0, (1 << 32) - 1)), family, ops, list(routes), chosen


def as_protobuf(vrf_id: int, family: int, op: Op, key: bytes, action: int) -> p4r.Update:
    """One route as an update, built by the library alone."""
    table = SCHEMA.table(f"ipv{family}_route")
    entry = p4r.TableEntry(table_id=table.id)
    vrf = entry.match.add(field_id=table.fields["vrf_id"].id)
    vrf.exact.value = canonical(vrf_id, 32)
    if key[-1]:
        prefix = entry.match.add(field_id=table.fields[f"ipv{family}_dst"].id)
        prefix.lpm.value = canonical(int.from_bytes(key[:-1], "big"), 128)
        prefix.lpm.prefix_len = key[-1]
    if op is not Op.DELETE:
        kind, value = base.action_kind(action), base.action_value(action)
        message = entry.action.action
        if kind is RouteKind.NEXTHOP:
            message.CopyFrom(table.actions["set_nexthop"].message({"nexthop_id": value}))
        elif kind is RouteKind.GROUP:
            message.CopyFrom(table.actions["set_nexthop_group"].message({"nexthop_group_id": value}))
        else:
            message.action_id = table.actions[PLAIN[action]].id
    return p4r.Update(type=p4r.Update.Type.ValueType(op), entity=p4r.Entity(table_entry=entry))


def response_of(updates: list[p4r.Update]) -> bytes:
    return p4r.ReadResponse(entities=[update.entity for update in updates]).SerializeToString()


def read(family: int, response: bytes) -> tuple[dict[int, dict[bytes, int]], RouteReader]:
    routes: dict[int, dict[bytes, int]] = {}
    reader = RouteReader(SCHEMA, family, routes)
    reader.add(entities_of(response))
    return routes, reader


@quick
@given(route_columns())
def test_routes_are_encoded_as_the_library_does_it(
    columns: Columns,
) -> None:
    vrf_id, family, ops, keys, column = columns
    octets, left_out = RouteEncoder(SCHEMA, vrf_id, family, lambda action: None).encode(ops, keys, column)
    wanted = [as_protobuf(vrf_id, family, *row) for row in zip(ops, keys, column, strict=True)]
    assert not left_out
    assert p4r.WriteRequest.FromString(octets) == p4r.WriteRequest(updates=wanted)


@quick
@given(route_columns())
def test_routes_read_back_are_those_written(columns: Columns) -> None:
    vrf_id, family, _, keys, column = columns
    updates = [as_protobuf(vrf_id, family, Op.INSERT, *row) for row in zip(keys, column, strict=True)]
    routes, reader = read(family, response_of(updates + updates))
    assert routes.get(vrf_id, {}) == dict(zip(keys, column, strict=True))
    assert reader.foreign == 0


def test_actions_with_an_objection_are_left_out_with_the_reason() -> None:
    encoder = RouteEncoder(SCHEMA, 7, 4, lambda action: "no such thing" if action == base.LOCAL else None)
    keys = [bytes((10, 0, 0, n, 32)) for n in range(3)]
    octets, left_out = encoder.encode([Op.INSERT] * 3, keys, [base.GLEAN, base.LOCAL, base.GLEAN])
    assert left_out == {1: "no such thing"}
    assert len(p4r.WriteRequest.FromString(octets).updates) == 2


def test_a_deletion_has_no_objection() -> None:
    encoder = RouteEncoder(SCHEMA, 7, 4, lambda action: "no such thing")
    octets, left_out = encoder.encode([Op.DELETE], [bytes((10, 0, 0, 0, 8))], [base.LOCAL])
    assert octets
    assert not left_out


def test_what_was_asked_is_asked_again_after_forget() -> None:
    asked: list[int] = []
    encoder = RouteEncoder(SCHEMA, 7, 4, asked.append)  # type: ignore[arg-type]
    for _ in range(2):
        encoder.encode([Op.INSERT], [bytes((10, 0, 0, 0, 8))], [base.LOCAL])
    assert asked == [base.LOCAL]
    encoder.forget()
    encoder.encode([Op.INSERT], [bytes((10, 0, 0, 0, 8))], [base.LOCAL])
    assert asked == [base.LOCAL] * 2


def test_which_actions_a_route_can_have() -> None:
    assert all(is_route_action(action) for action in (*PLAIN, route_action(RouteKind.GROUP, 3)))
    assert not is_route_action(base.UNKNOWN_ACTION)
    assert not is_route_action(route_action(RouteKind.PUNT, base.PuntReason.CONTROL))


def test_an_entry_that_is_no_route_is_foreign() -> None:
    update = as_protobuf(7, 4, Op.INSERT, bytes((10, 0, 0, 0, 8)), base.LOCAL)
    host_bits = p4r.Update.FromString(update.SerializeToString())
    host_bits.entity.table_entry.match[1].lpm.value = b"\x0a\x00\x00\x01"
    too_long = p4r.Update.FromString(update.SerializeToString())
    too_long.entity.table_entry.match[1].lpm.prefix_len = 33
    no_vrf = p4r.Update.FromString(update.SerializeToString())
    del no_vrf.entity.table_entry.match[0]
    routes, reader = read(4, response_of([host_bits, too_long, no_vrf]))
    assert routes == {}
    assert reader.foreign == 3


def test_a_route_with_an_action_we_would_not_write_is_unknown() -> None:
    update = as_protobuf(7, 4, Op.INSERT, bytes((10, 0, 0, 0, 8)), route_action(RouteKind.NEXTHOP, 3))
    update.entity.table_entry.action.action.params[0].value = b"\1\0\0\0"
    assert read(4, response_of([update]))[0] == {7: {bytes((10, 0, 0, 0, 8)): base.UNKNOWN_ACTION}}


def test_an_entry_of_another_table_is_no_answer() -> None:
    update = as_protobuf(7, 6, Op.INSERT, bytes(16) + b"\0", base.LOCAL)
    with pytest.raises(ChannelClosed, match="something else"):
        read(4, response_of([update]))


@quick
@given(st.binary(max_size=200))
def test_octets_of_any_kind_are_read_or_refused(octets: bytes) -> None:
    with contextlib.suppress(ChannelClosed):
        routes, reader = read(4, octets)
        assert reader.foreign + sum(map(len, routes.values())) <= len(octets)


@quick
@given(route_columns(), st.data())
def test_a_damaged_answer_is_read_or_refused(columns: Columns, data: st.DataObject) -> None:
    vrf_id, family, _, keys, column = columns
    updates = [as_protobuf(vrf_id, family, Op.INSERT, *row) for row in zip(keys, column, strict=True)]
    octets = bytearray(response_of(updates))
    if octets:
        octets[data.draw(st.integers(0, len(octets) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(ChannelClosed):
        routes, _ = read(family, bytes(octets))
        assert sum(map(len, routes.values())) <= len(keys)
