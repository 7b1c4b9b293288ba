"""How the slices of a plane divide its tables, and those of all planes the controller's memory.

    room of the table
    ├── quotas that are said: reserved whole, or the document is refused
    └── the unreserved, in equal parts ─┬─ slices without a quota
                                        └─ slices that overcommit ─► the pool that they share

What a slice has installed is its own, whatever it may have: a part never shrinks below that, the others' become
smaller instead. Where a plane has said its sizes only after quotas were given, and they do not fit, the largest of
them are cut to one level. Pure.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, NamedTuple

from controller.model import Quota, SliceConfig
from controller.spec.state import State

TABLES = {
    "ipv4_routes": "ipv4_route",
    "ipv6_routes": "ipv6_route",
    "nexthops": "nexthop",
    "groups": "nexthop_group",
    "interfaces": "interface_classifier",
}
"""The table that each quota reserves from."""

_HARDWARE = {"hardware_ipv4_routes": "ipv4_route", "hardware_ipv6_routes": "ipv6_route"}
"""The quotas of the hardware of a plane with a fallback; nothing is refused for want of them."""

_ROUTES = ("ipv4_routes", "ipv6_routes")

Problem = tuple[tuple[str, ...], str]
"""Whose line to name, and what is wrong."""

Key = tuple[str, str]
"""A slice: its tenant and plane."""

Usage = Mapping[str, Mapping[str, int]]
"""What tenants have on a plane, by the keys of the quota."""


class Claim(NamedTuple):
    """What one slice asks of a table."""

    key: Key
    quota: int | None  # None: a part of what is unreserved
    used: int = 0
    overcommits: bool = False

    @property
    def firm(self) -> bool:
        """Whether its quota is reserved."""
        return self.quota is not None and not self.overcommits


@dataclass(frozen=True, slots=True)
class Division:
    """How a table is divided."""

    reserved: dict[Key, int]  # sums up to the room at most, but for what was installed before
    pool: int = 0  # what the slices that overcommit share: their parts, or what they have installed
    short: int = 0  # entries that were asked for and do not exist
    held: dict[Key, int] = field(default_factory=dict)  # of parts that what is installed makes larger: without it
    lent: int | None = None  # the same of the pool


def divide(room: int, claims: Sequence[Claim]) -> Division:
    """Divide a table. Every slice gets what it has installed, at least, and those that overcommit together.

    ``short`` tells what is missing.
    """
    firm = [claim for claim in claims if claim.firm]
    unsaid = [claim for claim in claims if claim.quota is None and not claim.overcommits]
    overcommitting = [claim for claim in claims if claim.overcommits]
    borrowed = sum(claim.used for claim in overcommitting)
    said = {claim.key: claim.quota or 0 for claim in firm}
    asked = {claim.key: max(said[claim.key], claim.used) for claim in firm}
    others = borrowed + sum(claim.used for claim in unsaid)
    short = max(0, sum(asked.values()) + others - room)
    if short:
        asked, cut = _level(room - others, firm)
        said = {key: min(quota, cut) for key, quota in said.items()}
    held = {claim.key: said[claim.key] for claim in firm if claim.used > said[claim.key]}
    left = room - sum(asked.values())
    parts, level = _level(left, [*unsaid, *(Claim(one.key, one.quota) for one in overcommitting)])
    pool = without = sum(parts[claim.key] for claim in overcommitting)
    if borrowed > pool:
        pool = borrowed
        again, rest = _level(left - pool, unsaid)
        parts, level = parts | again, min(level, rest)
    if short:
        level = without = 0  # whatever leaves them is for the quotas that were cut
    held |= {claim.key: level for claim in unsaid if claim.used > level}
    return Division(asked | parts, pool, short, held, without if borrowed > without else None)


def _level(room: int, claims: Sequence[Claim]) -> tuple[dict[Key, int], int]:
    """Give all claims the same, but none less than it has installed nor more than it asks for; that is the level."""
    most = {claim.key: max(room if claim.quota is None else claim.quota, claim.used) for claim in claims}
    turns = sorted([(claim.used, 1) for claim in claims] + [(most[claim.key], -1) for claim in claims])
    level, growing, left = 0, 0, room - sum(claim.used for claim in claims)
    for at, change in turns:  # as the level rises, one begins to get more there, or has all it asked for
        if growing * (at - level) > left:
            break
        left -= growing * (at - level)
        level, growing = at, growing + change
    if growing and left > 0:
        level += left // growing
    return {claim.key: max(min(level, most[claim.key]), claim.used) for claim in claims}, level


@dataclass(slots=True)
class Shares:
    """What the slices of one plane have been given."""

    limits: dict[str, Quota]  # by tenant
    reserved: dict[str, dict[str, int]]  # by tenant and quota, of tables whose size is known
    pool: dict[str, int] = field(default_factory=dict)  # by quota
    sizes: dict[str, int] = field(default_factory=dict)  # by quota
    short: dict[str, int] = field(default_factory=dict)  # by quota
    held: dict[tuple[str, str], tuple[int, int]] = field(default_factory=dict)
    """By tenant and quota, parts that what is installed makes larger, and what they would be without it; those of
    deleted tenants, who have no other, too."""
    lent: dict[str, tuple[int, int]] = field(default_factory=dict)  # by quota, the same of pools
    pooled: frozenset[str] = frozenset()  # the tenants that share these

    def outdated(self, used: Usage) -> bool:
        """Tell whether an eighth at least of what made a part, or the pool, larger has left the plane.

        So a slice that gives back one entry after the other has the others follow some hundred times at most.
        """
        parts = [((tenant,), name, held) for (tenant, name), held in self.held.items()]
        return any(
            sum(used.get(tenant, {}).get(name, 0) for tenant in tenants) <= room - max(1, (room - without) // 8)
            for tenants, name, (room, without) in (*parts, *((self.pooled, *one) for one in self.lent.items()))
        )


def sizes_of(state: State, plane: str) -> dict[str, int]:
    """Return the sizes of a plane's tables that are known, by name: those given go before those that it said.

    Of a plane with a fallback they are the fallback's, which has all entries. A router interface is there twice in
    the classifiers of both: once for each way of the link.
    """
    config = state.planes[plane]
    behind = None if config.fallback is None else config.fallback.plane
    full = state.planes.get(behind or plane, config)
    sizes = dict(state.sizes.get(full.name, {}))
    sizes |= {name: room for name, room in asdict(full.capacity).items() if room}
    if behind is not None:
        both = [state.sizes.get(name, {}).get("interface_classifier", 0) // 2 for name in (plane, behind)]
        sizes["interface_classifier"] = min(filter(None, both), default=0)
    return sizes


def share(state: State, plane: str, used: Usage) -> Shares:
    """Divide the tables of a plane whose sizes are known."""
    sizes = sizes_of(state, plane)
    slices = dict(slices_of(state, plane))
    shares = Shares({key[0]: part.quota for key, part in slices.items()}, {key[0]: {} for key in slices})
    shares.pooled = frozenset(key[0] for key, part in slices.items() if part.overcommit)
    limits: dict[str, dict[str, Any]] = {key[0]: {} for key in slices}
    for name, table in TABLES.items():
        room = sizes.get(table, 0)
        if not room:
            continue
        claims = claims_of(state, plane, name, used)
        division = divide(room, claims)
        shares.sizes[name] = room
        if division.short:
            shares.short[name] = division.short
        if shares.pooled:
            shares.pool[name] = division.pool
        for key, part in slices.items():
            tenant, reserved = key[0], division.reserved[key]
            shares.reserved[tenant][name] = reserved
            limits[tenant][name] = _limit(part, name, reserved, division.pool)
        if name != "interfaces":
            for key, without in division.held.items():
                shares.held[key[0], name] = division.reserved[key], without
            if division.lent is not None:
                shares.lent[name] = division.pool, division.lent
    for tenant, figures in limits.items():
        if figures:
            shares.limits[tenant] = replace(shares.limits[tenant], **figures)
    return shares


def _limit(part: SliceConfig, name: str, reserved: int, pool: int) -> int:
    said: int = getattr(part.quota, name)
    if part.overcommit:
        return said if name in part.said else pool
    if name in part.said:
        return max(0, min(said, reserved - spare(part, name)))
    return reserved - min(spare(part, name), reserved // 4)


def spare(part: SliceConfig, name: str) -> int:
    """Return what a slice reserves besides a quota: of routes room for its neighbors, which are never refused."""
    return part.quota.neighbors if name in _ROUTES else 0


def slices_of(state: State, plane: str) -> Iterator[tuple[Key, SliceConfig]]:
    """Walk over the slices of a plane."""
    for tenant, part in state.slices.get(plane, {}).items():
        yield (tenant, plane), part


def claims_of(state: State, plane: str, name: str, used: Usage) -> list[Claim]:
    """Return what slices ask of a table of a plane, and what deleted tenants still have of it."""
    claims = []
    slices = dict(slices_of(state, plane))
    interfaces = state.interfaces.get(plane, {}) if name == "interfaces" else {}
    for key, part in slices.items():
        has = interfaces.get(key[0], 0) if name == "interfaces" else used.get(key[0], {}).get(name, 0)
        quota = getattr(part.quota, name) + spare(part, name) if name in part.said else None
        claims.append(Claim(key, quota, has, part.overcommit))
    gone = [tenant for tenant in used if (tenant, plane) not in slices and used[tenant].get(name)]
    return claims + [Claim((tenant, plane), 0, used[tenant][name]) for tenant in gone]


def share_memory(state: State, room: int, used: Mapping[str, Usage]) -> Division:
    """Divide the controller's memory, in octets, among the slices of all planes; ``used`` is by plane."""
    return divide(room, _memory_claims(state, used))


