"""How much goes by which plane: counts of the hardware's entries, and samples of what the software forwards.

    entries of the hardware ── counts every 5 s ──► packets by prefix ────────────────► popularity
    software ── samples ──► destinations, wait for ──► so many packets for a sample ──► popularity
         └── packets sent, every 5 s ──────────────────┘

What a sample stands for is not agreed upon: it is the packets that the software has sent, divided by the samples that
came. So it does not matter how many the software takes, polices or loses. Pure; `traffic_poll` does the reading.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from controller.fallback.pace import parts
from controller.fallback.staged_writes import RouterTable
from controller.planes.base import RouteCounts

MAX_WAITING = 10_000
"""Samples that wait for the next round; of more none is kept, but they count in what each of the others stands for.

vr-forwarder takes as many a second unless it is configured otherwise, and rounds are four a second, so one may be
late by three. More would hold rounds up: to take 10,000 costs some 60 ms. While it is not known yet what a sample
stands for, these are the first of 5 s; what is popular is to be seen in them as well as in all.
"""

_FORGET = 0.5
"""What is left of an interval's packets and samples in the next one: few samples say little."""


K = TypeVar("K", int, bytes)


@dataclass(frozen=True, slots=True)
class Rates:
    """Packets a second of one router, over the latest interval; `hardware` is None where nothing is counted there."""

    hardware: float | None  # that met an entry of their own, and not FALLBACK
    software: float


class Traffic:
    """What was counted and sampled since it was begun."""

    def __init__(self) -> None:
        self.rates: dict[int, Rates] = {}  # by vrf_id
        self.sampled = 0  # in all
        self.overrun = 0  # samples for which there was no room
        self.one_in: float | None = None  # packets for a sample; None: not known yet
        self._waiting: dict[RouterTable, list[bytes]] = {}
        self._waiting_count = 0
        self._read_at: float | None = None
        self._counts = RouteCounts()  # as they were read then
        self._sent: dict[int, int] = {}
        self._samples = 0
        self._recent_packets, self._recent_samples = 0.0, 0.0

    def begin(self) -> None:
        """Forget what was counted: what is read next is where counting begins."""
        self.rates.clear()
        self.one_in = None
        self._waiting, self._waiting_count = {}, 0
        self._read_at = None
        self._counts, self._sent = RouteCounts(), {}
        self._samples = 0
        self._recent_packets, self._recent_samples = 0.0, 0.0

    def sample(self, table: RouterTable, keys: Sequence[bytes]) -> None:
        """Take destinations, as keys of full length, of packets that the software forwarded for a router."""
        self.sampled += len(keys)
        self._samples += len(keys)
        kept = keys[: MAX_WAITING - self._waiting_count]
        self.overrun += len(keys) - len(kept)
        self._waiting_count += len(kept)
        if kept:
            self._waiting.setdefault(table, []).extend(kept)

    def take(self) -> dict[RouterTable, list[bytes]]:
        """Return the destinations that were sampled, once it is known what they stand for."""
        if self.one_in is None:
            return {}
        taken, self._waiting, self._waiting_count = self._waiting, {}, 0
        return taken

    def measure(
        self, now: float, counts: RouteCounts | None, sent: Mapping[int, int], vrf_of: Mapping[int, int]
    ) -> Iterator[tuple[int, dict[bytes, int]] | None]:
        """Take in steps what was read: of the hardware's routes, None where it does not count them, and what the
        software's router interfaces have sent; ``vrf_of`` tells whose they are.

        Iterates over routers, each with the packets of its prefixes since the last time; None for a step in between.
        The first time has none before it, and nothing is told. Ends where counting begins anew meanwhile.
        """
        before, self._read_at = self._read_at, now
        known, self._counts = self._counts, counts or RouteCounts()
        mine = self._counts
        software = _by_router(_since(self._sent.get, sent.items()), vrf_of)
        self._sent = dict(sent)
        samples, self._samples = self._samples, 0
        if before is None:
            return
        self._weigh(sum(software.values()), samples)
        hardware: dict[int, int] = {}
        for vrf_id, routes in mine.routes.items():
            packets: dict[bytes, int] = {}
            hardware[vrf_id] = 0
            before_now = _counted(known, vrf_id)
            for part in parts(routes.items()):
                more = _since(before_now, part)
                packets |= more
                hardware[vrf_id] += sum(more.values())
                yield None
                if self._counts is not mine:
                    return
            yield vrf_id, packets
        if self._counts is mine:
            seconds = max(now - before, 1e-3)
            self.rates = {
                vrf_id: Rates(
                    None if counts is None else hardware.get(vrf_id, 0) / seconds,
                    software.get(vrf_id, 0) / seconds,
                )
                for vrf_id in hardware.keys() | software.keys()
            }

    def _weigh(self, packets: int, samples: int) -> None:
        self._recent_packets = self._recent_packets * _FORGET + packets
        self._recent_samples = self._recent_samples * _FORGET + samples
        if samples:
            self.one_in = max(1.0, self._recent_packets / self._recent_samples)


def _counted(counts: RouteCounts, vrf_id: int) -> Callable[[bytes, int], int]:
    """Return what tells the count of an entry: one that was a cover and is a route now goes on counting."""
    of_route, of_cover = counts.routes.get(vrf_id, {}).get, counts.covers.get(vrf_id, {}).get
    return (lambda key, nothing: of_route(key, of_cover(key, nothing))) if counts.covers.get(vrf_id) else of_route


def _since(before: Callable[[K, int], int], now: Iterable[tuple[K, int]]) -> dict[K, int]:
    """Return what was added to counters; one that is lower than it was has begun anew."""
    return {key: count - old if count >= (old := before(key, 0)) else count for key, count in now}


def _by_router(packets: Mapping[int, int], vrf_of: Mapping[int, int]) -> dict[int, int]:
    found: dict[int, int] = {}
    for interface_id, count in packets.items():
        if interface_id in vrf_of:
            found[vrf_of[interface_id]] = found.get(vrf_of[interface_id], 0) + count
    return found
