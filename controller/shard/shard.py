"""The running whole: planes with their mirrors, routers on them, and what the operator can ask of both."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator

from controller.diagnostics import verify
from controller.diagnostics.describe import (
    fib_entries,
    interface_views,
    neighbor_views,
    plane_view,
    route_views,
    router_view,
)
from controller.diagnostics.trace import trace
from controller.errors import NoSuch, PlaneUnreachable
from controller.events.log import EventLog
from controller.model import RouterConfig
from controller.planes.base import Clock, Installed, Plane, PuntReason
from controller.routing.fib import Fib
from controller.routing.rib import NexthopSet
from controller.routing.usage import SliceUsage
from controller.shard.fallback_pairs import Pairs
from controller.shard.load_counters import load_view
from controller.shard.mirror import AUDIT_INTERVAL_S, PlaneMirror
from controller.shard.neighbor_responder import answer
from controller.shard.router import VirtualRouter
from controller.supervisor import Supervisor
from controller.views import (
    CapturedFrame,
    CounterView,
    FibEntryView,
    InterfaceView,
    LoadView,
    NeighborView,
    PlacementView,
    PlaneView,
    RouterView,
    RouteView,
    TraceStep,
    VerifyView,
)

SNAPSHOT_TIMEOUT_S = 60.0
VERIFY_ATTEMPTS = 5
TICK_S = 1.0
REFUSED_RETRY_S = 30.0


class Core:
    """Owns the mirrors and routers. Everything runs on one event loop."""

    def __init__(self, events: EventLog, clock: Clock = time.monotonic, audit_s: float = AUDIT_INTERVAL_S) -> None:
        self.routers: dict[int, VirtualRouter] = {}
        self._events = events
        self._clock = clock
        self._audit_s = audit_s
        self._mirrors: dict[str, PlaneMirror] = {}
        self._pairs = Pairs(events)
        self._supervisor = Supervisor(events)
        self._tasks: dict[str, list[asyncio.Task[None]]] = {}
        self._usages: dict[tuple[str, str], SliceUsage] = {}
        self._interfaces: dict[int, VirtualRouter] = {}
        self._snapshots = 0

    # Planes

    async def add_plane(self, plane: Plane) -> None:
        """Begin to serve a plane. Conflict where another plane uses the same switch."""
        mirror = PlaneMirror(plane, self._events, self._clock, self._packet_in, self._audit_s)
        mirror.confirmed = self._confirmed
        mirror.ports_changed = lambda: self._ports_changed(plane.name)
        await plane.start(mirror)
        self._mirrors[plane.name] = mirror
        self._tasks[plane.name] = [self._supervisor.spawn(f"mirror {plane.name}", mirror.run)]
        if (pair := self._pairs.add(plane)) is not None:
            mirror.ahead = lambda: pair.ahead
            self._tasks[plane.name].append(self._supervisor.spawn(f"placement {plane.name}", pair.run))
            self._tasks[plane.name].append(self._supervisor.spawn(f"link of {plane.name}", pair.watch_link))
        for router in self.routers.values():
            config = router.config
            if config.plane == plane.name:
                router.move(Fib(config, mirror.objects, self._usage(config)), mirror)
                mirror.add(router.fib)
                self._pairs.place(config)

    async def remove_plane(self, name: str) -> None:
        """Stop using a plane; what is installed stays there."""
        mirror = self._mirror(name)
        tasks = self._tasks.pop(name)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await mirror.plane.close()
        del self._mirrors[name]
        self._pairs.discard(name)
        self._usages = {key: usage for key, usage in self._usages.items() if key[1] != name}
        gone = [i for i, router in self.routers.items() if router.config.plane == name and router.fib.removing]
        for vrf_id in gone:
            del self.routers[vrf_id]

    async def close(self) -> None:
        """Stop serving; planes go on forwarding."""
        for name in list(self._mirrors):
            await self.remove_plane(name)

    async def run(self) -> None:
        """Let time pass for all routers, until cancelled."""
        retry_at = self._clock() + REFUSED_RETRY_S
        while True:
            await asyncio.sleep(TICK_S)
            self._events.tell_held()
            for router in list(self.routers.values()):
                router.tick()
                self._follow(router)
            if self._clock() >= retry_at:
                retry_at = self._clock() + REFUSED_RETRY_S
                for router in self.routers.values():
                    router.fib.retry_refused()
            for mirror in list(self._mirrors.values()):
                try:
                    await mirror.delete_unclaimed()
                except PlaneUnreachable:
                    continue  # its own task sees that too
                mirror.wake()

    # Routers

    async def put_router(self, config: RouterConfig) -> None:
        """Create or change a router.

        Returns when the desired state is set and what it no longer has (interfaces, ports, VLANs) is confirmed gone
        from the plane. PlaneUnreachable where that cannot be confirmed now: it is done once the plane is back.
        """
        mirror = self._mirror(config.plane)
        usage = self._usage(config)
        router = self.routers.get(config.vrf_id)
        if router is not None and router.config.plane != config.plane:
            await self.remove_router(config.vrf_id)
            router = None
        self._pairs.place(config)
        if router is None:
            fib = Fib(config, mirror.objects, usage)
            router = VirtualRouter(config, fib, mirror, self._events, self._clock)
            self.routers[config.vrf_id] = router
            mirror.add(fib)
            self._index_interfaces()
            return
        shrinks = _attachments(router.config) - _attachments(config)
        other_quota = config.quota != router.config.quota
        router.configure(config)
        if other_quota:
            router.fib.retry_refused()
        self._index_interfaces()
        mirror.wake()
        if shrinks:
            fib = router.fib
            await mirror.until(lambda: not any(fib.tables) and fib.in_flight == 0)

    async def remove_router(self, vrf_id: int) -> None:
        """Remove a router; returns when the plane has confirmed that nothing of it is left.

        PlaneUnreachable where it cannot now: the router stays, wanting nothing, and is removed when the plane is back
        and this is called again.
        """
        router = self._router(vrf_id)
        mirror = self._mirror(router.config.plane)
        if router.vrc is not None:
            router.vrc.close("the router was deleted")
        router.fib.remove()
        mirror.wake()
        await mirror.until(lambda: mirror.adopted and router.fib.clean)
        mirror.discard(vrf_id)
        self.routers.pop(vrf_id, None)
        self._index_interfaces()

    async def converged(self, vrf_id: int) -> None:
        """Wait until everything learned is confirmed. PlaneUnreachable where the plane is away."""
        router = self._router(vrf_id)
        mirror = self._mirror(router.config.plane)
        await mirror.until(lambda: mirror.adopted and router.fib.idle)

    # What people ask

    def router_view(self, vrf_id: int) -> RouterView:
        """Return a router's state."""
        router = self._router(vrf_id)
        mirror = self._mirrors.get(router.config.plane)
        reason = "detached; use it again with vrctl plane attach" if mirror is None else mirror.reason
        reachable = mirror is not None and (mirror.plane.connected or mirror.ahead())
        view = router_view(router, None if reachable else f"plane {router.config.plane}: {reason}")
        return self._pairs.router_view(router.config, view)

    def slice_usage(self, tenant: str, plane: str) -> dict[str, int]:
        """Count what a tenant's routers use on a plane, by the keys of the slice's quota."""
        usage = self._usages.get((tenant, plane))
        return ({} if usage is None else usage.counts()) | self._pairs.slice_usage(tenant, plane)

    def plane_views(self) -> list[PlaneView]:
        """Return all planes' states."""
        return self._pairs.plane_views(map(plane_view, self._mirrors.values()))

    def interface_views(self, vrf_id: int) -> list[InterfaceView]:
        """Return a router's interfaces."""
        return interface_views(self._router(vrf_id))

    def routes(self, vrf_id: int) -> Iterator[RouteView]:
        """Iterate over the RIB in order of prefixes."""
        return route_views(self._router(vrf_id).fib)

    def fib(self, vrf_id: int) -> Iterator[FibEntryView]:
        """Iterate over what is installed, in order of prefixes."""
        router = self._router(vrf_id)
        pair = self._pairs.find(router.config.plane)
        return fib_entries(router.fib, None if pair is None else pair.routes.held(vrf_id))

    async def placement(self, vrf_id: int) -> PlacementView:
        """Tell where a router's routes are. Conflict where its plane has no fallback."""
        router = self._router(vrf_id)
        return await self._pairs.placement_view(router.config, router.fib)

    def neighbors(self, vrf_id: int) -> list[NeighborView]:
        """Return a router's neighbors."""
        return neighbor_views(self._router(vrf_id).fib)

    async def counters(self, vrf_id: int) -> CounterView:
        """Read a router's counters from the plane. PlaneUnreachable where it is away."""
        router = self._router(vrf_id)
        read = await self._mirror(router.config.plane).plane.counters()
        interfaces = {}
        for interface in router.config.interfaces:
            one = read.router_interfaces.get(interface.id)
            interfaces[interface.name] = {
                name: 0 if one is None else getattr(one, name)
                for name in ("rx_packets", "rx_bytes", "tx_packets", "tx_bytes")
            }
        punts = {reason.name.lower(): count[0] for (vrf, reason), count in read.punts.items() if vrf == vrf_id}
        drops = {str(reason): count[0] for (vrf, reason), count in read.drops.items() if vrf in (0, vrf_id)}
        return CounterView(router.config.full_name, interfaces, punts, dict(router.punts.counters), drops)

    async def load(self) -> LoadView:
        """Count what has passed through all planes and routers."""
        return await load_view(self._mirrors, self._pairs, list(self.routers.values()), self._clock)

    async def trace(self, vrf_id: int, destination: str, interface: str | None = None) -> list[TraceStep]:
        """Follow a packet through the tables as the plane holds them."""
        router = self._router(vrf_id)
        read = await self._mirror(router.config.plane).plane.read()
        return trace(router.fib, read, destination, interface)

    async def verify(self, vrf_id: int, repair: bool = False) -> VerifyView:
        """Compare what the guest learned, what is desired and what the plane holds; repair where asked.

        A difference counts only when it is there again while nothing is under way. PlaneUnreachable where the plane
        is away, NoSuch where the VRC is.
        """
        router = self._router(vrf_id)
        mirror = self._mirror(router.config.plane)
        repaired = 0
        if repair:
            router.fib.retry_refused()
            repaired = (await mirror.audit(vrf_id)).get(vrf_id, 0)
            if (pair := self._pairs.find(mirror.plane.name)) is not None:
                await pair.work()
        view = None
        for _ in range(VERIFY_ATTEMPTS):
            await self.converged(vrf_id)
            mark = router.fib.prefixes.mark()
            learned = await self._snapshot(router)
            read, written = await mirror.read_back()
            if written.get(vrf_id) or router.fib.prefixes.mark() != mark:
                continue
            view = _compare(router, learned, read, repaired)
            if view.equal:
                break
        if view is None:
            raise PlaneUnreachable(mirror.plane.name, "routes change faster than they can be compared; try again")
        return view

    def capture(self, vrf_id: int, interface: str | None = None) -> AsyncIterator[CapturedFrame]:
        """Iterate over frames between plane and guest as they pass."""
        router = self._router(vrf_id)
        if interface is None:
            return router.punts.capture(None)
        for one in router.config.interfaces:
            if one.name == interface:
                return router.punts.capture(one.id)
        raise NoSuch("interface", interface, f"router {router.config.full_name} has other ones: vrctl get interfaces")

    # Packets

    def packet_out(self, router: VirtualRouter, interface_id: int, frame: bytes) -> str | None:
        """Send a guest's frame; returns why it was refused, if it was."""
        interface = router.fib.resolution.interfaces.get(interface_id)
        reason = router.punts.refusal(None if interface is None else interface.config, frame)
        if reason is None:
            entry = router.fib.resolution.interface_entries.installed.get(interface_id)
            mirror = self._mirrors.get(router.config.plane)
            if entry is None or mirror is None:
                reason = "interface_not_on_plane"
            else:
                router.punts.sent(interface_id, frame, mirror.plane.packet_out(entry, frame))
                router.said(interface_id, frame)
        if reason is not None:
            router.punts.counters[f"refused_{reason}"] += 1
        return reason

    # Inside

    def _usage(self, config: RouterConfig) -> SliceUsage:
        usage = self._usages.setdefault((config.tenant, config.plane), SliceUsage(config.quota))
        usage.quota = config.quota
        return usage

    def _packet_in(self, router_interface_id: int, reason: PuntReason, frame: bytes) -> None:
        router = self._interfaces.get(router_interface_id)
        if router is None:
            return
        answered = self._stand_in(router, router_interface_id, frame)
        if router.vrc is not None:
            router.punts.deliver(router_interface_id, reason, frame)
        elif not answered:
            router.punts.counters["drop_no_session"] += 1

    def _stand_in(self, router: VirtualRouter, interface_id: int, frame: bytes) -> bool:
        """Answer for a guest that cannot, while what it learned is still forwarded."""
        if router.speaks_for_itself(interface_id):
            return False
        interface = router.fib.resolution.interfaces.get(interface_id)
        entry = router.fib.resolution.interface_entries.installed.get(interface_id)
        mirror = self._mirrors.get(router.config.plane)
        if not router.holds or interface is None or entry is None or mirror is None:
            return False
        reply = answer(frame, entry.mac, interface.own_addresses)
        if reply is not None:
            mirror.plane.packet_out(entry, reply)
            router.punts.counters["answered_for_guest"] += 1
        return reply is not None

    def _confirmed(self, vrf_id: int) -> None:
        router = self.routers.get(vrf_id)
        if router is not None:
            router.confirmed()
            self._follow(router)

    def _follow(self, router: VirtualRouter) -> None:
        mirror = self._mirrors.get(router.config.plane)
        if mirror is not None and mirror.adopted and router.fib.idle:
            self._pairs.written(router.config, router.fib.settled)

    def _ports_changed(self, plane: str) -> None:
        for router in self.routers.values():
            if router.config.plane == plane:
                router.ports_changed()

    async def _snapshot(self, router: VirtualRouter) -> dict[bytes, NexthopSet]:
        if router.vrc is None:
            raise NoSuch("VRC session of", router.config.full_name, "see vrctl get routers and vrctl events")
        self._snapshots += 1
        answer: asyncio.Future[dict[bytes, NexthopSet]] = asyncio.get_running_loop().create_future()

        def done(taken: dict[bytes, NexthopSet] | None, error: str) -> None:
            if answer.done():
                return
            if taken is None:
                answer.set_exception(NoSuch("snapshot of", router.config.full_name, error))
            else:
                answer.set_result(taken)

        router.snapshots[self._snapshots] = done
        router.vrc.request_snapshot(self._snapshots)
        try:
            async with asyncio.timeout(SNAPSHOT_TIMEOUT_S):
                return await answer
        except TimeoutError:
            raise NoSuch("snapshot of", router.config.full_name, "the VRC did not answer in time") from None

    def _index_interfaces(self) -> None:
        self._interfaces = {one.id: router for router in self.routers.values() for one in router.config.interfaces}

    def _router(self, vrf_id: int) -> VirtualRouter:
        router = self.routers.get(vrf_id)
        if router is None:
            raise NoSuch("router", str(vrf_id))
        return router

    def _mirror(self, name: str) -> PlaneMirror:
        mirror = self._mirrors.get(name)
        if mirror is None:
            raise NoSuch("plane", name, "attach it: vrctl plane attach")
        return mirror


def _attachments(config: RouterConfig) -> set[tuple[int, str, int]]:
    return {(one.id, one.port, one.vlan) for one in config.interfaces}


def _compare(router: VirtualRouter, learned: dict[bytes, NexthopSet], read: Installed, repaired: int) -> VerifyView:
    fib = router.fib
    tables = verify.learned_table(fib, learned), verify.desired_table(fib), verify.installed_table(fib, read)
    found, total = verify.compare(*tables)
    damaged = verify.damage(fib, read)
    return VerifyView(
        router=router.config.full_name,
        equal=not total and not damaged,
        routes=len(tables[0]),
        differences=found,
        total_differences=total,
        damaged=damaged,
        repaired=repaired,
        foreign=read.foreign,
        refused=len(fib.prefixes.refused),
    )
