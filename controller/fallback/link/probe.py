"""Whether the link between a hardware plane and its fallback carries the longest frames: proved by such frames.

    hardware ── packet-out: a long frame, then a short one ──► software ── packet-in ──► here
    hardware ◄── packet-out: the same the other way ────────── software

No plane tells the MTU of a port, so the link is tried out: when the two have connected, when the largest MTU of their
router interfaces or a port of the link changes, and now and then. Each plane gets a router interface on a VLAN that
no router has, in a VRF of its own, for as long as that takes. A short frame that arrives while the long one before it
does not says that the link loses long frames; where not even the short ones arrive, the two ports are not connected
with each other. Nothing waits for any of this.
"""

import asyncio
import contextlib
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import IntEnum

from controller.errors import PlaneUnreachable
from controller.fallback.link.ports import PROBE_VLAN, LinkPorts
from controller.model import MAX_ROUTERS
from controller.planes.base import (
    MAX_OBJECT_ID,
    Installed,
    Op,
    Plane,
    Policer,
    PuntClass,
    RouterInterface,
    Update,
    WriteBatch,
)

PROBE_VRF = MAX_ROUTERS + 1
PROBE_INTERFACE = MAX_OBJECT_ID + 1
"""Ids that no router and no interface of one gets."""

_RATES = tuple(100 if each is PuntClass.ARP else 1 for each in PuntClass)
_MTU = 9216
_BROADCAST, _SOURCE = b"\xff" * 6, bytes.fromhex("025350000001")
_ARP_PROBE = bytes.fromhex("0806 0001 0800 06 04 0001") + _SOURCE + bytes(14)  # for 0.0.0.0: nobody answers
_NONCE_OCTETS = 8
_SHORT_OCTETS = 60
_ETHERNET_OCTETS, _TAG_OCTETS = 14, 4


@dataclass(frozen=True, slots=True)
class ProbeTiming:
    """When a frame is taken for lost, and how often the link is tried."""

    answer_s: float = 5.0  # for a frame to arrive
    grace_s: float = 0.5  # for the long one once the short one has arrived
    attempts: int = 3
    retry_s: float = 10.0  # after a problem, or where nothing could be proved
    again_s: float = 300.0  # after a proof


class Seen(IntEnum):
    """What arrived of the frames that one plane sent."""

    NOTHING = 0
    SHORT = 1
    LONG = 2


class Way:
    """One direction of the link, and what was seen of it in each attempt."""

    def __init__(self, sender: Plane, receiver: Plane) -> None:
        self.sender, self.receiver = sender, receiver
        self.attempts: list[Seen] = []
        self.expected: dict[bytes, Seen] = {}  # by what begins the frame
        self.seen = Seen.NOTHING

    @property
    def proved(self) -> bool:
        """Whether a long frame arrived."""
        return Seen.LONG in self.attempts

    @property
    def lossy(self) -> bool:
        """Whether long frames are lost: twice, so that one that was lost by chance says nothing."""
        return not self.proved and self.attempts.count(Seen.SHORT) > 1

    @property
    def dead(self) -> bool:
        """Whether nothing has ever arrived."""
        return bool(self.attempts) and set(self.attempts) == {Seen.NOTHING}

    def send(self, egress: RouterInterface, octets: int) -> None:
        """Send a long and a short frame."""
        self.seen, self.expected = Seen.NOTHING, {}
        for size, kind in ((octets, Seen.LONG), (_SHORT_OCTETS, Seen.SHORT)):
            head = _BROADCAST + _SOURCE + _ARP_PROBE + os.urandom(_NONCE_OCTETS)
            self.expected[head] = kind
            self.sender.packet_out(egress, head.ljust(size, b"\0"))

    def hear(self, frame: bytes) -> None:
        """Take a frame that has arrived."""
        length = len(_BROADCAST + _SOURCE + _ARP_PROBE) + _NONCE_OCTETS
        self.seen = max(self.seen, self.expected.get(frame[:length], Seen.NOTHING))


