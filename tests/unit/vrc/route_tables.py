"""A route table, what it is told and what it sends."""

from collections.abc import Callable

from netlink_bytes import route

from vrc.netlink.route_messages import RTM_DELROUTE, Batch, Change, scan
from vrc.routes.nexthops import NexthopSets
from vrc.routes.table import RouteTable

UP = {2: 102, 3: 103}
"""The router's interfaces by ifindex; no other one is."""


def empty_table(is_dark: Callable[[int], bool] = lambda _: False) -> RouteTable:
    """Return an empty table."""
    return RouteTable(NexthopSets(), lambda ifindex: UP.get(ifindex, 0), is_dark)


def changes(*messages: bytes) -> list[Change]:
    batch, buffer = Batch(), b"".join(messages)
    scan(buffer, 0, len(buffer), batch)
    return batch.changes


def delete(prefix: str, *attributes: bytes) -> bytes:
    return route(prefix, *attributes, kind=RTM_DELROUTE)


def taken(table: RouteTable, limit: int = 4096) -> dict[bytes, int]:
    found: dict[bytes, int] = {}
    while (columns := table.take(limit)) is not None:
        assert 0 < len(columns.keys) <= limit
        assert {len(key) for key in columns.keys} == {5 if columns.family == 4 else 17}
        found |= dict(zip(columns.keys, columns.ids, strict=True))
    assert not table.pending
    return found
