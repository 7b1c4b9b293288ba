"""Nexthop and group ids of one plane, and the objects read back from it that no router has claimed yet.

OpenFlow groups carry no cookie and P4Runtime entries no owner, so after a restart of the controller an installed
nexthop or group is recognised by its content alone: the first router that needs that very content takes the id over,
and its routes need no write. Where several nexthops have one content, as a neighbor's IPv4 and link-local addresses
give, the neighbor's own route of full length tells which is which. What nobody claims is deleted once no installed
route refers to it.
"""

from collections.abc import Iterable, Mapping

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


def own_nexthops(routes: Mapping[bytes, int]) -> dict[int, bytes]:
    """Return the addresses whose own routes, of full length, use a nexthop, by its id."""
    return {
        action_value(action): key[:-1]
        for key, action in routes.items()
        if key[-1] == (len(key) - 1) * 8 and action_kind(action) is RouteKind.NEXTHOP
    }


class PlaneObjects:
    """Issues ids on one plane and hands out adopted ones by content."""

    def __init__(self, plane: str) -> None:
        self._plane = plane
        self._next = 1
        self._used: set[int] = set()
        self.unclaimed_nexthops: dict[int, Nexthop] = {}
        self.unclaimed_groups: dict[int, NexthopGroup] = {}
        self._groups: dict[GroupContent, list[int]] = {}  # ids of what was unclaimed at first, by content
        self._nexthops: dict[tuple[int, bytes, NexthopState], dict[bytes | None, list[int]]] = {}  # … and neighbor

    def adopt(self, installed: Installed, known: Iterable[int], neighbors: Mapping[int, bytes]) -> None:
        """Take over a read-back: ids in ``known`` belong to routers already, the rest waits to be claimed;
        ``neighbors`` are the `own_nexthops` of all its routes."""
        self._used = set(known)
        self.unclaimed_nexthops = {i: n for i, n in installed.nexthops.items() if i not in self._used}
        self.unclaimed_groups = {i: g for i, g in installed.groups.items() if i not in self._used}
        self._used.update(self.unclaimed_nexthops, self.unclaimed_groups)
        self._groups, self._nexthops = {}, {}
        for group in self.unclaimed_groups.values():
            self._groups.setdefault(group_content(group), []).append(group.id)
        for one in self.unclaimed_nexthops.values():
            alike = self._nexthops.setdefault((one.router_interface_id, one.mac, one.state), {})
            alike.setdefault(neighbors.get(one.id), []).append(one.id)

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
        alike = self._nexthops.get((interface_id, mac, state), {})
        while alike:
            owner = next((one for one in (gateway, None) if one in alike), next(iter(alike)))
            found = self.unclaimed_nexthops.pop(alike[owner].pop(), None)
            if not alike[owner]:
                del alike[owner]
            if found is not None:  # else it was deleted meanwhile
                return found
        return None

    def claim_group(self, content: GroupContent) -> NexthopGroup | None:
        """Take over an adopted group of that content, if there is one."""
        alike = self._groups.get(content)
        while alike:
            group = self.unclaimed_groups.pop(alike.pop(), None)
            if group is not None:  # else it was deleted meanwhile
                return group
        return None
