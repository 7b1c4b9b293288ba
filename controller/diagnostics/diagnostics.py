"""What can be asked of the running state. Each answer is a view; only a repair that is asked for changes anything."""

import time
from collections.abc import AsyncIterator, Iterable, Iterator

from controller.diagnostics import trace
from controller.diagnostics.describe import (
    fallback_view,
    fib_entries,
    interface_views,
    neighbor_views,
    plane_view,
    route_views,
    sorted_keys,
    whole_tables,
)
from controller.diagnostics.describe import router_view as running_router_view
from controller.diagnostics.fallback_views import (
    hardware_usage,
    paired_plane_view,
    paired_router_view,
    placement_view,
    places,
)
from controller.diagnostics.load import load_view
from controller.diagnostics.route_counters import route_counters
from controller.diagnostics.verify import Verification
from controller.errors import Conflict, NoSuch, PlaneUnreachable
from controller.fallback.pace import paced
from controller.planes.base import Clock, DropReason, PuntReason
from controller.shard.router import VirtualRouter
from controller.shard.shard import Shard
from controller.shard.shards import Shards
from controller.views import (
    CapturedFrame,
    CounterView,
    FibEntryView,
    InterfaceView,
    LoadView,
    NeighborView,
    PlacementView,
    PlaneView,
    RouteCounterView,
    RouterView,
    RouteView,
    TraceStep,
    VerifyView,
)

VERIFY_ATTEMPTS = 5


