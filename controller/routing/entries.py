"""Desired against installed for the small tables of one router: router interfaces, nexthops, groups, its policer.

Both are kept by id; a change marks the id, and `take` turns marks into updates. Routes have a table of their own in
`prefixes`, made for millions.
"""

from collections.abc import Iterable, Set
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from controller.planes.base import Nexthop, NexthopGroup, Op, Policer, RouterInterface, Update

E = TypeVar("E", RouterInterface, Nexthop, NexthopGroup, Policer)


def cost_of(entry: object) -> int:
    """Return what an update of an entry costs, in routes: a group as many as it has members."""
    return max(1, len(entry.members)) if isinstance(entry, NexthopGroup) else 1


@dataclass(slots=True)
class Taken(Generic[E]):
    """Updates for one batch."""

    updates: list[Update[E]] = field(default_factory=list)
    cost: int = 0
    whole: bool = True  # nothing that was asked for is left
    deleted: dict[int, E] = field(default_factory=dict)  # what was installed, or perhaps in part, and is no more

    def add(self, update: Update[E]) -> None:
        """Take one more."""
        self.updates.append(update)
        self.cost += cost_of(update.entry)


class EntryTable(Generic[E]):
    """One small table."""

    def __init__(self, table: str) -> None:
        self.table = table
        self.desired: dict[int, E] = {}
        self.installed: dict[int, E] = {}
        self.refused: dict[int, str] = {}
        self.writes = 0  # updates taken so far
        self.changes = 0  # of what is desired or refused so far
        self.unchanged: set[int] = set()  # ids whose last change was refused: the plane has what was there before
        self._marked: dict[int, None] = {}
        self._rewrite: set[int] = set()
        self._uncertain: dict[int, E] = {}  # perhaps there in part: damaged; refused, but not by a fallback

    def __bool__(self) -> bool:
        return bool(self._marked)

    def want(self, entry_id: int, entry: E | None) -> None:
        """Set or, with None, unset what is desired under an id."""
        if entry is None:
            gone = self.desired.pop(entry_id, None)
            if entry_id not in self.installed:
                if gone is None:
                    return
                if entry_id in self._rewrite:
                    self._uncertain[entry_id] = gone
        elif self.desired.get(entry_id) == entry:
            return
        else:
            self.desired[entry_id] = entry
        self.changes += 1
        self._marked[entry_id] = None

    def adopt(self, installed: dict[int, E], damaged: Iterable[int]) -> None:
        """Take over what was read back; every id that differs from desired is marked."""
        self.installed = installed
        self._rewrite = set(damaged)
        self.changes += 1
        self.refused.clear()
        self.unchanged.clear()
        self._uncertain.clear()
        differing = {i for i in self.desired.keys() | installed.keys() if self.desired.get(i) != installed.get(i)}
        self._marked = dict.fromkeys(sorted(differing | self._rewrite))

    def damaged(self, read: Set[tuple[str, int]]) -> set[int]:
        """Return which ids of this table are among what was read to be damaged, by table and id: of all routers."""
        ids = self.desired.keys() | self.installed.keys() if read else ()
        return {one for one in ids if (self.table, one) in read}

    def repair(self, found: dict[int, E], damaged: Iterable[int]) -> int:
        """Take over a read-back of the ids that are ours and mark what differs; returns how many."""
        wrong: list[int] = [i for i, entry in self.installed.items() if found.get(i) != entry]
        broken: set[int] = {i for i in damaged if i in self.installed or i in self.desired}
        for entry_id in wrong:
            gone = self.installed.pop(entry_id)
            if entry_id in found:
                self.installed[entry_id] = found[entry_id]
            elif entry_id in broken:  # a part of it is there, to be deleted where it is not desired
                self._uncertain[entry_id] = gone
        self._rewrite.update(broken)
        marked = {*wrong, *broken}
        self._marked.update(dict.fromkeys(sorted(marked)))
        return len(marked)

    def retry(self) -> None:
        """Mark what was refused, to be tried once more."""
        self._marked.update(dict.fromkeys(self.refused))
        self.changes += len(self.refused)
        self.refused.clear()

    def waits(self, entry_id: int) -> bool:
        """Tell whether an id waits for its turn to be looked at."""
        return entry_id in self._marked

    def refusal(self, entry_id: int) -> str:
        """Return why the plane refused what is wanted under an id; "" where it did not, or that waits to be tried."""
        return "" if entry_id in self._marked else self.refused.get(entry_id, "")

    def take(self, limit: int, deletions: bool = True) -> Taken[E]:
        """Return updates that make installed equal desired, and count on them to succeed: at least one, and then as
        many as cost no more than ``limit``. Without ``deletions`` what is not desired any more waits.
        """
        taken: Taken[E] = Taken()
        looked_at: list[int] = []
        for entry_id in self._marked:
            want, have = self.desired.get(entry_id), self.installed.get(entry_id)
            if want is None and not deletions:
                continue
            if taken.cost >= limit:
                taken.whole = False
                break
            looked_at.append(entry_id)
            rewrite = entry_id in self._rewrite
            uncertain = self._uncertain.pop(entry_id, None)
            self.changes += self.refused.pop(entry_id, None) is not None  # or it is refused again
            if want is None:
                gone = uncertain if have is None else have
                if gone is not None:
                    taken.add(Update(Op.DELETE, gone))
                    taken.deleted[entry_id] = gone
                    self.installed.pop(entry_id, None)
            elif want != have or rewrite:
                present = have is not None or rewrite or entry_id in self.unchanged
                taken.add(Update(Op.MODIFY if present else Op.INSERT, want))
                self.installed[entry_id] = want
        for entry_id in looked_at:
            del self._marked[entry_id]
        self._rewrite.difference_update(looked_at)
        self.unchanged.difference_update(looked_at)
        self.writes += len(taken.updates)
        return taken

    def refuse(self, entry_id: int, op: Op, reason: str, left: E | None = None) -> None:
        """Note that the plane did not take an update, and has ``left`` still, which may be there in part."""
        self.refused[entry_id] = reason
        self.changes += 1
        if op is not Op.DELETE:
            refused = self.installed.pop(entry_id, None)
            if refused is not None:
                self._uncertain[entry_id] = refused
            if op is Op.MODIFY:
                self.unchanged.add(entry_id)
        elif left is not None:
            self.installed[entry_id] = left
            self._rewrite.add(entry_id)
            if entry_id in self.desired:  # again, and perhaps sent meanwhile
                self._marked[entry_id] = None
