"""What one of two planes holds of the small tables, so that it is asked only for what it can do.

The FIB counts on both planes to hold the same. Where one has lost an entry, or refused it, an update is turned into
the one that fits what this plane has.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import TypeVar

from controller.planes.base import (
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

E = TypeVar("E", RouterInterface, Nexthop, NexthopGroup, Policer)


@dataclass(slots=True)
class Holdings:
    """Ids by table."""

    policer: set[int] = field(default_factory=set)
    router_interface: set[int] = field(default_factory=set)
    nexthop: set[int] = field(default_factory=set)
    nexthop_group: set[int] = field(default_factory=set)

    @classmethod
    def of(cls, read: Installed) -> "Holdings":
        """Return what was read back; of what is damaged, some is there."""
        found = cls(set(read.policers), set(read.router_interfaces), set(read.nexthops), set(read.groups))
        for table, entry_id in read.damaged:
            found._ids(table).add(entry_id)
        return found

    def fit(self, table: str, updates: Iterable[Update[E]]) -> list[Update[E]]:
        """Return updates that this plane can do, and count on them to succeed."""
        held = self._ids(table)
        fitting = []
        for update in updates:
            entry_id = id_of(update.entry)
            if update.op is Op.DELETE:
                if entry_id in held:
                    held.discard(entry_id)
                    fitting.append(update)
                continue
            fitting.append(Update(Op.MODIFY if entry_id in held else Op.INSERT, update.entry))
            held.add(entry_id)
        return fitting

    def refused(self, one: Refused) -> None:
        """Take in that an update of a small table was refused."""
        if one.op is Op.INSERT and isinstance(one.key, int):
            self._ids(one.table).discard(one.key)
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

    def __contains__(self, action: int) -> bool:
        if not self.nexthops and not self.groups:  # nearly always, and every route is asked for
            return False
        kind, value = action_kind(action), action_value(action)
        return (kind is RouteKind.NEXTHOP and value in self.nexthops) or (
            kind is RouteKind.GROUP and value in self.groups
        )


@dataclass(slots=True)
class KeptOut:
    """Nexthops and groups that a plane refused or lost, or cannot use, as they were to be."""

    nexthops: dict[int, Nexthop] = field(default_factory=dict)
    groups: dict[int, NexthopGroup] = field(default_factory=dict)

    def took(self, batch: WriteBatch) -> None:
        """Forget what a batch has written, or deleted: that is not to be tried again."""
        for nexthop in batch.nexthops:
            self.nexthops.pop(nexthop.entry.id, None)
        for group in batch.groups:
            self.groups.pop(group.entry.id, None)

    def refused(self, batch: WriteBatch, one: Refused) -> None:
        """Keep what was refused of a batch."""
        if one.table == "nexthop":
            self.nexthops.update({u.entry.id: u.entry for u in batch.nexthops if u.entry.id == one.key})
        else:
            self.groups.update({u.entry.id: u.entry for u in batch.groups if u.entry.id == one.key})

    def lost(self, held: Installed, wanted: Installed) -> None:
        """Keep what a plane was read to lack, or to have otherwise than another."""
        self.nexthops.update({i: one for i, one in wanted.nexthops.items() if held.nexthops.get(i) != one})
        self.groups.update({i: one for i, one in wanted.groups.items() if held.groups.get(i) != one})

    def once_more(self) -> WriteBatch:
        """Return what is to be tried again."""
        return WriteBatch(
            nexthops=[Update(Op.INSERT, nexthop) for nexthop in self.nexthops.values()],
            groups=[Update(Op.INSERT, group) for group in self.groups.values()],
        )


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
