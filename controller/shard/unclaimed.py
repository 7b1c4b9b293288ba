"""What was adopted and is nobody's: entries of routers that do not exist, damaged ones that no router is to have, and
nexthops and groups that nobody claims, with whom each of these waits for and when it is deleted.

    read back ──► owners: routers whose interfaces it leaves by, or whose routes use it
                     │
                     └─► all of them settled and idle, none uses it ──► deleted

Only its owners can claim an object, because its content names their interfaces. So it waits for them alone: a router
that never settles, as its VRC never ends its resync, keeps its own objects and no others.
"""

from collections import defaultdict, deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Set
from itertools import islice

from controller.fallback.pace import parts
from controller.planes.base import (
    ROUTE_TABLE_NAME,
    Installed,
    Nexthop,
    NexthopGroup,
    Op,
    Policer,
    Refused,
    RouteKind,
    RouterInterface,
    RouteUpdates,
    Update,
    WriteBatch,
    action_kind,
    action_value,
    route_action,
)
from controller.routing.entries import cost_of
from controller.routing.fib import Fib
from controller.routing.objects import PlaneObjects, own_nexthops
from controller.routing.prefixes import READ_AT_ONCE

LOOKS = 500
"""Most sets of owners looked at in one turn, so that it costs the same with 8,000 routers as with 500."""

Owners = frozenset[int]
"""The vrf_ids that an object waits for."""


def deletions(read: Installed, fibs: Mapping[int, Fib], most: int) -> Iterator[WriteBatch]:
    """Yield the deletion of entries that carry our cookie but belong to no router that was there at first, with at
    most so many entries a batch; and of damaged ones. Interfaces go first, so that nothing comes in any more."""
    known = set(fibs)  # who comes meanwhile has adopted nothing
    interfaces = [Update(Op.DELETE, one) for one in read.router_interfaces.values() if one.vrf_id not in known]
    for start in range(0, len(interfaces), most):
        yield WriteBatch(router_interfaces=interfaces[start : start + most])
    for vrf_id in read.routes.keys() - known:
        for family, stride in ((4, 5), (6, 17)):
            routes = read.routes[vrf_id]
            keys = [key for key in routes if len(key) == stride]
            for start in range(0, len(keys), most):
                part = keys[start : start + most]
                actions = [routes[key] for key in part]  # ignored, and kept with what is refused
                yield WriteBatch(routes=[RouteUpdates(vrf_id, family, [Op.DELETE] * len(part), part, actions)])
    policers = [Update(Op.DELETE, one) for one in read.policers.values() if one.vrf_id not in known]
    for start in range(0, len(policers), most):
        yield WriteBatch(policers=policers[start : start + most])
    if read.damaged and (batch := _damaged_deletion(read, fibs)):
        yield batch


def _damaged_deletion(read: Installed, fibs: Mapping[int, Fib]) -> WriteBatch:
    """Return the deletion of router interfaces and policers that are damaged, so that no FIB knows them, and desired
    by none: a write was cut off, and what it wrote is not declared any more, or has no port."""
    interfaces, policers = (
        {entry_id for name, entry_id in read.damaged if name == table} - whole.keys()
        for table, whole in (("router_interface", read.router_interfaces), ("policer", read.policers))
    )
    for table in (table for fib in fibs.values() for table in fib.tables):
        if table.table == "router_interface":
            interfaces.difference_update(table.desired)
        elif table.table == "policer":
            policers.difference_update(table.desired)
    return WriteBatch(
        [Update(Op.DELETE, Policer(i, ())) for i in sorted(policers)],
        [Update(Op.DELETE, RouterInterface(i, 0, 0, 0, b"", 0)) for i in sorted(interfaces)],
    )


def interfaces_by_router(read: Installed) -> Mapping[int, Mapping[int, RouterInterface]]:
    """Return the router interfaces by vrf_id and id."""
    found: defaultdict[int, dict[int, RouterInterface]] = defaultdict(dict)
    for one in read.router_interfaces.values():
        found[one.vrf_id][one.id] = one
    return found


