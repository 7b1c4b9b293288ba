"""The punt relay: punted frames to the guests, frames of the guests to the plane, never behind route work.

What a guest can take goes to it at once. Where it reads too slowly, frames wait in a bounded queue per punt class and
the most urgent go out first (`PuntClass`); the interfaces of a class take turns, and of too many frames the interface
gives way that has most. What does not fit is dropped and counted by interface and class; what a guest may not
send, by reason. What is lost in the guest, in either direction, its VRC tells now and then.
"""

import asyncio
import time
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Container, Iterable
from typing import Protocol

from controller.events.token_bucket import TokenBucket
from controller.model import InterfaceConfig
from controller.planes.base import PuntClass, PuntReason
from controller.planes.punt_class import punt_class
from controller.views import CapturedFrame

QUEUE_FRAMES = {PuntClass.ROUTING: 256, PuntClass.BGP: 512, PuntClass.BFD: 128, PuntClass.ARP: 128}
"""Most frames that wait in a class's queue."""

OTHER_QUEUE_FRAMES = 64
"""The same of a class that is not named there."""

TURN_FRAMES = 16
"""Most frames that are handed to a guest, or taken from one, at once."""

PACKET_OUT_PER_S = 20_000
"""Most frames per second a guest may send; as many again in a burst."""

OVER_RATE = "packet_out_rate"
"""Why a frame beyond that is refused."""

FORMER_MACS_S = 10.0
"""How long a guest may still send from MACs that a new declaration takes from an interface: it hears of that last."""

CAPTURE_FRAMES = 4096
"""Frames a slow capture may lag behind before it misses some."""

_ETHERNET_HEADER = 14
_RESERVED_MACS = b"\x01\x80\xc2\x00\x00"
_OF_BRIDGES = frozenset((*range(0x10), *range(0x20, 0x30)))
"""IEEE 802.1Q sections 8.6.3 and 10.5: with …:00 to …:0f bridges talk to their neighbors (STP, LACP, PAUSE), and with
…:20 to …:2f they have VLANs and groups registered; routers do not."""
_OF_CISCOS_BRIDGES = (b"\x01\x00\x0c\xcc\xcc\xcc", b"\x01\x00\x0c\xcc\xcc\xcd")  # CDP, VTP, DTP, UDLD; PVST+
_MAC_CONTROL = b"\x88\x08"
"""IEEE 802.3 annex 31B: PAUSE to a port's own MAC counts as well, and stops all that others send out of that port."""
_TAGS = (b"\x81\x00", b"\x88\xa8", b"\x91\x00")

Punt = tuple[int, PuntReason, bytes]


class _ClassQueue:
    """Frames of one punt class that wait, in equal shares of the interfaces that they came in by."""

    def __init__(self, room: int) -> None:
        self._room = room
        self._waiting = 0
        self._by_interface: dict[int, deque[Punt]] = {}  # of those that have some, whose turn is next first

    def __len__(self) -> int:
        return self._waiting

    def push(self, punt: Punt) -> int | None:
        """Keep a frame; returns whose is dropped for it, where one is: its own or the newest of who has most."""
        own = self._by_interface.get(punt[0])
        dropped = None
        if self._waiting >= self._room:
            most = max(self._by_interface.values(), key=len)
            if len(own or ()) + 1 >= len(most):
                return punt[0]
            dropped = most.pop()[0]
            self._waiting -= 1
        if own is None:
            own = self._by_interface[punt[0]] = deque()
        own.append(punt)
        self._waiting += 1
        return dropped

    def pop(self) -> Punt:
        """Take the next frame; KeyError where none waits."""
        interface_id = next(iter(self._by_interface))
        queue = self._by_interface.pop(interface_id)
        if len(queue) > 1:
            self._by_interface[interface_id] = queue
        self._waiting -= 1
        return queue.popleft()

    def clear(self) -> Counter[int]:
        """Drop all; returns how many of each interface."""
        dropped = Counter({interface_id: len(queue) for interface_id, queue in self._by_interface.items()})
        self._by_interface.clear()
        self._waiting = 0
        return dropped


class FrameOutlet(Protocol):
    """A guest that takes frames."""

    @property
    def writable(self) -> bool:
        """Whether it takes more now; where it does again, it calls `RouterPunts.flush`."""

    def write(self, punts: list[Punt]) -> None:
        """Take a few frames."""


