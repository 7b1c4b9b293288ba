"""How far a change has come, and how thousands of things of it are begun."""

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

from controller.fallback.pace import in_turns

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Progress:
    """How far an apply or delete has come."""

    done: int
    total: int
    text: str


Report = Callable[[Progress], None]


class Steps:
    """Counts steps for whoever watches."""

    def __init__(self, total: int, report: Report) -> None:
        self._done, self._total, self._report = 0, total, report

    def next(self, text: str) -> None:
        """Tell that one more is done, or begun."""
        self._done += 1
        self._report(Progress(min(self._done, self._total), self._total, text))


@dataclass(frozen=True, slots=True)
class Programmed:
    """One line for everything that waits for a plane, and how far whoever watches has been told."""

    waiting: list[str]
    steps: Steps


async def gathered(work: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Do things beside each other, as `asyncio.gather`; thousands are begun in turns."""
    tasks: list[asyncio.Task[T]] = []
    try:
        async for one in in_turns(work):
            tasks.append(asyncio.create_task(one))
        return await asyncio.gather(*tasks)
    except asyncio.CancelledError:
        for task in tasks:
            task.cancel()
        raise
