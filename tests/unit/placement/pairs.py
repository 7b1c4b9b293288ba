"""A hardware plane and its fallback in memory, wired, under a core: frames go through both as they would."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "core"))

from worlds import PORTS, World

from controller.model import RouterConfig
from controller.placement.link import LinkPorts
from controller.placement.link_probe import LinkProbe, ProbeTiming
from controller.placement.pair import FallbackPair
from controller.placement.routes import HardwareRoutes
from controller.planes.base import FALLBACK, LOCAL
from controller.planes.fake import FakePlane

LINK = 9
PEER = 1
IMPATIENT = ProbeTiming(answer_s=0.01, grace_s=0.0, retry_s=0.001)


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
        await self.core.add_plane(self.pair)
        for number, name in PORTS.items():
            self.hardware.set_port(number, name, True)
        self.hardware.set_port(LINK, "s1-f1", True)
        self.software.set_port(PEER, "f1-s1", True)
        for config in configs:
            await self.core.put_router(config)
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
