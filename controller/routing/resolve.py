"""Resolution of one router: nexthop sets against interfaces and neighbors, giving the plane's nexthops and groups.

    Member(interface, gateway) ──► NexthopObject ─── neighbor's MAC, or glean, or drop
    NexthopSet of one member   ──► its NexthopObject
    NexthopSet of several      ──► GroupObject over the members that can forward

A link or neighbor that changes touches its NexthopObjects and the GroupObjects over them: a handful of updates,
however many prefixes use them. Members that cannot forward are left out of a group; where none can, the group holds
one of them, so that the packet is gleaned (or dropped, where resolution has failed or the link is down).
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from ipaddress import ip_interface
from math import inf

from controller.model import InterfaceConfig
from controller.planes.base import (
    BLACKHOLE,
    GLEAN,
    UNREACHABLE,
    GroupMember,
    Nexthop,
    NexthopGroup,
    NexthopState,
    RouteKind,
    RouterInterface,
    route_action,
)
from controller.routing.entries import EntryTable
from controller.routing.neighbors import NeighborTable
from controller.routing.objects import GroupContent, PlaneObjects
from controller.routing.rib import COLLECT_AT_ONCE, NexthopSet, SetKind
from controller.routing.usage import SliceUsage
from controller.routing.weights import fit_weights

DEAD_SETTLE_S = 2.0
"""How long routes over a dead link wait for the daemons to move them before they are taken out one by one."""

NEXTHOP_COST, SET_COST, MEMBER_COST = 25, 100, 15
"""What it costs to look at a nexthop, a set and a member of it again, in tenths of a microsecond."""

_NO_MAC = bytes(6)


@dataclass(slots=True)
class Interface:
    """What is known of one interface: the operator's declaration, the plane's port, the guest's state."""

    config: InterfaceConfig
    port: int | None = None  # number on the plane; None: the plane has no such port (now)
    port_up: bool = False  # as long as there is no such port, too
    guest_up: bool | None = None  # None: the VRC has not said since it connected
    addresses: frozenset[bytes] = frozenset()
    lacking: frozenset[bytes] = frozenset()  # declared, and a guest that has settled has not got them

    @property
    def declared_addresses(self) -> frozenset[bytes]:
        """The addresses, 4 or 16 octets, that the operator gives it."""
        return frozenset(ip_interface(text).ip.packed for text in self.config.addresses)

    @property
    def own_addresses(self) -> frozenset[bytes]:
        """The addresses that belong to its own MAC: where it has virtual ones, those declared. One that the guest
        lacks may be somebody else's (RFC 4862 section 5.4)."""
        own = self.declared_addresses - self.lacking
        return own if self.config.virtual_macs else own | self.addresses

    @property
    def up(self) -> bool:
        """Whether packets can leave by it."""
        return self.port_up and self.guest_up is not False


class NexthopObject:
    """A way out by one interface to one gateway, with its id on the plane."""

    __slots__ = ("gateway", "id", "interface_id", "sets", "state")

    def __init__(self, object_id: int, interface_id: int, gateway: bytes, state: NexthopState) -> None:
        self.id = object_id
        self.interface_id = interface_id
        self.gateway = gateway
        self.state = state
        self.sets: set[NexthopSet] = set()


class GroupObject:
    """A group on the plane. It follows the content of its owner; `shared` once other sets' routes use it.

    `sharer` is the set whose routes were last found to use it so, and takes it over from an owner that goes.
    """

    __slots__ = ("content", "id", "owner", "shared", "sharer")

    def __init__(self, object_id: int, content: GroupContent, owner: NexthopSet | None) -> None:
        self.id = object_id
        self.content = content
        self.owner = owner
        self.shared = False
        self.sharer: NexthopSet | None = None


