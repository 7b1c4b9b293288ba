"""What one router has and wants on its plane, and the questions that others ask of it."""

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from math import inf
from typing import Any

from controller.model import RouterConfig
from controller.planes.base import UNKNOWN_ACTION, Nexthop, NexthopGroup, Policer, RouterInterface
from controller.routing.entries import EntryTable
from controller.routing.neighbors import NeighborKey, NeighborState
from controller.routing.objects import PlaneObjects
from controller.routing.own_prefixes import OwnPrefixes
from controller.routing.prefixes import PrefixTable
from controller.routing.resolve import Interface, Resolution
from controller.routing.rib import NexthopSet, Rib
from controller.routing.table_pass import KeyScan, PassRequest
from controller.routing.usage import ROUTE_OCTETS, SliceUsage
from wire import MAX_ROUTES_PER_MESSAGE

SPARE_ROUTES = 10_000
"""Routes of a family that are kept beyond the quota, each refused by name, to be installed where there is room."""

LOST_AHEAD = 64 * MAX_ROUTES_PER_MESSAGE
"""Prefixes that may wait for the plane though they are neither learned nor installed: twice a VRC's window."""


class FibState:
    """The tables of a `Fib`: nothing here changes them."""

    def __init__(self, config: RouterConfig, objects: PlaneObjects, usage: SliceUsage) -> None:
        self.config, self.usage = config, usage
        self.policers: EntryTable[Policer] = EntryTable("policer")
        self.in_flight = 0
        self.batches = self.batches_confirmed = 0  # that were taken, and of these confirmed, or read back since
        self.settled = False  # resynced since the controller started, or the hold time has passed
        self.removing = False
        self.unfinished = False  # there is something for `Fib.advance` to do
        self.swept = 0  # stale routes that a resync has withdrawn; whoever tells of them sets it to 0
        self._pass, self._next_pass, self._scan = PassRequest(), PassRequest(), KeyScan()
        self._audited_writes = 0  # updates of the small tables taken when an audit began
        self._asked = 0  # how often something was left unfinished
        self._finished: deque[tuple[int, int]] = deque()  # how much of that was done, and how much queued then
        self._finished_for = 0  # how much of it is done and confirmed
        self._rib = Rib(usage)
        self._prefixes = PrefixTable(config.vrf_id, usage)
        self._resolution = Resolution(config.vrf_id, objects, usage)
        self._own = OwnPrefixes(self._resolution, self._rib)  # which come before routes

    # Its routes

    @property
    def learned(self) -> Mapping[bytes, NexthopSet]:
        """The routes of the RIB by prefix key."""
        return self._rib.routes

    @property
    def learned_counts(self) -> Mapping[int, int]:
        """How many routes the RIB has, by family."""
        return self._rib.counts

    def is_stale(self, key: bytes) -> bool:
        """Tell whether a route is one that the VRC has not repeated yet."""
        return self._rib.is_stale(key)

    @property
    def named_sets(self) -> Mapping[int, NexthopSet]:
        """The nexthop sets by the ids that the VRC's session gave them."""
        return self._rib.names

    @property
    def own_actions(self) -> Mapping[bytes, int]:
        """The actions of own addresses and neighbors, which no daemon announces, by prefix key."""
        return self._own

    @property
    def installed_routes(self) -> Mapping[bytes, int]:
        """The actions of the prefixes that the plane has; another mapping after each adoption."""
        return self._prefixes.installed

    @property
    def refused_routes(self) -> Mapping[bytes, str]:
        """The prefixes that the plane or a quota refused, and why."""
        return self._prefixes.refused

    def next_learned(self, scan: KeyScan, count: int) -> list[bytes]:
        """Return the next prefix keys of a scan over the routes of the RIB, fewer than ``count`` at the end."""
        return scan.next(self._rib.routes, self._rib.moved, count)

    def next_installed(self, scan: KeyScan, count: int) -> list[bytes]:
        """Return the next prefix keys of a scan over what is installed, fewer than ``count`` at the end."""
        return scan.next(self._prefixes.installed, self._prefixes.moved, count)

    def find_installed(self, scan: KeyScan, wanted: Callable[[bytes], bool], count: int) -> tuple[list[bytes], bool]:
        """Return those that are ``wanted`` of the next prefixes of a scan over what is known to be installed; and
        whether these were the last."""
        installed = self._prefixes.installed
        keys = self.next_installed(scan, count)
        return [key for key in keys if installed[key] != UNKNOWN_ACTION and wanted(key)], len(keys) < count

    def actions_in_use(self) -> set[int]:
        """Return the actions that a prefix has, or may still have on the plane."""
        return self._prefixes.actions_in_use()

    # Its entries

    @property
    def tables(self) -> tuple[EntryTable[Any], ...]:
        """The small tables."""
        resolution = self._resolution
        return resolution.interface_entries, resolution.nexthop_entries, resolution.group_entries, self.policers

    @property
    def interfaces(self) -> Mapping[int, Interface]:
        """Its router interfaces by id, declared and as they are."""
        return self._resolution.interfaces

    @property
    def neighbors(self) -> Mapping[NeighborKey, NeighborState]:
        """What the guest's kernel knows of neighbors, by interface and address."""
        return self._resolution.neighbors.states

    @property
    def object_tables(self) -> tuple[EntryTable[Any], ...]:
        """Those of its nexthops and groups, each of which is desired."""
        return self._resolution.nexthop_entries, self._resolution.group_entries

    @property
    def nexthop_count(self) -> int:
        """How many nexthops it has."""
        return len(self._resolution.nexthops)

    @property
    def group_count(self) -> int:
        """How many nexthop groups it has."""
        return len(self._resolution.groups)

    def installed_interface(self, interface_id: int) -> RouterInterface | None:
        """Return a router interface as the plane has it."""
        return self._resolution.interface_entries.installed.get(interface_id)

    def has_left(self, interface_ids: Iterable[int]) -> bool:
        """Tell whether these router interfaces have no port and VLAN but those that are declared, once all that was
        sent is confirmed."""
        table = self._resolution.interface_entries
        for interface_id in interface_ids:
            have, want = table.installed.get(interface_id), table.desired.get(interface_id)
            if have is None:
                if table.waits(interface_id) or table.refusal(interface_id):
                    return False
            elif want is None or (have.port, have.vlan) != (want.port, want.vlan):
                return False
        return True

    def installed_nexthop(self, nexthop_id: int) -> Nexthop | None:
        """Return a nexthop as the plane has it."""
        return self._resolution.nexthop_entries.installed.get(nexthop_id)

    def installed_group(self, group_id: int) -> NexthopGroup | None:
        """Return a nexthop group as the plane has it."""
        return self._resolution.group_entries.installed.get(group_id)

    @property
    def desired_nexthops(self) -> Mapping[int, Nexthop]:
        """The nexthops that the plane should have."""
        return self._resolution.nexthop_entries.desired

    @property
    def desired_groups(self) -> Mapping[int, NexthopGroup]:
        """The nexthop groups that the plane should have."""
        return self._resolution.group_entries.desired

    @property
    def installed_counts(self) -> dict[str, int]:
        """How many entries the plane has, by small table."""
        return {table.table: len(table.installed) for table in self.tables}

    @property
    def refusal(self) -> str:
        """Why something that is wanted is not on the plane, of several reasons one; "" where everything is."""
        reason = next(iter(self._prefixes.refused.values()), "")
        for kept_out in (self._resolution.over_quota, self._own.over_quota):
            reason = reason or next(iter(kept_out.values()), "")
        for table in self.tables:
            reason = reason or next(iter(table.refused.values()), "")
        reason = reason or next(iter(self._rib.unkept_sets.values()), "")
        if not reason and any(self._rib.unkept.values()):
            reason = f"quota memory of {self.usage.quota.memory} octets"
        if not reason and self._resolution.neighbors.refused:
            reason = f"quota neighbors of {self.config.quota.neighbors}"
        return reason

    def refused_interfaces(self, interface_ids: Iterable[int]) -> str:
        """Why the plane has one of these router interfaces otherwise than declared; "" where it refused none."""
        refusals = map(self._resolution.interface_entries.refusal, interface_ids)
        return next(filter(None, refusals), "")

    @property
    def refused_deletions(self) -> str:
        """Why the plane has an entry of a small table that is not desired; "" where it refused no deletion."""
        refusals = (table.refusal(one) for table in self.tables for one in table.refused if one not in table.desired)
        return next(filter(None, refusals), "")

    # Audits

    def begin_audit(self) -> set[bytes]:
        """Return a set that every key which is sent from now on, until `end_audit`, is added to.

        Whatever was sent before has to be confirmed before the plane is read.
        """
        self._audited_writes = self._entry_writes()
        return self._prefixes.begin_audit()

    def _entry_writes(self) -> int:
        return sum(table.writes for table in self.tables)

    def end_audit(self) -> None:
        """Note no more what is sent: the plane has been read."""
        self._prefixes.end_audit()

    # Its work

    @property
    def pending(self) -> int:
        """Prefixes that wait for their turn."""
        return self._prefixes.pending

    @property
    def unconfirmed(self) -> int:
        """Prefixes that wait for their turn or for the plane's confirmation."""
        return self._prefixes.unconfirmed

    def mark(self) -> tuple[int, int]:
        """Return the acknowledgement mark of everything queued so far, and of what is still to be looked at."""
        return self._asked, self._prefixes.mark()

    def moment(self) -> tuple[object, ...]:
        """Return what differs once anything of what is declared, desired or refused has changed, where the router was
        idle: routes that change, or are to go another way, are queued, and those that are refused are moved."""
        changes = sum(table.changes for table in self.tables)
        return self.config, self.mark(), self._prefixes.moved, changes

    def reached(self, mark: tuple[int, int]) -> bool:
        """Tell whether everything queued before ``mark``, or because of what came before it, is confirmed."""
        asked, queued = mark
        prefixes, finished = self._prefixes, self._finished
        while finished and prefixes.reached(finished[0][1]):
            self._finished_for = finished.popleft()[0]
        return asked <= self._finished_for and prefixes.reached(queued)

    @property
    def filled(self) -> bool:
        """Whether all that the plane was read to lack of it is confirmed, whatever has changed since."""
        return self._prefixes.reached(0)

    def _note_asked(self) -> None:
        """Let what is marked from now on wait for what is unfinished."""
        if self.unfinished:
            self._asked += 1

    def _note_finished(self) -> None:
        resolution, rib = self._resolution, self._rib
        waits = resolution.waits or self._own.waits
        left = resolution.outdated or waits or rib.has_left or self._pass or self._next_pass
        if not left:
            self._prefixes.fence()
        if self.unfinished and not left:
            self._finished.append((self._asked, self._prefixes.mark()))
        self.unfinished = bool(left)

    @property
    def busy(self) -> bool:
        """Whether `take` would give anything."""
        return self._prefixes.ready or any(self.tables)

    @property
    def busy_ahead(self) -> bool:
        """Whether `take` would give anything where router interfaces and policers wait."""
        resolution = self._resolution
        return bool(self._prefixes.ready or resolution.nexthop_entries or resolution.group_entries)

    @property
    def idle(self) -> bool:
        """Whether everything desired is written and confirmed."""
        return not self.busy and self.in_flight == 0 and not self.unfinished

    @property
    def clean(self) -> bool:
        """Whether nothing of a removed router is left on the plane."""
        return self.idle and not self._prefixes.installed and not any(table.installed for table in self.tables)

    @property
    def next_due(self) -> float:
        """When a timed state ends next; inf where there is none."""
        return min(self._resolution.neighbors.next_due, self._resolution.next_due, 0.0 if self.untidy else inf)

    @property
    def untidy(self) -> bool:
        """Whether sets, groups or nexthops may be unused that can be deleted now."""
        loose = self._resolution.loose and not self.unsure
        return (self._rib.loose or loose or bool(self._prefixes.let_go)) and self.idle

    @property
    def unsure(self) -> bool:
        """Whether the plane refused to change a route, which may use anything that it used before."""
        return self._prefixes.unsure

    @property
    def refusing(self) -> bool:
        """Whether there is anything for `retry_refused`."""
        over_quota = self._resolution.over_quota, self._own.over_quota
        return any((self._prefixes.refused, *over_quota, *(table.refused for table in self.tables)))

    @property
    def unkept(self) -> bool:
        """Whether anything was not kept that the VRC is to be asked for again once there is room (`room_again`)."""
        rib = self._rib
        return bool(rib.unkept_sets) or any(rib.unkept.values()) or self._resolution.neighbors.refused > 0

    @property
    def room_again(self) -> bool:
        """Whether there is room again for all that was not kept: neighbors, nexthop sets, or routes of every such
        family."""
        rib = self._rib
        if rib.room_for_sets or self._resolution.neighbors.room_again:
            return True
        lost = [family for family, count in rib.unkept.items() if count]
        return bool(lost) and all(self._has_spare_room(family) for family in lost)

    @property
    def overrun(self) -> bool:
        """Whether more prefixes wait for the plane than a VRC that waits for acknowledgements could have changed."""
        return self._prefixes.pending > len(self._rib.routes) + len(self._prefixes.installed) + LOST_AHEAD

    def _most_routes(self, family: int) -> int:
        quota = self.usage.quota
        most = (quota.ipv4_routes if family == 4 else quota.ipv6_routes) + SPARE_ROUTES
        return min(most, self._rib.counts[family] + self.usage.routes_affordable())

    def _has_spare_room(self, family: int) -> bool:
        """Whether all spare room is free again; of a small memory quota, a tenth of it."""
        affordable = self.usage.quota.memory // ROUTE_OCTETS // 10
        return self._rib.counts[family] + min(SPARE_ROUTES, affordable) <= self._most_routes(family)
