"""The FIB of one virtual router on one plane: desired against installed, as batches of updates.

    RIB ──────────┐
    own addresses ├─► desired action of a prefix ─► differs from installed? ─► WriteBatch ─► confirm
    neighbors ────┘        (looked up when the prefix's turn comes)

A change only queues its prefix. `take` looks up what is desired *now*, so a prefix that changed five times is
written once, and one that came back is not written at all. The queue is first in, first out: the VRC's message is
confirmed when everything queued before its acknowledgement mark has been written or found equal.

A prefix whose set changes to another of the *same content* stays where it is: after a link failure the group has one
member left, zebra re-points every prefix to that one nexthop, and none of it reaches the plane.

Pure: no sockets, no clock of its own, no await.
"""

from array import array
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from controller.model import RouterConfig
from controller.planes.base import (
    LOCAL,
    UNKNOWN_ACTION,
    Installed,
    Op,
    Policer,
    Refused,
    RouteKind,
    RouterInterface,
    WriteBatch,
    route_action,
)
from controller.routing.entries import EntryTable
from controller.routing.neighbors import NeighborKey
from controller.routing.objects import PlaneObjects
from controller.routing.prefixes import Desired, PrefixTable, RouteTicket
from controller.routing.resolve import (
    GroupObject,
    Interface,
    NexthopObject,
    Resolution,
)
from controller.routing.rib import Member, NexthopSet, Rib, SetKind
from controller.routing.usage import SliceUsage
from wire import MAX_ROUTES_PER_MESSAGE

SPARE_ROUTES = 10_000
"""Routes of a family that are kept beyond the quota, each refused by name, to be installed where there is room."""

LOST_AHEAD = 64 * MAX_ROUTES_PER_MESSAGE
"""Prefixes that may wait for the plane though they are neither learned nor installed: twice a VRC's window."""

_FIRST_OBJECT_ACTION = RouteKind.NEXTHOP << 28
_HOST_BITS = {4: 32, 16: 128}


@dataclass(slots=True)
class Ticket:
    """What one `take` put into a batch, to be handed back to `confirm`."""

    routes: RouteTicket = field(default_factory=RouteTicket)
    freed: list[int] = field(default_factory=list)  # object ids deleted


