"""The FIB of one virtual router on one plane: desired against installed, as batches of updates.

    RIB ──────────┐
    own addresses ├─► desired action of a prefix ─► differs from installed? ─► WriteBatch ─► confirm
    neighbors ────┘        (looked up when the prefix's turn comes)

A change only queues its prefix. `take` looks up what is desired *now*, so a prefix that changed five times is
written once, and one that came back is not written at all. The queue is first in, first out: the VRC's message is
confirmed when everything queued before its acknowledgement mark has been written or found equal.

What reaches many prefixes at once, an interface that comes back or the end of a resync, takes a pass over the tables
(`table_pass.py`), of which `advance` does a slice; until it is done the router is `unfinished`.

A prefix whose set changes to another of the *same content* stays where it is: after a link failure the group has one
member left, zebra re-points every prefix to that one nexthop, and none of it reaches the plane.

Pure: no sockets, no clock of its own, no await.
"""

from array import array
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from controller.model import RouterConfig
from controller.planes import base
from controller.planes.base import (
    LOCAL,
    Installed,
    Op,
    Policer,
    Refused,
    RouteKind,
    RouterInterface,
    SharedMeters,
    WriteBatch,
    shared_rates,
)
from controller.routing.entries import Taken
from controller.routing.fib_state import FibState
from controller.routing.neighbors import NeighborKey
from controller.routing.objects import PlaneObjects
from controller.routing.prefixes import NOTHING, Deleted, Desired, Ticket
from controller.routing.resolve import Interface, NexthopObject
from controller.routing.rib import Member, NexthopSet, SetKind
from controller.routing.table_pass import (
    DIFFERING_COST,
    INSTALLED_COST,
    LEARNED_COST,
    SLICE_COST,
    STALE_COST,
    KeyScan,
    PassRequest,
)
from controller.routing.usage import SliceUsage

_FIRST_OBJECT_ACTION = RouteKind.NEXTHOP << 28


