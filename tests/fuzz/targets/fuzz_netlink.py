"""What a guest's kernel says of routes, nexthops, links, addresses and neighbors."""

import sys
from contextlib import suppress
from pathlib import Path

from vrc.errors import MalformedNetlink
from vrc.netlink import link_messages
from vrc.netlink.route_messages import Batch, decode_nexthop, decode_shape, messages, scan
from vrc.routes.nexthops import NexthopSets
from vrc.routes.system_routes import SystemRoutes
from vrc.routes.table import RouteTable

sys.path.append(str(Path(__file__).parents[2] / "unit/vrc"))
import netlink_bytes as made

INSTRUMENTED = ("vrc.netlink", "vrc.routes")
_DECODERS = (
    link_messages.decode_link,
    link_messages.decode_address,
    link_messages.decode_neighbor,
    decode_nexthop,
    decode_shape,
)


def try_one(octets: bytes) -> None:
    """Decode it as each kind of message, and follow it as routes; nothing but `MalformedNetlink` is raised."""
    for decode in _DECODERS:
        with suppress(MalformedNetlink):
            decode(octets)
    with suppress(MalformedNetlink):
        for _, _, start, end in messages(octets):
            for decode in _DECODERS:
                with suppress(MalformedNetlink):
                    decode(octets[start:end])
    batch, sets = Batch(), NexthopSets()
    table, system = RouteTable(sets, int), SystemRoutes(sets, int)
    with suppress(MalformedNetlink):
        scan(octets, 0, len(octets), batch)
    scope = table.open_scope()
    table.apply_kernel(batch.changes, scope)
    table.settle()
    system.apply(batch.changes)
    system.drop_over(lambda ifindex: bool(ifindex & 1))
    while table.take(4096) is not None:
        pass


def seeds() -> list[bytes]:
    """A few of each."""
    link = made.message(
        16, b"\0\0\1\0" + made.u32(3) + bytes(8) + made.attribute(3, b"eth0\0") + made.attribute(1, bytes(6))
    )
    address = made.message(20, b"\2\x18\x80\0" + made.u32(3) + made.attribute(1, bytes((10, 0, 0, 1))))
    neighbor = made.message(
        28,
        b"\2\0\0\0"
        + made.u32(3)
        + b"\2\0\0\1"
        + made.attribute(1, bytes((10, 0, 0, 2)))
        + made.attribute(2, b"\2" * 6),
    )
    nexthop = made.message(
        104,
        b"\2\0\0\0"
        + bytes(4)
        + made.attribute(1, made.u32(7))
        + made.attribute(5, made.u32(3))
        + made.attribute(6, bytes((10, 0, 0, 2))),
    )
    group = made.message(104, bytes(8) + made.attribute(1, made.u32(8)) + made.attribute(2, made.u32(7) + bytes(4)))
    route = made.route("10.0.0.0/8", made.by_gateway("192.0.2.2", 3), kernel=True)
    return [
        link,
        address,
        neighbor,
        nexthop + group,
        route,
        route + made.route("10.1.0.0/16", kernel=True, protocol=2),
    ]
