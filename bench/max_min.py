"""Weighted max-min with guarantees and ceilings: what each router is entitled to of a core or a link.

    whole ── slice ── router        what is scarce has a level f; who wants it takes min(max(f * weight, guarantee),
      │        └───── router        ceiling) of it, and no more than it demands; f is what makes all of them take what
      └── router of no slice        there is

Written from this definition alone, and not from what the forwarder does: bench/fairness judges that by it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

_BISECTIONS = 100
_NO_SLICE = 0


@dataclass(frozen=True, slots=True)
class Share:
    """A weight, and a guarantee and a ceiling as parts of the whole, of which 0.0 is none."""

    weight: float = 1.0
    guarantee: float = 0.0
    ceiling: float = 0.0


@dataclass(frozen=True, slots=True)
class Claim:
    """What a router demands, as a part of the whole, and by which right; ``slice`` 0 is none."""

    demand: float
    share: Share = Share()
    slice: int = _NO_SLICE


@dataclass(frozen=True, slots=True)
class _Child:
    demand: float
    share: Share

    def takes(self, level: float) -> float:
        taken = max(level * self.share.weight, self.share.guarantee)
        return min(taken, self.share.ceiling or taken, self.demand)


def entitled(claims: Sequence[Claim], slices: dict[int, Share] | None = None, whole: float = 1.0) -> list[float]:
    """Return what each claim is entitled to of ``whole``, in their order; a slice that is not named weighs 1."""
    shares = slices or {}
    members: dict[int, list[int]] = {}
    for place, claim in enumerate(claims):  # who has no slice is one by itself
        members.setdefault(claim.slice or -1 - place, []).append(place)
    found = [0.0] * len(claims)
    routers = [_Child(claim.demand, claim.share) for claim in claims]
    outer = [
        _Child(sum(routers[place].takes(float("inf")) for place in places), shares.get(key, Share()))
        if key > _NO_SLICE
        else routers[places[0]]
        for key, places in members.items()
    ]
    for (key, places), part in zip(members.items(), _divided(outer, whole), strict=True):
        inner = _divided([routers[place] for place in places], part) if key > _NO_SLICE else [part]
        for place, taken in zip(places, inner, strict=True):
            found[place] = taken
    return found


def _divided(children: Sequence[_Child], whole: float) -> list[float]:
    """Return what each takes at the level at which all of them take the whole, or all that they may."""

    def all_at(level: float) -> float:
        return sum(child.takes(level) for child in children)

    highest = max((child.demand / child.share.weight for child in children), default=0.0)
    level = highest if all_at(highest) <= whole else _level(all_at, whole, highest)
    return [child.takes(level) for child in children]


def _level(all_at: Callable[[float], float], whole: float, high: float) -> float:
    low = 0.0
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        if all_at(middle) <= whole:
            low = middle
        else:
            high = middle
    return low


def converged(errors: Sequence[float], limit: float, for_windows: int) -> int | None:
    """Return the first window from which on so many errors, one a window, are below a limit; None: there is none."""
    below = 0
    for place, error in enumerate(errors):
        below = below + 1 if error < limit else 0
        if below == for_windows:
            return place + 1 - for_windows
    return None


def percentile(counts: Sequence[int], part: float) -> int | None:
    """Return the place in a histogram below or at which that part of what it counts lies; None where it is empty."""
    wanted, seen = part * sum(counts), 0
    if wanted == 0:
        return None
    for place, count in enumerate(counts):
        seen += count
        if seen >= wanted:
            return place
    return len(counts) - 1
