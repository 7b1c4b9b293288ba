"""Two shards share no object that either could change, except those that are shared by design."""

import types
from array import array
from collections import deque
from collections.abc import Iterator, Mapping
from enum import Enum
from functools import partial
from typing import Any

from worlds import PORTS, World, gateway, router_config

from controller.events.log import EventLog
from controller.fallback.hardware_routes import HardwareRoutes
from controller.fallback.link.ports import LinkPorts
from controller.fallback.plane import FallbackPair
from controller.planes.fake import FakePlane
from controller.planes.openflow.plane import OpenFlowPlane
from controller.planes.openflow.server import OpenFlowListener
from controller.routing.fib import Fib
from controller.routing.rib import SetKind
from controller.shard.loop_share import LoopShare
from controller.shard.mirror import PlaneMirror
from controller.shard.shard import Shard

SHARED_BY_DESIGN = (EventLog, LoopShare, OpenFlowListener)
"""What shards are given. The walk ends there: the listener leads to every OpenFlow plane."""

CONTAINERS = (dict, list, set, deque, bytearray, array)


def attributes(one: object) -> Iterator[object]:
    """Yield the values of an instance's fields, slots included."""
    yield from getattr(one, "__dict__", {}).values()
    for kind in type(one).__mro__:
        slots = kind.__dict__.get("__slots__", ())
        for name in {*((slots,) if isinstance(slots, str) else slots)} - {"__weakref__"}:
            private = name.startswith("__") and not name.endswith("__")
            yield getattr(one, f"_{kind.__name__.lstrip('_')}{name}" if private else name, None)


def parts(one: object) -> Iterator[object]:
    """Yield what an object leads to directly; nothing of what is neither a container nor the controller's."""
    if isinstance(one, Mapping):
        yield from one.keys()
        yield from one.values()
    elif isinstance(one, (list, tuple, set, frozenset, deque)):
        yield from one
    elif isinstance(one, types.MethodType):
        yield one.__self__
        yield one.__func__
    elif isinstance(one, types.FunctionType):
        yield from (cell.cell_contents for cell in one.__closure__ or ())
        yield from one.__defaults__ or ()
    elif isinstance(one, partial):
        yield from (one.func, one.args, one.keywords)
    if is_ours(one) and not isinstance(one, SHARED_BY_DESIGN):
        yield from attributes(one)


def is_ours(one: object) -> bool:
    """Tell whether an object is an instance of a class of the controller."""
    return type(one).__module__.startswith("controller.")


def may_change(one: object) -> bool:
    """Tell whether an object is a mutable container, or one of the controller's that is no value."""
    frozen = getattr(type(one), "__dataclass_params__", None)
    is_value = isinstance(one, (Enum, tuple)) or (frozen is not None and frozen.frozen)
    return isinstance(one, CONTAINERS) or (is_ours(one) and not is_value)


def reachable(shard: Shard) -> dict[int, object]:
    """Return everything that a shard leads to and that may change, by identity."""
    seen: dict[int, Any] = {}
    waiting: list[object] = [shard]
    while waiting:
        one = waiting.pop()
        if id(one) not in seen:
            seen[id(one)] = one
            waiting += parts(one)
    return {identity: one for identity, one in seen.items() if may_change(one)}


def shared(first: Shard, second: Shard) -> list[object]:
    """Return what both lead to and may change, and is not shared by design."""
    ours, theirs = reachable(first), reachable(second)
    return [one for identity, one in ours.items() if identity in theirs and not isinstance(one, SHARED_BY_DESIGN)]


def pair(number: int, world: World) -> FallbackPair:
    """Return a plane with a fallback, both in memory."""
    hardware, software = FakePlane(f"s{number}"), FakePlane(f"f{number}")
    link = LinkPorts("link", "peer")
    return FallbackPair(hardware, software, link, HardwareRoutes({4: 100, 6: 100}), world.clock)


async def serve(world: World, made: FallbackPair, vrf_id: int) -> Shard:
    """Return the shard of a pair with a router that forwards, by one way and by a group."""
    config = router_config(vrf_id, (2 * vrf_id - 1, 2 * vrf_id), plane=made.name)
    await world.shards.add_plane(made)
    for number, name in PORTS.items():
        made.hardware.set_port(number, name, True)
    made.hardware.set_port(9, "link", True)
    made.software.set_port(1, "peer", True)
    await world.shards.put_router(config)
    made.hardware.connect()
    made.software.connect()
    await world.until(lambda: made._adopted)
    world.connect(vrf_id)
    router = world.router(vrf_id)
    ways = [(one.id, gateway(one.id), 1) for one in config.interfaces]
    router.define_set(1, SetKind.FORWARD, ways)
    router.define_set(2, SetKind.FORWARD, ways[:1])
    world.learn({"20.0.0.0/8": 1, "30.0.0.0/8": 2, "2001:db8::/32": 1}, vrf_id)
    router.resync_end(True)
    await world.settle(vrf_id)
    await made.work()
    await world.shards.by_plane[made.name].tick()
    return world.shards.by_plane[made.name]


async def test_two_shards_with_routers_of_one_tenant():
    world = World()
    try:
        first = await serve(world, pair(1, world), 1)
        second = await serve(world, pair(2, world), 2)
        assert world.router(1).config.tenant == world.router(2).config.tenant
        kinds = {type(one) for one in reachable(first).values()}
        assert kinds >= {Shard, PlaneMirror, Fib, FallbackPair, HardwareRoutes, FakePlane, EventLog, LoopShare}
        assert shared(first, second) == []
    finally:
        await world.close()


async def test_openflow_planes_share_their_listener_alone():
    listener, events, clock = OpenFlowListener(), EventLog(), World().clock
    planes = [OpenFlowPlane(f"s{number}", number, listener) for number in (1, 2)]
    first, second = (Shard(plane, events, clock, LoopShare(), 300.0) for plane in planes)
    assert id(listener) in reachable(first).keys() & reachable(second).keys()
    assert shared(first, second) == []


async def test_what_is_shared_is_found_wherever_it_is():
    events, clock = EventLog(), World().clock
    first, second = (Shard(FakePlane(name), events, clock, LoopShare(), 300.0) for name in ("s1", "s2"))
    assert shared(first, second) == []
    common: list[int] = []
    first.plane.cables = lambda port, frame: common.append(port)
    second._usages["red"] = (common,)
    assert shared(first, second) == [common]
    second.mirror.objects = first.mirror.objects
    assert first.mirror.objects in shared(first, second)
