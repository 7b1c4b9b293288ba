"""A kernel whose routes keep changing while they are dumped."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from netlink_bytes import by_nexthop, nexthop, route
from route_tables import empty_table

from vrc.errors import DumpInterrupted
from vrc.netlink.route_messages import RTM_GETNEXTHOP
from vrc.netlink.sockets import DUMP_ATTEMPTS
from vrc.routes.sources import FpmSource, NetlinkSource
from vrc.routes.table import RouteTable


class BusyKernel:
    """Interrupts every dump of routes; those of nexthops list ``nexthops`` of them."""

    def __init__(self, nexthops: int) -> None:
        self.dumps = 0
        self._listed = b"".join(nexthop(one, 2, "10.1.0.2") for one in range(1, nexthops + 1))

    async def dump(self, what: str, kind: int, _body: bytes) -> AsyncIterator[bytes]:
        if kind == RTM_GETNEXTHOP:
            yield self._listed
            return
        self.dumps += 1
        yield route("10.5.0.0/24", by_nexthop(1), kernel=True)
        raise DumpInterrupted(what)


def nothing(*_: object) -> None:
    """Whom it may concern is not there."""


def make(table: RouteTable, kernel: BusyKernel, source: str) -> FpmSource | NetlinkSource:
    ready = asyncio.Event()
    if source == "netlink":
        return NetlinkSource(table, kernel, ready, changed=nothing, notify=nothing)  # type: ignore[arg-type]
    told = {"changed": nothing, "notify": nothing, "opened": nothing, "zebra_age_s": nothing}
    return FpmSource(table, kernel, ("127.0.0.1", 0), ready, **told)  # type: ignore[arg-type]


@pytest.mark.parametrize("source", ["fpm", "netlink"])
async def test_nothing_piles_up_while_dumps_are_interrupted(source: str) -> None:
    table, kernel = empty_table(), BusyKernel(nexthops=100)
    one = make(table, kernel, source)
    try:
        for _ in range(3):
            if isinstance(one, NetlinkSource):
                await one._dump()
            else:
                assert not await one._adopt(sweep=True)
            table.sweep()
        assert kernel.dumps == 3 * DUMP_ATTEMPTS
        assert len(table) == 1
        assert len(table.scopes) <= 3  # of the source, of the route that was listed, of the system's
        assert sum(len(scope.objects) for scope in table.scopes) < 100
    finally:
        one.close()