class LinkProbe:
    """Proves one link again and again; `problem` is what it found last, in one line, or empty."""

    def __init__(self, hardware: Plane, software: Plane, link: LinkPorts, timing: ProbeTiming | None = None) -> None:
        self.problem = ""
        self._ends = ((hardware, link.hardware), (software, link.software))
        self._timing = timing or ProbeTiming()
        self._mtus: dict[int, int] = {}
        self._ways: list[Way] = []
        self._holders: set[str] = set()  # planes that may have entries of a probe
        self._silent = False  # whether nothing arrived the last time
        self._wanted, self._heard = asyncio.Event(), asyncio.Event()

    # What the pair says

    def adopt(self, interfaces: Iterable[RouterInterface]) -> None:
        """Take the router interfaces of a pair that has just connected."""
        self._mtus = {one.id: one.mtu for one in interfaces}
        self._wanted.set()

    def follow(self, updates: Iterable[Update[RouterInterface]]) -> None:
        """Follow the router interfaces; another largest MTU is proved soon."""
        before = self.mtu
        for update in updates:
            if update.op is Op.DELETE:
                self._mtus.pop(update.entry.id, None)
            else:
                self._mtus[update.entry.id] = update.entry.mtu
        if self.mtu != before:
            self._wanted.set()

    def schedule(self) -> None:
        """Prove it again: a port of the link has changed."""
        self._wanted.set()

    def strip(self, plane: Plane, read: Installed) -> None:
        """Take out of a read-back what belongs to a probe, be it one of a controller before this."""
        damaged = read.damaged & {("policer", PROBE_VRF), ("router_interface", PROBE_INTERFACE)}
        read.damaged -= damaged
        policer, interface = read.policers.pop(PROBE_VRF, None), read.router_interfaces.pop(PROBE_INTERFACE, None)
        if policer or interface or damaged:
            self._holders.add(plane.name)

    def hear(self, plane: Plane, router_interface_id: int, frame: bytes) -> bool:
        """Take a frame that a plane punted, if it came in by the probe's interface."""
        if router_interface_id != PROBE_INTERFACE:
            return False
        for way in self._ways:
            if way.receiver is plane:
                way.hear(frame)
        self._heard.set()
        return True

    @property
    def mtu(self) -> int:
        """The largest MTU of the router interfaces, 0 where there are none."""
        return max(self._mtus.values(), default=0)

    # The proof

    async def run(self, ready: Callable[[], bool], changed: Callable[[str], None]) -> None:
        """Prove the link whenever there is reason to and ``ready`` says that it can be, until cancelled; ``changed``
        is told of another `problem`."""
        wait_s = self._timing.retry_s
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._wanted.wait()
            self._wanted.clear()
            proved = ready() and self.mtu > 0 and await self.prove(changed)
            wait_s = self._timing.again_s if proved else self._timing.retry_s

    async def prove(self, changed: Callable[[str], None] = lambda _problem: None) -> bool:
        """Try the link out once; False where it is not proved to carry the longest frames."""
        octets = _ETHERNET_OCTETS + self.mtu
        (hardware, _), (software, _) = self._ends
        self._ways = [Way(hardware, software), Way(software, hardware)]
        try:
            egress = await self._install()
            if not egress:
                return False
            for _ in range(self._timing.attempts):
                if not all(way.proved for way in self._ways):
                    await self._attempt(egress, octets)
            self._conclude(octets + _TAG_OCTETS, changed)
            return all(way.proved for way in self._ways)
        except PlaneUnreachable:
            return False  # it is proved again once the two have connected
        finally:
            self._ways = []
            await self._remove()

    async def _attempt(self, egress: dict[str, RouterInterface], octets: int) -> None:
        tried = [way for way in self._ways if not way.proved]
        for way in tried:
            way.send(egress[way.sender.name], octets)
        for least, wait_s in ((Seen.SHORT, self._timing.answer_s), (Seen.LONG, self._timing.grace_s)):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    while any(way.seen < least for way in tried):
                        self._heard.clear()
                        await self._heard.wait()
        for way in tried:
            way.attempts.append(way.seen)

    def _conclude(self, octets: int, changed: Callable[[str], None]) -> None:
        """Say what the attempts have shown; what they have not leaves all as it is."""
        lossy, dead = [way for way in self._ways if way.lossy], [way for way in self._ways if way.dead]
        (hardware, port), (software, peer_port) = self._ends
        link = f"the fallback link {hardware.name}:{port} – {software.name}:{peer_port}"
        problem, silent = self.problem, self._silent
        self._silent = bool(dead)
        if all(way.proved for way in self._ways):
            problem = ""
        elif dead and silent:  # a plane that was busy for a while is no dead link
            towards = f" towards {dead[0].receiver.name}" if len(dead) == 1 else ""
            problem = f"{link} carries nothing{towards}; connect these two ports with each other"
        elif lossy:
            towards = f" towards {lossy[0].receiver.name}" if len(lossy) == 1 else ""
            problem = f"{link} loses frames of {octets} octets{towards}; raise its MTU to {octets - _ETHERNET_OCTETS}"
        if problem != self.problem:
            self.problem = problem
            changed(problem)

    # Its entries

    async def _install(self) -> dict[str, RouterInterface]:
        """Write the probe's entries and return them by plane; nothing where a plane does not take them."""
        await self._remove()
        written = {}
        for plane, name in self._ends:
            port = next((number for number, state in plane.ports.items() if state.name == name and state.up), None)
            if port is None:
                return {}
            self._holders.add(plane.name)
            interface = RouterInterface(PROBE_INTERFACE, PROBE_VRF, port, PROBE_VLAN, _SOURCE, _MTU)
            if await plane.write(_entries(Op.INSERT, interface)):
                return {}
            written[plane.name] = interface
        return written

    async def _remove(self) -> None:
        for plane, _ in self._ends:
            if plane.name in self._holders:
                interface = RouterInterface(PROBE_INTERFACE, PROBE_VRF, 0, PROBE_VLAN, _SOURCE, _MTU)
                with contextlib.suppress(PlaneUnreachable, TimeoutError):  # it is found when the plane is read back
                    async with asyncio.timeout(self._timing.answer_s):
                        await plane.write(_entries(Op.DELETE, interface))
                    self._holders.discard(plane.name)


def _entries(op: Op, interface: RouterInterface) -> WriteBatch:
    return WriteBatch([Update(op, Policer(PROBE_VRF, _RATES))], [Update(op, interface)])
