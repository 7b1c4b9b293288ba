"""What bench/fairness measures: routers, what they are entitled to, and what arrives for them."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from bench.max_min import Share

MANY_ROUTES, FEW_ROUTES, COSTLY_ROUTES = 1_000_000, 10, 200_000
_MODEST = 63
_LOADS = (0.5, 1.0, 1.2, 1.5, 2.0, 3.0, 4.0)
_OVERLOADS = (1.2, 2.0, 4.0)


@dataclass(frozen=True, slots=True)
class Router:
    """A router of a case.

    It is offered either what is a fixed ``part`` of the core or link, whatever the load, or ``arrivals`` of all
    packets that are offered beyond these parts.
    """

    arrivals: float = 0.0
    weight: float = 1.0
    part: float = 0.0
    routes: int = 1
    slice: int = 0

    @property
    def share(self) -> Share:
        """What it is entitled to."""
        return Share(self.weight)


@dataclass(frozen=True, slots=True)
class Case:
    """Routers at several loads: what they are offered costs so many times what there is."""

    name: str
    routers: tuple[Router, ...]
    loads: tuple[float, ...] = _LOADS
    slices: dict[int, Share] = field(default_factory=dict)
    link_part: float = 0.0
    """Speed of the egress port, which the routers share, as a part of what the core forwards; 0.0: the core is
    shared."""
    ratio: float = 0.0
    """So much more a packet of the most expensive router is to cost than of the cheapest, where it costs more; 0.0:
    it is as it is."""
    each_its_queue: bool = False
    """A link before the forwarder and a NAPI thread for each router, which the kernel schedules by weight."""


def rates(routers: Sequence[Router], costs: Sequence[float], load: float) -> list[float]:
    """Return the packets/s that are offered to each router at a load, where a packet of it costs so much (a part of
    what there is in a second). ValueError where the parts alone are more than the load."""
    fixed = [router.part / cost for router, cost in zip(routers, costs, strict=True)]
    left = load - sum(router.part for router in routers)
    if left < 0:
        raise ValueError(f"a load of {load:g}: parts alone are {load - left:g}")
    each = sum(router.arrivals * cost for router, cost in zip(routers, costs, strict=True))
    more = left / each if each else 0.0
    return [rate + router.arrivals * more for rate, router in zip(fixed, routers, strict=True)]


def added_cost(costs: Sequence[float], least: float, ratio: float) -> float:
    """Return what every packet has to cost more, for the cheapest to cost ``least`` and for the ratio of the most
    expensive one to the cheapest to be no larger than ``ratio`` (0.0: any)."""
    low, high = min(costs), max(costs)
    more = (high - ratio * low) / (ratio - 1) if ratio else 0.0
    return max(0.0, least - low, more)


_HEAVY_LIGHT = (Router(1 / 3, weight=2), Router(2 / 3, weight=1))
_PAPERS = (Router(0.4, weight=2), Router(0.6, weight=1))
_SLICES = (*(Router(1 / 4, slice=1) for _ in range(3)), Router(1 / 4, slice=2))
CASES = {
    case.name: case
    for case in (
        Case("arrivals-1-2", _HEAVY_LIGHT),
        Case("arrivals-40-60", _PAPERS),
        Case("queue-each", _PAPERS, each_its_queue=True),
        Case("rates-3-2-1", (Router(1 / 2), Router(1 / 3), Router(1 / 6))),
        Case("costs", (Router(0.5, routes=COSTLY_ROUTES), Router(0.5)), _OVERLOADS, ratio=1.4),
        Case("six-weights", tuple(Router(1 / 6, weight=number) for number in range(1, 7)), _OVERLOADS),
        Case("one-greedy", (*(Router(part=0.5 / 64) for _ in range(_MODEST)), Router(1.0)), _OVERLOADS),
        Case("one-port", (Router(0.25), Router(0.75)), (0.8, 1.0, 1.5, 2.0, 3.0), link_part=0.3),
        Case("million-routes", (Router(0.5, routes=MANY_ROUTES), Router(0.5, routes=FEW_ROUTES)), _OVERLOADS),
        Case("slices", _SLICES, _OVERLOADS, {1: Share(1), 2: Share(1)}),
    )
}
