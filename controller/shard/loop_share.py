"""Bounds how long one turn of the event loop lasts, charges its time to routers, and divides it between them.

asyncio runs everything that is ready before it looks at its sockets again: ten thousand routers that each have a
message of a tenth of a millisecond would hold them up for a second. Who asks for its turn here waits once this turn
has lasted for `TURN_S`; those who wait have the next ones, as many in each as it has time for.

    tenant red  ─► r1 r2 …  ─┐
    tenant blue ─► r1       ─┼─► fair queueing of tenants, then of a tenant's routers ─► this turn, or the next one
    plane s1    ─► its writer┘

What a piece of work costs is known afterwards (`slice`) and counts when the next one is chosen (`fair_queue.py`). So
that several pieces fit into a turn, whoever is chosen runs at once, inside the turn, up to where it waits again: a
future would wake it in a turn of its own. A router that asks for one thing at a time has asked for the next one by
then; where it takes a turn of the loop to do so, as messages of gRPC do, the others are held back for that long once
they are ahead of it. Where nobody waits, nobody pays for what was before. What lasts for a millisecond or more counts
as the thread's own CPU time: a host that is busy with something else is no router's fault.

The loop is not all there is to divide: the controller runs at a better priority than guests, and what keeps it busy
for one of them takes the cores that the others' daemons wait for. So where the cores are crowded (`CpuPressure`),
tenants that are greedy rest for so long that all of them together have a third of the loop's time.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from contextvars import Context
from dataclasses import dataclass, field
from math import inf
from typing import Any

from controller.model import RouterConfig
from controller.shard.fair_queue import FairQueue

TURN_S = 0.003
"""How long a turn of the loop lasts before others than those under way have to wait for the next one."""

EMPTY_TURNS = 3
"""Turns of the loop after one with work in it: a packet on its way between guest and plane needs several, each 35 µs
where nothing else is ready, and would wait in each for all that a turn takes."""

RUN_S = 0.001
"""How long a router that has more to do goes on, and its tenant, before it is another's turn. If ten thousand routers
took turns message by message, each would find its tables out of the caches, and each message would be a batch of its
own to the plane: half as much again a route (docs/bench.md)."""

AHEAD_S = 0.001
"""How far one may get ahead, in a turn, of another that was served in it and may come back in the next."""

LONG_SLICE_S, LONGEST_REST_S = 0.02, 1.0
"""A piece of work that took longer is told, and followed by a rest of its tenant as long, up to the latter."""

MODEST_S, WITHIN_S = 0.01, 0.1
"""Who takes more of the loop than so much within so long is greedy."""
GREEDY_PART = 3
"""What part of the loop's time, a third, greedy tenants have together where the cores are crowded."""

CPU_READ_S = 0.001
"""How old the last reading of the CPU time may be, and how long a piece of work lasts that is measured by it: a
reading is a system call, ten times as dear as one of the clock."""

TellLong = Callable[[str, float, str], None]
"""Takes the router whose piece of work was too long, its seconds, and what it was."""


@dataclass(slots=True, eq=False)
class _Tenant:
    """What divides the loop: a tenant, or the writer of a plane."""

    name: str
    routers: "FairQueue[LoopAccount]"  # that have somebody waiting
    accounts: int = 0
    rests_until_s: float = 0.0
    used_s: float = 0.0  # of the loop, since then
    since_s: float = 0.0
    start_s: float = 0.0
    queued: bool = False
    left_in: int = 0


@dataclass(slots=True, eq=False)
class LoopAccount:
    """The loop's time of one router, or of a plane's writer."""

    name: str
    tenant: _Tenant
    returns: bool = True  # whether the others wait a moment for it to come back
    spent_s: float = 0.0
    start_s: float = 0.0
    queued: bool = False
    left_in: int = 0
    waiting: "deque[_Waiter]" = field(default_factory=deque)