class Fib:
    """Everything one router has and wants on its plane."""

    def __init__(self, config: RouterConfig, objects: PlaneObjects, usage: SliceUsage) -> None:
        self.config = config
        self.rib = Rib()
        self.resolution = Resolution(config.vrf_id, objects, usage)
        self.policers: EntryTable[Policer] = EntryTable("policer")
        self.prefixes = PrefixTable(config.vrf_id, usage)
        self.in_flight = 0
        self.settled = False  # resynced since the controller started, or the hold time has passed
        self.removing = False
        self.own: dict[bytes, int] = {}  # own addresses and neighbors, which come before routes
        self.configure(config)

    # What the operator declared

    def configure(self, config: RouterConfig) -> None:
        """Take a new declaration; interfaces that are gone take their nexthops down."""
        self.config = config
        known = self.resolution.interfaces
        declared = {one.id: one for one in config.interfaces}
        gone = [interface_id for interface_id in known if interface_id not in declared]
        for interface_id in gone:
            addresses = known.pop(interface_id).addresses
            self._forget_neighbors(interface_id)
            for address in addresses:
                self._refresh_own(address)
        for one in config.interfaces:
            if one.id in known:
                known[one.id].config = one
            else:
                known[one.id] = Interface(one)
        self.policers.want(config.vrf_id, Policer(config.vrf_id, config.quota.punts_per_s))
        self._interfaces_changed([*gone, *declared], 0.0)

    def remove(self) -> None:
        """Want nothing any more; `idle` and empty tables tell when the plane is clean."""
        self.removing = True
        self.rib.clear()
        self.own.clear()
        for interface_id in self.resolution.interfaces:
            self._forget_neighbors(interface_id)
        self._enqueue(self.prefixes.installed)
        for table in (self.resolution.interface_entries, self.policers):
            for entry_id in list(table.desired):
                table.want(entry_id, None)

    @property
    def clean(self) -> bool:
        """Whether nothing of a removed router is left on the plane."""
        return self.idle and not self.prefixes.installed and not any(table.installed for table in self.tables)

    @property
    def tables(self) -> tuple[EntryTable[Any], ...]:
        """The small tables."""
        resolution = self.resolution
        return resolution.interface_entries, resolution.nexthop_entries, resolution.group_entries, self.policers

    # What the plane and the guest say of interfaces and neighbors

    def set_ports(self, ports: dict[str, tuple[int, bool]], now: float) -> None:
        """Take the plane's ports: name → number and whether it is up."""
        changed = []
        for interface in self.resolution.interfaces.values():
            number, up = ports.get(interface.config.port, (None, False))
            if (interface.port, interface.port_up) != (number, up):
                interface.port, interface.port_up = number, up
                changed.append(interface.config.id)
        self._interfaces_changed(changed, now)

    def set_interfaces(self, states: Mapping[int, tuple[bool, frozenset[bytes]]], now: float) -> None:
        """Take the guest's states of interfaces by id: up, and own addresses (4 or 16 octets).

        All at once, because following an interface may take a pass over every route.
        """
        for interface_id, (up, addresses) in states.items():
            interface = self.resolution.interfaces[interface_id]
            interface.guest_up = up
            before, interface.addresses = interface.addresses, addresses
            for address in before ^ addresses:
                self._refresh_own(address)
        self._interfaces_changed(states, now)

    def set_neighbors(self, states: Mapping[NeighborKey, tuple[bytes, bool]], now: float) -> int:
        """Take states of neighbors by interface and address: MAC, and whether it failed; neither unsets it.

        Returns how many the quota has no room for. All at once, as `set_interfaces`.
        """
        changed, refused = self.resolution.neighbors.set(states, now)
        self._neighbors_changed(changed, now)
        return refused

    @property
    def next_due(self) -> float:
        """When a timed state ends next; inf where there is none."""
        return min(self.resolution.neighbors.next_due, self.resolution.next_due)

    @property
    def refusing(self) -> bool:
        """Whether there is anything for `retry_refused`."""
        refused = (self.prefixes.refused, self.resolution.over_quota, *(table.refused for table in self.tables))
        return any(refused)

    def tick(self, now: float) -> None:
        """Let timed states pass that are due."""
        resolution = self.resolution
        retry, gone = resolution.neighbors.expire(now)
        if gone:
            self._neighbors_changed(gone, now)
        if retry:
            self._refresh_nexthops(retry, now)
        self._enqueue_sets(resolution.settle(now))

    # What the VRC learned

    def begin_resync(self) -> None:
        """Mark routes and neighbors; what is not repeated goes with `sweep`."""
        self.rib.begin_resync()
        self.resolution.neighbors.begin_resync()

    def learn(self, family: int, keys: list[bytes], set_ids: Iterable[int]) -> None:
        """Apply one Routes message, but for new routes far beyond the quota. SessionRefused as `Rib.replace`."""
        ids, most = array("I", set_ids), self._most_routes(family)
        if self.rib.counts[family] + len(keys) > most:
            admitted = self.rib.admit(family, keys, ids, most)
            keys, ids = [keys[i] for i in admitted], array("I", [ids[i] for i in admitted])
        self._enqueue(self.rib.replace(family, keys, ids))

    @property
    def room_again(self) -> bool:
        """Whether all spare room is free again in every family of which routes were not kept."""
        rib = self.rib
        lost = [family for family, count in rib.unkept.items() if count]
        return bool(lost) and all(rib.counts[family] + SPARE_ROUTES <= self._most_routes(family) for family in lost)

    @property
    def overrun(self) -> bool:
        """Whether more prefixes wait for the plane than a VRC that waits for acknowledgements could have changed."""
        return self.prefixes.pending > len(self.rib.routes) + len(self.prefixes.installed) + LOST_AHEAD

    def _most_routes(self, family: int) -> int:
        quota = self.config.quota
        return (quota.ipv4_routes if family == 4 else quota.ipv6_routes) + SPARE_ROUTES

    def define_set(self, set_id: int, kind: SetKind, members: tuple[Member, ...]) -> None:
        """Name a nexthop set and resolve it where it is new. SessionRefused as `Rib.define`."""
        if self.rib.crowded and self.idle:
            self.collect()
        fresh = self.rib.define(set_id, kind, members)
        if fresh is not None:
            self.resolution.attach(fresh)

    def release(self, set_ids: Iterable[int]) -> None:
        """Forget names of nexthop sets, and what only they led to: nothing else may be written for long."""
        self.rib.release(set_ids)
        if self.idle:
            self.collect()

    def sweep(self, now: float) -> int:
        """End a resync: stale routes and neighbors go, and so does what was adopted but never learned.

        Returns the number of stale routes.
        """
        gone = self.rib.sweep()
        self._enqueue(gone)
        self.settled = True
        routes, own = self.rib.routes, self.own
        self._enqueue([key for key in self.prefixes.installed if key not in routes and key not in own])
        for interface in self.resolution.interfaces.values():
            if interface.guest_up is None:
                interface.guest_up = False
        self._neighbors_changed(self.resolution.neighbors.sweep(self._is_gateway, now), now)
        self._interfaces_changed(list(self.resolution.interfaces), 0.0)
        return len(gone)

    # Desired → updates

    def desired(self, key: bytes) -> int | None:
        """Return the action a prefix should have, None where it should not be installed."""
        own = self.own.get(key)
        if own == LOCAL:
            return own
        one = self.rib.routes.get(key)
        if one is None or (own is not None and not one.action):
            return own
        have = self.prefixes.installed.get(key)
        if have and have != one.action and one.action and self._forwards_as(have, one):
            return have
        return one.action or None

    @property
    def busy(self) -> bool:
        """Whether `take` would give anything."""
        return bool(self.prefixes.pending) or any(self.tables)

    @property
    def busy_ahead(self) -> bool:
        """Whether `take` would give anything where router interfaces and policers wait."""
        resolution = self.resolution
        return bool(self.prefixes.pending or resolution.nexthop_entries or resolution.group_entries)

    @property
    def idle(self) -> bool:
        """Whether everything desired is written and confirmed."""
        return not self.busy and self.in_flight == 0

    def take(self, batch: WriteBatch, limit: int, ahead: bool = False) -> Ticket:
        """Move at most ``limit`` prefixes and all small updates into ``batch``; ``ahead``: but for router interfaces
        and policers, which wait."""
        resolution = self.resolution
        ticket = Ticket()
        if not ahead:
            batch.policers += self.policers.take()
            batch.router_interfaces += resolution.interface_entries.take()
        nexthops, groups = resolution.nexthop_entries.take(), resolution.group_entries.take()
        batch.nexthops += nexthops
        batch.groups += groups
        ticket.freed = [u.entry.id for u in nexthops if u.op is Op.DELETE]
        ticket.freed += [u.entry.id for u in groups if u.op is Op.DELETE]
        desired = Desired(self.own, self.rib.routes, self.desired)  # kept, it would be a cycle
        routes, ticket.routes = self.prefixes.take(limit, desired, self._is_local)
        batch.routes += routes
        self.in_flight += 1
        return ticket

    def confirm(self, ticket: Ticket, refused: Iterable[Refused]) -> None:
        """The plane has confirmed a batch, but for ``refused`` (of this router alone)."""
        self.in_flight -= 1
        self.prefixes.confirm(ticket.routes)
        for object_id in ticket.freed:
            self.resolution.objects.free(object_id)
        for one in refused:
            self._refuse(one)
        if self.idle:
            self.collect()

    def abandon(self) -> None:
        """The channel went down under a batch: what is installed is unknown until it is read back."""
        self.in_flight -= 1
        self.prefixes.abandon()

    def retry_refused(self) -> None:
        """Try again what the plane or a quota refused."""
        self.prefixes.retry()
        self._enqueue_sets(self.resolution.retry_over_quota())
        for table in self.tables:
            table.retry()

    # Adoption

    def adopt(self, read: Installed) -> None:
        """Take over what a plane was read to hold for this router and queue every difference."""
        resolution = self.resolution
        vrf_id = self.config.vrf_id
        self.in_flight = 0
        mine = {i: r for i, r in read.router_interfaces.items() if r.vrf_id == vrf_id}
        damaged = {table: {i for name, i in read.damaged if name == table} for table, _ in read.damaged}
        known = resolution.interfaces.keys() | mine.keys()
        for interface_id in known:
            interface = resolution.interfaces.get(interface_id)
            if interface is not None and interface.guest_up is None and interface_id in mine:
                interface.guest_up = mine[interface_id].enabled
        self._interfaces_changed(list(known), 0.0)
        resolution.interface_entries.adopt(mine, damaged.get("router_interface", set()) & known)
        ids = {n.id for n in resolution.nexthops.values()}
        resolution.nexthop_entries.adopt(
            {i: n for i, n in read.nexthops.items() if i in ids}, damaged.get("nexthop", set()) & ids
        )
        groups = resolution.groups.keys()
        resolution.group_entries.adopt(
            {i: g for i, g in read.groups.items() if i in groups}, damaged.get("nexthop_group", set()) & groups
        )
        self.policers.adopt(
            {i: p for i, p in read.policers.items() if i == vrf_id}, damaged.get("policer", set()) & {vrf_id}
        )
        self._adopt_routes(read.routes.get(vrf_id, {}))

    def _adopt_routes(self, installed: dict[bytes, int]) -> None:
        """Queue every prefix that differs; what was not learned yet stays until the router has settled."""
        self.prefixes.adopt(installed)
        keys = self.rib.routes.keys() | self.own.keys()
        if self.settled or self.removing:
            keys |= installed.keys()
        self._enqueue([key for key in keys if self.desired(key) != installed.get(key)])
        self.prefixes.fence()

    def repair(self, read: Installed, written: set[bytes]) -> int:
        """Compare a read-back with what was sent, but for keys ``written`` meanwhile; queue and count repairs."""
        if self.removing:
            return 0
        idle = self.idle
        found = read.routes.get(self.config.vrf_id, {})
        wrong = self.prefixes.differing(found, written)
        for key in wrong:
            self.prefixes.find(key, found.get(key))
        self._enqueue(wrong)
        return len(wrong) + (self._repair_entries(read) if idle else 0)

    def _repair_entries(self, read: Installed) -> int:
        resolution = self.resolution
        damaged: dict[str, set[int]] = {}
        for table, entry_id in read.damaged:
            damaged.setdefault(table, set()).add(entry_id)
        nothing: set[int] = set()
        return (
            resolution.interface_entries.repair(read.router_interfaces, damaged.get("router_interface", nothing))
            + resolution.nexthop_entries.repair(read.nexthops, damaged.get("nexthop", nothing))
            + resolution.group_entries.repair(read.groups, damaged.get("nexthop_group", nothing))
            + self.policers.repair(read.policers, damaged.get("policer", nothing))
        )

    def owns(self, one: Refused) -> bool:
        """Tell whether a refused nexthop or group is this router's."""
        resolution = self.resolution
        if one.table == "nexthop":
            return one.key in resolution.nexthop_entries.desired
        return one.table == "nexthop_group" and one.key in resolution.group_entries.desired

    def collect(self) -> None:
        """Delete sets, groups and nexthops that nothing uses. Only while idle: a reference may be in flight."""
        resolution = self.resolution
        for one in self.rib.collect():
            for group in resolution.detach(one):
                self._find_owner(group)
        uses = self.prefixes.uses
        in_groups: set[int] = set()
        for group in list(resolution.groups.values()):
            if group.owner is None and not uses(route_action(RouteKind.GROUP, group.id)):
                resolution.drop_group(group)
            else:
                in_groups.update(nexthop_id for nexthop_id, _ in group.content)
        neighbors = resolution.neighbors.states
        for known in list(resolution.nexthops.values()):
            if known.sets or known.id in in_groups or (known.interface_id, known.gateway) in neighbors:
                continue
            if not uses(route_action(RouteKind.NEXTHOP, known.id)):
                resolution.drop_nexthop(known)

    # Inside

    def _enqueue(self, keys: Iterable[bytes]) -> None:
        self.prefixes.enqueue(keys)

    def _is_local(self, key: bytes) -> bool:
        return self.own.get(key) == LOCAL

    def _forwards_as(self, have: int, one: NexthopSet) -> bool:
        if have < _FIRST_OBJECT_ACTION or self.resolution.content_of(have) != one.content:
            return False
        group = self.resolution.groups.get(have & 0xFFFFFF) if have >> 28 == RouteKind.GROUP else None
        if group is not None:
            group.shared = True
        one.shares = True
        return True

    def _refresh(self, touched: Iterable[NexthopObject], now: float) -> None:
        """Follow nexthops whose interface or neighbor changed.

        Their objects are written again; routes only where they are left on an object that no longer does what their
        set says, or where their set can be installed again.
        """
        sets, revived = self.resolution.refresh(touched, now)
        self._enqueue_sets(revived)
        owned = self.resolution.owned
        if any(one.shares or any(group.shared for group in owned.get(one, ())) for one in sets):
            self._enqueue_strays()

    def _enqueue_strays(self) -> None:
        routes = self.rib.routes
        desired = self.desired
        self._enqueue(
            [key for key, have in self.prefixes.installed.items() if key in routes and desired(key) != have]
        )

    def _enqueue_sets(self, sets: Iterable[NexthopSet]) -> None:
        wanted = set(sets)
        if wanted:
            self._enqueue([key for key, one in self.rib.routes.items() if one in wanted])

    def _find_owner(self, group: GroupObject) -> None:
        action = route_action(RouteKind.GROUP, group.id)
        if not self.prefixes.uses(action):
            return
        routes = self.rib.routes
        for key, have in self.prefixes.installed.items():
            if have == action and (one := routes.get(key)) is not None and one.content == group.content:
                self.resolution.give(group, one)
                break
        self._enqueue_strays()

    def _interfaces_changed(self, changed: Iterable[int], now: float) -> None:
        resolution = self.resolution
        touched = []
        for interface_id in changed:
            resolution.interface_entries.want(interface_id, self._interface_entry(interface_id))
            touched += resolution.on_interface(interface_id)
        self._refresh(touched, now)
        self._enqueue_sets(resolution.refresh_connected(self.rib.sets))

    def _interface_entry(self, interface_id: int) -> RouterInterface | None:
        interface = self.resolution.interfaces.get(interface_id)
        if interface is None or interface.port is None or self.removing:
            return None
        config = interface.config
        enabled = bool(interface.guest_up) and config.admin_up
        return RouterInterface(
            config.id,
            self.config.vrf_id,
            interface.port,
            config.vlan,
            config.mac,
            config.mtu,
            config.virtual_macs,
            enabled,
        )

    def _forget_neighbors(self, interface_id: int) -> None:
        for _, address in self.resolution.neighbors.forget_interface(interface_id):
            self._refresh_own(address)

    def _neighbors_changed(self, changed: Iterable[NeighborKey], now: float) -> None:
        keys = tuple(changed)
        for _, address in keys:
            self._refresh_own(address)
        self._refresh_nexthops(keys, now)

    def _refresh_nexthops(self, keys: Iterable[NeighborKey], now: float) -> None:
        nexthops = self.resolution.nexthops
        self._refresh([nexthops[key] for key in keys if key in nexthops], now)

    def _is_gateway(self, key: NeighborKey) -> bool:
        """Tell whether a nexthop set forwards to a neighbor."""
        known = self.resolution.nexthops.get(key)
        return known is not None and bool(known.sets)

    def _refresh_own(self, address: bytes) -> None:
        """Own addresses are LOCAL, resolved neighbors a nexthop; link-local addresses are never routes."""
        key = address + bytes((_HOST_BITS[len(address)],))
        resolution = self.resolution
        action: int | None = None
        if any(address in interface.addresses for interface in resolution.interfaces.values()):
            action = LOCAL
        elif not _link_local(address):
            for interface_id in resolution.interfaces:
                neighbor = resolution.neighbors.states.get((interface_id, address))
                if neighbor is not None:
                    action = route_action(RouteKind.NEXTHOP, resolution.nexthop(interface_id, address).id)
                    break
        if action is None:
            self.own.pop(key, None)
        else:
            self.own[key] = action
        self._enqueue((key,))

    def _refuse(self, one: Refused) -> None:
        plane = f"plane {self.config.plane}"
        reason = f"{plane}: {one.table} is full" if one.full else f"{plane} refused {one.table}: {one.reason}"
        if isinstance(one.key, bytes):
            # What a refused change or deletion leaves differs, as unknown, from all that may be desired.
            self.prefixes.refuse(one.key, reason, None if one.op is Op.INSERT else UNKNOWN_ACTION)
            return
        for table in self.tables:
            if table.table == one.table:
                table.refuse(one.key, one.op, reason)


def _link_local(address: bytes) -> bool:
    if len(address) == 4:
        return address[:2] == b"\xa9\xfe"
    return address[0] == 0xFE and address[1] & 0xC0 == 0x80
