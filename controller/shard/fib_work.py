"""Charges what a mirror does with one router's FIB to that router, and keeps a bug in it from all others.

What a FIB takes to be on the plane is not to be trusted after an exception: nothing is written of it before the plane
is adopted anew.
"""

import contextlib
from collections.abc import Iterator

from controller.events.log import EventLog
from controller.routing.fib import Fib
from controller.shard.loop_share import LoopShare
from controller.supervisor import contained


class FibWork:
    """Work on the FIBs of one plane."""

    def __init__(self, events: EventLog, loop_share: LoopShare) -> None:
        self.failed: dict[Fib, str] = {}  # what each failed at
        self._events, self._loop_share = events, loop_share

    @contextlib.contextmanager
    def slice(self, fib: Fib, what: str) -> Iterator[None]:
        """Do a piece of a router's work, in which nothing is awaited; whether that failed, `failed` says then."""

        def failed() -> None:
            self.failed.setdefault(fib, what)

        with (
            contained(self._events, fib.config.full_name, what, failed),
            self._loop_share.slice(self._loop_share.account(fib.config), what),
        ):
            yield

    def problem(self, vrf_id: int) -> str:
        """Return why nothing is written of a router; empty where that is not so."""
        found = (what for fib, what in self.failed.items() if fib.config.vrf_id == vrf_id)
        what = next(found, "")
        return what and f"a fault of the controller at {what}: tried again at the next audit; see vrctl events"