def _memory_claims(state: State, used: Mapping[str, Usage]) -> list[Claim]:
    """Return what slices ask of the memory, and what deleted tenants still have of it."""
    has = {
        (tenant, plane): counts.get("memory", 0) for plane, usage in used.items() for tenant, counts in usage.items()
    }
    claims = [
        Claim(key, part.quota.memory if "memory" in part.said else None, has.pop(key, 0))
        for tenant in state.tenants.values()
        for part in tenant.slices
        for key in ((tenant.name, part.plane),)
    ]
    return claims + [Claim(key, 0, count) for key, count in has.items() if count]


def problems(before: State, after: State, used: Mapping[str, Usage], memory: int) -> Iterator[Problem]:
    """Walk over the quotas of a new state that cannot be reserved, ``used`` by plane and ``memory`` in octets.

    What the state before has too much of already is no fault of this change.
    """
    for plane in after.planes:
        yield from _interfaces(after, plane)
        known = plane in before.planes
        old = share(before, plane, used.get(plane, {})) if known else Shares({}, {})
        new = share(after, plane, used.get(plane, {}))
        for name, short in new.short.items():
            if short > old.short.get(name, 0):
                table = f"table {TABLES[name]} of plane {plane}"
                yield _shortage(
                    before, after, claims_of(after, plane, name, used.get(plane, {})), name, table, new.sizes[name]
                )
        yield from _hardware(before, after, plane)
    if memory:
        yield from _memory(before, after, memory, used)


