"""The event log is followed from wherever a reader says that it is."""

import asyncio

import pytest

from controller.events.log import EventLog


@pytest.mark.parametrize("since", [0, 1, 2, 500, -1])
async def test_what_is_followed_begins_after_a_number_or_at_the_end(since: int) -> None:
    log = EventLog()
    for text in ("first", "second"):
        log.emit("info", "test", "x", text)
    told: asyncio.Queue[str] = asyncio.Queue()

    async def follow() -> None:
        async for event in log.follow(since):
            told.put_nowait(event.text)

    following = asyncio.create_task(follow())
    await asyncio.sleep(0)
    log.emit("info", "test", "x", "third")
    async with asyncio.timeout(30):
        found = [await told.get() for _ in range(3 - min(max(since, 0), 2))]
    assert found == ["first", "second", "third"][-len(found) :]
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)
