"""What the routes of a router have met, by plane: those that carry most first."""

import asyncio
import heapq
from collections.abc import Iterator
from itertools import islice

from controller.errors import Conflict
from controller.planes.base import Capability, Plane
from controller.shard.router import VirtualRouter
from controller.shard.shard import Shard
from controller.views import RouteCounterView
from wire.columns import prefix_text

ROUTES_AT_ONCE = 2000
"""Routes that are sorted before others get their turn on the event loop."""

_HOW = {Capability.ROUTE_COUNTERS: "exact", Capability.SAMPLED_ROUTE_COUNTERS: "sampled"}


async def route_counters(router: VirtualRouter, shard: Shard) -> Iterator[RouteCounterView]:
    """Read the counters of all routes that have met something, of a plane with a fallback those of both.

    Conflict where neither counts by route, PlaneUnreachable where one is away.
    """
    planes: tuple[Plane, ...] = (shard.plane,)
    if shard.pair is not None:
        planes = shard.pair.hardware, shard.pair.software
    how = {plane.name: _how(plane) for plane in planes}
    if not any(how.values()):
        names = " and ".join(how)
        raise Conflict(f"plane {names} counts no packets by route; a vr-forwarder does with --route-counters")
    runs = []  # each sorted
    for plane in planes:
        traffic = (await plane.route_traffic(router.config.vrf_id)) if how[plane.name] else {}
        items = iter(traffic.items())
        while part := list(islice(items, ROUTES_AT_ONCE)):
            run = [(-packets, len(key), key, plane.name, octets) for key, (packets, octets) in part if packets]
            runs.append(sorted(run))
            await asyncio.sleep(0)
    return (
        RouteCounterView(prefix_text(key), plane, -less, octets, how[plane])
        for less, _, key, plane, octets in heapq.merge(*runs)
    )


def _how(plane: Plane) -> str:
    return next((how for capability, how in _HOW.items() if capability in plane.capabilities), "")
