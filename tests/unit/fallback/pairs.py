"""A hardware plane and its fallback in memory, wired, under a core: frames go through both as they would."""

import ipaddress
import struct
import sys
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "shard"))

from worlds import PORTS, World, gateway, mac, router_config

from controller.diagnostics.verify import Verification
from controller.fallback.hardware_routes import HardwareRoutes
from controller.fallback.link.ports import LinkPorts
from controller.fallback.link.probe import LinkProbe, ProbeTiming
from controller.fallback.plane import FallbackPair
from controller.model import RouterConfig
from controller.planes.base import FALLBACK, LOCAL
from controller.planes.fake import FakePlane
from controller.planes.packet import internet_checksum
from controller.routing.rib import SetKind
from controller.views import VerifyView

LINK = 9
PEER = 1
IMPATIENT = ProbeTiming(answer_s=0.01, grace_s=0.0, retry_s=0.001)
FAR = {f"20.{n}.0.0/16": 1 + n % 2 for n in range(8)}
ONE_WAY = {number: [(number, gateway(number), 1)] for number in (1, 2)}
"""Members of nexthop sets: each has one way, by the interface of its number."""
TWO_WAYS = {1: [*ONE_WAY[1], *ONE_WAY[2]], 2: ONE_WAY[2]}


class PairWorld(World):
    """`World` on a pair: ``room`` routes of each family in hardware, 0 for as many as ``capacity`` takes. The link
    loses frames of more than ``link_octets``, is not ``wired`` at all, and is looked at only where it is ``probed``.
    """

    def __init__(self, room: int = 0, capacity: int = 1_000_000, probed: bool = False) -> None:
        self.link_octets, self.wired = 2000, True
        self.hardware, self.software = FakePlane("s1", capacity=capacity), FakePlane("f1")
        self.sent: list[tuple[int, bytes]] = []  # what left by a port that is not of the link
        super().__init__()
        routes = HardwareRoutes({4: room, 6: room})
        link = LinkPorts("s1-f1", "f1-s1")
        self.probe = LinkProbe(self.hardware, self.software, link, IMPATIENT) if probed else None
        self.pair = FallbackPair(self.hardware, self.software, link, routes, self.clock, self.probe)
        self.hardware.cables, self.software.cables = self._from_hardware, self._from_software

    async def start(self, *configs: RouterConfig) -> None:
        await self.shards.add_plane(self.pair)
        for number, name in PORTS.items():
            self.hardware.set_port(number, name, True)
        self.hardware.set_port(LINK, "s1-f1", True)
        self.software.set_port(PEER, "f1-s1", True)
        for config in configs:
            await self.shards.put_router(config)
        self.hardware.connect()
        self.software.connect()

    def _from_hardware(self, port: int, frame: bytes) -> None:
        if port != LINK:
            self.sent.append((port, frame))
        elif self.wired and len(frame) <= self.link_octets:
            self.software.inject(PEER, frame)

    def _from_software(self, _port: int, frame: bytes) -> None:
        if self.wired and len(frame) <= self.link_octets:
            self.hardware.inject(LINK, frame)

    def in_hardware(self, vrf_id: int = 1) -> dict[bytes, int]:
        return self.hardware.entries.routes.get(vrf_id, {})

    def in_software(self, vrf_id: int = 1) -> dict[bytes, int]:
        return self.software.entries.routes.get(vrf_id, {})

    def forwarding(self, vrf_id: int = 1) -> set[bytes]:
        """The hardware's prefixes that are neither FALLBACK nor the router's own."""
        return {key for key, action in self.in_hardware(vrf_id).items() if action not in (FALLBACK, LOCAL)}


def held(routes: HardwareRoutes, vrf_id: int) -> dict[bytes, int]:
    """What the hardware is known to hold of a router."""
    return {**routes.usage.installed(vrf_id, 4), **routes.usage.installed(vrf_id, 6)}


def every(steps: Iterator[None]) -> None:
    """Take all steps."""
    for _ in steps:
        pass


async def started(world: PairWorld, *configs: RouterConfig) -> PairWorld:
    """Start a world with these routers, or one of two interfaces."""
    await world.start(*(configs or (router_config(1, (1, 2)),)))
    await world.until(lambda: world.pair._adopted)
    return world


async def made(*configs: RouterConfig, **options: int) -> PairWorld:
    """Return a world that was started; the options are those of `PairWorld`."""
    return await started(PairWorld(**options), *configs)


async def learned(
    world: PairWorld,
    routes: Mapping[str, int] = FAR,
    sets: Mapping[int, Sequence[tuple[int, bytes, int]]] = ONE_WAY,
    vrf_id: int = 1,
) -> None:
    """Have a router learn routes by nexthop sets, and the pair write them."""
    await world.router(vrf_id).plane_known()
    world.connect(vrf_id)
    router = world.router(vrf_id)
    for number, members in sets.items():
        router.define_set(number, SetKind.FORWARD, members)
    world.learn(dict(routes), vrf_id)
    router.resync_end(True)
    await world.settle(vrf_id)
    await world.pair.work()


def packet(destination: str, ttl: int = 64, ingress: int = 1) -> bytes:
    """Return a frame of UDP for an interface."""
    addresses = bytes((192, 0, 2, 9)), ipaddress.IPv4Address(destination).packed
    header = bytearray(struct.pack(">BBHHHBBH4s4s", 0x45, 0, 28, 0, 0, ttl, 17, 0, *addresses))
    header[10:12] = internet_checksum(bytes(header)).to_bytes(2, "big")
    return mac(ingress) + bytes((2, 0, 0, 0, 9, 9)) + b"\x08\x00" + bytes(header) + bytes(8)


async def verified(world: PairWorld, vrf_id: int = 1) -> VerifyView:
    """Compare what a router learned with what both planes hold."""
    router = world.router(vrf_id)
    found = Verification(router.fib, dict(router.fib.learned), await world.pair.read())
    deque(chain(found.describing(), found.comparing()), 0)
    return found.view(router.config.full_name, 0)


async def quiet(world: PairWorld) -> None:
    """Wait until the routes that were learned are confirmed."""
    router = world.router()
    await world.until(lambda: not router.fib.busy_ahead and not router.fib.in_flight)


async def back(world: PairWorld) -> None:
    """Bring the software back, and wait until it has what it missed."""
    world.software.connect()
    await world.until(lambda: world.pair.connected)
    await world.settle()
    await world.pair.work()