class RouterPunts:
    """Both directions of one router's packets."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.counters: Counter[str] = Counter()
        self.lost: Counter[tuple[int, PuntClass]] = Counter()  # of frames for the guest, by interface
        self.lost_at_tap: Counter[int] = Counter()  # the same, as its VRC tells; 0: by none that the router has now
        self._queues = {one: _ClassQueue(QUEUE_FRAMES.get(one, OTHER_QUEUE_FRAMES)) for one in PuntClass}
        self._outlet: FrameOutlet | None = None
        self._clock = clock
        self._former: dict[int, dict[bytes, float]] = {}  # MACs that an interface had, each until when it does
        self._sending = TokenBucket(PACKET_OUT_PER_S, PACKET_OUT_PER_S, clock)
        self._captures: dict[asyncio.Queue[CapturedFrame], int | None] = {}

    # Plane → guest

    def deliver(self, interface_id: int, reason: PuntReason, frame: bytes) -> None:
        """Hand a punted frame to the guest, or keep it until it takes one."""
        if self._captures:
            self._capture(interface_id, True, frame)
        punt = interface_id, reason, frame
        if self._outlet is not None and self._outlet.writable and not any(self._queues.values()):
            self._hand_on(self._outlet, [punt])  # as nearly always: a frame that does not wait needs no class
            return
        its_class = punt_class(reason, frame)
        dropped = self._queues[its_class].push(punt)
        if dropped is not None:
            self.counters[f"drop_queue_full_{its_class.name.lower()}"] += 1
            self.lost[dropped, its_class] += 1
        self.flush()

    def drop(self, interface_id: int, reason: PuntReason, frame: bytes) -> None:
        """Count a frame that there is no guest for."""
        self.counters["drop_no_session"] += 1
        self.lost[interface_id, punt_class(reason, frame)] += 1

    def connect(self, outlet: FrameOutlet) -> None:
        """Hand frames to a guest from now on, those that wait first; it takes the place of the one before."""
        self._outlet = outlet
        self.flush()

    def disconnect(self, outlet: FrameOutlet) -> None:
        """Keep frames from now on, unless another guest has taken its place."""
        if self._outlet is outlet:
            self._outlet = None

    def flush(self) -> None:
        """Hand on what waits, most urgent class first, for as long as it is taken."""
        while (outlet := self._outlet) is not None and outlet.writable and (punts := self._most_urgent()):
            self._hand_on(outlet, punts)

    def _hand_on(self, outlet: FrameOutlet, punts: list[Punt]) -> None:
        self.counters["to_guest"] += len(punts)
        outlet.write(punts)

    def _most_urgent(self) -> list[Punt]:
        taken: list[Punt] = []
        for queue in self._queues.values():
            while queue and len(taken) < TURN_FRAMES:
                taken.append(queue.pop())
        return taken

    def clear(self) -> None:
        """Drop what waits: its guest has gone."""
        for its_class, queue in self._queues.items():
            for interface_id, dropped in queue.clear().items():
                self.counters["drop_no_session"] += dropped
                self.lost[interface_id, its_class] += dropped

    # Both, in the guest

    def lost_with_guest(self, losses: Iterable[tuple[int, str, int]], interfaces: Container[int]) -> None:
        """Count what a VRC says was lost beyond here: interface (0: the guest sent it), reason, frames.

        The router has these ``interfaces``; of another one a frame may have been under way when it was taken away.
        """
        for interface_id, reason, frames in losses:
            self.counters[f"vrc_drop_{reason}"] += frames
            if interface_id:
                self.lost_at_tap[interface_id if interface_id in interfaces else 0] += frames

    # Guest → plane

    def declare(self, before: Iterable[InterfaceConfig], after: Iterable[InterfaceConfig]) -> None:
        """Take frames from the MACs that interfaces had for a while more."""
        now, kept, former = self._clock(), {one.id: one for one in after}, self._former
        self._former = {}
        for one in before:
            if one.id in kept:
                earlier = {mac: end for mac, end in former.get(one.id, {}).items() if now < end}
                gone = dict.fromkeys(_macs(one) - _macs(kept[one.id]), now + FORMER_MACS_S)
                self._former[one.id] = earlier | gone

    def refusal(self, interface: InterfaceConfig | None, frame: bytes) -> str | None:
        """Return why a frame of the guest may not leave, None where it may; the caller counts it."""
        if interface is None:
            return "foreign_interface"
        if not _ETHERNET_HEADER <= len(frame) <= interface.mtu + _ETHERNET_HEADER:
            return "frame_size"
        source = frame[6:12]
        if source != interface.mac and source not in interface.virtual_macs and not self._had(interface.id, source):
            return "foreign_mac"
        if frame[12:14] in _TAGS:
            return "foreign_vlan"
        of_bridges = frame.startswith(_RESERVED_MACS) and frame[5] in _OF_BRIDGES
        if of_bridges or frame.startswith(_OF_CISCOS_BRIDGES):
            return "reserved_mac"
        if frame[12:14] == _MAC_CONTROL:
            return "mac_control"
        return None if self._sending.take() else OVER_RATE

    def _had(self, interface_id: int, mac: bytes) -> bool:
        end = self._former.get(interface_id, {}).get(mac)
        return end is not None and self._clock() < end

    def sent(self, interface_id: int, frame: bytes, taken: bool) -> None:
        """Count a frame handed to the plane, or dropped because its channel is congested."""
        self.counters["from_guest" if taken else "drop_plane_congested"] += 1
        if self._captures and taken:
            self._capture(interface_id, False, frame)

    def dropped_before_plane(self) -> None:
        """Count a frame by an interface that the plane does not have, not yet or not any more."""
        self.counters["drop_interface_not_on_plane"] += 1

    # Watching

    async def capture(self, interface_id: int | None) -> AsyncIterator[CapturedFrame]:
        """Iterate over frames of one interface (None: of all) as they pass, until closed."""
        queue: asyncio.Queue[CapturedFrame] = asyncio.Queue(CAPTURE_FRAMES)
        self._captures[queue] = interface_id
        try:
            while True:
                yield await queue.get()
        finally:
            del self._captures[queue]

    def _capture(self, interface_id: int, inbound: bool, frame: bytes) -> None:
        seen = CapturedFrame(time.time(), inbound, frame)
        for queue, wanted in self._captures.items():
            if wanted in (None, interface_id):
                if queue.full():
                    self.counters["capture_missed"] += 1
                else:
                    queue.put_nowait(seen)


def _macs(interface: InterfaceConfig) -> frozenset[bytes]:
    return frozenset((interface.mac, *interface.virtual_macs))
