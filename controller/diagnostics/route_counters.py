"""What the routes of a router have met, by plane: those that carry most first."""

from collections.abc import Iterator

from controller.errors import Conflict
from controller.planes.base import Capability, Plane
from controller.shard.router import VirtualRouter
from controller.shard.shard import Shard
from controller.views import RouteCounterView
from wire.columns import prefix_text

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
    found = [
        (packets, octets, key, plane.name)
        for plane in planes
        if how[plane.name]
        for key, (packets, octets) in (await plane.route_traffic(router.config.vrf_id)).items()
        if packets
    ]
    found.sort(key=lambda one: (-one[0], len(one[2]), one[2], one[3]))
    return (
        RouteCounterView(prefix_text(key), plane, packets, octets, how[plane])
        for packets, octets, key, plane in found
    )


def _how(plane: Plane) -> str:
    return next((how for capability, how in _HOW.items() if capability in plane.capabilities), "")
