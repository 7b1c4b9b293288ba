"""Polls the traffic of a pair: reads both planes' counters every few seconds, and takes samples of the software.

Reading costs the hardware time in which Open vSwitch does not forward, so it is one twentieth of the time at most.
"""

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from controller.errors import PlaneUnreachable
from controller.fallback.hardware_routes import HardwareRoutes
from controller.fallback.pace import paced, parts
from controller.fallback.staged_writes import RouterTable
from controller.fallback.traffic import Traffic
from controller.planes.base import Capability, Clock, Op, Plane, RouteCounts, RouterInterface, Sample, Update
from wire.columns import family_of

COUNT_S = 5.0
"""How often packets are counted."""

MAX_COUNT_S = 30.0
"""The same where reading takes long: what is older is of no use to the popularity of entries."""

_READING_SHARE = 0.05


class TrafficPoll:
    """Feeds ``routes`` from the two planes, while ``ready`` says that both are there and adopted."""

    def __init__(
        self, hardware: Plane, software: Plane, routes: HardwareRoutes, ready: Callable[[], bool], clock: Clock
    ) -> None:
        self._hardware, self._software, self._routes = hardware, software, routes
        self._ready, self._clock = ready, clock
        self._vrf_of: dict[int, int] = {}  # by router interface id
        self.traffic = Traffic()
        self.unknown = 0  # samples of router interfaces that are not (any more)
        software.sample_to(self._sample)

    def adopt(self, interfaces: Iterable[RouterInterface]) -> None:
        """Begin anew with the router interfaces that the planes hold."""
        self._vrf_of = {interface.id: interface.vrf_id for interface in interfaces}
        self.traffic.begin()

    def follow(self, updates: Iterable[Update[RouterInterface]]) -> None:
        """Follow what becomes of router interfaces."""
        for update in updates:
            if update.op is Op.DELETE:
                self._vrf_of.pop(update.entry.id, None)
            else:
                self._vrf_of[update.entry.id] = update.entry.vrf_id

    def hand_over(self, now: float) -> Iterator[None]:
        """Give what was sampled since the last time to the routes, in steps."""
        one_in = self.traffic.one_in
        for table, keys in self.traffic.take().items():
            assert one_in is not None
            for part in parts(keys):
                self._routes.sample(now, table, part, one_in)
                yield

    async def run(self) -> None:
        """Measure again and again, until cancelled."""
        while True:
            began = self._clock()
            with contextlib.suppress(PlaneUnreachable):  # who writes sees that too
                await self.measure()
            took_s = self._clock() - began
            await asyncio.sleep(min(MAX_COUNT_S, max(COUNT_S - took_s, took_s / _READING_SHARE)))

    async def measure(self) -> None:
        """Read both planes once. PlaneUnreachable where a channel goes down."""
        if not self._ready():
            return
        counted = Capability.ROUTE_COUNTERS in self._hardware.capabilities
        counts = await self._hardware.route_counts() if counted else None
        sent = await self._software.sent()
        if self._ready():
            await paced(self._measure(self._clock(), counts, sent))

    def _measure(self, now: float, counts: RouteCounts | None, sent: Mapping[int, int]) -> Iterator[None]:
        for of_router in self.traffic.measure(now, counts, sent, self._vrf_of):
            if not self._ready():
                return
            if of_router is not None:
                yield from self._routes.count(now, *of_router)
            yield

    def _sample(self, samples: Sequence[Sample]) -> None:
        vrf_of = self._vrf_of.get
        by_table: defaultdict[RouterTable, list[bytes]] = defaultdict(list)
        for interface_id, key in samples:
            vrf_id = vrf_of(interface_id)
            if vrf_id is None:
                self.unknown += 1
            else:
                by_table[vrf_id, family_of(key)].append(key)
        for table, keys in by_table.items():
            self.traffic.sample(table, keys)
