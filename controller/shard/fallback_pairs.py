"""The planes with a fallback that a core serves: the one place that tells them from other planes."""

import asyncio
from collections.abc import Iterable
from dataclasses import replace
from functools import partial

from controller.diagnostics.describe import fallback_view, places
from controller.errors import Conflict
from controller.events.log import EventLog
from controller.fallback.plane import FallbackPair
from controller.model import Placement, RouterConfig
from controller.planes.base import Plane
from controller.routing.fib import Fib
from controller.views import PlacementView, PlaneView, RouterView, TableView

PAGE = 500
"""Routes looked at before others get their turn on the event loop."""

_CHOSEN = "the rest when traffic asks for it, as not all have room"
_SHORT_OF = {
    "room": "the rest for want of room",
    "quota": "the rest beyond its slice's quota of hardware routes",
    "refused": "the rest because plane {plane} refused what it leads to",
    "": "the rest in software",
}


class Pairs:
    """Pairs by the name of their hardware plane, under which they serve as one."""

    def __init__(self, events: EventLog) -> None:
        self._events = events
        self._pairs: dict[str, FallbackPair] = {}

    def add(self, plane: Plane) -> FallbackPair | None:
        """Return a plane as a pair where it is one, known from now on."""
        if not isinstance(plane, FallbackPair):
            return None
        plane.damaged = partial(self._damaged, plane.name)
        if plane.probe is not None:
            plane.probe.told = partial(self._link_told, plane.name)
        self._pairs[plane.name] = plane
        return plane

    def _damaged(self, plane: str, routes: int) -> None:
        self._events.emit("warning", "repaired", plane, f"{routes} routes differed in hardware")

    def _link_told(self, plane: str, problem: str) -> None:
        if problem:
            self._events.emit("warning", "link-problem", plane, problem)
        else:
            self._events.emit("info", "link-proved", plane, "the fallback link carries the longest frames")

    def discard(self, name: str) -> None:
        """Forget a plane, if it is one of these."""
        self._pairs.pop(name, None)

    def find(self, name: str) -> FallbackPair | None:
        """Return the pair of a plane, None where it has no fallback."""
        return self._pairs.get(name)

    def place(self, config: RouterConfig) -> None:
        """Tell a router's plane where its routes are to be, and how many of them."""
        pair = self.find(config.plane)
        if pair is not None:
            pair.routes.share(config.vrf_id, config.tenant, config.quota)
            pair.routes.place(config.vrf_id, config.placement, config.came_from)

    def written(self, config: RouterConfig, settled: bool) -> None:
        """All that is known of a router is on its plane; ``settled``: that is all that its guest has."""
        pair = self.find(config.plane)
        if pair is not None:
            pair.written(config.vrf_id, settled)

    def router_view(self, config: RouterConfig, view: RouterView) -> RouterView:
        """Return a router's state with what its two planes say."""
        pair = self.find(config.plane)
        if pair is None:
            return view
        move = pair.move(config.vrf_id)
        view = replace(view, placement=config.placement.value, move=move)
        problem = pair.link_problem if pair.connected else ""
        if pair.ahead and (move is not None or not pair.routes.whole(config.vrf_id)):
            what = "routes that are in software alone stay as they were" if move is None else "the move waits"
            remedy = "" if pair.software.connected else "; start it again"
            problem = f"{pair.problem}: {what} until it is back{remedy}"
        return replace(view, state="degraded", reason=problem) if view.state == "up" and problem else view

    async def placement_view(self, config: RouterConfig, fib: Fib) -> PlacementView:
        """Tell where a router's routes are; Conflict where its plane has no fallback."""
        pair = self.find(config.plane)
        if pair is None:
            raise Conflict(
                f"router {config.full_name}: plane {config.plane} has no fallback; all its routes are there"
            )
        held = pair.routes.held(config.vrf_id)
        routes = hardware = 0
        for where in places(fib, held):
            routes, hardware = routes + 1, hardware + (where == "hardware")
            if routes % PAGE == 0:
                await asyncio.sleep(0)  # others get their turn
        reason = ""
        if config.placement is Placement.SOFTWARE:
            reason = "own addresses stay in hardware"
        elif hardware < routes:
            short = pair.routes.short_of(config.vrf_id)
            chosen = config.placement is Placement.AUTO and short in ("room", "quota")
            reason = _CHOSEN if chosen else _SHORT_OF[short].format(plane=config.plane)
        move = pair.move(config.vrf_id)
        return PlacementView(config.full_name, config.placement.value, routes, hardware, reason, move)

    def slice_usage(self, tenant: str, plane: str) -> dict[str, int]:
        """Count what a tenant's routers have in hardware, by the keys of the slice's quota."""
        pair = self.find(plane)
        held = {} if pair is None else pair.routes.used_by(tenant)
        return {f"hardware_ipv{family}_routes": entries for family, entries in held.items()}

    def plane_views(self, views: Iterable[PlaneView]) -> list[PlaneView]:
        """Return planes' states with what is in hardware, and those of the planes behind them."""
        found, behind = [], []
        for view in views:
            pair = self.find(view.name)
            if pair is not None:
                behind.append(fallback_view(pair, view))
                tables = {
                    name: TableView(one.used, one.capacity, one.source)
                    for name, one in pair.routes.occupancy().items()
                }
                refused = {f"refused {table}": count for table, count in pair.refusals.items()}
                view = replace(view, entries=view.entries | pair.routes.counts() | refused, tables=tables)
            found.append(view)
        return found + behind
