"""Brings planes and guests to the declared state, and keeps at it.

    commit ─► store (one transaction) ─► planes ─► deletions ─► ports given up ─► routers ─► guests
                                                   └────────── confirmed ──────────┘

A port and VLAN that an interface gave up is held: no other interface gets it before the plane confirmed that the old
one is gone. Holds and deleted routers are stored, so that this is also true across a restart of the controller.
What cannot be confirmed now, because a plane is not reachable, is tried again until it is.

Planes are brought there in turns (`program`); guests follow outside of them (`run_guests`). What is stored is written
by another thread, and known here once it is on the disk.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

from controller.errors import GuestError, PlaneError, PlaneUnreachable, SplitplaneError, StoreError
from controller.events.log import EventLog
from controller.fallback.pace import in_turns
from controller.guests.fleet import GuestFleet
from controller.model import PlaneConfig, RouterConfig
from controller.operations.deletions import buried
from controller.operations.guest_tasks import GuestTasks
from controller.operations.holds import Holds, attachments_of, given_up
from controller.operations.progress import Programmed, Report, Steps, gathered
from controller.protocols import PlaneFactory, ShardsPort
from controller.spec import reservations
from controller.spec.state import Attachment, Hold, Ids, State, Tombstone
from controller.store.base import Store

RETRY_S = 2.0
"""How often unfinished work is tried again, and guests are looked at."""

WATCHED_AT_ONCE = 100
"""Guests that are looked at in one turn of the event loop: some milliseconds of it."""

CHANGE_S = 120.0
"""How long a plane that is connected may take to confirm what one router no longer has."""

CONFIRM_S = 5.0
"""How long one attempt waits for a plane that has to read back first."""


@dataclass(frozen=True, slots=True)
class Unfinished:
    """One line for everything that waits for a plane and for each guest that failed; both are tried again."""

    waiting: list[str]
    failed: dict[str, str]  # by router


class Convergence:
    """Owns the declared state in memory, and what of it was handed to the shards and to the guests."""

    def __init__(
        self,
        store: Store,
        shards: ShardsPort,
        planes: PlaneFactory,
        guests: GuestFleet,
        events: EventLog,
        memory: int = 0,
    ) -> None:
        """``memory`` is what all slices may make the controller keep, in octets; 0: as much as they like."""
        self._store, self._shards, self._planes = store, shards, planes
        self._guests, self._events = guests, events
        snapshot = store.load()
        self.state, self.ids = snapshot.state, snapshot.ids
        self.tombstones = {tombstone.router.vrf_id: tombstone for tombstone in snapshot.tombstones}
        self._holds = Holds(snapshot.holds)
        self._in_use: dict[str, tuple[PlaneConfig, PlaneConfig | None]] = {}  # planes handed to the shards, fallbacks
        self._put: dict[int, RouterConfig] = {}  # routers handed to the shards, by vrf_id
        self.memory = memory
        self.shares: dict[str, reservations.Shares] = {}  # by plane
        self._cut: dict[tuple[str, str], int] = {}  # entries short, by plane and quota, as told
        shards.on_adopted = self.share
        self._storing = asyncio.Lock()  # of who changes the store together with what is known of it here
        self._sizes_stored = True
        self._turn = asyncio.Lock()
        self._guest_tasks = GuestTasks(guests, lambda: self.state)
        self._wake = asyncio.Event()

    @property
    def unfinished(self) -> bool:
        """Whether something waits for a plane or a guest."""
        return bool(self.tombstones or self._holds or self._guests.failing)

    async def commit(self, state: State, ids: Ids) -> None:
        """Store a new declared state; what it deletes and gives up is stored with it. StoreError leaves all as is."""
        async with self._storing:
            await self._commit(state, ids)

    async def _commit(self, state: State, ids: Ids) -> None:
        before = self.state

        def stored() -> tuple[list[Hold], list[Tombstone]]:
            holds, tombstones = given_up(before, state), buried(before, state)
            self._store.commit(state, ids, holds, tombstones)
            return holds, tombstones

        holds, tombstones = await asyncio.to_thread(stored)
        taken = {router.vrf_id for router in state.routers.values()} | self.tombstones.keys()
        ids.taken = frozenset(taken | {tombstone.router.vrf_id for tombstone in tombstones})
        if self.state is not before:  # a plane has said its sizes meanwhile
            state = replace(state, sizes=self._sizes_in(state, self.state.sizes))
            self._sizes_stored = False
        self.state, self.ids = state, ids
        self._holds.add(holds)
        self.tombstones.update({tombstone.router.vrf_id: tombstone for tombstone in tombstones})
        self.share()

    def without_shares(self) -> set[str]:
        """Return the planes that are connected and have no shares of cores and links."""
        return self._shards.without_shares()

    # Shares of tables

    def used(self) -> dict[str, reservations.Usage]:
        """Return what tenants use of each plane."""
        return {plane: self._shards.usage(plane) for plane in self.state.planes}

    def share(self) -> None:
        """Divide what slices share and tell the shards, in one step, so that nobody has two shares at a time."""
        known = self._sizes_in(self.state, self._shards.table_sizes())
        if known != self.state.sizes:
            self.state = replace(self.state, sizes=known)
            self._sizes_stored = False
            self.wake()
        used = self.used()
        memory = reservations.Division({})
        if self.memory:
            memory = reservations.share_memory(self.state, self.memory, used)
        self.shares = {plane: reservations.share(self.state, plane, used[plane]) for plane in self.state.planes}
        for (tenant, plane), without in memory.held.items():
            self.shares[plane].held[tenant, "memory"] = memory.reserved[tenant, plane], without
        for plane, shares in self.shares.items():
            self._limit(plane, shares, memory)
            self._tell_cuts(plane, shares)

    @staticmethod
    def _sizes_in(state: State, said: Mapping[str, Mapping[str, int]]) -> dict[str, Mapping[str, int]]:
        """Return what is known of the sizes of a state's planes, with what was said of them last."""
        return {name: sizes for name, sizes in {**state.sizes, **said}.items() if name in state.planes}

    async def _store_sizes(self) -> None:
        async with self._storing:
            if self._sizes_stored:
                return
            self._sizes_stored = True
            try:
                await asyncio.to_thread(self._store.commit, self.state, self.ids, (), ())
            except StoreError as problem:  # the next change is stored with them
                self._not_stored("table sizes", problem)

    def _not_stored(self, what: str, problem: StoreError) -> str:
        """Tell operators what the disk does not take; returns a line for who waits for it."""
        self._events.report("warning", "not-stored", what, str(problem))
        return f"{what}: {problem}"

    def follow_use(self) -> None:
        """Divide again where what is installed has left a part that it had made larger, or become more than it."""
        if any(shares.outdated(self._shards.usage(plane)) for plane, shares in self.shares.items()):
            self.share()

    def _limit(self, plane: str, shares: reservations.Shares, memory: reservations.Division) -> None:
        for tenant, quota in shares.limits.items():
            key = tenant, plane
            if key in memory.reserved:
                reserved = shares.reserved[tenant]["memory"] = memory.reserved[key]
                if reserved < quota.memory:
                    shares.limits[tenant] = replace(quota, memory=reserved)
        pooled = {key[0] for key, part in reservations.slices_of(self.state, plane) if part.overcommit}
        self._shards.limit(plane, shares, pooled)

    def _tell_cuts(self, plane: str, shares: reservations.Shares) -> None:
        """Say once of a table that it turned out to be smaller than what was reserved from it."""
        for name, short in shares.short.items():
            if short > self._cut.get((plane, name), 0):
                text = f"{shares.sizes[name]:,} entries, {short:,} less than quotas {name}: the largest are cut"
                self._events.emit("warning", "quotas-cut", plane, f"table {reservations.TABLES[name]} has {text}")
            self._cut[plane, name] = short
        for told in [told for told in self._cut if told[0] == plane and told[1] not in shares.short]:
            del self._cut[told]

    async def start(self) -> None:
        """Hand everything stored to the shards, before any plane can connect: what is not declared then is swept."""
        await self._guests.forget_others(self.ids.taken)
        await self._guests.admit(list(self.state.routers.values()))
        await self._use_planes()
        self._wake.set()

    async def run(self) -> None:
        """Finish what is unfinished and watch the guests, until cancelled."""
        try:
            while True:
                try:
                    async with asyncio.timeout(RETRY_S):  # wait_for of Python 3.11 may lose that it is cancelled
                        await self._wake.wait()
                except TimeoutError:
                    await self.look_after_guests()
                self._wake.clear()
                await self._end_moves()
                self.follow_use()
                programmed = await self.program(lambda _: None)
                await self._guest_tasks.begin(programmed.steps)
                await self._guest_tasks.settle()
        finally:
            await self._guest_tasks.close()

    async def _end_moves(self) -> None:
        """Forget where routers came from that are there."""
        async with self._storing:
            there = {
                name: replace(router, came_from=None)
                for name, router in self.state.routers.items()
                if router.came_from is not None
                and self._put.get(router.vrf_id) == router
                and self._shards.at_rest(router.vrf_id)
            }
            if there:
                try:
                    await self._commit(replace(self.state, routers={**self.state.routers, **there}), self.ids)
                except StoreError as problem:
                    self._not_stored(next(iter(there)), problem)

    async def look_after_guests(self) -> None:
        """Notice guests that died, for the next `converge` to start again."""
        async with asyncio.TaskGroup() as watching:
            for number, router in enumerate(list(self.state.routers.values()), 1):
                watching.create_task(self._guests.watch(router))
                if not number % WATCHED_AT_ONCE:
                    await asyncio.sleep(0)

    async def converge(self, report: Report) -> Unfinished:
        """Bring planes and guests to the declared state as far as that is possible now."""
        programmed = await self.program(report)
        return Unfinished(programmed.waiting, await self.run_guests(programmed))

    async def program(self, report: Report) -> Programmed:
        """Bring planes to the declared state as far as that is possible now, and remove guests of deleted routers."""
        async with self._turn:
            steps = Steps(await self._work(), report)
            waiting: list[str] = []
            await self._use_planes()
            ends = [(one.router, partial(self._bury, one, steps)) for one in self.tombstones.values()]
            ends += [(router, partial(self._release, router, steps)) for router in self._giving_up()]
            for found in await gathered(self._stored(router, work) for router, work in ends):
                waiting += found
            async for router in in_turns(list(self.state.routers.values())):
                allowed = self._holds.allowed(router)
                if router.plane not in self._in_use:
                    waiting.append(f"{router.full_name}: plane {router.plane} is detached")
                elif self._put.get(router.vrf_id) != allowed:
                    steps.next(f"program {router.full_name}")
                    waiting += await self._put_router(router, allowed)
            await self._store_sizes()
            return Programmed(waiting, steps)

    async def _work(self) -> int:
        work = len(self.tombstones) + len(self._giving_up())
        async for router in in_turns(list(self.state.routers.values())):
            work += (self._put.get(router.vrf_id) != router) + (not self._guests.current(router))
        return work

    # Planes

    async def _use_planes(self) -> None:
        known = self.state.planes
        wanted = {
            name: (plane, None if plane.fallback is None else known[plane.fallback.plane])
            for name, plane in known.items()
            if name not in self.state.detached | self.state.behind
        }
        for name in [name for name, plane in self._in_use.items() if wanted.get(name) != plane]:
            await self._leave_plane(name)
        async for name, plane in in_turns(wanted.items()):
            if name not in self._in_use:
                await self._shards.add_plane(self._planes(*plane), partial(self._put_routers_of, name))
                self._in_use[name] = plane

    async def _leave_plane(self, name: str) -> None:
        for vrf_id in await self._shards.remove_plane(name):
            self._put.pop(vrf_id, None)
        del self._in_use[name]

    async def _put_routers_of(self, plane: str) -> None:
        """Tell the shards of every router of a new plane, the deleted ones too, before its switch can connect."""
        for tombstone in list(self.tombstones.values()):
            if tombstone.router.plane == plane and not tombstone.plane_clean:
                await self._put_bare(tombstone.router)
        async for router in in_turns(list(self.state.routers.values())):
            if router.plane == plane and router.vrf_id not in self._put:
                await self._put_router(router, self._holds.allowed(router))
        self.share()

    async def _put_bare(self, router: RouterConfig) -> None:
        if router.vrf_id not in self._put:
            self._put[router.vrf_id] = bare = replace(router, interfaces=())
            await self._shards.put_router(bare)

    async def reconnect(self, name: str) -> None:
        """Have a plane connect again, and show what it is; it goes on forwarding."""
        async with self._turn:
            for known, pair in list(self._in_use.items()):
                behind = pair[0].fallback
                if known == name or (behind is not None and behind.plane == name):
                    await self._leave_plane(known)
            await self._use_planes()

    def wake(self) -> None:
        """Look at once for what is unfinished."""
        self._wake.set()

    # Routers

    def _giving_up(self) -> list[RouterConfig]:
        return [router for router in self.state.routers.values() if router.vrf_id in self._holds.routers]

    async def _release(self, router: RouterConfig, steps: Steps) -> list[str]:
        """Take away what a router gave up; its holds end when the plane confirmed that."""
        steps.next(f"take ports from {router.full_name}")
        vrf_id = router.vrf_id
        before = self._put.get(vrf_id)
        if router.plane not in self._in_use:
            return []
        held = self._holds.of(vrf_id)
        if before is not None and (taken := attachments_of(before).items() - attachments_of(router).items()):
            kept = attachments_of(before).items() - taken
            remaining = tuple(i for i in router.interfaces if (i.id, _at(router, i.port, i.vlan)) in kept)
            waiting = await self._put_router(router, self._holds.allowed(replace(router, interfaces=remaining)))
            if waiting:
                return waiting
        try:
            if before is not None:  # the plane may have more of it than was handed to the shards since they began
                leaving = {hold.interface_id for hold in held}
                async with asyncio.timeout(CONFIRM_S):
                    await self._shards.ports_left(vrf_id, leaving)
        except PlaneError as problem:
            return [f"{router.full_name}: {problem}; the ports it gave up stay reserved until it confirms"]
        except TimeoutError:
            return [
                f"{router.full_name}: plane {router.plane} did not confirm yet; the ports it gave up stay reserved"
            ]
        async with self._storing:
            now = self.state.routers.get(router.full_name)
            same = now is not None and now.vrf_id == vrf_id and attachments_of(now) == attachments_of(router)
            if same:  # else it gave up more meanwhile, maybe what it held already, which the next round takes
                await asyncio.to_thread(self._store.release, vrf_id)
                self._holds.end(self._holds.of(vrf_id))
        return []

    async def _stored(self, router: RouterConfig, work: Callable[[], Awaitable[list[str]]]) -> list[str]:
        """Do what ends with something that is stored; where the disk does not take that, it waits for the disk."""
        try:
            return await work()
        except StoreError as problem:
            return [self._not_stored(router.full_name, problem)]

    async def _put_router(self, router: RouterConfig, allowed: RouterConfig) -> list[str]:
        try:
            async with asyncio.timeout(CHANGE_S):
                await self._shards.put_router(allowed)
        except PlaneError as problem:
            self._put[router.vrf_id] = allowed  # it is desired from now on, only not confirmed
            return [f"{router.full_name}: {problem}; {_when(problem, 'programmed')}"]
        except TimeoutError:  # and tried again
            return [_unconfirmed(router, "what was taken from it")]
        self._put[router.vrf_id] = allowed
        return []

    async def _bury(self, tombstone: Tombstone, steps: Steps) -> list[str]:
        """Remove a deleted router from its plane and its guest; it is forgotten when both are confirmed clean."""
        steps.next(f"remove {tombstone.router.full_name}")
        router, vrf_id = tombstone.router, tombstone.router.vrf_id
        await self._guest_tasks.end(vrf_id)
        waiting = []
        if not tombstone.guest_clean:
            with suppress(GuestError):  # what stays of its socket is told below
                await self._guests.revoke(router)  # or its VRC would come back while the plane is emptied
        if not tombstone.plane_clean:
            if why := await self._remove(router):
                waiting.append(why)
            else:
                self._put.pop(vrf_id, None)
                async with self._storing:
                    await asyncio.to_thread(self._store.mark_clean, vrf_id, plane=True)
                    self.tombstones[vrf_id] = tombstone = replace(tombstone, plane_clean=True)
                    self._holds.end(self._holds.of(vrf_id))
        if not tombstone.guest_clean:
            try:
                await self._guests.remove(router)
            except SplitplaneError as problem:
                waiting.append(f"{router.full_name}: {problem}")
            else:
                await asyncio.to_thread(self._store.mark_clean, vrf_id, guest=True)
                self.tombstones[vrf_id] = tombstone = replace(tombstone, guest_clean=True)
        if tombstone.plane_clean and tombstone.guest_clean:
            del self.tombstones[vrf_id]
            self.ids.taken -= {vrf_id}
            self._events.emit("info", "router-removed", router.full_name, "nothing of it is left")
        return waiting

    async def _remove(self, router: RouterConfig) -> str:
        """Remove a router from its plane; return why that is not confirmed, nothing where it is.

        A plane that is not declared any more confirms nothing, and is not waited for.
        """
        if router.plane not in self._in_use:
            if router.plane in self.state.planes:
                return f"{router.full_name}: plane {router.plane} is detached; it is removed when it is attached"
            self._shards.forget_router(router.vrf_id)  # or a new plane of that name would be given it
            return ""
        try:
            async with asyncio.timeout(CHANGE_S):
                await self._put_bare(router)
                await self._shards.remove_router(router.vrf_id)
        except PlaneError as problem:
            return f"{router.full_name}: {problem}; {_when(problem, 'removed')}"
        except TimeoutError:
            return _unconfirmed(router, "its removal")
        return ""

    # Guests

    async def run_guests(
        self, programmed: Programmed, concerns: Callable[[str], bool] = lambda _: True
    ) -> dict[str, str]:
        """Bring guests to the declared state, as `GuestTasks.bring`."""
        return await self._guest_tasks.bring(programmed.steps, concerns)


def _unconfirmed(router: RouterConfig, what: str) -> str:
    return f"{router.full_name}: plane {router.plane} did not confirm {what} in {CHANGE_S:g} s; see vrctl events"


def _when(problem: PlaneError, done: str) -> str:
    away = isinstance(problem, PlaneUnreachable)
    return f"it is {done} when the plane connects" if away else "that is tried again"


def _at(router: RouterConfig, port: str, vlan: int) -> Attachment:
    return Attachment(router.plane, port, vlan)
