"""A small world for unit tests of the core: a fake plane, one or two routers, and a clock that tests move."""

import asyncio
from collections.abc import Awaitable, Callable

from controller.diagnostics.diagnostics import Diagnostics
from controller.events.log import EventLog
from controller.model import InterfaceConfig, Quota, RouterConfig
from controller.planes.fake import FakePlane
from controller.routing.rib import SetKind
from controller.shard.router import VirtualRouter
from controller.shard.shards import Shards
from controller.views import PlaneView
from wire.columns import prefix_key

PORTS = {1: "p1", 2: "p2", 3: "p3", 4: "p4"}


class Clock:
    """Monotonic seconds, moved by hand."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def mac(number: int) -> bytes:
    return bytes((2, 0, 0, 0, number >> 8, number & 255))


def interface(number: int, **changes: object) -> InterfaceConfig:
    values: dict[str, object] = {
        "id": number,
        "name": f"eth{number}",
        "port": f"p{number}",
        "vlan": 0,
        "mac": mac(number),
    }
    return InterfaceConfig(**(values | changes))  # type: ignore[arg-type]


def router_config(vrf_id: int = 1, interfaces: tuple[int, ...] = (1, 2, 3), **changes: object) -> RouterConfig:
    values: dict[str, object] = {
        "vrf_id": vrf_id,
        "tenant": "red",
        "name": f"r{vrf_id}",
        "plane": "s1",
        "quota": Quota(),
        "interfaces": tuple(interface(number) for number in interfaces),
        "hold_time_s": 100,
    }
    return RouterConfig(**(values | changes))  # type: ignore[arg-type]


class FakeVrc:
    """Records what the router says to its VRC."""

    remark = ""

    def __init__(self) -> None:
        self.acknowledged = 0
        self.closed: str | None = None
        self.declarations: list[RouterConfig] = []
        self.ports: dict[int, bool] = {}
        self.snapshot_requests: list[int] = []

    def declare(self, config: RouterConfig, ports_up: dict[int, bool]) -> None:
        self.declarations.append(config)
        self.ports = ports_up

    def acknowledge(self, sequence: int) -> None:
        self.acknowledged = sequence

    def ports_changed(self, ports_up: dict[int, bool]) -> None:
        self.ports = ports_up

    def request_snapshot(self, request_id: int) -> None:
        self.snapshot_requests.append(request_id)

    def close(self, reason: str) -> None:
        self.closed = reason


class World:
    """One plane, its core, and shortcuts for what a VRC would say."""

    def __init__(self, plane: FakePlane | None = None) -> None:
        self.clock = Clock()
        self.events = EventLog()
        self.shards = Shards(self.events, self.clock)
        self.views = Diagnostics(self.shards, self.clock)
        self.plane = plane or FakePlane("s1")
        self.sequence = 0

    async def start(self, *configs: RouterConfig) -> None:
        await self.shards.add_plane(self.plane)
        for number, name in PORTS.items():
            self.plane.set_port(number, name, True)
        for config in configs:
            await self.shards.put_router(config)
        await self.until(lambda: self.plane._listener is not None)
        self.plane.connect()

    def router(self, vrf_id: int = 1) -> VirtualRouter:
        return self.shards.routers[vrf_id]

    def connect(self, vrf_id: int = 1, neighbors: bool = True) -> FakeVrc:
        """Open a session with all interfaces up and one neighbor 10.0.<n>.2 on each."""
        vrc = FakeVrc()
        router = self.router(vrf_id)
        router.open(vrc)
        for one in router.config.interfaces:
            router.interface_states([(one.id, True, [bytes((10, 0, one.id, 1))])])
            if neighbors:
                list(router.neighbors([(one.id, gateway(one.id), mac(100 + one.id), False)]))
        return vrc

    def learn_links(self, vrf_id: int = 1) -> None:
        """Say that 10.0.<n>.0/24 is on each interface."""
        for one in self.router(vrf_id).config.interfaces:
            self.router(vrf_id).define_set(1000 + one.id, SetKind.CONNECTED, [(one.id, b"", 1)])
            self.learn({f"10.0.{one.id}.0/24": 1000 + one.id}, vrf_id)

    def learn(self, routes: dict[str, int], vrf_id: int = 1) -> int:
        """Say one Routes message for each family and return its sequence number."""
        for family, mark in ((4, "."), (6, ":")):
            chosen = {text: set_id for text, set_id in routes.items() if mark in text}
            if chosen:
                self.router(vrf_id).routes(family, [prefix_key(text) for text in chosen], list(chosen.values()))
        self.sequence += 1
        self.router(vrf_id).processed(self.sequence)
        return self.sequence

    async def settle(self, vrf_id: int = 1) -> None:
        await asyncio.wait_for(self.shards.converged(vrf_id), 30)
        await asyncio.sleep(0)

    async def until(self, reached: Callable[[], bool]) -> None:
        async with asyncio.timeout(30):
            while not reached():  # noqa: ASYNC110 - lets the loop run on, without time passing
                await asyncio.sleep(0)

    def installed(self, vrf_id: int = 1) -> dict[bytes, int]:
        return self.plane.entries.routes.get(vrf_id, {})

    def route_writes(self) -> int:
        return sum(len(updates) for batch in self.plane.writes for updates in batch.routes)

    def forget_writes(self) -> None:
        self.plane.writes.clear()

    async def close(self) -> None:
        await self.shards.close()


async def plane_view(world: World, name: str) -> PlaneView:
    view = await world.views.plane_view(name)
    assert view is not None
    return view


def gateway(number: int) -> bytes:
    return bytes((10, 0, number, 2))


WorldFactory = Callable[..., Awaitable[World]]


def vrc_of(world: World) -> FakeVrc:
    """Return the VRC of a world's first router."""
    vrc = world.router().vrc
    assert isinstance(vrc, FakeVrc)
    return vrc