class Diagnostics:
    """Reads the shards. Implements `DiagnosticsPort`."""

    def __init__(self, shards: Shards, clock: Clock = time.monotonic) -> None:
        self._shards, self._clock = shards, clock

    def router_view(self, vrf_id: int) -> RouterView:
        """Return a router's state."""
        router = self._shards.router(vrf_id)
        shard = self._shards.by_plane.get(router.config.plane)
        if shard is None:
            return running_router_view(router, _away(router, "detached; use it again with vrctl plane attach"))
        reachable = shard.plane.connected or shard.ahead
        view = running_router_view(router, None if reachable else _away(router, shard.mirror.reason))
        return view if shard.pair is None else paired_router_view(shard.pair, router.config, view)

    def slice_usage(self, tenant: str, plane: str) -> dict[str, int]:
        """Count what a tenant's routers use on a plane, by the keys of the slice's quota."""
        shard = self._shards.by_plane.get(plane)
        if shard is None:
            return {}
        usage = shard.usage_of(tenant)
        counts = {} if usage is None else usage.counts()
        return counts if shard.pair is None else counts | hardware_usage(shard.pair, tenant)

    async def plane_view(self, name: str) -> PlaneView | None:
        """Return the state of a plane, or of one behind another; None where it is not in use."""
        while (shard := self._shard_of(name)) is not None:
            if shard.pair is not None and name == shard.pair.software.name:
                return fallback_view(shard.pair, whole_tables(shard))
            view = await plane_view(shard)
            if self._shard_of(name) is shard:
                return view if shard.pair is None else paired_plane_view(shard.pair, view)
        return None

    def _shard_of(self, name: str) -> Shard | None:
        """Return the shard whose plane this is, or the fallback of that."""
        shards = self._shards.by_plane
        pairs = (one for one in shards.values() if one.pair is not None and one.pair.software.name == name)
        return shards.get(name) or next(pairs, None)

    def interface_views(self, vrf_id: int) -> list[InterfaceView]:
        """Return a router's interfaces."""
        return interface_views(self._shards.router(vrf_id))

    async def routes(self, vrf_id: int) -> Iterator[RouteView]:
        """Iterate over the RIB in order of prefixes."""
        fib = self._shards.router(vrf_id).fib
        return route_views(fib, await sorted_keys(fib.next_learned))

    async def fib(self, vrf_id: int) -> Iterator[FibEntryView]:
        """Iterate over what is installed, in order of prefixes."""
        router = self._shards.router(vrf_id)
        shard = self._shards.by_plane.get(router.config.plane)
        place = None if shard is None or shard.pair is None else places(shard.pair, vrf_id)
        return fib_entries(router.fib, await sorted_keys(router.fib.next_installed), place)

    async def placement(self, vrf_id: int) -> PlacementView:
        """Tell where a router's routes are. Conflict where its plane has no fallback."""
        router = self._shards.router(vrf_id)
        config = router.config
        shard = self._shards.by_plane.get(config.plane)
        if shard is None or shard.pair is None:
            raise Conflict(
                f"router {config.full_name}: plane {config.plane} has no fallback; all its routes are there"
            )
        return await placement_view(shard.pair, config, router.fib)

    def neighbors(self, vrf_id: int) -> Iterator[NeighborView]:
        """Iterate over a router's neighbors."""
        return neighbor_views(self._shards.router(vrf_id).fib)

    async def counters(self, vrf_id: int) -> CounterView:
        """Read a router's counters from the plane. PlaneUnreachable where it is away."""
        router, shard = self._shards.router(vrf_id), self._shards.of_router(vrf_id)
        pair = shard.pair
        read = [await shard.plane.counters()] if pair is None else await pair.counters_of_both()
        interfaces = {}
        for interface in router.config.interfaces:
            one = read[0].router_interfaces.get(interface.id)  # the hardware sees every packet of it once
            interfaces[interface.name] = {
                name: 0 if one is None else getattr(one, name)
                for name in ("rx_packets", "rx_bytes", "tx_packets", "tx_bytes")
            }
        punts = {r.name.lower(): _sum(one.punts.get((vrf_id, r)) for one in read) for r in PuntReason}
        drops = {str(r): _sum(one.drops.get((whose, r)) for one in read for whose in (0, vrf_id)) for r in DropReason}
        told = [{name: count for name, count in counts.items() if count is not None} for counts in (punts, drops)]
        return CounterView(router.config.full_name, interfaces, told[0], dict(router.punts.counters), told[1])

    async def route_counters(self, vrf_id: int) -> Iterator[RouteCounterView]:
        """Read what a router's routes have met. Conflict where its plane counts none."""
        return await route_counters(self._shards.router(vrf_id), self._shards.of_router(vrf_id))

    async def load(self) -> LoadView:
        """Count what has passed through all planes and routers."""
        return await load_view(self._shards.by_plane, self._shards.loop_share, self._clock)

    async def trace(self, vrf_id: int, destination: str, interface: str | None = None) -> list[TraceStep]:
        """Follow a packet through the tables as the plane holds them. NoSuch for an address or interface that is
        none, PlaneUnreachable where the plane is away."""
        router = self._shards.router(vrf_id)
        trace.check(router.fib, destination, interface)
        read = await self._shards.of_router(vrf_id).plane.read(vrf_id)
        return trace.trace(router.fib, read, destination, interface)

    async def verify(self, vrf_id: int, repair: bool = False) -> VerifyView:
        """Compare what the guest learned, what is desired and what the plane holds; repair where asked.

        That is of one moment: where the router changes meanwhile, all is looked at again. A difference counts only
        when it is there again while nothing is under way. PlaneUnreachable where the plane is away, NoSuch where the
        VRC or the router is.
        """
        router, shard = self._shards.router(vrf_id), self._shards.of_router(vrf_id)
        repaired = await _repair(router, shard) if repair else 0
        view = None
        for _ in range(VERIFY_ATTEMPTS):
            await self._shards.of_router(vrf_id).converged(vrf_id)
            router, shard = self._shards.router(vrf_id), self._shards.of_router(vrf_id)
            fib, mark = router.fib, router.fib.mark()
            learned = await shard.snapshot(router)
            read, written = await shard.mirror.read_back(vrf_id)
            found = Verification(fib, learned, read)
            if written.get(vrf_id) or fib.mark() != mark:
                continue
            await paced(found.describing())
            if found.changed or router.fib is not fib or shard.mirror.fault(vrf_id):
                continue
            await paced(found.comparing())
            view = found.view(router.config.full_name, repaired)
            if view.equal:
                break
        if view is None:
            raise PlaneUnreachable(shard.plane.name, "routes change faster than they can be compared; try again")
        return view

    def capture(self, vrf_id: int, interface: str | None = None) -> AsyncIterator[CapturedFrame]:
        """Iterate over frames between plane and guest as they pass."""
        router = self._shards.router(vrf_id)
        if interface is None:
            return router.punts.capture(None)
        for one in router.config.interfaces:
            if one.name == interface:
                return router.punts.capture(one.id)
        raise NoSuch("interface", interface, f"router {router.config.full_name} has other ones: vrctl get interfaces")


def _away(router: VirtualRouter, reason: str) -> str:
    return f"plane {router.config.plane}: {reason}"


async def _repair(router: VirtualRouter, shard: Shard) -> int:
    """Write again what differs on the plane; returns how much that was."""
    router.fib.retry_refused()
    shard.attend(router)
    vrf_id = router.config.vrf_id
    repaired = (await shard.mirror.audit(vrf_id)).get(vrf_id, 0)
    if shard.pair is not None:
        shard.pair.routes.tables.retry(vrf_id)
        await shard.pair.work()
    return repaired


def _sum(counts: Iterable[tuple[int, int] | None]) -> int | None:
    """Add packets up; None where none were counted."""
    known = [count[0] for count in counts if count is not None]
    return sum(known) if known else None
