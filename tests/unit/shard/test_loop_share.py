"""A turn of the event loop stays short, whatever many have to do at once."""

import asyncio
import itertools

import pytest
from worlds import router_config

from controller.shard import loop_share
from controller.shard.fair_queue import FairQueue
from controller.shard.loop_share import (
    EMPTY_TURNS,
    GREEDY_PART,
    LONG_SLICE_S,
    LONGEST_REST_S,
    MODEST_S,
    TURN_S,
    WITHIN_S,
    LoopAccount,
    LoopShare,
    _Tenant,
)

WORK_S = TURN_S / 5
LASTS_S = 4.0  # long enough for shares to be within a tenth, and hundreds of rounds


class Clock:
    """Stands still, except for what `busy` takes, however slow the machine is."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def perf_counter(self) -> float:
        return self.now_s

    def thread_time(self) -> float:
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
    account = share.account(router_config())

    async def one(number: int) -> None:
        await share.turn(account)
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
    account = share.account(router_config())
    for _ in range(1000):
        before = asyncio.all_tasks()
        await share.turn(account)
        assert asyncio.all_tasks() == before


async def test_who_gives_up_waiting_holds_up_nobody(clock: Clock) -> None:
    share, done = LoopShare(), []
    account = share.account(router_config())

    async def one(number: int) -> None:
        await share.turn(account)
        clock.busy(2 * TURN_S)
        done.append(number)

    tasks = [asyncio.create_task(one(number)) for number in range(6)]
    await asyncio.sleep(0)
    tasks[2].cancel()
    tasks[4].cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert done == [0, 1, 3, 5]


async def compete(clock: Clock, share: LoopShare, work_s: dict[LoopAccount, float], until_s: float) -> None:
    """Let each account have a piece of work ready all the time, each piece so long, until the clock says so."""

    async def one(account: LoopAccount) -> None:
        while clock.now_s < until_s:
            await share.turn(account)
            with share.slice(account, "work"):
                clock.busy(work_s[account])

    await asyncio.gather(*(one(account) for account in work_s))


async def test_time_is_divided_by_tenants_then_by_routers(clock: Clock) -> None:
    share = LoopShare()
    red = [share.account(router_config(number, tenant="red")) for number in range(1, 9)]
    blue = share.account(router_config(9, tenant="blue"))
    work_s = dict.fromkeys(red, WORK_S) | {red[0]: 15 * WORK_S, blue: WORK_S / 4}
    await compete(clock, share, work_s, LASTS_S)
    assert blue.spent_s == pytest.approx(LASTS_S / 2, rel=0.1)
    assert sum(one.spent_s for one in red) == pytest.approx(LASTS_S / 2, rel=0.1)
    assert [one.spent_s for one in red] == [pytest.approx(LASTS_S / 16, rel=0.15)] * 8


async def test_who_needs_a_turn_of_the_loop_to_ask_again_has_its_share(clock: Clock) -> None:
    share = LoopShare()
    red = [share.account(router_config(number, tenant="red")) for number in range(1, 9)]
    blue = share.account(router_config(9, tenant="blue"))

    async def ask_from_elsewhere() -> None:
        while clock.now_s < LASTS_S:
            await asyncio.sleep(0)  # as gRPC's next message
            await share.turn(blue)
            with share.slice(blue, "work"):
                clock.busy(WORK_S / 4)

    asking = asyncio.create_task(ask_from_elsewhere())
    await compete(clock, share, dict.fromkeys(red, WORK_S), LASTS_S)
    await asking
    assert blue.spent_s == pytest.approx(LASTS_S / 2, rel=0.1)
    assert [one.spent_s for one in red] == [pytest.approx(LASTS_S / 16, rel=0.15)] * 8


async def test_those_who_wait_share_the_turns_of_the_loop(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, share = [], LoopShare()
    begin = share._next
    monkeypatch.setattr(share, "_next", lambda: (begun.append(clock.now_s), begin()))
    accounts = [share.account(router_config(number)) for number in range(1, 101)]
    await compete(clock, share, dict.fromkeys(accounts, WORK_S), 10.0)
    assert len(begun) < 1.5 * 10.0 / TURN_S
    longest = max(later - earlier for earlier, later in itertools.pairwise(begun))
    assert longest < TURN_S + 2 * WORK_S


@pytest.mark.parametrize(
    ("run_s", "served"),
    [(0.0, "abcabcabcabcadbcadbca"), (0.003, "aaabbbcccaaabbbdddccc"), (0.002, "aabbccaabbccaaddbbcc")],
)
def test_who_has_more_to_do_goes_on_for_a_while(run_s: float, served: str) -> None:
    """So a router's messages are taken together; who comes anew in the 14th turn waits for no more than one run."""
    queue: FairQueue[LoopAccount] = FairQueue(run_s)
    members = [LoopAccount(name, _Tenant(name, FairQueue())) for name in "abcd"]
    for one in members[:3]:
        queue.push(one, 0)
    taken = ""
    for turn in range(len(served)):
        if turn == 13:
            queue.push(members[3], turn)
        one = queue.pop()
        queue.charge(one, 0.001)
        queue.push(one, turn)
        taken += one.name
    assert taken == served


