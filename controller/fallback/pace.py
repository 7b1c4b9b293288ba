"""Takes what lasts long in steps, and leaves the event loop to others in between."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterable, Iterator
from itertools import islice
from typing import TypeVar

STEP_ROUTES = 250
"""Routes of one step: a millisecond or two of what costs most, to bring routes back into a table."""

SLICE_S = 0.003
"""How long steps follow each other."""

T = TypeVar("T")


def parts(items: Iterable[T]) -> Iterator[list[T]]:
    """Return the items, those of a step at a time."""
    rest = iter(items)
    while part := list(islice(rest, STEP_ROUTES)):
        yield part


async def in_turns(items: Iterable[T]) -> AsyncIterator[T]:
    """Iterate, and let others have their turn every few milliseconds."""
    until_s = time.perf_counter() + SLICE_S
    for item in items:
        yield item
        if time.perf_counter() >= until_s:
            await asyncio.sleep(0)
            until_s = time.perf_counter() + SLICE_S


async def paced(steps: Iterator[None]) -> None:
    """Take all steps."""
    async for _ in in_turns(steps):
        pass
