"""Bounds how long one turn of the event loop lasts, however many tasks have work at once.

asyncio runs everything that is ready before it looks at its sockets again: ten thousand routers that each have a
message of a tenth of a millisecond would hold them up for a second. Who asks for its turn here waits, in order, once
the turn has lasted for `TURN_S`.
"""

import asyncio
import time
from collections import deque

TURN_S = 0.005
"""How long a turn of the loop lasts before others than those under way have to wait for the next one."""


class LoopShare:
    """The turns of one event loop."""

    def __init__(self) -> None:
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._began: float | None = None  # of this turn of the loop; None: nobody has asked in it yet
        self._passed = 0  # who had their turn in it

    async def turn(self) -> None:
        """Wait until there is time left in a turn of the loop."""
        if self._began is None:
            self._begin()
        elif self._waiting or self._spent:
            await self._wait()
        self._passed += 1

    @property
    def _spent(self) -> bool:
        return self._began is not None and time.perf_counter() - self._began > TURN_S

    async def _wait(self) -> None:
        loop = asyncio.get_running_loop()
        waiter = loop.create_future()
        self._waiting.append(waiter)
        try:
            while True:
                await waiter
                if not self._spent:
                    return
                waiter = loop.create_future()  # those before it took longer than the last time
                self._waiting.appendleft(waiter)
        except asyncio.CancelledError:
            if not waiter.done():
                self._waiting.remove(waiter)
            raise

    def _begin(self) -> None:
        self._began, self._passed = time.perf_counter(), 0
        asyncio.get_running_loop().call_soon(self._next)

    def _next(self) -> None:
        """Begin another turn of the loop, with as many of those who wait as had time in the last one."""
        passed = max(self._passed, 1)
        if not self._waiting:
            self._began = None
            return
        if not self._spent:
            passed *= 2
        self._begin()
        for _ in range(min(passed, len(self._waiting))):
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(None)
