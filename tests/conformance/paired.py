"""A hardware plane and the software forwarder behind it, wired as one plane whose routes can be moved.

┌ namespace of the cables ┐      ┌ namespace of the hardware ────┐      ┌ namespace of the forwarder ┐
│ far1 … far4, raw sockets┼─veth─┼ p1 … p4 ── switch ── link ────┼─veth─┼ p1 ── vr-forwarder         │
└─────────────────────────┘      └───────────────────────────────┘      └────────────────────────────┘
"""

from collections.abc import AsyncIterator, Collection
from dataclasses import dataclass, replace
from typing import cast

from cables import PORTS
from wired import SENTINEL_VRF, WiredPlane

from controller.fallback.hardware_routes import HardwareRoutes
from controller.fallback.link.ports import LinkPorts
from controller.fallback.plane import FallbackPair
from controller.model import Placement, PlaneConfig, PlaneKind, PlanePort
from controller.planes.base import FALLBACK, LOCAL, UNREACHABLE, FallbackLink, Installed, Plane, PuntReason
from controller.planes.p4runtime.plane import P4RuntimePlane
from controller.planes.reference_pipeline import Forwarded, Verdict, forward
from lab.private.forwarder import PrivateForwarder
from lab.private.ovs import PrivateOvs

LINK, LINK_PORT = "behind", 5
"""The hardware's end of the link: device and number."""
PEER, PEER_PORT = "p1", 1
_PLACES = (Placement.HARDWARE, Placement.SOFTWARE)


@dataclass
class PairedPlane(WiredPlane):
    """Two connected planes as one, between the cables of the first."""

    punted_as: frozenset[PuntReason] = frozenset({PuntReason.LOCAL, PuntReason.GLEAN})  # by either of the two
    ovs: PrivateOvs | None = None  # the hardware, where it is one
    place: Placement = Placement.HARDWARE
    crowded: bool = False  # own addresses may be without room in hardware

    @property
    def pair(self) -> FallbackPair:
        """The plane."""
        return cast(FallbackPair, self.plane)

    def verdicts(self, entries: Installed, port: int, frame: bytes) -> list[Verdict]:
        """The model of the hardware where that has the route, else of the software behind what the hardware does with
        every packet."""
        hardware, software = self.pair.hardware.capabilities, self.pair.software.capabilities
        given = self.given(entries)
        found = [forward(given, hardware, PORTS, port, frame)]
        for kept in ((), (LOCAL,)) if self.crowded else ((LOCAL,),):
            away = forward(_all_away(given, kept), hardware, PORTS, port, frame)
            on = any(isinstance(way.outcome, Forwarded) for way in away.ways)
            found.append(forward(given, software, PORTS, port, frame) if on else away)
        return found

    def given(self, entries: Installed) -> Installed:
        """Return entries without fallback links: those of a pair are its own."""
        interfaces = {key: replace(each, fallback=None) for key, each in entries.router_interfaces.items()}
        routes = {
            vrf_id: {key: UNREACHABLE if action == FALLBACK else action for key, action in held.items()}
            for vrf_id, held in entries.routes.items()
        }
        return replace(entries, router_interfaces=interfaces, routes=routes)

    async def send_sentinels_the_long_way(self) -> None:
        await self.pair.read()  # what was not read is not moved
        self.pair.routes.place(SENTINEL_VRF, Placement.SOFTWARE)
        await self.move()

    async def places(self) -> AsyncIterator[str]:
        """Both, beginning with the one where they are."""
        for placement in sorted(_PLACES, key=lambda each: each is not self.place):
            self.place = placement
            for vrf_id in self.pair.routes.routers - {SENTINEL_VRF}:
                self.pair.routes.place(vrf_id, placement)
            await self.move()
            yield placement

    async def move(self) -> None:
        """Have all routes where they are to be."""
        while await self.pair.work():
            pass


def _all_away(entries: Installed, kept: Collection[int]) -> Installed:
    """Return the entries of hardware that has no route of its own, except those with one of the ``kept`` actions."""
    interfaces = {
        key: replace(each, fallback=FallbackLink(LINK_PORT, number))
        for number, (key, each) in enumerate(entries.router_interfaces.items(), 2)
    }
    routes = {
        vrf_id: {bytes(5): FALLBACK, bytes(17): FALLBACK}
        | {key: has if has in kept else FALLBACK for key, has in entries.routes.get(vrf_id, {}).items()}
        for vrf_id in {each.vrf_id for each in entries.router_interfaces.values()}
    }
    return replace(entries, router_interfaces=interfaces, routes=routes)


def pair_of(hardware: Plane, forwarder: PrivateForwarder) -> FallbackPair:
    """Return both as one plane, the hardware with room for everything."""
    port = PlanePort(PEER, PEER_PORT)
    config = PlaneConfig("software", PlaneKind.P4RUNTIME, address=forwarder.address, device_id=1, ports=(port,))
    return FallbackPair(hardware, P4RuntimePlane(config), LinkPorts(LINK, PEER), HardwareRoutes({4: 0, 6: 0}))
