"""What zebra says over FPM: frames of netlink messages, and the route table made of them."""

import sys
from pathlib import Path

from vrc.errors import MalformedFrame
from vrc.netlink.route_messages import RTM_DELROUTE, Batch
from vrc.routes.fpm import BATCH_ROUTES, scan_frames
from vrc.routes.nexthops import NexthopSets
from vrc.routes.table import RouteTable

sys.path.append(str(Path(__file__).parents[2] / "unit/vrc"))
from netlink_bytes import attribute, by_gateway, by_nexthop, frame, route, u32

INSTRUMENTED = ("vrc.netlink", "vrc.routes")


def usable(ifindex: int) -> int:
    """Return the router interface of an ifindex, 0 for none."""
    return ifindex if ifindex < 8 else 0


def try_one(octets: bytes) -> None:
    """Read a stream to its end, make a table of it, and take what changed; only `MalformedFrame` ends it earlier."""
    table = RouteTable(NexthopSets(), usable)
    scope = table.open_scope()
    offset = 0
    while True:
        batch = Batch()
        try:
            done = scan_frames(octets, offset, BATCH_ROUTES, batch)
        except MalformedFrame:
            break
        finally:
            table.apply(batch.changes, scope)
        if done == offset:
            break
        assert offset < done <= len(octets), (offset, done)
        offset = done
    table.settle()
    table.gateways()
    while table.take(4096) is not None:
        pass


def seeds() -> list[bytes]:
    """Routes by gateway and by nexthop, replaced and withdrawn, of both families."""
    multipath = attribute(9, b"\x08\0\0\0" + u32(1) + b"\x08\0\0\1" + u32(2))
    return [
        frame(route("10.0.0.0/8", by_gateway("192.0.2.2", 1))) + frame(route("10.0.0.0/8", kind=RTM_DELROUTE)),
        frame(route("10.0.0.0/8", kind=RTM_DELROUTE), route("10.0.0.0/8", by_nexthop(1))),
        frame(route("2001:db8::/32", by_gateway("fe80::1", 2))) + frame(route("0.0.0.0/0", multipath)),
        frame(route("198.51.100.0/24", route_type=6)),
    ]