async def test_who_comes_anew_waits_for_no_round_of_the_others(clock: Clock) -> None:
    share, waited = LoopShare(), []
    greedy = [share.account(router_config(number, tenant=f"t{number}")) for number in range(1, 101)]
    modest = share.account(router_config(101, tenant="modest"))

    async def now_and_then() -> None:
        while clock.now_s < 5.0:
            until_s = clock.now_s + 0.5
            while clock.now_s < until_s:  # noqa: ASYNC110 - others move this clock
                await asyncio.sleep(0)
            began_s = clock.now_s
            await share.turn(modest)
            waited.append(clock.now_s - began_s)
            with share.slice(modest, "work"):
                clock.busy(WORK_S)
            assert waited[-1] <= TURN_S

    asking = asyncio.create_task(now_and_then())
    await compete(clock, share, dict.fromkeys(greedy, WORK_S), 5.0)
    await asking
    assert len(waited) > 5


async def test_a_long_piece_of_work_is_told_and_its_tenant_rests_as_long(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        clock.busy(seconds)

    told, slept = [], []
    monkeypatch.setattr(loop_share.asyncio, "sleep", sleep)
    share = LoopShare(lambda *long: told.append(long))
    one, brother = (share.account(router_config(number)) for number in (1, 2))
    other = share.account(router_config(3, tenant="blue"))
    for took_s in (LONG_SLICE_S, 0.3, 60.0):
        with share.slice(one, "routes of 7 octets"):
            clock.busy(took_s)
        await share.turn(other)
        await share.turn(brother)
    assert told == [
        ("red/r1", pytest.approx(took_s), "routes of 7 octets") for took_s in (0.3, 60.0)
    ]  # whose router it was
    assert slept == [pytest.approx(0.3), pytest.approx(LONGEST_REST_S)]


@pytest.mark.parametrize("work_s", [TURN_S / 2, 3 * TURN_S])
async def test_after_a_long_turn_others_of_the_loop_have_some(clock: Clock, work_s: float) -> None:
    share, turns = LoopShare(), 0
    account = share.account(router_config())
    await share.turn(account)
    clock.busy(work_s)
    while not share.turn_now(account):
        await asyncio.sleep(0)
        turns += 1
    assert turns == (0 if work_s < TURN_S else EMPTY_TURNS + 2)


async def spend(clock: Clock, share: LoopShare, work_s: dict[LoopAccount, float], every_s: float = 0.0) -> float:
    """Have each work as often as it may, with a pause after all of them; returns what part of the time they had."""
    began_s = clock.now_s
    while clock.now_s < began_s + 10.0:
        had = [one for one in work_s if share.turn_now(one)]
        for one in had:
            with share.slice(one, "work"):
                clock.busy(work_s[one])
        clock.busy(every_s if had else 0.0005)
        for _ in range(EMPTY_TURNS + 3):
            await asyncio.sleep(0)
    return sum(one.spent_s for one in work_s) / 10.0


@pytest.mark.parametrize("tenants", [1, 2, 5])
async def test_greedy_tenants_have_a_third_of_the_loop_where_cores_are_crowded(clock: Clock, tenants: int) -> None:
    share = LoopShare(crowded=lambda _: True)
    share.account(router_config(100, tenant="modest"))
    greedy = [share.account(router_config(number, tenant=f"t{number}")) for number in range(tenants)]
    part = await spend(clock, share, dict.fromkeys(greedy, 0.001))
    assert part == pytest.approx(1 / GREEDY_PART, rel=0.15)


async def test_who_has_to_rest_when_its_turn_comes_goes_on_though_nobody_else_asks(clock: Clock) -> None:
    share = LoopShare()
    one, two = (share.account(router_config(number)) for number in (1, 2))
    assert share.turn_now(one)
    clock.busy(2 * TURN_S)
    waiting = asyncio.create_task(share.turn(two))
    await asyncio.sleep(0)
    assert two.waiting
    share.charge(one, 1.1 * LONG_SLICE_S, "long")
    await asyncio.wait_for(waiting, 30)


async def test_nobody_rests_who_is_modest_or_alone_or_where_cores_are_free(clock: Clock) -> None:
    modest, alone, free = (LoopShare(crowded=lambda _, is_so=is_so: is_so) for is_so in (True, True, False))
    for share in (modest, free):
        share.account(router_config(100, tenant="blue"))
    account = modest.account(router_config())
    part = await spend(clock, modest, {account: MODEST_S / 2}, WITHIN_S)
    assert part == pytest.approx(MODEST_S / 2 / (WITHIN_S + MODEST_S / 2), rel=0.05)
    assert account.tenant.rests_until_s == 0.0
    for share in (alone, free):
        account = share.account(router_config())
        assert await spend(clock, share, {account: 0.001}) > 0.95
        assert account.tenant.rests_until_s == 0.0


async def test_nobody_pays_for_what_he_had_while_nobody_waited(clock: Clock) -> None:
    share = LoopShare()
    old, new = share.account(router_config(1)), share.account(router_config(2, tenant="blue"))
    await compete(clock, share, {old: WORK_S}, 10.0)
    await compete(clock, share, {old: WORK_S, new: WORK_S}, 12.0)
    assert (old.spent_s, new.spent_s) == (pytest.approx(11.0, rel=0.05), pytest.approx(1.0, rel=0.05))


def test_the_account_of_a_router_that_was_removed_is_closed() -> None:
    share = LoopShare()
    for number in (1, 2):
        share.account(router_config(number))
    share.forget(1)
    assert list(share._tenants) == ["red"]
    share.forget(2)
    share.forget(2)
    assert not share._tenants
    assert not share._accounts
