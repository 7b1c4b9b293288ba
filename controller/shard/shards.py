"""All shards of a controller: which plane a router is on, and what goes to whom."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Set

from controller.errors import NoSuch
from controller.events.log import EventLog
from controller.fallback.pace import in_turns, paced
from controller.model import RouterConfig
from controller.planes.base import Capability, Clock, Plane
from controller.shard.loop_share import LONG_SLICE_S, LoopShare
from controller.shard.mirror import AUDIT_INTERVAL_S
from controller.shard.router import VirtualRouter
from controller.shard.shard import TICK_S, Shard, nobody_asks
from controller.spec.reservations import Shares


async def nothing_to_put() -> None:
    """Put nothing: its routers come later."""


class Shards:
    """The shards by plane, and the routers: also those whose plane is detached. Implements `ShardsPort`.

    ``crowded`` tells whether the machine's cores are (`CpuPressure`).
    """

    def __init__(
        self,
        events: EventLog,
        clock: Clock = time.monotonic,
        audit_s: float = AUDIT_INTERVAL_S,
        crowded: Callable[[float], bool] = lambda _: False,
    ) -> None:
        self.routers: dict[int, VirtualRouter] = {}
        self.by_plane: dict[str, Shard] = {}
        self.loop_share = LoopShare(self._tell_long, crowded)
        self.on_adopted: Callable[[], None] = nobody_asks  # called whenever it became known what a plane has
        self._events, self._clock, self._audit_s = events, clock, audit_s

    async def add_plane(self, plane: Plane, put_routers: Callable[[], Awaitable[None]] = nothing_to_put) -> None:
        """Begin to serve a plane. Conflict where another plane uses the same switch.

        ``put_routers`` puts all that are to be on it, before it connects: what it has of others is swept.
        """
        shard = Shard(plane, self._events, self._clock, self.loop_share, self._audit_s, self.on_adopted)
        async for router in in_turns(list(self.routers.values())):
            if router.config.plane == plane.name:
                shard.take_over(router)
        self.by_plane[plane.name] = shard
        try:
            await put_routers()
            await shard.start()
        except BaseException:
            del self.by_plane[plane.name]
            raise

    async def remove_plane(self, name: str) -> set[int]:
        """Stop using a plane; what is installed stays there. Returns the routers that were being removed from it:
        they are not known any more."""
        shard = self.of_plane(name)
        await shard.close()
        del self.by_plane[name]
        forgotten = {vrf_id for vrf_id, router in shard.routers.items() if router.fib.removing}
        for vrf_id in forgotten:
            self.forget_router(vrf_id)
        return forgotten

    async def close(self) -> None:
        """Stop serving; planes go on forwarding."""
        for name in list(self.by_plane):
            await self.remove_plane(name)

    async def run(self) -> None:
        """Let time pass for all routers, until cancelled."""
        while True:
            await asyncio.sleep(TICK_S)
            await paced(self._events.telling_held())
            for shard in list(self.by_plane.values()):
                await shard.tick()

    async def put_router(self, config: RouterConfig) -> None:
        """Create or change a router.

        Returns when the desired state is set and what it no longer has (interfaces, ports, VLANs) is confirmed gone
        from the plane. PlaneUnreachable where that cannot be confirmed now: it is done once the plane is back.
        PlaneError where the plane refuses it: that is tried again.
        """
        shard = self.of_plane(config.plane)
        router = self.routers.get(config.vrf_id)
        if router is not None and router.config.plane != config.plane:
            await self.remove_router(config.vrf_id)
            router = None
        if router is None:
            self.routers[config.vrf_id] = shard.add_router(config)
        else:
            await shard.change_router(router, config)

    async def remove_router(self, vrf_id: int) -> None:
        """Remove a router; returns when the plane has confirmed that nothing of it is left.

        PlaneUnreachable where it cannot now: the router stays, wanting nothing, and is removed when the plane is back
        and this is called again. PlaneError where the plane refuses that: it is tried again, and removed as well.
        """
        await self.of_router(vrf_id).remove_router(vrf_id)
        self.routers.pop(vrf_id, None)
        self.loop_share.forget(vrf_id)

    def forget_router(self, vrf_id: int) -> None:
        """Know nothing of a router any more whose plane is not in use; what is installed stays there."""
        if self.routers.pop(vrf_id, None) is not None:
            self.loop_share.forget(vrf_id)

    async def ports_left(self, vrf_id: int, interface_ids: Set[int]) -> None:
        """Wait until the plane has confirmed that a router has these interfaces by no port and VLAN but those that
        are declared. PlaneUnreachable where the plane is away, PlaneError where it refused that."""
        await self.of_router(vrf_id).ports_left(vrf_id, interface_ids)

    async def converged(self, vrf_id: int) -> None:
        """Wait until everything learned is confirmed. PlaneUnreachable where the plane is away."""
        await self.of_router(vrf_id).converged(vrf_id)

    def usage(self, plane: str) -> Mapping[str, Mapping[str, int]]:
        """Count what each tenant uses of a plane, by the keys of its quota; nothing of one that is not in use."""
        shard = self.by_plane.get(plane)
        return {} if shard is None else shard.usage

    def table_sizes(self) -> Mapping[str, Mapping[str, int]]:
        """Return what planes said of the sizes of their tables; nothing of one that has not said any."""
        found = (shard.table_sizes for shard in self.by_plane.values())
        return {name: sizes for each in found for name, sizes in each.items() if sizes}

    def without_shares(self) -> set[str]:
        """Return the planes that are connected and have no shares of cores and links."""
        planes = (shard.plane for shard in self.by_plane.values())
        return {plane.name for plane in planes if plane.connected and Capability.SHARES not in plane.capabilities}

    def limit(self, plane: str, shares: Shares, pooled: Set[str]) -> None:
        """Say what tenants may have of a plane from now on, as `Shard.limit`; nothing where it is not in use."""
        shard = self.by_plane.get(plane)
        if shard is not None:
            shard.limit(shares, pooled)

    def at_rest(self, vrf_id: int) -> bool:
        """Whether a router's routes are where they are placed, as far as its plane can say."""
        shard = self.by_plane.get(self.router(vrf_id).config.plane)
        if shard is None or not (shard.plane.connected or shard.ahead):
            return False
        return shard.pair is None or shard.pair.move(vrf_id) is None

    def packet_out(self, router: VirtualRouter, interface_id: int, frame: bytes) -> str | None:
        """Send a guest's frame; returns why it was refused, if it was."""
        shard = self.by_plane.get(router.config.plane)
        if shard is None:
            router.punts.dropped_before_plane()
            return None
        reason = shard.packet_out(router, interface_id, frame)
        if reason is not None:
            router.punts.counters[f"refused_{reason}"] += 1
        return reason

    def _tell_long(self, router: str, took_s: float, what: str) -> None:
        text = f"{what} took {took_s * 1e3:.0f} ms of the event loop, meant is {LONG_SLICE_S * 1e3:.0f} at most"
        self._events.report("warning", "loop-held", router, text)

    def router(self, vrf_id: int) -> VirtualRouter:
        """Return a router; NoSuch where it was never put."""
        router = self.routers.get(vrf_id)
        if router is None:
            raise NoSuch("router", str(vrf_id))
        return router

    def of_router(self, vrf_id: int) -> Shard:
        """Return a router's shard; NoSuch where there is none."""
        return self.of_plane(self.router(vrf_id).config.plane)

    def of_plane(self, name: str) -> Shard:
        """Return a plane's shard; NoSuch where the plane is not in use."""
        shard = self.by_plane.get(name)
        if shard is None:
            raise NoSuch("plane in use", name, f"use it again with vrctl plane attach {name}")
        return shard
