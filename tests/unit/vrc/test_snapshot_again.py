"""A snapshot of the kernel's routes whose first dump was interrupted by a nexthop that changed."""

from collections.abc import AsyncIterator

from netlink_bytes import by_nexthop, nexthop, route
from route_tables import UP

from vrc.errors import DumpInterrupted
from vrc.netlink.route_messages import AF_INET, RTM_GETNEXTHOP
from vrc.routes.nexthops import NexthopSets
from vrc.routes.snapshot import kernel_columns


class Kernel:
    """Its routes say their nexthop alone (`nexthop_compat_mode` 0), which leads elsewhere after the first dump."""

    def __init__(self) -> None:
        self._gateways = ["10.1.0.2", "10.1.0.3"]

    async def dump(self, what: str, kind: int, body: bytes) -> AsyncIterator[bytes]:
        if kind == RTM_GETNEXTHOP:
            yield nexthop(1, 2, self._gateways[0])
        elif body[0] == AF_INET:
            yield route("10.5.0.0/24", by_nexthop(1), kernel=True)
            if len(self._gateways) > 1:
                del self._gateways[0]
                raise DumpInterrupted(what)


async def test_routes_have_the_nexthops_of_the_dump_that_counts() -> None:
    sets = NexthopSets()
    columns = kernel_columns(Kernel(), sets, lambda ifindex: UP.get(ifindex, 0))  # type: ignore[arg-type]
    found: list[tuple[tuple[int, bytes, int], ...]] = []
    async for part in columns:
        found += [sets.content(one)[1] for one in part.ids]
    assert found == [((102, bytes((10, 1, 0, 3)), 1),)]
    assert not sets
