"""What a plane with a fallback says of itself: where routes are, and what its two planes have room for."""

import asyncio
from dataclasses import replace

from controller.diagnostics.describe import Place, sorted_keys
from controller.diagnostics.verify import longest_match
from controller.fallback.plane import FallbackPair
from controller.model import Placement, RouterConfig
from controller.planes.base import FALLBACK
from controller.routing.fib import Fib
from controller.views import PlacementView, PlaneView, RouterView, TableView
from wire.columns import family_of

PAGE = 250
"""Routes looked at before others get their turn on the event loop."""

_CHOSEN = "the rest when traffic asks for it, as not all have room"
_SHORT_OF = {
    "room": "the rest for want of room",
    "quota": "the rest beyond its slice's quota of hardware routes",
    "refused": "the rest because plane {plane} refused what it leads to",
    "": "the rest in software",
}


def paired_router_view(pair: FallbackPair, config: RouterConfig, view: RouterView) -> RouterView:
    """Return a router's state with what its two planes say."""
    move = pair.move(config.vrf_id)
    view = replace(view, placement=config.placement.value, move=move)
    problem = pair.link_problem if pair.connected else ""
    if pair.ahead and (move is not None or not pair.routes.usage.whole(config.vrf_id)):
        what = "routes that are in software alone stay as they were" if move is None else "the move waits"
        remedy = "" if pair.software.connected else "; start it again"
        problem = f"{pair.problem}: {what} until it is back{remedy}"
    return replace(view, state="degraded", reason=problem) if view.state == "up" and problem else view


async def placement_view(pair: FallbackPair, config: RouterConfig, fib: Fib) -> PlacementView:
    """Tell where a router's routes are."""
    place = places(pair, config.vrf_id)
    routes = hardware = 0
    for number, key in enumerate(await sorted_keys(fib.next_installed), 1):
        if key in fib.installed_routes:
            routes, hardware = routes + 1, hardware + (place(key) == "hardware")
        if number % PAGE == 0:
            await asyncio.sleep(0)  # others get their turn
    reason = ""
    if config.placement is Placement.SOFTWARE:
        reason = "own addresses stay in hardware"
    elif hardware < routes:
        short = pair.routes.usage.short_of(config.vrf_id)
        chosen = config.placement is Placement.AUTO and short in ("room", "quota")
        reason = _CHOSEN if chosen else _SHORT_OF[short].format(plane=config.plane)
    move = pair.move(config.vrf_id)
    return PlacementView(config.full_name, config.placement.value, routes, hardware, reason, move)


def places(pair: FallbackPair, vrf_id: int) -> Place:
    """Return what tells of a router's prefix where it is at the time: the nearest entry in hardware at or around it
    says so. All lengths are tried: which there are changes with what is moved."""
    installed = pair.routes.usage.installed

    def place(key: bytes) -> str:
        family, network = family_of(key), int.from_bytes(key[:-1], "big")
        hardware = installed(vrf_id, family)
        found = longest_match(hardware, family, network, range(key[-1], -1, -1))
        return "software" if found is None or hardware[found] == FALLBACK else "hardware"

    return place


def hardware_usage(pair: FallbackPair, tenant: str) -> dict[str, int]:
    """Count what a tenant's routers have in hardware, by the keys of the slice's quota."""
    used = pair.routes.usage.used_by(tenant)
    return {f"hardware_ipv{family}_routes": entries for family, entries in used.items()}


def paired_plane_view(pair: FallbackPair, whole: PlaneView) -> PlaneView:
    """Return a plane's state with what is in hardware."""
    refused = {f"refused {table}": count for table, count in pair.refusals.items()}
    entries = whole.entries | pair.routes.usage.counts() | refused
    return replace(whole, entries=entries, tables=hardware_tables(pair))


def hardware_tables(pair: FallbackPair) -> dict[str, TableView]:
    """Return how full the route tables of the hardware are."""
    occupancy = pair.routes.usage.occupancy()
    return {name: TableView(one.used, one.capacity, one.source) for name, one in occupancy.items()}
