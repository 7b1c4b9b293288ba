"""Work on the FIBs of a plane: charged to their routers, a bug in one kept from all others, what takes long in turns.

What a FIB takes to be on the plane is not to be trusted after an exception: nothing is written of it before the plane
is adopted anew.
"""

import contextlib
from collections.abc import Awaitable, Callable, Iterator

from controller.events.log import EventLog
from controller.routing.fib import Fib
from controller.shard.loop_share import LoopAccount, LoopShare
from controller.supervisor import Supervisor, contained

MOST_PENDING = 65_536
"""Prefixes that may wait for the plane where a pass goes on: what it finds waits as well, in memory."""


class FibWork:
    """Work on the FIBs of one plane. ``tell_failed`` hears at once of one that fails."""

    def __init__(self, events: EventLog, loop_share: LoopShare, tell_failed: Callable[[Fib], None]) -> None:
        self.failed: dict[Fib, str] = {}  # what each failed at
        self._events, self._loop_share, self._tell_failed = events, loop_share, tell_failed

    @contextlib.contextmanager
    def slice(self, fib: Fib, what: str) -> Iterator[None]:
        """Do a piece of a router's work, in which nothing is awaited; whether that failed, `failed` says then."""

        def failed() -> None:
            self.failed.setdefault(fib, what)
            self._tell_failed(fib)

        with (
            contained(self._events, fib.config.full_name, what, failed),
            self._loop_share.slice(self._loop_share.account(fib.config), what),
        ):
            yield

    def problem(self, fib: Fib | None) -> str:
        """Return why nothing is written of a router; empty where that is not so."""
        what = "" if fib is None else self.failed.get(fib, "")
        return what and f"a fault of the controller at {what}: tried again at the next audit; see vrctl events"

    async def take(
        self, account: LoopAccount, fib: Fib, what: str, steps: Iterator[None], goes_on: Callable[[], bool]
    ) -> None:
        """Do a router's work a step in each turn of an account, as long as it is to go on."""
        left = True
        while left:
            await self._loop_share.turn(account)
            left = False
            if goes_on():
                with self.slice(fib, what):
                    left = next(steps, self) is None


class TablePasses:
    """Has routers finish what takes a pass over their tables, a slice in each turn that they get: the tasks of those
    that are unfinished. ``advanced`` is told after each slice, which may have left work;
    ``written`` returns after each write of the plane."""

    def __init__(
        self,
        events: EventLog,
        loop_share: LoopShare,
        work: FibWork,
        advanced: Callable[[Fib], None],
        written: Callable[[], Awaitable[object]],
    ) -> None:
        self._supervisor = Supervisor(events)
        self._loop_share, self._work, self._advanced, self._written = loop_share, work, advanced, written
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
                with self._work.slice(fib, "a pass over its tables"):
                    fib.advance()
                if not fib.unfinished or fib in self._work.failed:
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
