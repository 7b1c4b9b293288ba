"""The planes with a fallback that a core serves: the one place that tells them from other planes."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial

from controller.describe import fallback_view
from controller.model import RouterConfig
from controller.placement.pair import FallbackPair
from controller.planes.base import Plane
from controller.views import PlaneView, RouterView, TableView


class Pairs:
    """Pairs by the name of their hardware plane, under which they serve as one."""

    def __init__(self, damaged: Callable[[str, int], None]) -> None:
        """``damaged`` is told the plane and how many routes were found to differ in hardware."""
        self._damaged = damaged
        self._pairs: dict[str, FallbackPair] = {}

    def add(self, plane: Plane) -> FallbackPair | None:
        """Return a plane as a pair where it is one, known from now on."""
        if not isinstance(plane, FallbackPair):
            return None
        plane.damaged = partial(self._damaged, plane.name)
        self._pairs[plane.name] = plane
        return plane

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
            pair.routes.place(config.vrf_id, config.placement)

    def router_view(self, config: RouterConfig, view: RouterView) -> RouterView:
        """Return a router's state with what its two planes say."""
        pair = self.find(config.plane)
        if pair is None or view.state != "up" or not (problem := pair.link_problem):
            return view
        return replace(view, state="degraded", reason=problem)

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
                view = replace(view, entries=view.entries | pair.routes.counts(), tables=tables)
            found.append(view)
        return found + behind
