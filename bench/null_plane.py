"""A plane that stores nothing: it confirms every batch, so that what is measured is the controller alone."""

import asyncio
from collections.abc import Iterable

from controller.planes.base import (
    Capability,
    Counters,
    Installed,
    PlaneListener,
    PortState,
    Refused,
    RouteCounts,
    RouterInterface,
    RoutesInto,
    RouteTraffic,
    Sampler,
    SharedMeters,
    WriteBatch,
)
from controller.planes.shares import WithoutShares


class NullPlane(WithoutShares):
    """Implements `Plane`; connected as soon as it is started."""

    def __init__(self, name: str, ports: Iterable[str]) -> None:
        self.name = name
        self.capabilities: frozenset[Capability] = frozenset()
        self.connected = False
        self.table_sizes: dict[str, int] = {}
        self.shared_meters: SharedMeters = ()
        self.ports = {number: PortState(number, port, True) for number, port in enumerate(ports, 1)}
        self.routes = 0

    def sample_to(self, sampler: Sampler | None) -> None:
        """Do nothing: it routes nothing."""

    async def start(self, listener: PlaneListener) -> None:
        """Connect."""
        self.connected = True
        listener.plane_connected(self)

    async def close(self) -> None:
        """Disconnect."""
        self.connected = False

    async def read(self, only: int | None = None, into: RoutesInto | None = None) -> Installed:
        """Return nothing."""
        return Installed()

    async def write(self, batch: WriteBatch) -> list[Refused]:
        """Count the routes and confirm all, after others had their turn."""
        await asyncio.sleep(0)
        self.routes += sum(map(len, batch.routes))
        return []

    async def counters(self) -> Counters:
        """Count nothing."""
        return Counters()

    async def route_counts(self) -> RouteCounts:
        """Count nothing."""
        return RouteCounts()

    async def route_traffic(self, vrf_id: int) -> RouteTraffic:
        """Count nothing."""
        return {}

    async def sent(self) -> dict[int, int]:
        """Count nothing."""
        return {}

    def packet_out(self, interface: RouterInterface, frame: bytes) -> bool:
        """Take the frame."""
        return True
