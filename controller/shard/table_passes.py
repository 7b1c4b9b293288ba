"""Has the routers of a plane finish what takes a pass over their tables, a slice in each turn that a router gets."""

from collections.abc import Awaitable, Callable

from controller.events.log import EventLog
from controller.routing.fib import Fib
from controller.shard.loop_share import LoopShare
from controller.supervisor import Supervisor

MOST_PENDING = 65_536
"""Prefixes that may wait for the plane where a pass goes on: what it finds waits as well, in memory."""


class TablePasses:
    """The tasks of those that are unfinished. ``advanced`` is told after each slice, which may have left work;
    ``written`` returns after each write of the plane."""

    def __init__(
        self,
        events: EventLog,
        loop_share: LoopShare,
        advanced: Callable[[Fib], None],
        written: Callable[[], Awaitable[object]],
    ) -> None:
        self._supervisor = Supervisor(events)
        self._loop_share, self._advanced, self._written = loop_share, advanced, written
        self._under_way: set[Fib] = set()

    def start(self, fib: Fib) -> None:
        """Have a router finish, if it is not at that already."""
        if fib in self._under_way:
            return

        async def run() -> None:
            account = self._loop_share.account(fib.config)
            while fib in self._under_way and fib.unfinished:
                if fib.pending > MOST_PENDING:
                    await self._written()
                    continue
                await self._loop_share.turn(account)
                with self._loop_share.slice(account, "a pass over its tables"):
                    fib.advance()
                if not fib.unfinished:
                    self._under_way.discard(fib)  # whatever comes of it may begin another
                self._advanced(fib)

        self._under_way.add(fib)
        self._supervisor.spawn(f"pass over the tables of {fib.config.full_name}", run)

    def discard(self, fib: Fib) -> None:
        """Leave a router as it is."""
        self._under_way.discard(fib)

    async def close(self) -> None:
        """Leave all as they are."""
        self._under_way.clear()
        await self._supervisor.close()