@dataclass(slots=True)
class Resolution:
    """Interfaces, neighbors, nexthops and groups of one router."""

    vrf_id: int
    objects: PlaneObjects
    usage: SliceUsage
    interfaces: dict[int, Interface] = field(default_factory=dict)
    local: dict[bytes, int] = field(default_factory=dict)  # on how many interfaces an own address is
    neighbors: NeighborTable = field(init=False)
    nexthops: dict[tuple[int, bytes], NexthopObject] = field(default_factory=dict)
    groups: dict[int, GroupObject] = field(default_factory=dict)
    owned: dict[NexthopSet, list[GroupObject]] = field(default_factory=dict)
    interface_entries: EntryTable[RouterInterface] = field(default_factory=lambda: EntryTable("router_interface"))
    nexthop_entries: EntryTable[Nexthop] = field(default_factory=lambda: EntryTable("nexthop"))
    group_entries: EntryTable[NexthopGroup] = field(default_factory=lambda: EntryTable("nexthop_group"))
    over_quota: dict[NexthopSet, str] = field(default_factory=dict)
    loose_groups: dict[int, None] = field(default_factory=dict)  # by id: that lost their owner or last route
    loose_nexthops: dict[int, None] = field(default_factory=dict)  # … their last set, group, neighbor or route
    _by_id: dict[int, NexthopObject] = field(default_factory=dict)
    _by_interface: dict[int, dict[int, NexthopObject]] = field(default_factory=dict)
    _in_groups: dict[int, int] = field(default_factory=dict)  # how many groups have a nexthop, by id
    _orphans: dict[GroupContent, dict[int, GroupObject]] = field(default_factory=dict)  # groups without an owner
    _connected: dict[int, dict[NexthopSet, None]] = field(default_factory=dict)  # sets of that kind, by interface
    _dead: dict[NexthopSet, float] = field(default_factory=dict)
    _waiting: list[NexthopSet] = field(default_factory=list)  # of those that are over a quota
    _touched: dict[int, float] = field(default_factory=dict)  # nexthops by id, and the time when that was
    _outdated: dict[NexthopSet, float] = field(default_factory=dict)  # sets to be resolved again, and the same

    def __post_init__(self) -> None:
        self.neighbors = NeighborTable(self.usage)

    def set_addresses(self, interface: Interface, addresses: frozenset[bytes]) -> frozenset[bytes]:
        """Take an interface's own addresses; returns those that it has more or no more."""
        before, interface.addresses = interface.addresses, addresses
        for address in addresses - before:
            self.local[address] = self.local.get(address, 0) + 1
        for address in before - addresses:
            self.local[address] -= 1
            if not self.local[address]:
                del self.local[address]
        return before ^ addresses

    # Sets

    def attach(self, one: NexthopSet) -> None:
        """Resolve a new set."""
        if one.kind is not SetKind.FORWARD:
            self._resolve_special(one)
            for member in one.members:
                self._connected.setdefault(member.interface_id, {})[one] = None
            return
        wanted = {(m.interface_id, m.gateway) for m in one.members} - self.nexthops.keys()
        usage = self.usage
        if len(wanted) > max(0, usage.room("nexthops")):
            self.over_quota[one] = usage.full("nexthops")
            return
        if len(one.members) > 1 and usage.room("groups") <= 0:
            self.over_quota[one] = usage.full("groups")
            return
        for member in one.members:
            self.nexthop(member.interface_id, member.gateway).sets.add(one)
        self._resolve(one)
        if self._is_dead(one):
            one.action = 0

    def detach(self, one: NexthopSet) -> None:
        """Forget a set that has no routes; its groups, which installed routes may still use, go to others of the same
        content, or wait for one (`collect`)."""
        self.over_quota.pop(one, None)
        self._dead.pop(one, None)
        self._outdated.pop(one, None)
        if one.kind is SetKind.CONNECTED:
            for member in one.members:
                sets = self._connected.get(member.interface_id, {})
                sets.pop(one, None)
                if not sets:
                    self._connected.pop(member.interface_id, None)
            return
        for member in one.members:
            known = self.nexthops.get((member.interface_id, member.gateway))
            if known is not None:
                known.sets.discard(one)
                if not known.sets:
                    self.loose_nexthops[known.id] = None
        for group in self.owned.pop(one, ()):
            group.owner = None
            sharer = group.sharer
            if sharer is not None and sharer is not one and sharer.routes and sharer.content == group.content:
                self.give(group, sharer)
            else:
                group.sharer = None
                self._orphans.setdefault(group.content, {})[group.id] = group
                self.loose_groups[group.id] = None

    def note_sharer(self, group: GroupObject, one: NexthopSet) -> None:
        """Routes of a set are left on a group of its content that is not its own."""
        group.shared, group.sharer = True, one
        one.shares = True
        if group.owner is None:
            self._end_orphan(group)
            self.give(group, one)

    def collect(self, uses: Callable[[int], bool]) -> None:
        """Delete groups and nexthops that nothing uses any more; ``uses`` tells of an action whether a route does.

        Only what has lost something since the last time is looked at, and no more than `COLLECT_AT_ONCE`. Nexthops
        stay while a group has on the plane what it had before a change that was refused.
        """
        passed = 0
        while self.loose_groups and passed < COLLECT_AT_ONCE:
            group = self.groups.get(self.loose_groups.popitem()[0])
            passed += 1
            if group is not None and group.owner is None and not uses(route_action(RouteKind.GROUP, group.id)):
                passed += len(group.content)
                self.drop_group(group)
        while self.loose_nexthops and passed < COLLECT_AT_ONCE and not self.group_entries.unchanged:
            known = self._by_id.get(self.loose_nexthops.popitem()[0])
            passed += 1
            if known is None or known.sets or known.id in self._in_groups:
                continue
            if (known.interface_id, known.gateway) in self.neighbors.states:
                continue
            if not uses(route_action(RouteKind.NEXTHOP, known.id)):
                self.drop_nexthop(known)

    def loosen(self, actions: Iterable[int]) -> None:
        """Look at these nexthops and groups in the next `collect`: no route uses them any more."""
        for action in actions:
            if action >> 28 == RouteKind.GROUP:
                self.loose_groups[action & 0xFFFFFF] = None
            elif action >> 28 == RouteKind.NEXTHOP:
                self.loose_nexthops[action & 0xFFFFFF] = None

    def loosen_all(self) -> None:
        """Look at all of them: what routes use was read anew."""
        self.loose_groups = dict.fromkeys(self.groups)
        self.loose_nexthops = dict.fromkeys(self._by_id)

    @property
    def loose(self) -> bool:
        """Whether there is anything for `collect` to look at."""
        return bool(self.loose_groups or (self.loose_nexthops and not self.group_entries.unchanged))

    def retry_over_quota(self) -> None:
        """Have `attach_waiting` resolve sets that a quota kept out."""
        self._waiting = list(self.over_quota)

    @property
    def waits(self) -> bool:
        """Whether there is anything for `attach_waiting`."""
        return bool(self._waiting)

    def attach_waiting(self, cost: int) -> tuple[int, list[NexthopSet]]:
        """Resolve sets that wait for that, where there is room now, as far as that costs no more.

        Returns the cost that is not used up, and those that got in.
        """
        let_in = []
        while self._waiting and cost > 0:
            one = self._waiting.pop()
            cost -= SET_COST + MEMBER_COST * len(one.members)
            if self.over_quota.pop(one, None) is not None:
                self.attach(one)
                if one not in self.over_quota:
                    let_in.append(one)
        return cost, let_in

    def give(self, group: GroupObject, owner: NexthopSet) -> None:
        """Let a group that lost its owner follow another set."""
        group.owner = owner
        self.owned.setdefault(owner, []).append(group)
        self._set_group_content(group, owner.content)  # type: ignore[arg-type]

    def content_of(self, action: int) -> tuple[object, ...]:
        """Return what an installed nexthop or group does, comparable with `NexthopSet.content`."""
        kind, value = action >> 28, action & 0xFFFFFF
        if kind == RouteKind.NEXTHOP:
            return ((value, 1),)
        group = self.groups.get(value) if kind == RouteKind.GROUP else None
        return (None,) if group is None else group.content

    # Nexthops

    def nexthop(self, interface_id: int, gateway: bytes) -> NexthopObject:
        """Return the nexthop of a gateway, made (or claimed from what was adopted) where there is none."""
        key = (interface_id, gateway)
        known = self.nexthops.get(key)
        if known is None:
            state, mac = self._neighbor_of(interface_id, gateway)
            adopted = self.objects.claim_nexthop(interface_id, gateway, mac, state)
            object_id = self.objects.issue() if adopted is None else adopted.id
            if adopted is not None:
                self.nexthop_entries.installed[object_id] = adopted
            known = self.nexthops[key] = NexthopObject(object_id, interface_id, gateway, state)
            self._by_id[object_id] = known
            self._by_interface.setdefault(interface_id, {})[object_id] = known
            self.usage.add("nexthops", 1)
            self.nexthop_entries.want(object_id, Nexthop(object_id, interface_id, mac, state))
        return known

    def drop_nexthop(self, known: NexthopObject) -> None:
        """Delete a nexthop that nothing uses."""
        del self.nexthops[known.interface_id, known.gateway]
        del self._by_id[known.id]
        here = self._by_interface[known.interface_id]
        del here[known.id]
        if not here:
            del self._by_interface[known.interface_id]
        self.usage.add("nexthops", -1)
        self.nexthop_entries.want(known.id, None)

    def drop_group(self, group: GroupObject) -> None:
        """Delete a group that nothing uses."""
        del self.groups[group.id]
        self._end_orphan(group)
        self._count_members(group.content, -1)
        self.usage.add("groups", -1)
        self.group_entries.want(group.id, None)

    def free(self, object_id: int) -> None:
        """Give the id of a nexthop or group back that was deleted, unless the plane refused that and has it still."""
        if object_id not in self.nexthop_entries.installed and object_id not in self.group_entries.installed:
            self.objects.free(object_id)

    def touch(self, nexthops: Iterable[NexthopObject], now: float) -> None:
        """Have `refresh` follow nexthops whose interface or neighbor has changed."""
        for known in nexthops:
            self._touched.setdefault(known.id, now)

    def touch_connected(self, interface_ids: Iterable[int]) -> None:
        """Have `refresh` resolve connected sets over these interfaces again."""
        for interface_id in interface_ids:
            self._outdated |= dict.fromkeys(self._connected.get(interface_id, ()), 0.0)

    @property
    def outdated(self) -> bool:
        """Whether there is anything for `refresh`."""
        return bool(self._touched or self._outdated)

    def refresh(self, cost: int) -> tuple[int, list[NexthopSet], list[NexthopSet]]:
        """Follow what was touched, as far as that costs no more, in tenths of a microsecond.

        Returns the cost that is not used up, the sets whose content changed, and those whose routes are to be written
        again: they are to be installed now and were not before, or do something else.
        """
        changed: list[NexthopSet] = []
        rewritten: list[NexthopSet] = []
        while self._touched and cost > 0:
            nexthop_id, now = self._touched.popitem()
            known = self._by_id.get(nexthop_id)
            if known is not None:
                state, mac = self._neighbor_of(known.interface_id, known.gateway)
                self.nexthop_entries.want(known.id, Nexthop(known.id, known.interface_id, mac, state))
                known.state = state
                self._outdated.update(dict.fromkeys(known.sets.difference(self._outdated), now))
                cost -= NEXTHOP_COST + len(known.sets)
        while self._outdated and not self._touched and cost > 0:
            one, now = self._outdated.popitem()
            if one.kind is not SetKind.FORWARD:
                cost -= NEXTHOP_COST
                before = one.action
                self._resolve_special(one)
                if one.action != before:
                    rewritten.append(one)
                continue
            cost -= SET_COST + MEMBER_COST * len(one.members)
            content, action = one.content, one.action
            self._follow(one, now)
            if one.action and not action:
                rewritten.append(one)
            if one.content != content:
                changed.append(one)
        return cost, changed, rewritten

    def _follow(self, one: NexthopSet, now: float) -> None:
        """Resolve a set again."""
        action = one.action
        if self._orphans:
            for group in list(self._orphans.pop(one.content, {}).values()):  # type: ignore[arg-type]
                self.give(group, one)
        self._resolve(one)
        if not self._is_dead(one):
            self._dead.pop(one, None)
        elif action:
            self._dead.setdefault(one, now + DEAD_SETTLE_S)
        else:
            one.action = 0

    def on_interface(self, interface_id: int) -> list[NexthopObject]:
        """Return the nexthops that leave by an interface."""
        return list(self._by_interface.get(interface_id, {}).values())

    @property
    def next_due(self) -> float:
        """When a dead link has settled next; inf where there is none."""
        return min(self._dead.values(), default=inf)

    def settle(self, now: float) -> list[NexthopSet]:
        """Return sets whose dead link has settled."""
        settled = [one for one, due in self._dead.items() if due <= now]
        for one in settled:
            del self._dead[one]
            one.action = 0
        return settled

    # Inside

    def _neighbor_of(self, interface_id: int, gateway: bytes) -> tuple[NexthopState, bytes]:
        interface = self.interfaces.get(interface_id)
        if interface is None or not interface.up:
            return NexthopState.DROP, _NO_MAC
        neighbor = self.neighbors.states.get((interface_id, gateway))
        if neighbor is None:
            return NexthopState.GLEAN, _NO_MAC
        if neighbor.mac:
            return NexthopState.FORWARD, neighbor.mac
        return (NexthopState.DROP if neighbor.failed_until else NexthopState.GLEAN), _NO_MAC

    def _is_dead(self, one: NexthopSet) -> bool:
        interfaces = self.interfaces
        return not any(
            (known := interfaces.get(member.interface_id)) is not None and known.up for member in one.members
        )

    def _resolve_special(self, one: NexthopSet) -> None:
        if one.kind is SetKind.CONNECTED:
            one.action = 0 if self._is_dead(one) else GLEAN
        else:
            one.action = BLACKHOLE if one.kind is SetKind.BLACKHOLE else UNREACHABLE
        one.content = (one.action,)

    def _resolve(self, one: NexthopSet) -> None:
        pairs = [(self.nexthops[m.interface_id, m.gateway], m.weight) for m in one.members]
        live = [(n.id, weight) for n, weight in pairs if n.state is NexthopState.FORWARD]
        if not live:
            gleaning = [n.id for n, _ in pairs if n.state is NexthopState.GLEAN]
            live = [((gleaning or [pairs[0][0].id])[0], 1)]
        content: GroupContent = fit_weights(sorted(live))
        one.content = content
        if len(one.members) == 1:
            one.action = route_action(RouteKind.NEXTHOP, pairs[0][0].id)
        else:
            if not self.owned.get(one):
                self._make_group(one, content)
            one.action = route_action(RouteKind.GROUP, self.owned[one][0].id)
        for group in self.owned.get(one, ()):
            self._set_group_content(group, content)

    def _make_group(self, one: NexthopSet, content: GroupContent) -> None:
        adopted = self.objects.claim_group(content)
        group = GroupObject(self.objects.issue() if adopted is None else adopted.id, (), one)
        if adopted is not None:
            self.group_entries.installed[group.id] = adopted
        self.groups[group.id] = group
        self.owned[one] = [group]
        self.usage.add("groups", 1)

    def _end_orphan(self, group: GroupObject) -> None:
        alike = self._orphans.get(group.content)
        if alike is not None and alike.pop(group.id, None) is not None and not alike:
            del self._orphans[group.content]

    def _count_members(self, content: GroupContent, count: int) -> None:
        in_groups = self._in_groups
        for nexthop_id, _ in content:
            left = in_groups.get(nexthop_id, 0) + count
            if left:
                in_groups[nexthop_id] = left
            else:
                del in_groups[nexthop_id]
                self.loose_nexthops[nexthop_id] = None

    def _set_group_content(self, group: GroupObject, content: GroupContent) -> None:
        if group.content != content:
            self._count_members(content, 1)
            self._count_members(group.content, -1)
        group.content = content
        members = tuple(
            GroupMember(nid, weight, self._port_of(self._by_id[nid].interface_id)) for nid, weight in content
        )
        self.group_entries.want(group.id, NexthopGroup(group.id, members))

    def _port_of(self, interface_id: int) -> int:
        interface = self.interfaces.get(interface_id)
        return 0 if interface is None or interface.port is None else interface.port
