"""Bounds how long one turn of the event loop lasts, charges its time to routers, and divides it between them.

asyncio runs everything that is ready before it looks at its sockets again: ten thousand routers that each have a
message of a tenth of a millisecond would hold them up for a second. Who asks for its turn here waits once this turn
has lasted for `TURN_S`; those who wait have one each of the next ones.

    tenant red  ─► r1 r2 …  ─┐
    tenant blue ─► r1       ─┼─► deficit round robin over tenants, then over a tenant's routers ─► the next turn
    plane s1    ─► its writer┘

What a piece of work costs is known afterwards (`slice`): it is taken off the deficit of its router and of its tenant,
and who has none left is passed over until the rounds have given it back. Where nobody waits, nobody pays for what was
before. Time is the thread's own CPU time: a host that is busy with something else is no router's fault.
"""

import asyncio
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from controller.model import RouterConfig

TURN_S = 0.005
"""How long a turn of the loop lasts before others than those under way have to wait for the next one."""

QUANTUM_S = 0.001
"""What each round of the round robin gives to a tenant, and to a router."""

LONG_SLICE_S, LONGEST_REST_S = 0.02, 1.0
"""A piece of work that took longer is told, and followed by a rest of its tenant as long, up to the latter."""

TellLong = Callable[[str, float, str], None]
"""Takes the router whose piece of work was too long, its seconds, and what it was."""


@dataclass(slots=True, eq=False)
class _Tenant:
    """What divides the loop: a tenant, or the writer of a plane."""

    name: str
    deficit_s: float = QUANTUM_S
    rests_until_s: float = 0.0
    accounts: int = 0
    waiting: "OrderedDict[LoopAccount, deque[asyncio.Future[None]]]" = field(default_factory=OrderedDict)
    served: "LoopAccount | None" = None


@dataclass(slots=True, eq=False)
class LoopAccount:
    """The loop's time of one router, or of a plane's writer."""

    name: str
    tenant: _Tenant
    spent_s: float = 0.0
    deficit_s: float = QUANTUM_S


class _Waiting:
    """Who waits for a turn."""

    def __init__(self) -> None:
        self._tenants: OrderedDict[_Tenant, None] = OrderedDict()  # that have somebody waiting, in the order of turns
        self._served: _Tenant | None = None  # who had the last turn, and has the next one if there is something left
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def append(self, account: LoopAccount, waiter: "asyncio.Future[None]") -> None:
        """Let one wait behind those of its router."""
        tenant = account.tenant
        if account not in tenant.waiting:
            tenant.waiting[account] = deque()
            if account is tenant.served and account.deficit_s > 0:
                tenant.waiting.move_to_end(account, last=False)
        tenant.waiting[account].append(waiter)
        if tenant not in self._tenants:
            self._tenants[tenant] = None
            if tenant is self._served and tenant.deficit_s > 0:
                self._tenants.move_to_end(tenant, last=False)
        self._count += 1

    def pop(self) -> "asyncio.Future[None]":
        """Return whose turn it is, by deficit round robin."""
        self._served = tenant = _next(self._tenants, self._served)
        tenant.served = account = _next(tenant.waiting, tenant.served)
        waiter = tenant.waiting[account].popleft()
        self._forget(account)
        return waiter

    def _forget(self, account: LoopAccount) -> None:
        self._count -= 1
        waiting = account.tenant.waiting
        if not waiting[account]:
            del waiting[account]
        if not waiting:
            del self._tenants[account.tenant]


