"""Offers: packets of many routers at rates that change with time, and what comes of them, by router and by time.

    ┌ generator ──────┐      ┌ forwarder ─────────────┐      ┌ receiver ─────┐
    │ offer ───── veth┼──────┼ in ── (under test) out ┼──────┼ veth: observe │
    │       └──── veth┼──────┼ in                     │      └───────────────┘
    └─────────────────┘      └────────────────────────┘

The wires of `lab.wires`, with other programs at their ends. A packet's router is its VLAN, 1 to ROUTERS - 1, the same
on both sides; it carries when it was sent. Both ends count by the windows of WINDOW_S in which packets were sent, so
that nobody has to ask them while they work, and what of a window has not come was lost.
"""

import os
import time
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from lab.wires import FORWARDER_CORE, IN_MAC, SOURCE_MAC, Conversation, Wires, WiresError, checked, inside, threads_of

ROUTERS, WINDOWS, WINDOW_S = 128, 2048, 0.01
WAITS, WAIT_S = 4096, 1.024e-6
"""GENERATOR_ROUTERS, _WINDOWS, _WINDOW_NS, _WAITS and the length of one (forwarder/bench/generator.h)."""
MOST_STEPS = 4096
"""GENERATOR_MOST_STEPS."""
ENTRANCES = 64
"""GENERATOR_ENTRANCES."""

_LEAD_S = 0.05  # for what the kernel makes before the first packet
_DRAIN_S = 0.05
_COUNT_BYTES = 4
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Phase:
    """Packets/s (0: as many as go) for some seconds, to ``count`` destinations from ``first`` on: a power of two."""

    seconds: float
    rate: float
    first: int
    count: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of an offer."""

    sent: Sequence[int]  # packets by window and router, for `between`
    received: Sequence[int]  # the same
    waits: Sequence[int]  # packets by router and wait, those that were sent in the measured time
    refused: int  # packets that the rings before the forwarder had no room for
    lost: int  # packets that the ring behind it had no room for
    busy: float  # part of the measured time in which the forwarder worked on packets, whoever else had its core
    idle: float  # part of it in which the core had nothing to do

    def waits_of(self, router: int) -> Sequence[int]:
        """Return the histogram of a router, the first being 0: packets that were under way for so many WAIT_S."""
        return self.waits[(router + 1) * WAITS : (router + 2) * WAITS]


def between(counts: Sequence[int], first: int, last: int, routers: int) -> list[int]:
    """Return how many packets of each router, from the one with VLAN 1 on, there are in windows first to last - 1."""
    return [sum(counts[first * ROUTERS + 1 + place : last * ROUTERS : ROUTERS]) for place in range(routers)]


@dataclass
class OfferWires(Wires):
    """Wires with what sends and observes offers; its files are in ``directory``."""

    directory: Path = field(default_factory=Path)

    def _start_programs(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        self._sent, self._received = self.directory / "sent", self.directory / "received"
        words = ("offer", SOURCE_MAC, IN_MAC, str(self.destinations), str(self._sent), *self._senders)
        self._offering: Conversation = self._talk(self._at_sender(*words))
        self._observing = self._talk(self._at_receiver("observe", self._receiver, str(self._received)))
        self._slowing = self._talk(inside(self.namespace, str(self.generator), "slow", self.out))

    def slow(self, steps: int) -> None:
        """Have the forwarder's core go so many steps of a loop (some ns each) for each frame that the forwarder
        sends, in the poll that it came with: as if the driver of the way out cost more than a veth's does."""
        self._say(self._slowing, str(steps), "slowed")

    def offer(self, length: int, phases: Sequence[Phase], measured_s: float) -> Outcome:
        """Send frames of a length (without their check sequence), phase after phase, and return what came of them.

        Waits and idle time are of what follows ``measured_s`` after the begin. WiresError where it is longer than
        there are windows for.
        """
        length_s = sum(phase.seconds for phase in phases)
        if length_s > WINDOWS * WINDOW_S:
            raise WiresError(f"an offer of {length_s:.1f} s: there are windows for {WINDOWS * WINDOW_S:.1f} s")
        refused, lost = self._errors()
        begin_ns = time.monotonic_ns() + round(_LEAD_S * 1e9)
        measured_ns = begin_ns + round(measured_s * 1e9)
        self._say(self._observing, str(measured_ns), "begun")
        told = (f"{phase.seconds * 1000:.0f} {phase.rate:.0f} {phase.first} {phase.count}" for phase in phases)
        self._offering.ask(f"{length} {begin_ns} {' '.join(told)}")
        time.sleep(max(0.0, measured_ns / 1e9 - time.monotonic()))
        since, busy_s, idle_s = time.monotonic(), self._busy_s(), _idle_s()
        time.sleep(max(0.0, begin_ns / 1e9 + length_s - time.monotonic()))
        took_s = time.monotonic() - since
        busy, idle = (self._busy_s() - busy_s) / took_s, (_idle_s() - idle_s) / took_s
        self._offering.answer()
        time.sleep(_DRAIN_S)
        self._say(self._observing, "", "written")
        now_refused, now_lost = self._errors()
        sent, received = _counts(self._sent), _counts(self._received)
        windows = WINDOWS * ROUTERS
        lost_now = now_refused - refused, now_lost - lost
        return Outcome(sent, received[:windows], received[windows:], *lost_now, busy, idle)

    @staticmethod
    def _say(process: Conversation, line: str, answer: str) -> None:
        process.ask(line)
        if process.answer() != [answer]:
            raise WiresError(f"the generator did not answer {answer}")

    def _busy_s(self) -> float:
        """Return how long NAPI has run so far: its threads, and the kernel's own one, to which they leave some."""
        threads = (*self.threads, *threads_of(f"ksoftirqd/{FORWARDER_CORE}"))
        return sum(int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) for pid in threads) / 1e9

    def _errors(self) -> tuple[int, int]:
        """Return how many frames the rings before and behind the forwarder had no room for so far."""
        before = sum(_xmit_errors(self._sending, sender) for sender in self._senders)
        return before, _xmit_errors(self.namespace, self.out)


def _xmit_errors(namespace: str, interface: str) -> int:
    for line in checked(*inside(namespace, "ethtool", "-S", interface)).splitlines():
        name, _, count = line.strip().partition(": ")
        if name == "tx_queue_0_xdp_xmit_errors":
            return int(count)
    raise WiresError(f"{interface} does not count the frames that its other end had no room for")


def _counts(path: Path) -> Sequence[int]:
    counts = array("I")
    assert counts.itemsize == _COUNT_BYTES
    counts.frombytes(path.read_bytes())
    return counts


def _idle_s() -> float:
    """Return how long the forwarder's core has had nothing to do since boot."""
    name = f"cpu{FORWARDER_CORE}"
    words = next(line.split() for line in Path("/proc/stat").read_text().splitlines() if line.split()[0] == name)
    return (int(words[4]) + int(words[5])) / _TICKS_PER_S
