"""Nexthop and group ids of one plane, and the objects read back from it that no router has claimed yet.

OpenFlow groups carry no cookie and P4Runtime entries no owner, so after a restart of the controller an installed
nexthop or group is recognised by its content alone: the first router that needs that very content takes the id over,
and its routes need no write. Where several nexthops have one content, as a neighbor's IPv4 and link-local addresses
give, the neighbor's own route of full length tells which is which. What nobody claims is deleted once no installed
route refers to it. So is what is damaged, and what is not there though routes or groups lead to it: nobody can claim
it, and its id is no other's until then, as these routes would lead to that.
"""

from collections.abc import Iterable, Iterator, Mapping, Set

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

ADOPTED_AT_ONCE = 500
"""Nexthops and groups that are taken over in one step: a millisecond."""

_TABLES = ("nexthop", "nexthop_group")

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
        self._taken: set[int] = set()  # that were issued or claimed since `begin_adoption`
        self.unclaimed_nexthops: dict[int, Nexthop] = {}
        self.unclaimed_groups: dict[int, NexthopGroup] = {}
        self._groups: dict[GroupContent, list[int]] = {}  # ids of what was unclaimed at first, by content
        self._nexthops: dict[tuple[int, bytes, NexthopState], dict[bytes | None, list[int]]] = {}  # … and neighbor

    def begin_adoption(self) -> None:
        """Before it is found out, in steps, which ids routers have: what they take from now on is theirs as well."""
        self._taken = set()

    def adopt(
        self,
        installed: Installed,
        known: Set[int],
        neighbors: Mapping[int, bytes],
        led_to: Iterable[tuple[str, int]] = (),
    ) -> Iterator[None]:
        """Take over a read-back, in steps, all at once with the last: ids in ``known`` belong to routers already, as
        do those that they have taken since `begin_adoption`, and the rest waits to be claimed. ``neighbors`` are the
        `own_nexthops` of all its routes; ``led_to`` by these, though it is not there, are others, by table and id."""
        nexthops: dict[int, Nexthop] = {}
        groups: dict[int, NexthopGroup] = {}
        groups_alike: dict[GroupContent, list[int]] = {}
        nexthops_alike: dict[tuple[int, bytes, NexthopState], dict[bytes | None, list[int]]] = {}
        lost = {*led_to, *(one for one in installed.damaged if one[0] in _TABLES)}
        for number, group in enumerate(installed.groups.values(), 1):
            ids = (member.nexthop_id for member in group.members)
            lost.update(("nexthop", one) for one in ids if one not in installed.nexthops)
            if group.id not in known:
                groups[group.id] = group
                groups_alike.setdefault(group_content(group), []).append(group.id)
            if number % ADOPTED_AT_ONCE == 0:
                yield
        for number, one in enumerate(installed.nexthops.values(), 1):
            if one.id not in known:
                nexthops[one.id] = one
                alike = nexthops_alike.setdefault((one.router_interface_id, one.mac, one.state), {})
                alike.setdefault(neighbors.get(one.id), []).append(one.id)
            if number % ADOPTED_AT_ONCE == 0:
                yield
        lost = {one for one in lost if not (one[1] in known or one[1] in nexthops or one[1] in groups)}
        nexthops |= {one: Nexthop(one, 0, bytes(6), NexthopState.DROP) for table, one in lost if table == "nexthop"}
        groups |= {one: NexthopGroup(one, ()) for table, one in lost if table == "nexthop_group"}
        for taken in self._taken:
            nexthops.pop(taken, None)
            groups.pop(taken, None)
        self._used = {*known, *self._taken, *nexthops, *groups}
        self.unclaimed_nexthops, self.unclaimed_groups = nexthops, groups
        self._nexthops, self._groups = nexthops_alike, groups_alike

    def issue(self) -> int:
        """Return an unused id, going round the whole range before one comes back."""
        if len(self._used) >= MAX_OBJECT_ID:
            raise PlaneError(f"plane {self._plane} has no nexthop or group id left")
        while self._next in self._used:
            self._next = self._next % MAX_OBJECT_ID + 1
        issued = self._next
        self._used.add(issued)
        self._taken.add(issued)
        self._next = self._next % MAX_OBJECT_ID + 1
        return issued

    def free(self, object_id: int) -> None:
        """Give an id back once the plane confirmed that its entry is gone."""
        self._used.discard(object_id)
        self._taken.discard(object_id)

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
                self._taken.add(found.id)
                return found
        return None

    def claim_group(self, content: GroupContent) -> NexthopGroup | None:
        """Take over an adopted group of that content, if there is one."""
        alike = self._groups.get(content)
        while alike:
            group = self.unclaimed_groups.pop(alike.pop(), None)
            if group is not None:  # else it was deleted meanwhile
                self._taken.add(group.id)
                return group
        return None
