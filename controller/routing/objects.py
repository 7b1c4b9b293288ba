"""Nexthop and group ids of one plane, and the objects read back from it that no router has claimed yet.

OpenFlow groups carry no cookie and P4Runtime entries no owner, so after a restart of the controller an installed
nexthop or group is recognised by its content alone: the first router that needs that very content takes the id over,
and its routes need no write. Where several nexthops have one content, as a neighbor's IPv4 and link-local addresses
give, the neighbor's own route of full length tells which is which. What nobody claims is deleted once no installed
route refers to it.
"""

from collections.abc import Iterable

from controller.errors import PlaneError
from controller.planes.base import (
    MAX_OBJECT_ID,
    Installed,
    Nexthop,
    NexthopGroup,
    NexthopState,
    RouteKind,
    action_kind,
    action_value,
)

GroupContent = tuple[tuple[int, int], ...]
"""Sorted (nexthop id, weight) pairs."""


def group_content(group: NexthopGroup) -> GroupContent:
    """Return what a group does, without its id."""
    return tuple(sorted((member.nexthop_id, member.weight) for member in group.members))


class PlaneObjects:
    """Issues ids on one plane and hands out adopted ones by content."""

    def __init__(self, plane: str) -> None:
        self._plane = plane
        self._next = 1
        self._used: set[int] = set()
        self.unclaimed_nexthops: dict[int, Nexthop] = {}
        self.unclaimed_groups: dict[int, NexthopGroup] = {}
        self._neighbors: dict[int, bytes] = {}  # address whose own route uses an adopted nexthop

    def adopt(self, installed: Installed, known: Iterable[int]) -> None:
        """Take over a read-back: ids in ``known`` belong to routers already, the rest waits to be claimed."""
        self._used = set(known)
        self.unclaimed_nexthops = {i: n for i, n in installed.nexthops.items() if i not in self._used}
        self.unclaimed_groups = {i: g for i, g in installed.groups.items() if i not in self._used}
        self._used.update(self.unclaimed_nexthops, self.unclaimed_groups)
        self._neighbors = {}
        for routes in installed.routes.values():
            for key, action in routes.items():
                if key[-1] == (len(key) - 1) * 8 and action_kind(action) is RouteKind.NEXTHOP:
                    self._neighbors[action_value(action)] = key[:-1]

    def issue(self) -> int:
        """Return an unused id, going round the whole range before one comes back."""
        if len(self._used) >= MAX_OBJECT_ID:
            raise PlaneError(f"plane {self._plane} has no nexthop or group id left")
        while self._next in self._used:
            self._next = self._next % MAX_OBJECT_ID + 1
        issued = self._next
        self._used.add(issued)
        self._next = self._next % MAX_OBJECT_ID + 1
        return issued

    def free(self, object_id: int) -> None:
        """Give an id back once the plane confirmed that its entry is gone."""
        self._used.discard(object_id)

    def claim_nexthop(self, interface_id: int, gateway: bytes, mac: bytes, state: NexthopState) -> Nexthop | None:
        """Take over an adopted nexthop of that content, if there is one: best one that is the gateway's already,
        and rather nobody's than another neighbor's."""
        content = interface_id, mac, state
        found = [n.id for n in self.unclaimed_nexthops.values() if (n.router_interface_id, n.mac, n.state) == content]
        if not found:
            return None
        ranks = {gateway: 0, None: 1}
        return self.unclaimed_nexthops.pop(min(found, key=lambda i: ranks.get(self._neighbors.get(i), 2)))

    def claim_group(self, content: GroupContent) -> NexthopGroup | None:
        """Take over an adopted group of that content, if there is one."""
        for object_id, group in self.unclaimed_groups.items():
            if group_content(group) == content:
                return self.unclaimed_groups.pop(object_id)
        return None
