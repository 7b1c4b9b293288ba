"""A turn of the event loop stays short, whatever many have to do at once."""

import asyncio
import time

from controller.shard.loop_share import TURN_S, LoopShare

WORK_S = TURN_S / 5


def busy(seconds: float) -> None:
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass


async def test_many_at_once_take_turns_in_order():
    share, order, longest = LoopShare(), [], 0.0

    async def one(number: int) -> None:
        await share.turn()
        busy(WORK_S)
        order.append(number)

    tasks = [asyncio.create_task(one(number)) for number in range(100)]
    before = time.perf_counter()
    while not all(task.done() for task in tasks):
        await asyncio.sleep(0)
        now = time.perf_counter()
        longest, before = max(longest, now - before), now
    assert sorted(order) == list(range(100))
    assert order[0] == 0
    assert longest < 100 * WORK_S / 2  # without turns all of it would be one


async def test_who_is_alone_does_not_wait():
    share = LoopShare()
    for _ in range(1000):
        before = asyncio.all_tasks()
        await share.turn()
        assert asyncio.all_tasks() == before


async def test_who_gives_up_waiting_holds_up_nobody():
    share, done = LoopShare(), []

    async def one(number: int) -> None:
        await share.turn()
        busy(2 * TURN_S)
        done.append(number)

    tasks = [asyncio.create_task(one(number)) for number in range(6)]
    await asyncio.sleep(0)
    tasks[2].cancel()
    tasks[4].cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert done == [0, 1, 3, 5]
