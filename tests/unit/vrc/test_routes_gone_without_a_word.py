"""Routes that the kernel has removed without a message, before a dump, when that they were added is still unread."""

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest
from netlink_bytes import by_gateway, route
from route_tables import empty_table

from vrc.netlink.route_messages import AF_INET, RTM_GETROUTE
from vrc.routes import sources
from vrc.routes.sources import FpmSource, NetlinkSource
from wire.columns import prefix_key

STAYED = route("10.5.0.0/24", by_gateway("10.1.0.2", 2), kernel=True, protocol=4)
WENT = route("10.6.0.0/24", by_gateway("10.1.0.2", 2), kernel=True, protocol=4)
LATER = route("10.7.0.0/24", by_gateway("10.1.0.2", 2), kernel=True, protocol=4)


class Socket:
    """A `Monitor` with what the kernel has said and nobody has read."""

    unread: list[bytes]

    def __init__(self, _groups: object, received: Callable[[bytes], None], *_: object, **__: object) -> None:
        self._received = received

    def start(self) -> None:
        """Read what has come."""
        self.catch_up()

    def catch_up(self) -> None:
        """Read what has come."""
        while Socket.unread:
            self._received(Socket.unread.pop(0))

    def pause(self) -> None: ...

    def close(self) -> None: ...


class Kernel:
    """Has one route, and gets another one while it is dumped."""

    async def dump(self, _what: str, kind: int, body: bytes) -> AsyncIterator[bytes]:
        if kind == RTM_GETROUTE and body[0] == AF_INET:
            yield STAYED
            Socket.unread.append(LATER)


def nothing(*_: object) -> None:
    """Whom it may concern is not there."""


@pytest.fixture(autouse=True)
def unread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "Monitor", Socket)
    Socket.unread = [STAYED, WENT]


async def test_the_kernel_s_routes_are_those_of_the_dump_and_what_came_since() -> None:
    table, ready = empty_table(), asyncio.Event()
    source = NetlinkSource(table, Kernel(), ready, changed=nothing, notify=nothing)  # type: ignore[arg-type]
    ready.set()
    running = asyncio.ensure_future(source.run())
    await asyncio.wait_for(source.seeded.wait(), 10)
    await asyncio.sleep(0)
    running.cancel()
    assert [prefix_key(one) in table for one in ("10.5.0.0/24", "10.6.0.0/24", "10.7.0.0/24")] == [True, False, True]
    assert source.dumps == 1


async def test_so_are_its_own_ones_beside_zebra_s() -> None:
    table, told = empty_table(), {"changed": nothing, "notify": nothing, "opened": nothing, "zebra_age_s": nothing}
    source = FpmSource(table, Kernel(), ("127.0.0.1", 0), asyncio.Event(), **told)  # type: ignore[arg-type]
    try:
        await source._look_at_system()
        found = [table.system.find(prefix_key(one)) for one in ("10.5.0.0/24", "10.6.0.0/24", "10.7.0.0/24")]
        assert [one is not None for one in found] == [True, False, True]
    finally:
        source.close()