class UnclaimedObjects:
    """What of `PlaneObjects` is still to be claimed, by owners."""

    def __init__(self, objects: PlaneObjects) -> None:
        self._objects = objects
        self._known: set[int] = set()  # ids that routers had at `adopt`
        self._nexthops: dict[Owners, list[int]] = {}
        self._groups: dict[Owners, list[int]] = {}
        self._groups_of: dict[int, list[int]] = {}  # nexthop → unclaimed groups with it
        self._refused: list[Nexthop | NexthopGroup] = []  # that the plane did not delete
        self._left: list[WriteBatch] = []  # deletions of other entries that it has not done yet
        self._again: list[WriteBatch] = []  # of these, those to be tried again
        self._turn: deque[Owners] = deque()
        self._users: defaultdict[int, set[int]] = defaultdict(set)  # of actions, by vrf_id
        self._neighbors: dict[int, bytes] = {}  # addresses whose own routes use a nexthop, by its id
        self._lost: set[tuple[str, int]] = set()  # to which routes lead though it is not there, by table and id

    def adopt(self, read: Installed, fibs: Mapping[int, Fib]) -> Iterator[None]:
        """Have `PlaneObjects` adopt a read-back, and find the owners of what no router has, in steps.

        Routers may take objects between two of them, and come and go. Nothing is deleted before the last.
        """
        yield from self._look_at_routes(read)
        self._known = known = set[int]()
        self._objects.begin_adoption()
        for part in parts(list(fibs.values())):
            known.update(*(table.desired for fib in part for table in fib.object_tables))
            yield
        yield from self._adopt(read, fibs, known)

    def _look_at_routes(self, read: Installed) -> Iterator[None]:
        """Find out what the routes of a read-back use."""
        self._users, self._neighbors, self._lost = defaultdict(set), {}, set()
        for vrf_id, routes in read.routes.items():
            items = iter(routes.items())
            while part := dict(islice(items, READ_AT_ONCE)):
                for action in set(part.values()):
                    if action not in self._users:
                        self._lost.update(_lost(action, read))
                    self._users[action].add(vrf_id)
                self._neighbors.update(own_nexthops(part))
                yield

    def adopt_left(self, read: Installed, fibs: Mapping[int, Fib]) -> Iterator[None]:
        """Once all routers have adopted the same read-back: adopt, as `adopt`, what they had before and gave up
        without a write, as each knows only what it has in its turn."""
        held = set[int]()
        self._objects.begin_adoption()
        for part in parts(list(fibs.values())):
            tables = [table for fib in part for table in fib.object_tables]
            held.update(*(table.desired for table in tables), *(table.installed for table in tables))
            yield
        if not self._known <= held:
            yield from self._adopt(read, fibs, held)

    def _adopt(self, read: Installed, fibs: Mapping[int, Fib], held: Set[int]) -> Iterator[None]:
        yield from self._objects.adopt(read, held, self._neighbors, self._lost)
        nexthops, groups = self._objects.unclaimed_nexthops.copy(), self._objects.unclaimed_groups.copy()
        vrf_of: dict[int, int] = {}
        for fibs_part in parts(list(fibs.items())):
            vrf_of |= {interface_id: vrf_id for vrf_id, fib in fibs_part for interface_id in fib.interfaces}
            yield
        for interfaces in parts(read.router_interfaces.values()):
            vrf_of |= {one.id: one.vrf_id for one in interfaces}
            yield
        of_nexthop: dict[int, set[int]] = {}
        for nexthops_part in parts(nexthops.items()):
            for i, one in nexthops_part:
                users = self._users[route_action(RouteKind.NEXTHOP, i)]
                of_nexthop[i] = users | _known(vrf_of, one.router_interface_id)
            yield
        by_owners: dict[Owners, list[int]] = {}
        groups_of: dict[int, list[int]] = {}
        for groups_part in parts(groups.items()):
            for object_id, group in groups_part:
                owners = set(self._users[route_action(RouteKind.GROUP, object_id)])
                for member in group.members:
                    known = read.nexthops.get(member.nexthop_id)
                    owners |= set() if known is None else _known(vrf_of, known.router_interface_id)
                    groups_of.setdefault(member.nexthop_id, []).append(object_id)
                for member in group.members:
                    if member.nexthop_id in of_nexthop:
                        of_nexthop[member.nexthop_id] |= owners
                by_owners.setdefault(frozenset(owners), []).append(object_id)
            yield
        nexthops_by_owners: dict[Owners, list[int]] = {}
        for owners_part in parts(of_nexthop.items()):
            for object_id, owners in owners_part:
                nexthops_by_owners.setdefault(frozenset(owners), []).append(object_id)
            yield
        self._nexthops, self._groups, self._groups_of = nexthops_by_owners, by_owners, groups_of
        self._refused.clear()
        self._left, self._again = [], []
        self._turn = deque(dict.fromkeys([*self._groups, *self._nexthops]))

    def deletions(self, fibs: Mapping[int, Fib], limit: int) -> Iterator[WriteBatch]:
        """Take off what can be deleted now, in batches that cost at most ``limit``, one group at least."""
        while self._again:
            self._leave(again := self._again.pop())
            if again := _of_nobody(again, fibs):
                self._left.append(again)
                yield again
        led_to = {action for left in self._left for routes in left.routes for action in routes.actions}
        batch, cost = WriteBatch(), 0
        for _ in range(min(LOOKS, len(self._turn))):
            owners = self._turn.popleft()
            waited_for = [fibs[vrf_id] for vrf_id in owners if vrf_id in fibs]
            if not all(fib.settled and fib.idle and not fib.unsure for fib in waited_for):
                self._turn.append(owners)
                continue
            for entry in self._of(owners, waited_for, led_to):
                part = cost_of(entry)
                if batch and cost + part > limit:
                    yield batch
                    batch, cost = WriteBatch(), 0
                if isinstance(entry, NexthopGroup):
                    batch.groups.append(Update(Op.DELETE, entry))
                else:
                    batch.nexthops.append(Update(Op.DELETE, entry))
                cost += part
            if owners in self._groups or owners in self._nexthops:
                self._turn.append(owners)
        if batch:
            yield batch

    def free(self, batch: WriteBatch, refused: Collection[Refused]) -> None:
        """Give back the ids of what a batch has deleted; what the plane refused waits for `retry`, and what its
        routes lead to waits for them."""
        self._leave(batch)
        if refused and (kept := _refused_of(batch, refused)):
            self._left.append(kept)
        left = {(one.table, one.key) for one in refused}
        for table, updates in (("nexthop_group", batch.groups), ("nexthop", batch.nexthops)):
            for one in updates:
                if (table, one.entry.id) in left:
                    self._refused.append(one.entry)
                else:
                    self._objects.free(one.entry.id)

    def retry(self) -> None:
        """Have `deletions` take off again what the plane refused to delete."""
        nobody = Owners()
        for one in self._refused:
            if isinstance(one, NexthopGroup):
                self._objects.unclaimed_groups[one.id] = one
                self._groups.setdefault(nobody, []).append(one.id)
            else:
                self._objects.unclaimed_nexthops[one.id] = one
                self._nexthops.setdefault(nobody, []).append(one.id)
        if self._refused:
            self._turn.append(nobody)
            self._refused.clear()
        self._again = self._left.copy()

    def _leave(self, batch: WriteBatch) -> None:
        self._left = [one for one in self._left if one is not batch]

    def _of(self, owners: Owners, waited_for: list[Fib], led_to: Set[int]) -> Iterator[Nexthop | NexthopGroup]:
        """Take off what of these owners nobody uses, nor routes ``led_to``; what is left is looked at again."""
        used = set(led_to).union(*(fib.actions_in_use() for fib in waited_for))
        unclaimed_groups, unclaimed_nexthops = self._objects.unclaimed_groups, self._objects.unclaimed_nexthops
        left = []
        for object_id in self._groups.pop(owners, ()):
            if object_id in unclaimed_groups and route_action(RouteKind.GROUP, object_id) in used:
                left.append(object_id)
            elif (group := unclaimed_groups.pop(object_id, None)) is not None:
                yield group
        if left:
            self._groups[owners] = left
        left = []
        for object_id in self._nexthops.pop(owners, ()):
            in_group = any(group in unclaimed_groups for group in self._groups_of.get(object_id, ()))
            in_use = in_group or route_action(RouteKind.NEXTHOP, object_id) in used
            if object_id in unclaimed_nexthops and in_use:
                left.append(object_id)
            elif (nexthop := unclaimed_nexthops.pop(object_id, None)) is not None:
                yield nexthop
        if left:
            self._nexthops[owners] = left


