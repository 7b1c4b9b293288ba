"""A plane with four ports whose cables end in the test, and what a frame that goes in does there.

That nothing more comes out is shown without waiting: after the frame, sentinels go in by the same port, and when they
have come out of every port and up to the controller, so has whatever was before them. They have a router and VLANs of
their own, which is in none of the observations.
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from cables import PORTS
from entries import batch, installed, without
from frames import ethernet, ipv4, tagged
from openflow_net import Recorder

from controller.planes.base import (
    GLEAN,
    LOCAL,
    Counters,
    DropReason,
    Installed,
    Nexthop,
    Op,
    Plane,
    Policer,
    PuntReason,
    RouteKind,
    RouterInterface,
    WriteBatch,
    route_action,
    same_rate,
)
from controller.planes.reference_pipeline import Verdict, forward

SENTINEL_VRF, SENTINEL_VLAN, SENTINEL_IDS = 8191, 4094, 16_000
_SENTINEL_MAC = bytes.fromhex("025e00000000")
FAST = 100_000  # packets a second: no policer in the way
AT_ONCE = 40  # frames under way; BMv2 queues 64 for a port and drops the rest
_PASSES_S = 60.0

SENTINELS = installed(
    [
        Policer(SENTINEL_VRF, same_rate(FAST)),
        *(RouterInterface(SENTINEL_IDS + n, SENTINEL_VRF, n, SENTINEL_VLAN, _SENTINEL_MAC, 1500) for n in PORTS),
        *(Nexthop(SENTINEL_IDS + n, SENTINEL_IDS + n, _SENTINEL_MAC) for n in PORTS),
    ],
    {
        SENTINEL_VRF: {
            "198.18.1.1/32": LOCAL,
            "198.18.1.2/32": GLEAN,
            **{f"198.18.0.{n}/32": route_action(RouteKind.NEXTHOP, SENTINEL_IDS + n) for n in PORTS},
        }
    },
)


def _is_sentinel(frame: bytes) -> bool:
    return frame[:6] == _SENTINEL_MAC


@dataclass
class Heard(Recorder):
    """What the controller was told and what came out of the ports."""

    outputs: list[tuple[int, bytes]] = field(default_factory=list)

    def came_out(self, port: int, frame: bytes) -> None:
        self.outputs.append((port, frame))
        self._changed.set()


@dataclass
class Observation:
    """What frames did: where they came out, how they went up, both in sorted order, and what was counted."""

    outputs: list[tuple[int, bytes]] = field(default_factory=list)
    punts: list[tuple[int, PuntReason, bytes]] = field(default_factory=list)
    received: Counter[int] = field(default_factory=Counter)  # packets by router interface
    received_octets: Counter[int] = field(default_factory=Counter)
    sent: Counter[int] = field(default_factory=Counter)
    punted: Counter[tuple[int, PuntReason]] = field(default_factory=Counter)
    dropped: Counter[DropReason] = field(default_factory=Counter)  # summed over routers: not every plane knows whose

    def __iadd__(self, other: "Observation") -> "Observation":
        """Add what other frames did."""
        self.outputs = sorted(self.outputs + other.outputs)
        self.punts = sorted(self.punts + other.punts)
        for mine, others in (
            (self.received, other.received),
            (self.received_octets, other.received_octets),
            (self.sent, other.sent),
            (self.punted, other.punted),
            (self.dropped, other.dropped),
        ):
            mine.update(others)  # type: ignore[arg-type]
        return self


@dataclass
class WiredPlane:
    """A connected plane between cables."""

    kind: str
    plane: Plane
    heard: Heard
    send: Callable[[int, bytes], None]
    settle: Callable[[], Awaitable[None]]  # what was written is in force, what has passed is counted
    shares: Callable[[tuple[int, ...]], list[float]]  # what weights come to
    set_link: Callable[[int, bool], None]  # cut a port's cable, or mend it
    counts_too_long_as_sent: bool = False
    counts_late: bool = False  # once in a while, although it was told to settle
    longest_frame: int = 9_014  # that its cables carry
    at_once: int = AT_ONCE
    programmed: Installed | None = None
    punted_as: frozenset[PuntReason] = frozenset({PuntReason.LOCAL})  # sentinels that have to come up
    live: set[int] = field(default_factory=lambda: set(PORTS))
    _before: Counters = field(default_factory=Counters)
    _serial: int = 0

    async def start(self) -> None:
        """Bring the sentinels' router into being and see them pass."""
        await self.write(batch(SENTINELS, Op.INSERT))
        await self.send_sentinels_the_long_way()
        for port in PORTS:
            await self.barrier(port)
        self._before = await self.counters()

    # -- what is of its own where two planes are one -----------------------------------------------------------------
    def verdicts(self, entries: Installed, port: int, frame: bytes) -> list[Verdict]:
        """Return what the model says of a frame, wherever its route may be."""
        return [forward(entries, self.plane.capabilities, PORTS, port, frame)]

    def given(self, entries: Installed) -> Installed:
        """Return entries as this plane can be given them."""
        return entries

    async def send_sentinels_the_long_way(self) -> None:
        """Have no packet arrive later than a sentinel that came in after it."""

    async def places(self) -> AsyncIterator[str]:
        """Bring all routes to each place where they may be, one after the other."""
        yield "here"

    # -- entries -----------------------------------------------------------------------------------------------------
    async def program(self, entries: Installed) -> None:
        """Make the plane hold these entries and the sentinels', and nothing else."""
        if entries is self.programmed:
            return
        await self.clear()
        await self.write(batch(self.given(entries), Op.INSERT))
        self.programmed = entries

    async def write(self, updates: WriteBatch) -> None:
        """Write updates, all of which have to be taken; counters are counted from here on, where entries that were
        replaced start again."""
        self.programmed = None
        assert await self.plane.write(updates) == []
        self._before = await self.counters()

    async def clear(self) -> None:
        """Take away all but the sentinels."""
        await self.write(batch(without(await self.plane.read(), SENTINELS), Op.DELETE))
        await self.barrier(PORTS[0])
        self.heard.outputs.clear()
        self.heard.packets.clear()

    async def counters(self) -> Counters:
        """Read the counters when they are complete."""
        await self.settle()
        return await self.plane.counters()

    async def barrier(self, port: int) -> None:
        """Send sentinels in by a port and wait until all of them have passed; twice, because a switch may take frames
        that it received together in another order."""
        for _ in range(2):
            self._serial = (self._serial + 1) & 0xFFFF
            for target in ("198.18.1.1", "198.18.1.2", *(f"198.18.0.{number}" for number in self.live)):
                packet = ipv4(target, "198.18.2.1", identification=self._serial)
                self.send(port, tagged(ethernet(_SENTINEL_MAC, 0x0800, packet), SENTINEL_VLAN))
            await self.heard.until(self._passed, _PASSES_S)
        heard = self.heard
        heard.outputs[:] = [each for each in heard.outputs if not _is_sentinel(each[1])]
        heard.packets[:] = [each for each in heard.packets if not _is_sentinel(each[2])]

    def _passed(self) -> bool:
        serial = self._serial.to_bytes(2, "big")
        out = {port for port, frame in self.heard.outputs if _is_sentinel(frame) and frame[22:24] == serial}
        up = {why for _, why, frame in self.heard.packets if _is_sentinel(frame) and frame[18:20] == serial}
        return up >= self.punted_as and out >= self.live

    @contextlib.contextmanager
    def doubtful(self, port: int) -> Iterator[None]:
        """Let the sentinels do without a port, whose cable is whole at the end."""
        self.live.discard(port)
        try:
            yield
        finally:
            self.set_link(port, True)
            self.live.add(port)

    async def pour(self, port: int, frames: Sequence[bytes]) -> None:
        """Let frames come in by a port, not more at once than the smallest queue holds, and see them all pass."""
        for at in range(0, max(1, len(frames)), self.at_once):
            for frame in frames[at : at + self.at_once]:
                self.send(port, frame)
            await self.barrier(port)

    async def observe(self, port: int, *frames: bytes) -> Observation:
        """Let frames come in by a port and return all that they did."""
        return await self.observe_all({port: frames})

    async def observe_all(self, arrivals: Mapping[int, Sequence[bytes]]) -> Observation:
        """Let frames come in by several ports, by one after the other, and return all that they did."""
        for port, frames in arrivals.items():
            await self.pour(port, frames)
        seen = Observation(sorted(self.heard.outputs), sorted(self.heard.packets))
        self.heard.outputs.clear()
        self.heard.packets.clear()
        await self.count_again(seen)
        return seen

    async def count_again(self, seen: Observation) -> None:
        """Add what was counted since the counters were read last."""
        after = await self.counters()
        _count(seen, self._before, after)
        self._before = after

    async def stream(self, port: int, frames: Sequence[bytes]) -> list[tuple[int, bytes]]:
        """Let frames come in by a port, every one of which is forwarded; return where they came out.

        TimeoutError where one is lost.
        """
        heard, start, half = self.heard, len(self.heard.outputs), self.at_once // 2
        for sent, frame in enumerate(frames, 1):
            self.send(port, frame)
            if sent % half == 0 or sent == len(frames):
                left = 0 if sent == len(frames) else half
                await heard.until(lambda sent=sent, left=left: len(heard.outputs) - start >= sent - left)
                await asyncio.sleep(0)
        outputs = heard.outputs[start:]
        del heard.outputs[start:]
        return outputs


def _count(seen: Observation, before: Counters, after: Counters) -> None:
    for interface_id, now in after.router_interfaces.items():
        then = before.router_interfaces.get(interface_id)
        if interface_id > SENTINEL_IDS:
            continue
        seen.received[interface_id] += now.rx_packets - (then.rx_packets if then else 0)
        seen.received_octets[interface_id] += now.rx_bytes - (then.rx_bytes if then else 0)
        seen.sent[interface_id] += now.tx_packets - (then.tx_packets if then else 0)
    for (vrf_id, reason), (packets, _) in after.punts.items():
        if vrf_id != SENTINEL_VRF:
            seen.punted[vrf_id, reason] += packets - before.punts.get((vrf_id, reason), (0, 0))[0]
    for key, (packets, _) in after.drops.items():
        seen.dropped[key[1]] += packets - before.drops.get(key, (0, 0))[0]
    for each in (seen.received, seen.received_octets, seen.sent, seen.punted, seen.dropped):
        for key in [key for key, count in each.items() if not count]:  # type: ignore[attr-defined]
            del each[key]  # type: ignore[attr-defined]