def _interfaces(state: State, plane: str) -> Iterator[Problem]:
    counts = state.interfaces.get(plane, {})
    for (tenant, _), part in slices_of(state, plane):
        if "interfaces" in part.said and counts.get(tenant, 0) > part.quota.interfaces:
            what = f"slice {tenant}@{plane} has {counts[tenant]} interfaces and a quota interfaces of"
            yield ("slice", tenant, plane), f"{what} {part.quota.interfaces}; raise it, or leave some out"


def _memory(before: State, after: State, memory: int, used: Mapping[str, Usage]) -> Iterator[Problem]:
    if share_memory(after, memory, used).short > share_memory(before, memory, used).short:
        claims = _memory_claims(after, used)
        yield _shortage(before, after, claims, "memory", "the controller's memory, in octets,", memory)


def _hardware(before: State, after: State, plane: str) -> Iterator[Problem]:
    """What is reserved in hardware has to have room there beside the other slices' ways to the fallback."""
    config = after.planes[plane]
    if config.fallback is None:
        return
    for name, table in _HARDWARE.items():
        room = getattr(config.capacity, table) or after.sizes.get(plane, {}).get(table, 0)
        asked = [Claim(key, getattr(part.quota, name)) for key, part in slices_of(after, plane)]
        asked = [claim for claim in asked if claim.quota is not None]
        had = sum(getattr(part.quota, name) or 0 for _, part in slices_of(before, plane))
        total = sum(claim.quota or 0 for claim in asked)
        if room and total > max(room, had):
            yield _shortage(before, after, asked, name, f"table {table} of plane {plane}, in hardware,", room)


def _shortage(before: State, after: State, claims: Sequence[Claim], name: str, table: str, room: int) -> Problem:
    """Return whose line to name, of the slices that changed the one that asks for most, and what does not fit."""
    asked = {claim.key: max(claim.quota or 0, claim.used) for claim in claims if claim.firm or claim.used}
    largest = sorted(asked, key=lambda key: (_unchanged(before, after, key), -asked[key]))
    tenant, plane = largest[0]
    total = sum(asked.values())
    shown = [f"{each[0]}@{each[1]} {asked[each]:,}" for each in largest[:3]]
    more = f" and {len(largest) - 3} more" if len(largest) > 3 else ""
    return ("slice", tenant, plane), (
        f"slice {tenant}@{plane}: {table} has room for {room:,}, and quotas {name} with what is installed come to "
        f"{total:,} ({', '.join(shown)}{more}); lower one" + ("" if name == "memory" else _REMEDY)
    )


_REMEDY = ", leave it out for an equal part, or say overcommit: true"


def _unchanged(before: State, after: State, key: Key) -> bool:
    old, new = before.slice_of(*key), after.slice_of(*key)
    return new is None or (old is not None and (old.quota, old.said) == (new.quota, new.said))
