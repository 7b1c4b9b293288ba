"""What a slice has in use, against what its quota allows.

Memory is counted, not measured: so many octets for each thing that a tenant can make the controller keep. A route
counts once, though the RIB, the FIB and its queue all know it, and counts from the moment it is read back from a
plane: what a controller has adopted is paid for before a VRC has repeated it.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from controller.model import Quota

ROUTE_OCTETS = 256
SET_OCTETS = 1024
MEMBER_OCTETS = 768
NEIGHBOR_OCTETS = 1024
"""Octets, rounded up from tracemalloc on CPython 3.11: a route 143 to 167, 254 while its dicts grow; a set of one
member with its nexthop 1,163, of two with their group 2,366, of 64 48,715; a neighbor with its nexthop and route
1,015."""

TABLE_QUOTAS = ("ipv4_routes", "ipv6_routes", "nexthops", "groups")
"""The quotas that stand for entries of a plane's tables."""


@dataclass(slots=True)
class Pool:
    """What the slices of a plane that overcommit may have together, and have."""

    sizes: Mapping[str, int]
    beside: Mapping[str, int] = field(default_factory=dict)  # of these, for what is never learned
    used: Counter[str] = field(default_factory=Counter)


@dataclass(slots=True)
class SliceUsage:
    """What a tenant's routers on one plane use together, against its quota."""

    quota: Quota
    ipv4_routes: int = 0
    ipv6_routes: int = 0
    neighbors: int = 0
    nexthops: int = 0
    groups: int = 0
    sets: int = 0  # by the names that VRCs gave them
    members: int = 0  # of these
    learned: int = 0  # routes, of both families
    kept_sets: int = 0  # named or not
    kept_members: int = 0
    pool: Pool | None = None
    reserved: Mapping[str, int] = field(default_factory=dict)  # of tables that are divided, what is beside included

    def add(self, name: str, count: int) -> None:
        """Count entries of a plane's table in, or out."""
        setattr(self, name, getattr(self, name) + count)
        if self.pool is not None:
            self.pool.used[name] += count

    def join(self, pool: Pool | None) -> None:
        """Share a pool from now on, or none."""
        self.pool = pool
        if pool is not None:
            for name in TABLE_QUOTAS:
                pool.used[name] += getattr(self, name)

    def room(self, name: str) -> int:
        """Return how many more entries of a plane's table may be had; below 0 where there are too many."""
        room: int = getattr(self.quota, name) - getattr(self, name)
        pool = self.pool
        if pool is None or name not in pool.sizes:
            return room
        return min(room, pool.sizes[name] - pool.beside.get(name, 0) - pool.used[name])

    def room_beside(self, name: str) -> int:
        """Return how many more prefixes there may be that are never learned: own addresses and neighbors."""
        pool, has = self.pool, int(getattr(self, name))
        if pool is not None and name in pool.sizes:
            return pool.sizes[name] - pool.used[name]
        most: int = self.reserved.get(name, getattr(self.quota, name) + self.quota.neighbors)
        return most - has

    @property
    def nexthops_for_neighbors(self) -> int:
        """How many more nexthops neighbors may have that routes do not lead to: what these lead to has a quarter."""
        pool, most = self.pool, self.quota.nexthops
        if pool is not None and "nexthops" in pool.sizes:
            most = min(most, pool.sizes["nexthops"])
        return self.room("nexthops") - most // 4

    def full(self, name: str) -> str:
        """Return the reason for which no more of something is taken: the quota, or what is overcommitted."""
        pool, limit = self.pool, getattr(self.quota, name)
        if pool is not None and name in pool.sizes and getattr(self, name) < limit:
            return f"overcommitted {name}: {pool.sizes[name]} for all slices that overcommit"
        return f"quota {name} of {limit}"

    @property
    def _routes(self) -> int:
        """Routes that are paid for: a neighbor's own comes with it."""
        return max(self.learned, self.ipv4_routes + self.ipv6_routes - self.neighbors)

    @property
    def memory(self) -> int:
        """Octets of the controller that all this takes."""
        sets = self.kept_sets * SET_OCTETS + self.kept_members * MEMBER_OCTETS
        return self._routes * ROUTE_OCTETS + sets + self.neighbors * NEIGHBOR_OCTETS

    def routes_affordable(self) -> int:
        """Return how many more routes the memory quota has room for."""
        return self._routes - self.learned + max(0, self.quota.memory - self.memory) // ROUTE_OCTETS

    def refuses_set(self, members: int, fresh: bool) -> str:
        """Return the quota that has no room for one more nexthop set of so many members, "" where all have."""
        quota = self.quota
        if self.sets >= quota.sets:
            return f"quota sets of {quota.sets}"
        if self.members + members > quota.members:
            return f"quota members of {quota.members}"
        if fresh and self.memory + SET_OCTETS + members * MEMBER_OCTETS > quota.memory:
            return f"quota memory of {quota.memory} octets"
        return ""

    def counts(self) -> dict[str, int]:
        """Return what is in use, by the keys of the quota."""
        names = (*TABLE_QUOTAS, "neighbors", "sets", "members", "memory")
        return {name: getattr(self, name) for name in names}
