"""The loops in C do what plain Python does, whatever they are given."""

import struct
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st
from netlink_bytes import attribute, by_gateway, by_nexthop, frame, message, nexthop, route, u32
from plain_routes import plain_apply, plain_scan

from vrc.errors import MalformedNetlink
from vrc.netlink import _loops
from vrc.netlink.route_messages import RTM_DELROUTE, RTM_NEWROUTE, Batch, Change, scan
from vrc.routes.fpm import scan_frames
from vrc.routes.nexthops import NexthopSets
from vrc.routes.table import RouteTable

PREFIXES = ("10.0.0.0/8", "10.1.0.0/16", "0.0.0.0/0", "127.0.0.0/8", "2001:db8::/32", "fe80::/64", "fd00::/8", "::/0")
WAYS = (by_nexthop(7), by_nexthop(8), by_gateway("10.1.0.2", 2), by_gateway("10.1.0.2", 9), by_gateway("fe80::1", 3))

routes = st.sampled_from(
    [
        route(prefix, way, kind=kind, table=table, flags=flags, kernel=kernel)
        for kind, kernel, flags, table, way, prefix in product(
            (RTM_NEWROUTE, RTM_DELROUTE), (False, True), (0, 0x401), (254, 254, 254, 255), WAYS, PREFIXES
        )
    ]
)
"""All of them, so that each is one choice of hypothesis."""

nexthops = st.sampled_from([nexthop(group, ifindex, "10.1.0.3") for group, ifindex in product((7, 8), (2, 3))])
odd = st.sampled_from(
    [
        message(RTM_DELROUTE, struct.pack("=BBBBBBBBI", 10, 0, 0, 0, 254, 0, 0, 1, 0)),
        message(RTM_NEWROUTE, route("10.2.0.0/16")[16:28] + WAYS[0] + attribute(1, bytes((10, 2, 0, 0)))),
        message(RTM_NEWROUTE, route("10.3.0.0/16")[16:-1] + b"\1"),  # with a host bit
        message(16, bytes(16)),
        message(RTM_NEWROUTE, b"\2") + bytes(3),
    ]
)


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    octets = bytearray(draw(routes))
    octets[draw(st.integers(0, len(octets) - 1))] = draw(st.integers(0, 255))
    return bytes(octets)


messages = st.one_of(routes, routes, nexthops, odd)
anything = st.one_of(messages, damaged(), st.binary(max_size=60))


@given(st.lists(anything, max_size=6).map(b"".join))
def test_a_buffer_of_messages(buffer: bytes) -> None:
    batch = Batch()
    try:
        expected = plain_scan(buffer)
    except ValueError as error:
        expected = error.args
        with pytest.raises(MalformedNetlink):
            scan(buffer, 0, len(buffer), batch)
    else:
        scan(buffer, 0, len(buffer), batch)
    assert (batch.changes, batch.foreign, batch.malformed) == expected


@given(st.lists(st.lists(anything, max_size=3), max_size=6), st.integers(1, 9), st.integers(0, 40))
def test_frames(content: list[list[bytes]], limit: int, cut: int) -> None:
    frames = [frame(*some) for some in content]
    expected: list[Change] = []
    done = malformed = 0
    for some in frames:
        if len(expected) >= limit or done + len(some) > sum(map(len, frames)) - cut:
            break
        try:
            said = plain_scan(some[4:])
        except ValueError as error:
            said = error.args
            malformed += 1
        expected += said[0]
        malformed += said[2]
        done += len(some)
    batch = Batch()
    stream = b"".join(frames)
    assert scan_frames(stream[: max(0, len(stream) - cut)], 0, limit, batch) == done
    assert (batch.changes, batch.malformed) == (expected, malformed)


def described(table: RouteTable) -> object:
    known = {key: (binding.spec, binding.set_id) for key, binding in table._routes.items()}
    counts = [(shape, binding.routes) for scope in table.scopes for shape, binding in scope.bindings.items()]
    return known, table._dirty, counts, table.counters, table.withdrawn


@given(st.lists(st.lists(messages, max_size=8).map(b"".join), max_size=5), st.integers(1, 8), st.booleans())
def test_changes_into_the_table(batches: list[bytes], limit: int, dumping: bool) -> None:
    tables = [RouteTable(NexthopSets(), lambda ifindex: {2: 102, 3: 103}.get(ifindex, 0)) for _ in range(2)]
    for table, apply in zip(tables, (RouteTable.apply, plain_apply), strict=True):
        table.limit = limit
        table.withdrawn = set() if dumping else None
        for number, buffer in enumerate(batches):
            if number % 3 == 0:  # routes of the scope before stay bound to it
                scope = table.open_scope()
            batch = Batch()
            scan(buffer, 0, len(buffer), batch)
            apply(table, batch.changes, scope)
    assert described(tables[0]) == described(tables[1])
    for table in tables:
        held = list(table._routes.values())
        bindings = {id(one): one for one in held}
        assert all(one.routes == sum(other is one for other in held) for one in bindings.values())


def test_what_a_caller_may_not_do() -> None:
    buffer = route("10.0.0.0/8", by_nexthop(1))
    for offset, end in ((-1, 4), (5, 4), (0, len(buffer) + 1)):
        with pytest.raises(ValueError, match=f"{offset} to {end} is not within"):
            _loops.messages(buffer, offset, end, [])
    with pytest.raises(ValueError, match="not within"):
        _loops.frames(buffer, len(buffer) + 1, 1, [])
    table: tuple[dict[bytes, object], ...] = ({}, {}, {}, {})
    for change in (u32(1), (1, 2), (RTM_NEWROUTE, "10/8", b"", 0)):
        with pytest.raises(TypeError, match="a change is"):
            _loops.bind([change], 0, *table, None, 10)