class LoopShare:
    """The turns of one event loop. ``tell_long`` is told of work that took longer than `LONG_SLICE_S`."""

    def __init__(self, tell_long: TellLong = lambda *_: None) -> None:
        self._tell_long = tell_long
        self._accounts: dict[int, LoopAccount] = {}  # by vrf_id
        self._tenants: dict[str, _Tenant] = {}
        self._waiting = _Waiting()
        self._began: float | None = None  # of this turn of the loop; None: nobody has asked in it yet

    # Accounts

    def account(self, config: RouterConfig) -> LoopAccount:
        """Return a router's account."""
        known = self._accounts.get(config.vrf_id)
        if known is None:
            tenant = self._tenants.setdefault(config.tenant, _Tenant(config.tenant))
            tenant.accounts += 1
            known = self._accounts[config.vrf_id] = LoopAccount(config.full_name, tenant)
        return known

    def writer(self, plane: str) -> LoopAccount:
        """Return an account for what is done for all routers of a plane; it stands beside the tenants."""
        return LoopAccount(f"plane {plane}", _Tenant(f"plane {plane}"))

    def forget(self, vrf_id: int) -> None:
        """Close a router's account."""
        known = self._accounts.pop(vrf_id, None)
        if known is not None:
            known.tenant.accounts -= 1
            if known.tenant.served is known:
                known.tenant.served = None  # or the two would be a cycle (controller/garbage.py)
            if not known.tenant.accounts:
                del self._tenants[known.tenant.name]

    def slice(self, account: LoopAccount, what: str) -> "_Slice":
        """Charge a piece of work, in which nothing is awaited, to an account."""
        return _Slice(self, account, what)

    def charge(self, account: LoopAccount, took_s: float, what: str) -> None:
        """Charge CPU time to an account; `slice` measures it."""
        account.spent_s += took_s
        contended = bool(self._waiting)
        for one in (account, account.tenant):
            left_s = one.deficit_s if contended else QUANTUM_S
            one.deficit_s = max(left_s - took_s, -LONGEST_REST_S)
        if took_s > LONG_SLICE_S:
            account.tenant.rests_until_s = time.perf_counter() + min(took_s, LONGEST_REST_S)
            self._tell_long(account.name, took_s, what)

    # Turns

    async def turn(self, account: LoopAccount) -> None:
        """Wait until there is time left in a turn of the loop, and its tenant rests no more."""
        rest_s = account.tenant.rests_until_s - time.perf_counter()
        if rest_s > 0:
            await asyncio.sleep(rest_s)
        if self._began is None:
            self._begin()
        elif self._waiting or time.perf_counter() - self._began > TURN_S:
            await self._wait(account)

    async def _wait(self, account: LoopAccount) -> None:
        while True:
            waiter = asyncio.get_running_loop().create_future()
            self._waiting.append(account, waiter)
            await waiter
            rest_s = account.tenant.rests_until_s - time.perf_counter()
            if rest_s <= 0:
                return
            await asyncio.sleep(rest_s)  # another router of its tenant has just had a long one

    def _begin(self) -> None:
        self._began = time.perf_counter()
        asyncio.get_running_loop().call_soon(self._next)

    def _next(self) -> None:
        """Begin another turn of the loop, with one of those who wait: who comes then depends on what it costs."""
        while self._waiting:
            waiter = self._waiting.pop()
            if not waiter.done():  # nobody has given it up
                waiter.set_result(None)
                self._begin()  # after it: what it does is done and charged when the next one is chosen
                return
        self._began = None


class _Slice:
    """A piece of work: a class, as a generator would take a microsecond longer for each punted packet."""

    __slots__ = ("_account", "_began_s", "_share", "_what")

    def __init__(self, share: LoopShare, account: LoopAccount, what: str) -> None:
        self._share, self._account, self._what = share, account, what

    def __enter__(self) -> None:
        self._began_s = time.thread_time()

    def __exit__(self, *_: object) -> None:
        self._share.charge(self._account, time.thread_time() - self._began_s, self._what)


S = TypeVar("S", _Tenant, LoopAccount)


def _next(ring: "OrderedDict[S, Any]", served: S | None) -> S:
    """Return whose turn it is in a ring of which nobody is idle: it stays the first for what it has left."""
    if served is not None and served in ring and served.deficit_s <= 0:
        ring.move_to_end(served)
    while True:
        one = next(iter(ring))
        if one.deficit_s <= 0:
            one.deficit_s += QUANTUM_S
        if one.deficit_s > 0 or len(ring) == 1:
            return one
        ring.move_to_end(one)
