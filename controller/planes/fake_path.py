"""The packet path of the fake plane: the model of the contract, a hash that chooses members, policers, counters."""

from collections.abc import Collection
from dataclasses import dataclass, field
from hashlib import blake2b

from controller.events.token_bucket import TokenBucket
from controller.planes.base import (
    Capability,
    Clock,
    Counters,
    DropReason,
    Installed,
    InterfaceCounters,
    PuntClass,
    PuntPlace,
    RouterInterface,
    RouteTraffic,
    burst,
)
from controller.planes.punt_class import CLASSES_OF, punt_class
from controller.planes.reference_pipeline import Dropped, Forwarded, Outcome, Punted, forward

_SLOTS = 4096

_SHARE_BURST = 4
"""Least burst of an interface's share, in packets."""


@dataclass
class _Slots:
    """Which nexthop of a group each value of the hash chooses."""

    nexthops: list[int] = field(default_factory=lambda: [0] * _SLOTS)
    weights: dict[int, int] = field(default_factory=dict)

    def divide(self, weights: dict[int, int]) -> None:
        """Give every nexthop its share by weight."""
        if weights != self.weights:
            self.nexthops, self.weights = refill(self.nexthops, weights), weights


@dataclass
class FakePath:
    """What happens to a frame that a `FakePlane` is given."""

    clock: Clock
    counters: Counters = field(default_factory=Counters)
    routes: dict[int, RouteTraffic] = field(default_factory=dict)  # by vrf_id
    _buckets: dict[tuple[int, int], TokenBucket] = field(default_factory=dict)  # by vrf_id and PuntClass
    _shares: dict[tuple[int, int, int], tuple[int, TokenBucket]] = field(default_factory=dict)
    # by vrf_id, PuntClass and router interface: among how many, and the bucket
    _slots: dict[int, "_Slots"] = field(default_factory=dict)  # by group id

    def take(
        self,
        entries: Installed,
        capabilities: Collection[Capability],
        live: Collection[int],
        port: int,
        frame: bytes,
    ) -> tuple[Outcome | None, int]:
        """Return what became of a frame, and the router interface that it came in by (0: none, or a fallback link).

        None is a punt over its policer's rate.
        """
        verdict = forward(entries, capabilities, live, port, frame, self._choose)
        outcome = verdict.ways[0].outcome
        if isinstance(outcome, Forwarded) and outcome.router_interface_id is not None:
            egress = self._of_interface(outcome.router_interface_id)
            egress.tx_packets += 1
            egress.tx_bytes += len(outcome.frame)
        if verdict.ingress is None:
            if isinstance(outcome, Dropped):
                self._count_drop(0, outcome.reason, len(frame))
            return outcome, 0
        if verdict.route is not None:
            met = self.routes.setdefault(verdict.ingress.vrf_id, {})
            packets, octets = met.get(verdict.route, (0, 0))
            met[verdict.route] = packets + 1, octets + len(frame)
        ingress = self._of_interface(verdict.ingress.id)
        ingress.rx_packets += 1
        ingress.rx_bytes += len(frame)
        if isinstance(outcome, Forwarded):
            return outcome, verdict.ingress.id
        if isinstance(outcome, Dropped):
            self._count_drop(verdict.ingress.vrf_id, outcome.reason, len(frame))
        elif not self._punts(entries, verdict.ingress, outcome, len(frame), Capability.PUNT_SHARES in capabilities):
            return None, verdict.ingress.id
        return outcome, verdict.ingress.id

    # -- members -----------------------------------------------------------------------------------------------------
    def _choose(self, group_id: int, weights: dict[int, int], flow: bytes) -> int:
        slots = self._slots.setdefault(group_id, _Slots())
        slots.divide(weights)
        # Not a CRC: it is linear, and the flows of one member of a router would stay together in the next.
        return slots.nexthops[int.from_bytes(blake2b(flow, digest_size=4).digest(), "big") % _SLOTS]

    def forget_policer(self, vrf_id: int) -> None:
        """Fill the buckets of a router whose policer was written."""
        for one in PuntClass:
            self._buckets.pop((vrf_id, one), None)
        self._shares = {key: share for key, share in self._shares.items() if key[0] != vrf_id}

    # -- policers ----------------------------------------------------------------------------------------------------
    def _punts(
        self, entries: Installed, ingress: RouterInterface, outcome: Punted, octets: int, divided: bool
    ) -> bool:
        vrf_id = ingress.vrf_id
        policer = entries.policers.get(vrf_id)
        if policer is None or not any(policer.rates[one] for one in CLASSES_OF[outcome.reason]):
            return False
        packets, before = self.counters.punts.get((vrf_id, outcome.reason), (0, 0))
        self.counters.punts[vrf_id, outcome.reason] = packets + 1, before + octets
        its_class = punt_class(outcome.reason, outcome.frame)
        rate = policer.rates[its_class]
        if rate and self._conforms(entries, ingress, its_class, rate, divided):
            return True
        lost = ingress.id, its_class, PuntPlace.POLICER
        self.counters.lost_punts[lost] = self.counters.lost_punts.get(lost, 0) + 1
        return False

    def _conforms(
        self, entries: Installed, ingress: RouterInterface, its_class: PuntClass, rate: int, divided: bool
    ) -> bool:
        """Tell whether a punt is within its interface's share, or within what the others leave of the rate."""
        vrf_id = ingress.vrf_id
        whole = self._buckets.get((vrf_id, its_class))
        if whole is None:
            whole = self._buckets[vrf_id, its_class] = TokenBucket(rate, burst(rate), self.clock)
        ways_in = sum(each.vrf_id == vrf_id and each.enabled for each in entries.router_interfaces.values())
        if not divided or ways_in == 1:
            return whole.take()
        among, share = self._shares.get((vrf_id, its_class, ingress.id), (0, whole))
        if among != ways_in:
            share = TokenBucket(rate / ways_in, max(burst(rate) / ways_in, _SHARE_BURST), self.clock)
            self._shares[vrf_id, its_class, ingress.id] = ways_in, share
        if share.take():
            whole.charge()
            return True
        return whole.take()

    # -- counters ----------------------------------------------------------------------------------------------------
    def _of_interface(self, interface_id: int) -> InterfaceCounters:
        return self.counters.router_interfaces.setdefault(interface_id, InterfaceCounters())

    def _count_drop(self, vrf_id: int, reason: DropReason, octets: int) -> None:
        packets, before = self.counters.drops.get((vrf_id, reason), (0, 0))
        self.counters.drops[vrf_id, reason] = packets + 1, before + octets


def refill(slots: list[int], weights: dict[int, int]) -> list[int]:
    """Return the slots with every nexthop's share by weight; only slots that have to move do.

    A slot keeps its nexthop while that has no more slots than its share, so the loss of a member moves nobody else.
    """
    left = _shares(len(slots), weights)
    kept: list[int | None] = []
    for nexthop_id in slots:
        keeps = left.get(nexthop_id, 0) > 0
        left[nexthop_id] = left.get(nexthop_id, 0) - keeps
        kept.append(nexthop_id if keeps else None)
    missing = (nexthop_id for nexthop_id in weights for _ in range(left[nexthop_id]))
    return [next(missing) if nexthop_id is None else nexthop_id for nexthop_id in kept]


def _shares(slots: int, weights: dict[int, int]) -> dict[int, int]:
    """Divide slots by weight, the largest remainders up."""
    total = sum(weights.values())
    shares = {nexthop_id: slots * weight // total for nexthop_id, weight in weights.items()}
    by_remainder = sorted(weights, key=lambda each: -(slots * weights[each] % total))
    for nexthop_id in by_remainder[: slots - sum(shares.values())]:
        shares[nexthop_id] += 1
    return shares
