"""Groups and nexthops that no set has any more: who looks at them, and who takes them over."""

from collections.abc import Awaitable, Callable
from typing import Any

from worlds import World, gateway, router_config

from controller.planes.base import RouteKind, route_action
from controller.routing.rib import SetKind

MakeWorld = Callable[..., Awaitable[World]]


async def resolution_of_two_sets(make_world: MakeWorld) -> tuple[Any, list[Any]]:
    """Two sets of one content, each with a route and a group of its own."""
    world = await make_world(router_config(1, (1, 2)))
    world.connect()
    for set_id, weights in ((1, (1, 2)), (2, (2, 4))):
        members = [(number, gateway(number), weight) for number, weight in zip((1, 2), weights, strict=True)]
        world.router().define_set(set_id, SetKind.FORWARD, members)
    world.learn({"20.1.0.0/16": 1, "20.2.0.0/16": 2})
    await world.settle()
    resolution = world.router().fib._resolution
    return resolution, [world.router().fib._rib.names[set_id] for set_id in (1, 2)]


async def test_a_group_without_a_set_becomes_that_of_one_whose_routes_use_it(make_world: MakeWorld) -> None:
    resolution, (first, second) = await resolution_of_two_sets(make_world)
    (group,) = resolution.owned[first]
    assert resolution.owned[second] != [group]
    resolution.detach(first)
    assert group.owner is None
    assert resolution._orphans == {group.content: {group.id: group}}
    resolution.note_sharer(group, second)
    assert group.owner is second
    assert resolution._orphans == {}


async def test_what_no_route_uses_any_more_is_looked_at(make_world: MakeWorld) -> None:
    resolution, _ = await resolution_of_two_sets(make_world)
    actions = [route_action(kind, 7 + kind) for kind in (RouteKind.NEXTHOP, RouteKind.GROUP, RouteKind.DROP)]
    resolution.loosen(actions)
    assert resolution.loose_groups == {7 + RouteKind.GROUP: None}
    assert resolution.loose_nexthops == {7 + RouteKind.NEXTHOP: None}
