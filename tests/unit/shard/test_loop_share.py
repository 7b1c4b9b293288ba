"""A turn of the event loop stays short, whatever many have to do at once."""

import asyncio

import pytest

from controller.shard import loop_share
from controller.shard.loop_share import TURN_S, LoopShare

WORK_S = TURN_S / 5


class Clock:
    """Stands still, except for what `busy` takes, however slow the machine is."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def perf_counter(self) -> float:
        return self.now_s

    def busy(self, seconds: float) -> None:
        self.now_s += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(loop_share, "time", clock)
    return clock


async def test_many_at_once_take_turns_in_order(clock: Clock) -> None:
    share, order, longest = LoopShare(), [], 0.0

    async def one(number: int) -> None:
        await share.turn()
        clock.busy(WORK_S)
        order.append(number)

    tasks = [asyncio.create_task(one(number)) for number in range(100)]
    before = clock.now_s
    while not all(task.done() for task in tasks):
        await asyncio.sleep(0)
        longest, before = max(longest, clock.now_s - before), clock.now_s
    assert sorted(order) == list(range(100))
    assert order[0] == 0
    assert longest < 100 * WORK_S / 2  # without turns all of it would be one


async def test_who_is_alone_does_not_wait() -> None:
    share = LoopShare()
    for _ in range(1000):
        before = asyncio.all_tasks()
        await share.turn()
        assert asyncio.all_tasks() == before


async def test_who_gives_up_waiting_holds_up_nobody(clock: Clock) -> None:
    share, done = LoopShare(), []

    async def one(number: int) -> None:
        await share.turn()
        clock.busy(2 * TURN_S)
        done.append(number)

    tasks = [asyncio.create_task(one(number)) for number in range(6)]
    await asyncio.sleep(0)
    tasks[2].cancel()
    tasks[4].cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert done == [0, 1, 3, 5]
