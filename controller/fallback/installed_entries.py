"""Installed small-table entries per plane; adjusts each operation to them, and merges what was read of both planes.

The FIB counts on both planes to hold the same. Where one has lost an entry, or refused it, an update is turned into
the one that fits what this plane has.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

from controller.fallback.pace import parts
from controller.model import Share
from controller.planes.base import (
    Counters,
    HardwareShare,
    Installed,
    Nexthop,
    NexthopGroup,
    Op,
    Policer,
    Refused,
    RouteKind,
    RouterInterface,
    Update,
    WriteBatch,
    action_kind,
    action_value,
)
from controller.planes.shares import ShareEntry, used_of

E = TypeVar("E", RouterInterface, Nexthop, NexthopGroup, Policer)
M = TypeVar("M", Nexthop, NexthopGroup, Policer)
K = TypeVar("K")

Ends = tuple[RouterInterface, RouterInterface]
"""A router interface as the hardware and as the fallback are to have it."""


@dataclass(slots=True)
class InstalledEntries:
    """Ids by table."""

    policer: set[int] = field(default_factory=set)
    router_interface: set[int] = field(default_factory=set)
    nexthop: set[int] = field(default_factory=set)
    nexthop_group: set[int] = field(default_factory=set)
    _partly: set[tuple[str, int]] = field(default_factory=set)  # perhaps there in part, as they were refused

    @classmethod
    def of(cls, read: Installed) -> "InstalledEntries":
        """Return what was read back; of what is damaged, some is there."""
        found = cls(set(read.policers), set(read.router_interfaces), set(read.nexthops), set(read.groups))
        for table, entry_id in read.damaged:
            found._ids(table).add(entry_id)
        return found

    def fit(self, table: str, updates: Iterable[Update[E]]) -> list[Update[E]]:
        """Return updates that this plane can do, and count on them to succeed."""
        installed = self._ids(table)
        fitting = []
        for update in updates:
            entry_id = id_of(update.entry)
            if update.op is Op.DELETE:
                if entry_id in installed or (table, entry_id) in self._partly:
                    fitting.append(update)
                installed.discard(entry_id)
                self._partly.discard((table, entry_id))
                continue
            fitting.append(Update(Op.MODIFY if entry_id in installed else Op.INSERT, update.entry))
            installed.add(entry_id)
            self._partly.discard((table, entry_id))
        return fitting

    def refused(self, one: Refused) -> None:
        """Take in that an update of a small table was refused."""
        if one.op is Op.INSERT and isinstance(one.key, int):
            self._ids(one.table).discard(one.key)
            self._partly.add((one.table, one.key))
        elif one.op is Op.DELETE and isinstance(one.key, int):
            self._ids(one.table).add(one.key)

    def _ids(self, table: str) -> set[int]:
        ids: set[int] = getattr(self, table)
        return ids


@dataclass(slots=True)
class Barred:
    """Nexthops and groups that the hardware refused: routes to them stay in software."""

    nexthops: set[int] = field(default_factory=set)
    groups: set[int] = field(default_factory=set)

    def ids(self, table: str) -> set[int]:
        """Return the ids of one table."""
        return self.nexthops if table == "nexthop" else self.groups

    def clear(self) -> None:
        """Bar nothing any more."""
        self.nexthops.clear()
        self.groups.clear()

    def __contains__(self, action: int) -> bool:
        if not self.nexthops and not self.groups:  # nearly always, and every route is asked for
            return False
        kind, value = action_kind(action), action_value(action)
        return (kind is RouteKind.NEXTHOP and value in self.nexthops) or (
            kind is RouteKind.GROUP and value in self.groups
        )


@dataclass(slots=True)
class KeptOut:
    """What is to become of nexthops and groups that a plane refused, did not delete, lost, or cannot use."""

    nexthops: dict[int, Update[Nexthop]] = field(default_factory=dict)
    groups: dict[int, Update[NexthopGroup]] = field(default_factory=dict)

    def took(self, batch: WriteBatch) -> None:
        """Forget what a batch has written, or deleted: that is not to be tried again."""
        for nexthop in batch.nexthops:
            self.nexthops.pop(nexthop.entry.id, None)
        for group in batch.groups:
            self.groups.pop(group.entry.id, None)

    def refused(self, batch: WriteBatch, refused: Iterable[Refused]) -> None:
        """Keep what was refused of a batch."""
        said = {(one.table, one.key) for one in refused}
        self.nexthops.update({u.entry.id: u for u in batch.nexthops if ("nexthop", u.entry.id) in said})
        self.groups.update({u.entry.id: u for u in batch.groups if ("nexthop_group", u.entry.id) in said})

    def lost(self, installed: Installed, wanted: Installed) -> None:
        """Keep what a plane was read to lack, or to have otherwise than another."""
        nexthops = [one for i, one in wanted.nexthops.items() if installed.nexthops.get(i) != one]
        self.nexthops.update({one.id: Update(Op.INSERT, one) for one in nexthops})
        self.useless(one for i, one in wanted.groups.items() if installed.groups.get(i) != one)

    def useless(self, groups: Iterable[NexthopGroup]) -> None:
        """Keep groups that a plane does not have, or cannot use."""
        self.groups.update({one.id: Update(Op.INSERT, one) for one in groups})

    def once_more(self) -> WriteBatch:
        """Return what is to be tried again."""
        return WriteBatch(nexthops=list(self.nexthops.values()), groups=list(self.groups.values()))


@dataclass(slots=True)
class Groups:
    """The groups that a plane was last asked to have, for what becomes of them with their nexthops."""

    by_id: dict[int, NexthopGroup] = field(default_factory=dict)

    def follow(self, updates: Iterable[Update[NexthopGroup]]) -> None:
        """Take in updates, whatever the plane says to them."""
        for update in updates:
            if update.op is Op.DELETE:
                self.by_id.pop(update.entry.id, None)
            else:
                self.by_id[update.entry.id] = update.entry

    def having(self, nexthops: Collection[int]) -> list[NexthopGroup]:
        """Return the groups that have one of these nexthops."""
        if not nexthops:  # nearly always
            return []
        return [one for one in self.by_id.values() if any(member.nexthop_id in nexthops for member in one.members)]


def id_of(entry: RouterInterface | Nexthop | NexthopGroup | Policer) -> int:
    """Return what an entry of a small table is known by there."""
    return entry.vrf_id if isinstance(entry, Policer) else entry.id


def merging(
    found: Installed,
    hard: Installed,
    soft: Installed,
    barred: Barred,
    ends: Callable[[RouterInterface], Ends | None],
) -> Iterator[None]:
    """Fill in, in steps, what both hold as the FIB declares it; what they do not have alike is damaged, except
    nexthops and groups that are ``barred`` from the hardware when it begins.

    ``ends`` tells how both are to have a router interface, None where that is not known.
    """
    nexthops, groups = set(barred.nexthops), set(barred.groups)
    found.routes, found.foreign = soft.routes, hard.foreign + soft.foreign
    found.damaged |= hard.damaged | soft.damaged
    links = {i: one.fallback for i, one in hard.router_interfaces.items() if one.fallback is not None}
    found.hardware = HardwareShare(hard.routes, links)
    for part in parts(hard.router_interfaces | soft.router_interfaces):
        for interface_id in part:
            here, there = hard.router_interfaces.get(interface_id), soft.router_interfaces.get(interface_id)
            either = here if here is not None else there
            assert either is not None
            found.router_interfaces[interface_id] = declared = replace(either, fallback=None)
            wanted = ends(declared)
            if wanted is not None and (here, there) != wanted:
                found.damaged.add(("router_interface", interface_id))
        yield
    yield from _merging("policer", found.policers, hard.policers, soft.policers, found.damaged)
    yield from _merging("nexthop", found.nexthops, hard.nexthops, soft.nexthops, found.damaged, nexthops)
    yield from _merging("nexthop_group", found.groups, hard.groups, soft.groups, found.damaged, groups)


def _merging(
    table: str,
    found: dict[int, M],
    hard: Mapping[int, M],
    soft: Mapping[int, M],
    damaged: set[tuple[str, int]],
    barred: Collection[int] = (),
) -> Iterator[None]:
    """Take entries of both; those that the two do not have alike are damaged, except what the hardware refused."""
    for part in parts({**hard, **soft}.items()):
        for entry_id, entry in part:
            found[entry_id] = entry
            if soft.get(entry_id) != hard.get(entry_id) and not (entry_id in barred and entry_id in soft):
                damaged.add((table, entry_id))
        yield


def summed(hard: Counters, soft: Counters) -> Counters:
    """Return the counters of both: an interface's are the hardware's, which sees every packet of it once."""
    _add(hard.punts, soft.punts)
    _add(hard.drops, soft.drops)
    for lost, others in ((hard.lost_punts, soft.lost_punts), (hard.lost_of_routers, soft.lost_of_routers)):
        for key, packets in others.items():
            lost[key] = lost.get(key, 0) + packets
    hard.share_use = used_of(hard.share_use, soft.share_use)
    return hard


def common_share(found: Collection[ShareEntry | None]) -> ShareEntry:
    """Return a share that is the same everywhere, or one that differs from all that may be desired."""
    first = next(iter(found))
    return ShareEntry(Share(weight=0)) if first is None or any(one != first for one in found) else first


def _add(counts: dict[K, tuple[int, int]], others: dict[K, tuple[int, int]]) -> None:
    for key, (packets, octets) in others.items():
        known = counts.get(key, (0, 0))
        counts[key] = (known[0] + packets, known[1] + octets)
