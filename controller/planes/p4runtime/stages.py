"""What a batch becomes: rows to write in stages, each with the update it is for, from what the device holds.

    close │ policers │ router interfaces, egress and fallback_link │ their way back in │ nexthops │ groups │ routes │
        l3_admit │ open, fallback_link that goes
    groups that go │ nexthops that go │ router interfaces, egress, that go │ policers that go
    what was written of new entries that were refused: their ways in │ the rest

Each stage is confirmed before the next is made: it starts from what is then there. To close comes first: whatever a
router interface that goes or changes had in interface_classifier under a port and VLAN that is not its own any more,
its fallback link's too. So when a VLAN goes from one tenant to another, no packet is the old one's to send or the new
one's to get at the same time: the old way in is shut, then ways out change, then the new way in is opened, last of
all.

A row that the device holds as wanted is not written. One that it holds otherwise is MODIFYed, whoever wrote it.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TypeVar

from controller.planes.base import (
    Nexthop,
    NexthopGroup,
    Op,
    Policer,
    RouterInterface,
    WriteBatch,
)
from controller.planes.p4runtime.program import Owner, Program, Row
from controller.planes.p4runtime.readback import Inventory
from controller.planes.refusals import (
    UpdateKey,
    group_key,
    interface_key,
    nexthop_key,
    policer_key,
)

E = TypeVar("E", RouterInterface, Nexthop, NexthopGroup, Policer)

Refuse = Callable[[UpdateKey, str], None]


@dataclass(frozen=True, slots=True)
class Step:
    """One row to write; a DELETE's row has no content."""

    update_key: UpdateKey
    owner: Owner
    op: Op
    row: Row

    def turned(self, op: Op) -> "Step":
        """Return the same with another operation."""
        return replace(self, op=op)


Stage = list[Step]


class Stages:
    """The stages of one batch, made one after the other; ``refuse`` is told what cannot be written at all."""

    def __init__(self, program: Program, inventory: Inventory, batch: WriteBatch, refuse: Refuse) -> None:
        self._program, self._inventory, self._refuse = program, inventory, refuse
        self._policers = [(policer_key(update), update.entry) for update in batch.policers]
        self._interfaces = [(interface_key(update), update.entry) for update in batch.router_interfaces]
        self._nexthops = [(nexthop_key(update), update.entry) for update in batch.nexthops]
        self._groups = [(group_key(update), update.entry) for update in batch.groups]
        entries = (*self._policers, *self._interfaces, *self._nexthops, *self._groups)
        self._new = [
            update_key
            for update_key, _ in entries
            if not _goes(update_key) and (update_key[0], update_key[2]) not in inventory
        ]

    @property
    def after_routes(self) -> bool:
        """Whether anything has to wait for the routes of this batch and of those before it."""
        entries = (*self._policers, *self._nexthops, *self._groups)
        return bool(self._interfaces) or any(_goes(update_key) for update_key, _ in entries)

    def arrivals(self) -> Iterator[Stage]:
        """Yield the stages before the routes."""
        program = self._program
        yield self._close()
        yield [
            step
            for update_key, _ in self._interfaces
            if _goes(update_key)
            for step in self._drop(update_key, ("l3_admit",))
        ]
        yield self._put_policers()
        yield self._put_all(self._interfaces, program.egress_rows)
        yield self._put_all(self._interfaces, program.way_back_rows)
        yield self._put_all(self._nexthops, program.nexthop_rows)
        yield self._put_all([each for each in self._groups if self._has_members(*each)], program.group_rows)

    def openings(self) -> Iterator[Stage]:
        """Yield the stages by which packets come in."""
        yield self._put_all(self._interfaces, self._program.admit_rows)
        stale = self._drop_others("l3_admit", self._program.admit_rows)
        stale += self._drop_others("fallback_link", self._program.egress_rows)
        yield stale + self._put_all(self._interfaces, self._program.classifier_rows)

    def departures(self) -> Iterator[Stage]:
        """Yield the stages of the deletes that come last."""
        for entries in (self._groups, self._nexthops, self._interfaces, self._policers):
            yield [step for update_key, _ in entries if _goes(update_key) for step in self._drop(update_key)]

    def remains(self, refused: Callable[[UpdateKey], bool]) -> Iterator[Stage]:
        """Yield the deletes of what was written of new entries that were then refused: none is half there, and what
        it took is another's to have."""
        halves = [update_key for update_key in self._new if refused(update_key)]
        for tables in (("interface_classifier",), ()):
            yield [step for update_key in halves for step in self._drop(update_key, tables)]

    # -- parts -------------------------------------------------------------------------------------------------------
    def _close(self) -> Stage:
        ways_in = "interface_classifier"
        gone = [
            step
            for update_key, _ in self._interfaces
            if _goes(update_key)
            for step in self._drop(update_key, (ways_in,))
        ]
        return gone + self._drop_others(ways_in, self._ways_in)

    def _ways_in(self, interface: RouterInterface) -> list[Row]:
        return self._program.way_back_rows(interface) + self._program.classifier_rows(interface)

    def _put_policers(self) -> Stage:
        stage = self._put_all(self._policers, self._program.policer_rows)
        for update_key, policer in self._policers:
            rows = None if _goes(update_key) else self._rows(update_key, self._program.policer_rows, policer)
            if rows is not None:
                stage += self._drop(update_key, ("policer", "reason"), rows)
        return stage

    def _has_members(self, update_key: UpdateKey, group: NexthopGroup) -> bool:
        """Tell whether all members exist; refuse a group that is written with others."""
        if not _goes(update_key):
            for member in group.members:
                if ("nexthop", member.nexthop_id) not in self._inventory:
                    self._refuse(update_key, f"nexthop {member.nexthop_id} does not exist")
                    return False
        return True

    def _put_all(self, entries: Iterable[tuple[UpdateKey, E]], make: Callable[[E], list[Row]]) -> Stage:
        stage, inventory = [], self._inventory
        for update_key, entry in entries:
            owner = update_key[0], update_key[2]
            for row in () if _goes(update_key) else self._rows(update_key, make, entry) or ():
                if not inventory.holds(row, owner):
                    op = Op.MODIFY if row.key in inventory.rows else Op.INSERT
                    stage.append(Step(update_key, owner, op, row))
        return stage

    def _drop_others(self, table: str, make: Callable[[RouterInterface], list[Row]]) -> Stage:
        """Return the deletion of the rows in a table that router interfaces which stay do not have any more."""
        stage = []
        for update_key, interface in self._interfaces:
            rows = None if _goes(update_key) else self._rows(update_key, make, interface)
            if rows is not None:
                stage += self._drop(update_key, (table,), rows)
        return stage

    def _rows(self, update_key: UpdateKey, make: Callable[[E], list[Row]], entry: E) -> list[Row] | None:
        """Return the rows of an entry; None, and a refusal, where a value does not fit its field."""
        try:
            return make(entry)
        except ValueError as error:
            self._refuse(update_key, str(error))
            return None

    def _drop(self, update_key: UpdateKey, tables: Iterable[str] = (), kept: Iterable[Row] = ()) -> Stage:
        """Return the deletion of an entry's rows in some tables, or in all, except those that are kept."""
        owner, keys = (update_key[0], update_key[2]), {row.key for row in kept}
        wanted = [key for key in self._inventory.of(owner) if key not in keys and (not tables or key[0] in tables)]
        return [Step(update_key, owner, Op.DELETE, Row(key, b"")) for key in wanted]


def _goes(update_key: UpdateKey) -> bool:
    return update_key[3] is Op.DELETE
