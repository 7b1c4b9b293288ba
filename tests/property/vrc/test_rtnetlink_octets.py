"""The decoder of routes and nexthops: what was encoded comes back, and no octets hurt."""

import contextlib
import ipaddress

from hypothesis import given
from hypothesis import strategies as st
from netlink_bytes import attribute, by_gateway, by_nexthop, message, route

from vrc.errors import MalformedNetlink
from vrc.netlink.route_messages import Batch, decode_nexthop, decode_shape, scan
from wire.columns import prefix_key

prefixes4 = st.builds(
    lambda bits, length: ipaddress.ip_network((bits, length), strict=False),
    st.integers(0, 2**32 - 1),
    st.integers(0, 32),
)
prefixes6 = st.builds(
    lambda bits, length: ipaddress.IPv6Network((bits, length), strict=False),
    st.integers(0, 2**128 - 1),
    st.integers(0, 128),
)
prefixes = st.one_of(prefixes4, prefixes6).map(str)


def scanned(buffer: bytes) -> Batch:
    batch = Batch()
    scan(buffer, 0, len(buffer), batch)
    return batch


@given(st.lists(st.tuples(prefixes, st.booleans(), st.integers(1, 2**32 - 1)), max_size=8))
def test_keys_and_ids_survive(routes: list[tuple[str, bool, int]]) -> None:
    buffer = b"".join(route(prefix, by_nexthop(id_), kernel=kernel) for prefix, kernel, id_ in routes)
    batch = scanned(buffer)
    assert batch.malformed == 0
    assert [key for _, key, _, _ in batch.changes] == [prefix_key(prefix) for prefix, _, _ in routes]
    assert [decode_shape(shape).nexthop_id for _, _, shape, _ in batch.changes] == [id_ for _, _, id_ in routes]


@given(st.binary(max_size=200), st.sampled_from([24, 25, 104, 105]), st.integers(0, 2))
def test_any_bytes_are_decoded_or_malformed(body: bytes, kind: int, family: int) -> None:
    body = (b"", b"\x02", b"\x0a")[family] + body
    try:
        changes = scanned(message(kind, body + bytes(-len(body) % 4))).changes
    except MalformedNetlink:
        return
    for _, key, shape, _ in changes:
        try:
            spec = decode_shape(shape) if key else decode_nexthop(shape)
        except MalformedNetlink:
            continue
        assert spec is not None


@given(st.binary(max_size=300))
def test_any_buffer(buffer: bytes) -> None:
    with contextlib.suppress(MalformedNetlink):
        assert all(len(key) in (0, 5, 17) for _, key, _, _ in scanned(buffer).changes)


@given(st.data())
def test_a_damaged_route_is_still_safe(data: st.DataObject) -> None:
    damaged = bytearray(route("10.20.0.0/16", by_gateway("10.0.0.1", 5), attribute(9, bytes(12))))
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(16, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    for _, key, shape, _ in scanned(bytes(damaged)).changes:
        assert len(key) in (5, 17)
        with contextlib.suppress(MalformedNetlink):
            decode_shape(shape)