class _Waiter:
    """A task that waits for a turn, which begins in the call of `run`.

    It is what a task may await (`asyncio.isfuture`), with the difference that a future would have the task called in
    the next turn of the loop.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._asyncio_future_blocking = False
        self._resume: Callable[[Any], object] | None = None
        self._context: Context | None = None
        self.given_up = False

    def __await__(self) -> Generator[Any, None, None]:
        self._asyncio_future_blocking = True
        yield self

    def get_loop(self) -> asyncio.AbstractEventLoop:
        """Return the loop in which it waits."""
        return self._loop

    def add_done_callback(self, resume: Callable[[Any], object], *, context: Context | None = None) -> None:
        """Take what goes on with the task."""
        self._resume, self._context = resume, context

    def result(self) -> None:
        """Tell the task to go on, or that it was cancelled."""
        if self.given_up:
            raise asyncio.CancelledError

    def cancel(self, msg: object = None) -> bool:
        """Wait no more: the task is cancelled."""
        resume, self._resume = self._resume, None
        if resume is None:
            return False
        self.given_up = True
        self._loop.call_soon(resume, self, context=self._context)
        return True

    def run(self) -> None:
        """Go on with the task, up to where it waits for something else."""
        resume, self._resume = self._resume, None
        if resume is None:
            return
        if self._context is None:
            resume(self)
        else:
            self._context.run(resume, self)


class LoopShare:
    """The turns of one event loop.

    ``tell_long`` is told of work that took longer than `LONG_SLICE_S`; ``crowded`` tells whether the machine's cores
    are, at a moment of the clock; ``run_s`` is how long one goes on that has more to do.
    """

    def __init__(
        self,
        tell_long: TellLong = lambda *_: None,
        crowded: Callable[[float], bool] = lambda _: False,
        run_s: float = RUN_S,
    ) -> None:
        self._tell_long, self._crowded, self._run_s = tell_long, crowded, run_s
        self._accounts: dict[int, LoopAccount] = {}  # by vrf_id
        self._tenants: dict[str, _Tenant] = {}
        self._greedy: list[_Tenant] = []  # that rest, or did a moment ago
        self._waiting: FairQueue[_Tenant] = FairQueue(run_s)  # that have somebody waiting
        self._turn = 0
        self.cpu_s, self.cpu_read_s = 0.0, -inf  # the thread's CPU time, and when it was read last
        self._began: float | None = None  # of this turn of the loop; None: nobody has asked in it yet

    # Accounts

    def account(self, config: RouterConfig) -> LoopAccount:
        """Return a router's account."""
        known = self._accounts.get(config.vrf_id)
        if known is None:
            tenant = self._tenants.get(config.tenant)
            if tenant is None:
                tenant = self._tenants[config.tenant] = self._new_tenant(config.tenant)
            tenant.accounts += 1
            known = self._accounts[config.vrf_id] = LoopAccount(config.full_name, tenant)
        return known

    def spent_s(self, vrf_ids: Iterable[int]) -> dict[int, float]:
        """Return what has been charged to routers so far, by vrf_id."""
        accounts = self._accounts
        return {i: accounts[i].spent_s if i in accounts else 0.0 for i in vrf_ids}

    def writer(self, plane: str) -> LoopAccount:
        """Return an account for what is done for all routers of a plane; it stands beside the tenants."""
        return LoopAccount(f"plane {plane}", self._new_tenant(f"plane {plane}"), returns=False)

    def _new_tenant(self, name: str) -> _Tenant:
        return _Tenant(name, FairQueue(self._run_s))

    def forget(self, vrf_id: int) -> None:
        """Close a router's account."""
        known = self._accounts.pop(vrf_id, None)
        if known is not None:
            known.tenant.accounts -= 1
            if not known.tenant.accounts:
                del self._tenants[known.tenant.name]

    def slice(self, account: LoopAccount, what: str) -> "_Slice":
        """Charge a piece of work, in which nothing is awaited, to an account."""
        return _Slice(self, account, what)

    def charge(self, account: LoopAccount, took_s: float, what: str) -> None:
        """Charge CPU time to an account; `slice` measures it."""
        account.spent_s += took_s
        if self._waiting:  # else nobody has a claim on it
            account.tenant.routers.charge(account, took_s)
            self._waiting.charge(account.tenant, took_s)
        if took_s > LONG_SLICE_S:
            account.tenant.rests_until_s = time.perf_counter() + min(took_s, LONGEST_REST_S)
            self._tell_long(account.name, took_s, what)
        elif account.returns:
            account.tenant.used_s += took_s
            if account.tenant.used_s > MODEST_S:
                self._leave_cores_to_others(account.tenant)

    def _leave_cores_to_others(self, tenant: _Tenant) -> None:
        """Have a tenant that has just used `MODEST_S` rest, if it is greedy and others of the machine wait."""
        now_s = time.perf_counter()
        used_s, tenant.used_s = tenant.used_s, 0.0
        within_s, tenant.since_s = now_s - tenant.since_s, now_s
        if within_s > WITHIN_S or len(self._tenants) < 2 or not self._crowded(now_s):
            return
        self._greedy = [one for one in self._greedy if one.rests_until_s > now_s and one is not tenant]
        self._greedy.append(tenant)
        rest_s = used_s * (GREEDY_PART * len(self._greedy) - 1)
        tenant.rests_until_s = max(tenant.rests_until_s, now_s + rest_s)
        tenant.since_s = tenant.rests_until_s  # so that it is still greedy when it comes back

    # Turns

    async def turn(self, account: LoopAccount) -> None:
        """Wait until there is time left in a turn of the loop, and its tenant rests no more."""
        rest_s = account.tenant.rests_until_s - time.perf_counter()
        if rest_s > 0:
            await asyncio.sleep(rest_s)
        if not self._has_time():
            await self._wait(account)

    async def take(
        self, account: LoopAccount, what: str, steps: Iterator[None], charged: LoopAccount | None = None
    ) -> None:
        """Take all steps of what lasts long, each in a turn of an account, and charge them to that, or another."""
        left = True
        while left:
            await self.turn(account)
            with self.slice(charged or account, what):
                left = next(steps, self) is None

    def turn_now(self, account: LoopAccount) -> bool:
        """Take a turn if it need not be waited for; tells whether it was taken."""
        return account.tenant.rests_until_s <= time.perf_counter() and self._has_time()

    def _has_time(self) -> bool:
        """Whether this turn of the loop has time left that nobody waits for; begins one where none is."""
        if self._began is None:
            self._begin()
            return True
        return not self._waiting and time.perf_counter() - self._began <= TURN_S

    async def _wait(self, account: LoopAccount) -> None:
        while True:
            waiter = _Waiter(asyncio.get_running_loop())
            account.waiting.append(waiter)
            self._push(account)
            await waiter
            rest_s = account.tenant.rests_until_s - time.perf_counter()
            if rest_s <= 0:
                return
            await asyncio.sleep(rest_s)  # another router of its tenant has just had a long one
            if self._has_time():  # nobody may have waited meanwhile, and nobody would begin a turn
                return

    def _begin(self) -> None:
        self._began = time.perf_counter()
        self._turn += 1
        asyncio.get_running_loop().call_soon(self._end, self._began)

    def _end(self, began_s: float) -> None:
        """End a turn that began as nobody waited."""
        if time.perf_counter() - began_s > TURN_S:
            self._leave(EMPTY_TURNS)
        else:
            self._next()

    def _next(self) -> None:
        """Begin another turn of the loop, with those who wait: who comes next depends on what the last ones cost."""
        if not self._waiting:
            self._began = None
            return
        began_s = self._began = time.perf_counter()
        try:
            while self._waiting:
                self._serve()
                if time.perf_counter() - began_s > TURN_S or self._is_unfair():
                    break
        finally:
            self._turn += 1
            self._leave(EMPTY_TURNS)

    def _leave(self, turns: int) -> None:
        """Leave some turns to whatever else is ready: after those that this one has let go on."""
        loop = asyncio.get_running_loop()
        if turns:
            loop.call_soon(self._leave, turns - 1)
        else:
            loop.call_soon(self._next)

    def _serve(self) -> None:
        tenant = self._waiting.pop()
        account = tenant.routers.pop()
        waiter = account.waiting.popleft()
        if account.waiting:
            tenant.routers.push(account, self._turn)
        if tenant.routers:
            self._waiting.push(tenant, self._turn)
        waiter.run()
        if account.returns and not waiter.given_up:
            if not account.queued:
                tenant.routers.leave(account, self._turn)
            if not tenant.queued:
                self._waiting.leave(tenant, self._turn)

    def _is_unfair(self) -> bool:
        """Whether to serve who comes next, in this turn, would be unfair to one that is about to come back."""
        if not self._waiting:
            return False
        tenant = self._waiting.first()
        return self._waiting.is_ahead(tenant, self._turn, AHEAD_S) or tenant.routers.is_ahead(
            tenant.routers.first(), self._turn, AHEAD_S
        )

    def _push(self, account: LoopAccount) -> None:
        account.tenant.routers.push(account, self._turn)
        self._waiting.push(account.tenant, self._turn)


class _Slice:
    """A piece of work: a class, as a generator would take a microsecond longer for each punted packet."""

    __slots__ = ("_account", "_began_s", "_share", "_what")

    def __init__(self, share: LoopShare, account: LoopAccount, what: str) -> None:
        self._share, self._account, self._what = share, account, what

    def __enter__(self) -> None:
        self._began_s = began_s = time.perf_counter()
        share = self._share
        if began_s - share.cpu_read_s > CPU_READ_S:
            share.cpu_s, share.cpu_read_s = time.thread_time(), began_s

    def __exit__(self, *_: object) -> None:
        now_s, share = time.perf_counter(), self._share
        took_s = now_s - self._began_s
        if took_s > CPU_READ_S:
            cpu_s = time.thread_time()
            took_s = min(took_s, cpu_s - share.cpu_s)
            share.cpu_s, share.cpu_read_s = cpu_s, now_s
        share.charge(self._account, took_s, self._what)
