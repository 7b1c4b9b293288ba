"""One plane with its fallback, and the routers on it.

    VRC ─► router ─► FIB ─┐                            ┌─► router ─► VRC
                          ├─► mirror ─► plane ─► punt ─┤
    VRC ─► router ─► FIB ─┘                            └─► answered here, where the guest is away

Nothing here is proportional to the routers of other planes, nor to those of this one that have nothing to do: an
index tells whose interface a punted frame came in by, a router that has work says so, and who waits for a time is in
a timer wheel. Shards share no state but what they are given: the event log, the turns of the event loop and, where
their planes are OpenFlow datapaths, the listener. Who divides tables among tenants is told when a plane was adopted.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterable, Set
from contextlib import AbstractContextManager

from controller.errors import NoSuch, PlaneError
from controller.events.log import EventLog
from controller.fallback.plane import FallbackPair
from controller.model import Quota, RouterConfig
from controller.planes.base import ROUTE_TABLE_NAME, Clock, Plane, PuntReason
from controller.routing.fib import Fib
from controller.routing.rib import NexthopSet
from controller.routing.usage import TABLE_QUOTAS, Pool, SliceUsage
from controller.shard.loop_share import RUN_S, LoopShare
from controller.shard.mirror import PlaneMirror
from controller.shard.neighbor_responder import answer
from controller.shard.router import VirtualRouter
from controller.shard.timer_wheel import TimerWheel
from controller.spec.reservations import Shares
from controller.supervisor import Supervisor, contained

SNAPSHOT_TIMEOUT_S = 60.0
TICK_S = 1.0

AFTER_FAULT_S = 30.0
"""When a router is looked at again whose last tick ended with an unexpected error."""


def nobody_asks() -> None:
    """Divide nothing: there is nobody to do so."""


class Shard:
    """Serves a plane. Implements `MirrorListener` and `RouterHost`."""

    def __init__(
        self,
        plane: Plane,
        events: EventLog,
        clock: Clock,
        loop_share: LoopShare,
        audit_s: float,
        adopted: Callable[[], None] = nobody_asks,
    ) -> None:
        self.plane, self._adopted = plane, adopted
        self.pair = plane if isinstance(plane, FallbackPair) else None
        self.mirror = PlaneMirror(plane, events, clock, self, loop_share, audit_s)
        self.routers: dict[int, VirtualRouter] = {}
        self._events, self._clock, self._loop_share = events, clock, loop_share
        self._supervisor = Supervisor(events)
        self._usages: dict[str, SliceUsage] = {}  # by tenant
        self._members: Counter[str] = Counter()  # routers of these
        self._shares = Shares({}, {})  # of tenants that have none, their routers' quotas hold
        self._pool, self._pooled = Pool({}), frozenset[str]()
        self._interfaces: dict[int, VirtualRouter] = {}  # by id of a router interface
        self._ids: dict[int, list[int]] = {}  # of these, by vrf_id
        self._timers: TimerWheel[int] = TimerWheel()
        self._snapshots = 0

    async def start(self) -> None:
        """Begin to serve the plane. Conflict where another plane uses the same switch."""
        await self.plane.start(self.mirror)
        self._supervisor.spawn(f"mirror {self.plane.name}", self.mirror.run)
        self._supervisor.spawn(
            f"ports of {self.plane.name}", lambda: self.mirror.ports.run(self._loop_share, self.mirror.account)
        )
        self._supervisor.spawn(f"shares of {self.plane.name}", self.mirror.shares.watch)
        if self.pair is not None:
            self._supervisor.spawn(f"placement {self.plane.name}", self.pair.run)
            self._supervisor.spawn(f"link of {self.plane.name}", self.pair.watch_link)

    async def close(self) -> None:
        """Stop serving; the plane goes on forwarding."""
        await self._supervisor.close()
        await self.plane.close()
        await self.mirror.close()

    # Routers

    def add_router(self, config: RouterConfig) -> VirtualRouter:
        """Serve a new router."""
        router = VirtualRouter(config, self._new_fib(config), self, self._events, self._clock)
        self._serve(router)
        return router

    async def change_router(self, router: VirtualRouter, config: RouterConfig) -> None:
        """Change a router's declaration; returns, or raises PlaneError, as `Shards.put_router`."""
        before = router.config
        self._place(config)
        self._usage(config)
        router.configure(config)
        if config.quota != before.quota:
            router.fib.retry_refused()
            self.attend(router)
        self._index_interfaces(router)
        if left := _attachments(before) - _attachments(config):
            await self.ports_left(config.vrf_id, {interface_id for interface_id, _, _ in left})

    async def ports_left(self, vrf_id: int, interface_ids: Set[int]) -> None:
        """Wait as `Shards.ports_left`: for nothing that the guest may keep changing."""
        fib = self.routers[vrf_id].fib
        mark: int | None = None  # the batches that were taken when none was left to be sent

        def confirmed() -> bool:
            nonlocal mark
            if not (self._confirms(vrf_id, fib.refused_interfaces(interface_ids)) and fib.has_left(interface_ids)):
                mark = None
                return False
            mark = fib.batches if mark is None else mark
            return fib.batches_confirmed >= mark

        self.mirror.wake(fib)
        await self.mirror.until(confirmed)

    def take_over(self, router: VirtualRouter) -> None:
        """Serve a router that another shard of the same plane served before."""
        router.move(self._new_fib(router.config), self)
        self._serve(router)

    async def remove_router(self, vrf_id: int) -> None:
        """Remove a router; returns, or raises PlaneError, as `Shards.remove_router`."""
        router = self.routers[vrf_id]
        if router.vrc is not None:
            router.vrc.close("the router was deleted")
        router.fib.remove()
        self.attend(router)
        await self.mirror.until(lambda: self._confirms(vrf_id, router.fib.refused_deletions) and router.fib.clean)
        account = self._loop_share.account(router.config)
        while router.fib.untidy:  # what it took is its slice's again
            await self._loop_share.turn(account)
            with self._loop_share.slice(account, "what it leaves"):
                router.fib.collect()
        self.mirror.discard(vrf_id)
        if self.pair is not None:
            self.pair.routes.forget(vrf_id)
        self._timers.discard(vrf_id)
        self._forget_interfaces(vrf_id)
        if self.routers.pop(vrf_id, None) is not None:
            self._leave_slice(router.config.tenant)

    def _confirms(self, vrf_id: int, refusal: str = "") -> bool:
        """Whether it is known what the plane has, so that it can confirm; PlaneError where it refused instead, or
        nothing is written of the router."""
        if self.mirror.adopted and (problem := self.mirror.fault(vrf_id) or refusal):
            raise PlaneError(problem)
        return self.mirror.adopted

    async def converged(self, vrf_id: int) -> None:
        """Wait until everything learned is confirmed. PlaneUnreachable where the plane is away, PlaneError where a
        fault keeps the router from it."""
        fib = self.routers[vrf_id].fib
        self.mirror.wake(fib)
        await self.mirror.until(lambda: self._confirms(vrf_id) and fib.idle)

    @property
    def route_counts(self) -> dict[str, int]:
        """How many routes are installed, as far as known, by table."""
        usages = self._usages.values()
        return {name: sum(getattr(one, f"{name}s") for one in usages) for name in ROUTE_TABLE_NAME.values()}

    def usage_of(self, tenant: str) -> SliceUsage | None:
        """Return what a tenant's routers use of this plane, None where it has none here."""
        return self._usages.get(tenant)

    @property
    def usage(self) -> dict[str, dict[str, int]]:
        """What tenants use of this plane, by the keys of their quotas."""
        return {tenant: usage.counts() for tenant, usage in self._usages.items()}

    @property
    def table_sizes(self) -> dict[str, dict[str, int]]:
        """What the plane, and the one behind it, said of the sizes of tables, by their names."""
        planes = (self.plane,) if self.pair is None else (self.pair.hardware, self.pair.software)
        return {plane.name: dict(plane.table_sizes) for plane in planes}

    def limit(self, shares: Shares, pooled: Set[str]) -> None:
        """Say what tenants may have from now on, all at once; those in ``pooled`` share the pool."""
        limits, pool = shares.limits, shares.pool
        grown = {tenant for tenant, usage in self._usages.items() if _exceeds(limits.get(tenant), usage.quota)}
        grown |= self._pooled - pooled
        if pool != self._pool.sizes:
            grown |= pooled
        neighbors = sum(limits[tenant].neighbors for tenant in pooled)
        beside = {name: min(neighbors, room // 4) for name, room in pool.items() if name.endswith("_routes")}
        self._shares, self._pool, self._pooled = shares, Pool(pool, beside), frozenset(pooled)
        for tenant, usage in self._usages.items():
            self._limit(tenant, usage, usage.quota)
        for router in self.routers.values():
            if router.config.tenant in grown and (router.fib.refusing or router.fib.unkept):
                router.fib.retry_refused()
                self.attend(router)

    def _limit(self, tenant: str, usage: SliceUsage, otherwise: Quota) -> None:
        usage.quota = self._shares.limits.get(tenant, otherwise)
        usage.reserved = self._shares.reserved.get(tenant, {})
        if tenant not in self._pooled:
            usage.pool = None
        elif usage.pool is not self._pool:
            usage.join(self._pool)

    def _leave_slice(self, tenant: str) -> None:
        self._members[tenant] -= 1
        if not self._members[tenant]:
            del self._members[tenant], self._usages[tenant]

    def _serve(self, router: VirtualRouter) -> None:
        self._members[router.config.tenant] += 1
        self.routers[router.config.vrf_id] = router
        self._place(router.config)
        self._index_interfaces(router)
        self.mirror.add(router.fib)
        self.attend(router)

    def _new_fib(self, config: RouterConfig) -> Fib:
        return Fib(config, self.mirror.objects, self._usage(config), self.plane.shared_meters)

    def _usage(self, config: RouterConfig) -> SliceUsage:
        usage = self._usages.setdefault(config.tenant, SliceUsage(config.quota))
        self._limit(config.tenant, usage, config.quota)
        return usage

    def _place(self, config: RouterConfig) -> None:
        """Tell the pair where a router's routes are to be, and how many of them."""
        if self.pair is not None:
            self.pair.routes.tables.share(config.vrf_id, config.tenant, config.quota)
            self.pair.routes.place(config.vrf_id, config.placement, config.came_from)

    def _index_interfaces(self, router: VirtualRouter) -> None:
        self._forget_interfaces(router.config.vrf_id)
        self._ids[router.config.vrf_id] = ids = [one.id for one in router.config.interfaces]
        self._interfaces.update(dict.fromkeys(ids, router))

    def _forget_interfaces(self, vrf_id: int) -> None:
        for interface_id in self._ids.pop(vrf_id, ()):
            del self._interfaces[interface_id]

    # What a router says

    @property
    def ready(self) -> asyncio.Event:
        """Set once the plane was adopted."""
        return self.mirror.ready

    @property
    def silent(self) -> bool:
        """Whether guests' probes may not have reached neighbors of late."""
        return self.mirror.silent

    def problem(self, config: RouterConfig) -> str:
        """Return why a router is not on its plane as it is declared, beside what was refused; empty where it is."""
        return self.mirror.problem(config)

    def wake(self, router: VirtualRouter) -> None:
        """Write what there is to write."""
        self.mirror.wake(router.fib)

    def attend(self, router: VirtualRouter) -> None:
        """Write what there is to write, and let the router tick the next time."""
        self.wake(router)
        self._timers.hasten(router.config.vrf_id, self._clock())

    def configured(self, router: VirtualRouter) -> None:
        """Tell a FIB whose declaration has changed the plane's ports."""
        self.mirror.configured(router.fib)

    def packet_out(self, router: VirtualRouter, interface_id: int, frame: bytes) -> str | None:
        """Send a guest's frame; returns why it was refused, if it was. It is no fault of a guest's, and so dropped
        without a word, that the plane does not have its interface yet, or any more."""
        interface = router.fib.interfaces.get(interface_id)
        if interface is None and router.had(interface_id):
            router.punts.dropped_before_plane()
            return None
        reason = router.punts.refusal(None if interface is None else interface.config, frame)
        if reason is None:
            entry = router.fib.installed_interface(interface_id)
            if entry is None:
                router.punts.dropped_before_plane()
            else:
                router.punts.sent(interface_id, frame, self.plane.packet_out(entry, frame))
                router.said(interface_id, frame)
        return reason

    # What the plane says

    @property
    def ahead(self) -> bool:
        """Whether routes can be written though the plane is not connected: only its fallback is away."""
        return self.pair is not None and self.pair.ahead

    def adopted(self) -> None:
        """It is known what the plane has."""
        if not self.ready.is_set():
            for router in self.routers.values():
                router.plane_read()
        if self.pair is not None:
            self.pair.told()
        self._adopted()

    def confirmed(self, vrf_id: int) -> None:
        """The plane has confirmed something of a router."""
        router = self.routers.get(vrf_id)
        if router is not None:
            with self._contained(router, "what its plane has confirmed"):
                router.confirmed()
                router.tell_swept()
                self.follow(router)
            self._timers.hasten(vrf_id, self._clock())

    def follow(self, router: VirtualRouter) -> None:
        """Tell the pair once what a plane lacked of a router is on it, and once all is that its guest knows."""
        if self.pair is not None and self.mirror.adopted and router.fib.filled:
            self.pair.written(router.config.vrf_id, router.fib.settled and router.fib.idle)

    def ports_changed(self, vrf_ids: Iterable[int]) -> None:
        """Mirror port states to the guests' TAPs."""
        for vrf_id in vrf_ids:
            router = self.routers.get(vrf_id)
            if router is not None:
                with self._contained(router, "a port that has changed"):
                    router.ports_changed()
                self.attend(router)

    def packet_in(self, router_interface_id: int, reason: PuntReason, frame: bytes) -> None:
        """Pass a punted frame to its guest, or answer for one that is away."""
        router = self._interfaces.get(router_interface_id)
        if router is None:
            return
        with (
            self._contained(router, "a punted packet"),
            self._loop_share.slice(self._loop_share.account(router.config), "a punted packet"),
        ):
            answered = self._answer(router, router_interface_id, frame)
            if router.vrc is not None:
                router.punts.deliver(router_interface_id, reason, frame)
            elif not answered:
                router.punts.drop(router_interface_id, reason, frame)

    def _answer(self, router: VirtualRouter, interface_id: int, frame: bytes) -> bool:
        """Answer for a guest that cannot, while what it learned is still forwarded."""
        if router.speaks_for_itself(interface_id):
            return False
        interface = router.fib.interfaces.get(interface_id)
        entry = router.fib.installed_interface(interface_id)
        if not router.holds or interface is None or entry is None:
            return False
        reply = answer(frame, entry.mac, interface.own_addresses)
        if reply is not None:
            self.plane.packet_out(entry, reply)
            router.punts.counters["answered_for_guest"] += 1
        return reply is not None

    # Time

    async def tick(self) -> None:
        """Let time pass for the routers that wait for it; call it every `TICK_S`."""
        until_s = 0.0
        for vrf_id in self._timers.pop_due(self._clock()):
            if time.perf_counter() >= until_s:
                await self._loop_share.turn(self.mirror.account)  # all of them wait for each of them here
                until_s = time.perf_counter() + RUN_S
            router = self.routers.get(vrf_id)
            if router is not None:
                self._let_time_pass(router)
        self.mirror.wake()

    def _let_time_pass(self, router: VirtualRouter) -> None:
        vrf_id, at = router.config.vrf_id, self._clock() + AFTER_FAULT_S
        with (
            self._contained(router, "what was due"),
            self._loop_share.slice(self._loop_share.account(router.config), "what was due"),
        ):
            at = router.tick()
            self.follow(router)
        self._timers.hasten(vrf_id, at)

    def _contained(self, router: VirtualRouter, what: str) -> AbstractContextManager[None]:
        """Keep from all others what an unexpected error in a router's work does."""
        return contained(self._events, router.config.full_name, what)

    # Snapshots

    async def snapshot(self, router: VirtualRouter) -> dict[bytes, NexthopSet]:
        """Return what the guest's kernel has. NoSuch where its VRC is away or does not answer in time."""
        answered: asyncio.Future[dict[bytes, NexthopSet]] = asyncio.get_running_loop().create_future()

        def done(taken: dict[bytes, NexthopSet] | None, error: str) -> None:
            if answered.done():
                return
            if taken is None:
                answered.set_exception(NoSuch("snapshot of", router.config.full_name, error))
            else:
                answered.set_result(taken)

        self._snapshots += 1
        request_id = self._snapshots
        router.request_snapshot(request_id, done)
        try:
            async with asyncio.timeout(SNAPSHOT_TIMEOUT_S):
                return await answered
        except TimeoutError:
            raise NoSuch("snapshot of", router.config.full_name, "the VRC did not answer in time") from None
        finally:
            router.forget_snapshot(request_id)


def _exceeds(one: Quota | None, other: Quota) -> bool:
    names = (*TABLE_QUOTAS, "neighbors", "sets", "members", "memory")
    return one is not None and any(getattr(one, name) > getattr(other, name) for name in names)


def _attachments(config: RouterConfig) -> set[tuple[int, str, int]]:
    return {(one.id, one.port, one.vlan) for one in config.interfaces}