class Fib(FibState):
    """Everything one router has and wants on its plane, and how it follows what changes."""

    def __init__(
        self, config: RouterConfig, objects: PlaneObjects, usage: SliceUsage, shared_meters: SharedMeters = ()
    ) -> None:
        super().__init__(config, objects, usage)
        self._shared_meters = shared_meters  # of its plane
        self.configure(config)

    # What the operator declared

    def configure(self, config: RouterConfig) -> None:
        """Take a new declaration; interfaces that are gone take their nexthops down."""
        self.config = config
        known = self._resolution.interfaces
        declared = {one.id: one for one in config.interfaces}
        gone = [interface_id for interface_id in known if interface_id not in declared]
        for interface_id in gone:
            gone_addresses = self._resolution.set_addresses(known.pop(interface_id), frozenset())
            self._forget_neighbors(interface_id)
            for address in gone_addresses:
                self._refresh_own(address)
        for one in config.interfaces:
            known.setdefault(one.id, Interface(one)).config = one
        rates = shared_rates(config.quota.punts_per_s, self._shared_meters)
        self.policers.want(config.vrf_id, Policer(config.vrf_id, rates))
        self._interfaces_changed([*gone, *declared], 0.0)

    def remove(self) -> None:
        """Want nothing any more; `idle` and empty tables tell when the plane is clean."""
        self.removing = True
        self._make_stale()
        self._own.clear()
        for interface_id in self._resolution.interfaces:
            self._forget_neighbors(interface_id)
        self._ask(PassRequest(stale=True, unlearned=True))
        for table in (self._resolution.interface_entries, self.policers):
            for entry_id in list(table.desired):
                table.want(entry_id, None)

    # What the plane and the guest say of interfaces and neighbors

    def set_ports(self, ports: Mapping[str, tuple[int, bool]], now: float) -> None:
        """Take the plane's ports: name → number and whether it is up."""
        changed = []
        for interface in self._resolution.interfaces.values():
            number, up = ports.get(interface.config.port, (None, False))
            if (interface.port, interface.port_up) != (number, up):
                interface.port, interface.port_up = number, up
                changed.append(interface.config.id)
        self._interfaces_changed(changed, now)

    def set_interfaces(self, states: Mapping[int, tuple[bool, frozenset[bytes]]], now: float) -> None:
        """Take the guest's states of interfaces by id: up, and own addresses (4 or 16 octets)."""
        changed = []
        for interface_id, (up, addresses) in states.items():
            interface = self._resolution.interfaces[interface_id]
            if interface.guest_up is not up:
                changed.append(interface_id)
            interface.guest_up = up
            for address in self._resolution.set_addresses(interface, addresses):
                self._refresh_own(address)
        self._interfaces_changed(changed, now)

    def set_neighbors(self, states: Mapping[NeighborKey, tuple[bytes, bool]], now: float) -> int:
        """Take states of neighbors by interface and address: MAC, and whether it failed; neither unsets it.

        Returns how many the quota has no room for.
        """
        changed, refused = self._resolution.neighbors.set(states, now)
        self._neighbors_changed(changed, now)
        return refused

    def tick(self, now: float) -> None:
        """Let timed states pass that are due."""
        resolution = self._resolution
        retry, gone = resolution.neighbors.expire(now)
        if gone:
            self._neighbors_changed(gone, now)
        if retry:
            self._refresh_nexthops(retry, now)
        self._enqueue_sets(resolution.settle(now))
        if self.untidy:
            self.collect()

    # What the VRC learned

    def begin_resync(self) -> None:
        """Mark routes and neighbors; what is not repeated goes with `sweep`."""
        self._make_stale()
        self._resolution.neighbors.begin_resync()
        self._go_on()

    def learn(self, family: int, keys: list[bytes], set_ids: Iterable[int]) -> int:
        """Apply one Routes message, except new routes far beyond the quota; returns how many these are.

        SessionRefused as `Rib.replace`.
        """
        ids, most, unkept = array("I", set_ids), self._most_routes(family), 0
        if self._rib.counts[family] + len(keys) > most:
            admitted = self._rib.admit(family, keys, ids, most)
            unkept = len(keys) - len(admitted)
            keys, ids = [keys[i] for i in admitted], array("I", [ids[i] for i in admitted])
        self._enqueue(self._own.follow(self._rib.replace(family, keys, ids)))
        if self._own.waits:
            self._go_on()
        return unkept

    def define_set(self, set_id: int, kind: SetKind, members: tuple[Member, ...]) -> None:
        """Name a nexthop set and resolve it where it is new. SessionRefused as `Rib.define`."""
        if self._rib.crowded and self.idle:
            self.collect()
        fresh = self._rib.define(set_id, kind, members)
        if fresh is not None:
            self._resolution.attach(fresh)

    def release(self, set_ids: Iterable[int]) -> None:
        """Forget names of nexthop sets, and what only they led to: nothing else may be written for long."""
        self._rib.release(set_ids)
        if self.idle:
            self.collect()

    def sweep(self, now: float) -> None:
        """End a resync: stale routes and neighbors go, and so does what was adopted but never learned.

        Once that is done, `swept` says how many routes were stale.
        """
        self.settled = True
        for interface in self._resolution.interfaces.values():
            if interface.guest_up is None:
                interface.guest_up = False
        self._neighbors_changed(self._resolution.neighbors.sweep(self._is_gateway, now), now)
        self._interfaces_changed(list(self._resolution.interfaces), 0.0)
        self._ask(PassRequest(stale=True, unlearned=True))

    # Desired → updates

    def desired(self, key: bytes) -> int | None:
        """Return the action a prefix should have, None where it should not be installed."""
        own = self._own.get(key)
        if own == LOCAL:
            return own
        one = self._rib.routes.get(key)
        if one is None or (own is not None and (one.kind is SetKind.CONNECTED or not one.action)):
            return own
        have = self._prefixes.installed.get(key)
        if have and have != one.action and one.action and self._forwards_as(have, one):
            return have
        return one.action or None

    def take(self, batch: WriteBatch, limit: int, ahead: bool = False) -> Ticket:
        """Move small updates and prefixes that cost at most ``limit`` into ``batch``, a group that costs more alone;
        with ``ahead``, router interfaces and policers wait.

        Where not all has room, what others refer to comes first: nexthops, groups, deleted nexthops, and routes once
        all of these are on their way.
        """
        resolution = self._resolution
        ticket = Ticket()
        left, whole = limit, True
        if not ahead and (self.policers or resolution.interface_entries):
            policers, interfaces = self.policers.take(left), resolution.interface_entries.take(left)
            batch.policers += policers.updates
            batch.router_interfaces += interfaces.updates
            ticket.deleted = {"policer": policers.deleted, "router_interface": interfaces.deleted}
            left -= policers.cost + interfaces.cost
            whole = policers.whole and interfaces.whole
        if whole:
            whole, left = self._take_objects(batch, left, ticket)
        ticket.entries = limit - left
        desired = Desired(self._own, self._rib.routes, self.desired)  # kept, it would be a cycle
        most = max(left, 0) if whole else 0
        routes, ticket.routes = self._prefixes.take(most, desired, self._own.is_local)
        batch.routes += routes
        left -= sum(map(len, routes))
        ticket.cost = limit - left
        self.in_flight += 1
        self.batches += 1
        return ticket

    def _take_objects(self, batch: WriteBatch, left: int, ticket: Ticket) -> tuple[bool, int]:
        """Take nexthops and groups; returns whether none is left, and how much room is."""
        nexthops, groups = self._resolution.nexthop_entries, self._resolution.group_entries
        whole = True
        for table, deletions in ((nexthops, False), (groups, True), (nexthops, True)):
            if not table:
                continue
            if left <= 0:
                return False, left
            taken: Taken[Any] = table.take(left, deletions)
            updates: list[Any] = batch.nexthops if table is nexthops else batch.groups
            updates += taken.updates
            ticket.deleted[table.table] = taken.deleted
            ticket.freed += [one.entry.id for one in taken.updates if one.op is Op.DELETE]
            left -= taken.cost
            whole = taken.whole
            if not whole:
                return False, left
        return whole, left

    def confirm(self, ticket: Ticket, refused: Iterable[Refused]) -> None:
        """The plane has confirmed a batch, except ``refused`` (of this router alone)."""
        self.in_flight, self.batches_confirmed = self.in_flight - 1, self.batches_confirmed + 1
        self._prefixes.confirm(ticket.routes)
        for one in refused:
            self.refuse(one, ticket.deleted)
        for object_id in ticket.freed:
            self._resolution.free(object_id)
        if self.idle:
            self.collect()

    def refuse(self, one: Refused, deleted: Deleted = NOTHING) -> None:
        """The plane does not have what it was to have; ``deleted`` is what the batch of that was to delete."""
        plane = f"plane {self.config.plane}"
        reason = f"{plane}: {one.table} is full" if one.full else f"{plane} refused {one.table}: {one.reason}"
        if isinstance(one.key, bytes):
            # What a refused change or deletion leaves differs, as unknown, from all that may be desired.
            self._prefixes.refuse(one.key, reason, None if one.op is Op.INSERT else base.UNKNOWN_ACTION)
            return
        for table in self.tables:
            if table.table == one.table:
                table.refuse(one.key, one.op, reason, deleted.get(one.table, {}).get(one.key))

    def abandon(self) -> None:
        """The channel went down under a batch: what is installed is unknown until it is read back."""
        self.in_flight -= 1
        self._prefixes.abandon()

    def retry_refused(self) -> None:
        """Try again what the plane or a quota refused."""
        self._prefixes.retry()
        self._resolution.retry_over_quota()
        self._own.retry_over_quota()
        self._go_on()
        for table in self.tables:
            table.retry()

    # Adoption

    def adopt(self, read: Installed, mine: Mapping[int, RouterInterface]) -> Iterator[None]:
        """Take over what a plane was read to hold for this router, ``mine`` of its router interfaces, in steps, and
        have a pass queue every difference; what was not learned yet stays until the router has settled."""
        resolution, prefixes = self._resolution, self._prefixes
        yield from prefixes.adopt(read.routes.get(self.config.vrf_id, {}), read.hardware is not None)
        self.in_flight, self.batches_confirmed = 0, self.batches
        known = resolution.interfaces.keys() | mine.keys()
        for interface_id, interface in resolution.interfaces.items():
            if interface.guest_up is None and interface_id in mine:
                interface.guest_up = mine[interface_id].enabled
        self._enqueue(filter(self._differs, self._own))
        self._pass.differing, self._next_pass.differing = False, True  # not from what was read before
        self._next_pass.unlearned |= self.settled or self.removing
        self._interfaces_changed(list(known), 0.0)
        nexthop_ids = {one.id for one in resolution.nexthops.values()}
        every: tuple[Mapping[int, Any], ...] = (mine, read.nexthops, read.groups, read.policers)
        of_mine: tuple[set[int], ...] = (known, nexthop_ids, set(resolution.groups), {self.config.vrf_id})
        for table, found, ids in zip(self.tables, every, of_mine, strict=True):
            damaged = {one for one in ids if (table.table, one) in read.damaged}
            table.adopt({one: found[one] for one in ids if one in found}, damaged)
        resolution.loosen_all()

    def repair(self, read: Installed, written: set[bytes]) -> int:
        """Compare a read-back with what was sent, except keys ``written`` meanwhile; queue and count repairs."""
        if self.removing:
            return 0
        repaired, found = self.repair_entries(read), read.routes.get(self.config.vrf_id, {})
        keys = self._prefixes.differing(found, written)
        return repaired + self.repair_routes({key: found.get(key) for key in keys}, read.hardware is not None)

    def repair_routes(self, found: Mapping[bytes, int | None], followed: bool) -> int:
        """Take over what a plane, ``followed`` by hardware or not, has otherwise; queue and count repairs."""
        found = dict.fromkeys(found, base.UNKNOWN_ACTION) if followed else found  # what was written is to go on
        for key, action in found.items():
            self._prefixes.find(key, action)
        queued = [key for key, left in found.items() if left or self.settled or not self._is_unlearned(key)]
        self._enqueue(queued)
        return len(queued)

    def repair_entries(self, read: Installed) -> int:
        """Compare a read-back of the small tables, unless they were written to since `begin_audit`, as `repair`."""
        if self.removing or self._entry_writes() != self._audited_writes:
            return 0
        found: dict[str, dict[int, Any]] = {
            "router_interface": read.router_interfaces,
            "nexthop": read.nexthops,
            "nexthop_group": read.groups,
            "policer": read.policers,
        }
        return sum(table.repair(found[table.table], table.damaged(read.damaged)) for table in self.tables)

    def owns(self, one: Refused, deleted: Deleted = NOTHING) -> bool:
        """Tell whether a refused nexthop or group is this router's, or one of ``deleted``."""
        tables = self._resolution.nexthop_entries, self._resolution.group_entries
        desired = any(table.table == one.table and one.key in table.desired for table in tables)
        return desired or one.key in deleted.get(one.table, ())

    def collect(self) -> None:
        """Delete sets, groups and nexthops that nothing uses any more, some at a time (`untidy`: there are more).

        Only while idle: a reference may be in flight. Groups and nexthops stay while the plane is `unsure`.
        """
        resolution, let_go = self._resolution, self._prefixes.let_go
        for one in self._rib.collect():
            resolution.detach(one)
        if let_go:
            resolution.loosen(let_go)
            let_go.clear()
        if not self.unsure:
            resolution.collect(self._prefixes.uses)

    # Inside

    def _make_stale(self) -> None:
        for request in (self._pass, self._next_pass):
            request.stale = False  # the end of a sweep that is under way would leave what it has passed
        self._rib.begin_resync()

    def _enqueue(self, keys: Iterable[bytes]) -> None:
        self._prefixes.enqueue(keys)

    def _forwards_as(self, have: int, one: NexthopSet) -> bool:
        if have < _FIRST_OBJECT_ACTION or self._resolution.content_of(have) != one.content:
            return False
        group = self._resolution.groups.get(have & 0xFFFFFF) if have >> 28 == RouteKind.GROUP else None
        if group is not None:
            self._resolution.note_sharer(group, one)
        one.shares = True
        return True

    def _refresh(self, touched: Iterable[NexthopObject], now: float) -> None:
        """Write again nexthops whose interface or neighbor changed; routes only where they are left on an object that
        no longer does what their set says, or where their set can be installed again."""
        self._resolution.touch(touched, now)
        self._go_on()

    def _enqueue_sets(self, sets: Iterable[NexthopSet]) -> None:
        if wanted := set(sets):
            self._ask(PassRequest(sets=wanted))

    # What takes a pass over its tables, in slices

    def advance(self) -> None:
        """Do a slice of what is `unfinished`."""
        cost = SLICE_COST
        while cost > 0 and self._resolution.outdated:
            cost, changed, rewritten = self._resolution.refresh(cost)
            self._next_pass.sets.update(rewritten)
            self._next_pass.stray |= any(map(self._has_strays, changed))
        cost, let_in = self._resolution.attach_waiting(cost)
        self._next_pass.sets.update(let_in)
        cost, neighbors = self._own.refresh_waiting(cost)
        self._enqueue(neighbors)
        cost = self._rib.forget_left(cost)
        while cost > 0 and (self._pass or self._next_pass):
            if not self._pass:
                self._pass, self._next_pass = self._next_pass, PassRequest()
                self._scan = KeyScan()
            cost = self._pass_on(cost)
        self._note_finished()

    def _pass_on(self, cost: int) -> int:
        request, rib, prefixes = self._pass, self._rib, self._prefixes
        if request.of_learned:
            each = (STALE_COST if request.stale else LEARNED_COST) + DIFFERING_COST * request.differing
            count = cost // each + 1
            keys = self._scan.next(rib.routes, rib.moved, count)
            routes, wanted = rib.routes, request.sets
            if wanted:
                self._enqueue([key for key in keys if routes[key] in wanted])
            if request.differing:
                self._enqueue(filter(self._differs, keys))
            if request.stale:
                gone = rib.withdraw(keys)
                self._enqueue(self._own.follow(gone))
                self.swept += len(gone)
            if len(keys) < count:
                if request.stale:
                    rib.end_resync()
                request.sets, request.stale, request.differing = set(), False, False
                self._scan = KeyScan()
            return cost - each * len(keys)
        count = cost // INSTALLED_COST + 1
        keys = self._scan.next(prefixes.installed, prefixes.moved, count)
        self._enqueue(filter(self._is_astray if request.stray else self._is_unlearned, keys))
        if request.stray and request.unlearned:
            self._enqueue(filter(self._is_unlearned, keys))
        if len(keys) < count:
            request.stray = request.unlearned = False
        return cost - INSTALLED_COST * len(keys)

    def _is_unlearned(self, key: bytes) -> bool:
        return key not in self._rib.routes and key not in self._own

    def _differs(self, key: bytes) -> bool:
        return self.desired(key) != self._prefixes.installed.get(key) and key not in self._prefixes.refused

    def _is_astray(self, key: bytes) -> bool:
        return key in self._rib.routes and self.desired(key) != self._prefixes.installed[key]

    def _has_strays(self, one: NexthopSet) -> bool:
        return one.shares or any(group.shared for group in self._resolution.owned.get(one, ()))

    def _ask(self, request: PassRequest) -> None:
        """Have a pass look for something more."""
        following = self._next_pass
        following.sets |= request.sets
        following.stale |= request.stale
        following.differing |= request.differing
        following.unlearned |= request.unlearned
        following.stray |= request.stray
        self._go_on()

    def _go_on(self) -> None:
        """Do a first slice at once: what is little is done with the change, and the rest waits for `advance`."""
        if not self.unfinished:
            self.advance()
        self._note_asked()

    def _interfaces_changed(self, changed: Iterable[int], now: float) -> None:
        resolution = self._resolution
        touched, ids = [], tuple(changed)
        for interface_id in ids:
            resolution.interface_entries.want(interface_id, self._interface_entry(interface_id))
            touched += resolution.on_interface(interface_id)
        resolution.touch_connected(ids)
        self._refresh(touched, now)

    def _interface_entry(self, interface_id: int) -> RouterInterface | None:
        interface = self._resolution.interfaces.get(interface_id)
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
        self._neighbors_changed(self._resolution.neighbors.forget_interface(interface_id), 0.0)

    def _neighbors_changed(self, changed: Iterable[NeighborKey], now: float) -> None:
        keys = tuple(changed)
        nexthops, loose = self._resolution.nexthops, self._resolution.loose_nexthops
        for key in keys:
            self._refresh_own(key[1])
            if (known := nexthops.get(key)) is not None:
                loose[known.id] = None
        self._refresh_nexthops(keys, now)

    def _refresh_nexthops(self, keys: Iterable[NeighborKey], now: float) -> None:
        nexthops = self._resolution.nexthops
        self._refresh([nexthops[key] for key in keys if key in nexthops], now)

    def _is_gateway(self, key: NeighborKey) -> bool:
        """Tell whether a nexthop set forwards to a neighbor."""
        known = self._resolution.nexthops.get(key)
        return known is not None and bool(known.sets)

    def _refresh_own(self, address: bytes) -> None:
        self._enqueue(() if self.removing else self._own.refresh(address))