def _refused_of(batch: WriteBatch, refused: Iterable[Refused]) -> WriteBatch:
    """Return those deletions of routes, router interfaces and policers of a batch that were refused."""
    kept = {(one.table, one.vrf_id if isinstance(one.key, bytes) else 0, one.key) for one in refused}
    columns = []
    for each in batch.routes:
        table, column = ROUTE_TABLE_NAME[each.family], RouteUpdates(each.vrf_id, each.family)
        for key, action in zip(each.keys, each.actions, strict=True):
            if (table, each.vrf_id, key) in kept:
                column.ops.append(Op.DELETE)
                column.keys.append(key)
                column.actions.append(action)
        if column.keys:
            columns.append(column)
    return WriteBatch(
        [one for one in batch.policers if ("policer", 0, one.entry.vrf_id) in kept],
        [one for one in batch.router_interfaces if ("router_interface", 0, one.entry.id) in kept],
        routes=columns,
    )


def _of_nobody(batch: WriteBatch, fibs: Mapping[int, Fib]) -> WriteBatch:
    """Return a batch without what is of a router by now, who follows what an audit finds of it."""
    declared = {interface_id for fib in fibs.values() for interface_id in fib.interfaces}
    return WriteBatch(
        [one for one in batch.policers if one.entry.vrf_id not in fibs],
        [one for one in batch.router_interfaces if one.entry.vrf_id not in fibs and one.entry.id not in declared],
        routes=[one for one in batch.routes if one.vrf_id not in fibs],
    )


def _lost(action: int, read: Installed) -> Iterator[tuple[str, int]]:
    """Yield the table and id of what an action leads to, where that is not there."""
    kind, object_id = action_kind(action), action_value(action)
    if kind is RouteKind.NEXTHOP and object_id not in read.nexthops:
        yield "nexthop", object_id
    elif kind is RouteKind.GROUP and object_id not in read.groups:
        yield "nexthop_group", object_id


def _known(vrf_of: Mapping[int, int], interface_id: int) -> set[int]:
    return {vrf_of[interface_id]} if interface_id in vrf_of else set()
