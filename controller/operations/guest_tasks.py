"""Brings guests to the declared state, each in a task of its own.

One that takes minutes for an answer is waited for by those alone who changed it.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress

from controller.errors import StoreError
from controller.fallback.pace import in_turns
from controller.guests.fleet import GuestFleet
from controller.model import RouterConfig
from controller.operations.progress import Steps
from controller.spec.state import State


class GuestTasks:
    """The guests that are being changed."""

    def __init__(self, guests: GuestFleet, declared: Callable[[], State]) -> None:
        self._guests, self._declared = guests, declared
        self._tasks: dict[int, asyncio.Task[None]] = {}  # by vrf_id
        self._identifying = asyncio.Lock()

    async def bring(self, steps: Steps, concerns: Callable[[str], bool] = lambda _: True) -> dict[str, str]:
        """Bring guests to the declared state; return by router why one does not run as declared.

        Those alone are waited for of routers that ``concerns`` tells; of others it is what is known already.
        """
        under_way = {vrf_id for vrf_id in self._tasks if self._under_way(vrf_id)}
        changed = await self.begin(steps)
        mine = [router for router in changed if concerns(router.full_name)]
        await self._finished(mine)
        former = [one for one in mine if one.vrf_id in under_way and not self._guests.current(one)]
        if former:  # what was under way may have been a former declaration
            await self.begin(steps)
            await self._finished(former)
        failures = {router.full_name: self._guests.failure(router) for router in changed}
        return {name: line for name, line in failures.items() if line}

    async def begin(self, steps: Steps) -> list[RouterConfig]:
        """Start to bring guests there, each but once at a time; returns the routers whose guests are not yet."""
        routers = self._declared().routers
        changed = [router async for router in in_turns(routers.values()) if not self._guests.current(router)]
        async with self._identifying:
            # Not who is being given one just now: it would get another than what is noted, and kept.
            await self._guests.identify([one for one in changed if not self._under_way(one.vrf_id)])
        for vrf_id, task in list(self._tasks.items()):
            if task.done():
                del self._tasks[vrf_id]
        async for router in in_turns(changed):
            known = self._declared().routers.get(router.full_name)  # by now
            if known is None or known.vrf_id != router.vrf_id:
                await self._guests.forget(router)
            elif router.vrf_id not in self._tasks:
                task = asyncio.create_task(self._run(known, steps), name=f"guest of {router.full_name}")
                self._tasks[router.vrf_id] = task
        return changed

    async def settle(self) -> None:
        """Refuse the former certificates of guests that were given new ones."""
        async with self._identifying:  # or what somebody is being given would be taken for a former one
            with suppress(StoreError):  # those are good until then
                await self._guests.settle()

    async def end(self, vrf_id: int) -> None:
        """Change the guest of a router no more."""
        if (task := self._tasks.pop(vrf_id, None)) is not None:
            task.cancel()
            await asyncio.wait([task])

    async def close(self) -> None:
        """Change no guest any more."""
        tasks, self._tasks = list(self._tasks.values()), {}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _under_way(self, vrf_id: int) -> bool:
        task = self._tasks.get(vrf_id)
        return task is not None and not task.done()

    async def _finished(self, routers: list[RouterConfig]) -> None:
        tasks = [self._tasks[router.vrf_id] for router in routers if router.vrf_id in self._tasks]
        if tasks:
            await asyncio.wait(tasks)
        await self.settle()

    async def _run(self, router: RouterConfig, steps: Steps) -> None:
        try:
            await self._guests.try_to_ensure(router)
        finally:
            steps.next(f"start the guest of {router.full_name}")
