"""Zebra that connects to FPM again while its routes are compared with the kernel's."""

import asyncio
from collections.abc import AsyncIterator, Callable

from netlink_bytes import by_gateway, route
from route_tables import changes, empty_table

from vrc.netlink.route_messages import AF_INET, RTM_GETROUTE, Batch
from vrc.routes.sources import FpmSource
from wire.columns import prefix_key

PREFIXES = [f"10.5.{number}.0/24" for number in range(4)]
ROUTES = [route(prefix, by_gateway("10.1.0.2", 2)) for prefix in PREFIXES]


class Kernel:
    """Lists zebra's routes, each in a buffer of its own; ``halfway`` is called between two of them."""

    def __init__(self) -> None:
        self.halfway: Callable[[], object] = lambda: None

    async def dump(self, _what: str, kind: int, body: bytes) -> AsyncIterator[bytes]:
        if kind != RTM_GETROUTE or body[0] != AF_INET:
            return
        for number, prefix in enumerate(PREFIXES):
            if number == 2:
                self.halfway()
            yield route(prefix, by_gateway("10.1.0.2", 2), kernel=True)


def nothing(*_: object) -> None:
    """Whom it may concern is not there."""


async def test_what_it_has_not_repeated_yet_is_not_swept_for_it_was_in_the_dump() -> None:
    table, kernel = empty_table(), Kernel()
    told = {"changed": nothing, "notify": nothing, "opened": nothing, "zebra_age_s": nothing}
    source = FpmSource(table, kernel, ("127.0.0.1", 0), asyncio.Event(), **told)  # type: ignore[arg-type]
    try:
        source.fpm_opened()
        source.fpm_batch(Batch(changes(*ROUTES, route("10.6.0.0/24", by_gateway("10.1.0.2", 2)))))
        kernel.halfway = source.fpm_opened
        assert await source._adopt(sweep=True)
        assert [prefix for prefix in PREFIXES if prefix_key(prefix) not in table] == []
        # It repeats one; what neither it nor the kernel has goes with the sweep after that.
        kernel.halfway = nothing
        source.fpm_batch(Batch(changes(ROUTES[0])))
        assert await source._adopt(sweep=True)
        assert [prefix for prefix in PREFIXES if prefix_key(prefix) not in table] == []
        assert len(table) == len(PREFIXES)
    finally:
        source.close()
