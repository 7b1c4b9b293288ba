"""The task supervisor: runs tasks that should never end, and starts them again when a bug ends them.

In a task that serves many routers it keeps a bug in one's work from all others.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterator

from controller.events.log import EventLog

RESTART_S = 1.0

_log = logging.getLogger(__name__)


@contextlib.contextmanager
def contained(
    events: EventLog, router: str, what: str, failed: Callable[[], object] = lambda: None
) -> Iterator[None]:
    """Do a piece of one router's work in a task that serves others too.

    An exception in it, which ends there, is logged and told as an event, and ``failed`` is called.
    """
    try:
        yield
    except Exception as problem:  # noqa: BLE001  # as below
        if events.report("error", "router-failed", router, f"{what}: {type(problem).__name__}: {problem}"):
            _log.exception("router %s failed: %s", router, what)
        failed()


class Supervisor:
    """Owns the long-lived tasks of the daemon."""

    def __init__(self, events: EventLog) -> None:
        self._events = events
        self._tasks: list[asyncio.Task[None]] = []

    def spawn(self, name: str, run: Callable[[], Awaitable[None]]) -> asyncio.Task[None]:
        """Run a task until it is cancelled or `close`d.

        An exception in it is logged, told as an event, and followed by a new start.
        """
        task = asyncio.create_task(self._keep(name, run), name=name)
        self._tasks.append(task)
        task.add_done_callback(self._tasks.remove)
        return task

    async def _keep(self, name: str, run: Callable[[], Awaitable[None]]) -> None:
        while True:
            try:
                await run()
                return
            except Exception as problem:  # noqa: BLE001  # the one module that may
                _log.exception("task %s failed", name)
                self._events.emit("error", "task-failed", name, f"{type(problem).__name__}: {problem}; started again")
            await asyncio.sleep(RESTART_S)

    async def close(self) -> None:
        """Cancel all tasks and wait for them, the last one first."""
        for task in list(reversed(self._tasks)):  # each leaves as it ends
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
