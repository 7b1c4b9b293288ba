"""The route table of one router on its plane: what is installed, what waits for its turn, what was refused.

A change only queues its prefix; the queue is first in, first out, so counting prefixes in and out of it tells when
everything queued before some moment is confirmed. Made for millions of prefixes: dicts of bytes to integers.

A prefix is in one batch at a time: after an update that is refused it is known what the plane has, and what is sent
next follows from that. Otherwise a plane could refuse to insert it, and take the change that was sent meanwhile for
the insertion of what nobody knows it to have then. A prefix that changes under way waits, and those behind it do.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice, takewhile
from math import inf
from types import MappingProxyType
from typing import Any

from controller.planes.base import UNKNOWN_ACTION, Op, RouteUpdates
from controller.routing import _routes
from controller.routing.rib import NexthopSet
from controller.routing.table_pass import READ_COST, SLICE_COST, KeyScan
from controller.routing.usage import SliceUsage
from wire.columns import family_of

_OPS = (Op.INSERT, Op.MODIFY, Op.DELETE)

Deleted = Mapping[str, Mapping[int, Any]]
"""What a batch deletes of the small tables, by table and id."""

READ_AT_ONCE = SLICE_COST // READ_COST
"""Prefixes of a read-back that are counted in one step."""

NOTHING: Deleted = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Desired:
    """The actions that prefixes should have.

    That of a route is its set's, 0 for none. `decide` tells that of prefixes in ``own``, and whether a prefix stays
    on the other action that it has; None where it should not be installed.
    """

    own: dict[bytes, int]
    routes: dict[bytes, NexthopSet]
    decide: Callable[[bytes], int | None]


@dataclass(slots=True)
class RouteTicket:
    """What one `take` of a table removed from the queue, to be handed back to `confirm`."""

    taken: int = 0  # prefixes taken over the table's life, these included
    sent: list[list[bytes]] = field(default_factory=list, compare=False)  # the prefixes that have updates
    released: list[int] = field(default_factory=list)  # actions that prefixes no longer have


@dataclass(slots=True)
class Ticket:
    """What one `take` of a FIB put into a batch, to be handed back to `confirm`."""

    routes: RouteTicket = field(default_factory=RouteTicket)
    freed: list[int] = field(default_factory=list)  # object ids deleted
    deleted: dict[str, Mapping[int, Any]] = field(default_factory=dict)
    cost: int = 0  # of the updates, in routes
    entries: int = 0  # of these, of others than routes


class PrefixTable:
    """Installed prefixes of one VRF. `installed` is what the plane holds once all that was sent is confirmed."""

    def __init__(self, vrf_id: int, usage: SliceUsage) -> None:
        self.installed: dict[bytes, int] = {}
        self.refused: dict[bytes, str] = {}
        self.moved = 0  # keys of `installed` put in and taken out so far, or more
        self._written: set[bytes] | None = None  # while an audit reads: keys sent meanwhile
        self._vrf_id = vrf_id
        self._usage = usage
        self._queue: dict[bytes, None] = {}
        self._queued = 0
        self._taken = 0
        self._confirmed = 0
        self._barrier = 0.0
        self._comparing = False  # it is not known yet what differs from what was read
        self._under_way: list[RouteTicket] = []  # that have updates, and are not confirmed
        self._blocked = False  # the next prefix is under way
        self._sizes = {5: 0, 17: 0}  # of `installed`, by the length of keys
        self._references: dict[int, int] = {}  # of actions that some prefix has, or may still have on the plane
        self.let_go: dict[int, None] = {}  # actions that lost their last reference; whoever looks at them empties it

    # The queue

    def enqueue(self, keys: Iterable[bytes]) -> None:
        """Look at these prefixes again; one that waits already keeps its place."""
        queue = self._queue
        before = len(queue)
        queue.update(dict.fromkeys(keys))
        self._queued += len(queue) - before

    @property
    def pending(self) -> int:
        """Prefixes that wait for their turn."""
        return len(self._queue)

    @property
    def ready(self) -> bool:
        """Whether `take` would take any."""
        return bool(self._queue) and not self._blocked

    @property
    def unconfirmed(self) -> int:
        """Prefixes that wait for their turn or for the plane's confirmation."""
        return self._queued - self._confirmed

    def mark(self) -> int:
        """Return the acknowledgement mark of everything queued so far."""
        return self._queued

    def reached(self, mark: int) -> bool:
        """Tell whether everything queued before ``mark`` is confirmed."""
        return self._confirmed >= max(mark, self._barrier)

    # Writing

    def take(
        self, limit: int, desired: Desired, exempt: Callable[[bytes], bool]
    ) -> tuple[list[RouteUpdates], RouteTicket]:
        """Take at most ``limit`` prefixes off the queue, none behind one that is under way; returns the updates that
        give them what is desired now.

        A new prefix that the slice's quota has no room for is refused, unless it is ``exempt`` and has the room that
        is reserved beside the quota for as many as the slice may have neighbors.
        """
        ipv4, ipv6 = RouteUpdates(self._vrf_id, 4), RouteUpdates(self._vrf_id, 6)
        usage, beside = self._usage, {5: 0, 17: 0}
        queue, ticket = self._queue, RouteTicket()
        keys = list(islice(queue, limit))
        if self._under_way:
            keys = self._up_to_one_under_way(keys)

        def admit(key: bytes) -> bool:
            if not exempt(key) or beside[len(key)] >= usage.room_beside(f"ipv{family_of(key)}_routes"):
                return self._refuse(key)
            beside[len(key)] += 1
            return True

        more4, more6 = _routes.take(
            keys,
            (desired.own, desired.routes, desired.decide),
            (self.installed, self._references, self.refused, ticket.released),
            (usage.room("ipv4_routes"), usage.room("ipv6_routes"), admit),
            _OPS,
            (ipv4.ops, ipv4.keys, ipv4.actions),
            (ipv6.ops, ipv6.keys, ipv6.actions),
        )
        self._count(5, more4)
        self._count(17, more6)
        if len(keys) == len(queue):
            queue.clear()
        else:
            for key in keys:
                del queue[key]
        self._taken += len(keys)
        self.moved += len(keys)
        ticket.taken = self._taken
        updates = [column for column in (ipv4, ipv6) if column.keys]
        if updates:
            ticket.sent = [column.keys for column in updates]
            self._under_way.append(ticket)
        if self._written is not None:
            self._written.update(*ticket.sent)
        return updates, ticket

    def confirm(self, ticket: RouteTicket) -> None:
        """The plane has confirmed what was taken."""
        self._under_way = [one for one in self._under_way if one is not ticket]
        self._blocked = False
        self._confirmed = max(self._confirmed, ticket.taken)
        references = self._references
        for action in ticket.released:
            if (left := references[action] - 1) > 0:
                references[action] = left
            else:
                self._let_go(action)

    def abandon(self) -> None:
        """What was sent may not have arrived: nothing is confirmed any more until `adopt`."""
        self._barrier, self._comparing = inf, False
        self._under_way, self._blocked = [], False

    def refuse(self, key: bytes, reason: str, left: int | None) -> None:
        """Note that an update was refused, and what the plane has for that prefix now."""
        self.refused[key] = reason
        self.find(key, left)

    def retry(self) -> None:
        """Look again at what was refused."""
        self.enqueue(self.refused)
        self.refused.clear()

    # Reading back

    def begin_audit(self) -> set[bytes]:
        """Return a set that every key which is taken from now on, until `end_audit`, is added to."""
        written: set[bytes] = set()
        self._written = written
        return written

    def end_audit(self) -> None:
        """Note no more what is taken."""
        self._written = None

    def adopt(self, found: dict[bytes, int], followed: bool) -> Iterator[None]:
        """Take over a read-back, which has also told what became of everything that was sent, in steps: what is
        installed is another mapping, this one, after the last.

        What the fallback of a plane, ``followed`` by hardware, has otherwise than it was last written is to be
        written again, also where it is as desired. The caller queues what differs, and nothing is confirmed until
        `fence`.
        """
        references, sizes, before = Counter[int](), Counter[int](), self.installed
        doubted = followed and bool(before or self._taken)  # else nothing was written
        items, scan = iter(found.items()), KeyScan()
        while part := dict(islice(items, READ_AT_ONCE)):
            if doubted:
                part = {key: action if before.get(key) == action else UNKNOWN_ACTION for key, action in part.items()}
                found.update(part)
            references.update(part.values())
            sizes.update(map(len, part))
            if len(part) == READ_AT_ONCE:
                yield
        while doubted and (keys := scan.next(before, self.moved, READ_AT_ONCE)):
            part = {key: UNKNOWN_ACTION for key in keys if key not in found}
            found.update(part)
            references.update(part.values())
            sizes.update(map(len, part))
            if len(keys) == READ_AT_ONCE:
                yield
        for octets, size in self._sizes.items():
            self._count(octets, sizes[octets] - size)
        self.installed, self._references = found, dict(references)
        self.refused.clear()
        self._confirmed = self._taken
        self._barrier, self._comparing = inf, True
        self._under_way, self._blocked = [], False

    def fence(self) -> None:
        """All that differs from what was read is queued: confirm nothing before that is confirmed."""
        if self._comparing:
            self._barrier, self._comparing = self._queued, False

    def find(self, key: bytes, action: int | None) -> None:
        """Take over what the plane holds for one prefix."""
        self.moved += 1
        have = self.installed.pop(key, None)
        if have is not None:
            self._references[have] -= 1
            if self._references[have] <= 0:
                self._let_go(have)
            self._count(len(key), -1)
        if action is not None:
            self.installed[key] = action
            self._references[action] = self._references.get(action, 0) + 1
            self._count(len(key), 1)

    def differing(self, found: dict[bytes, int], written: set[bytes]) -> list[bytes]:
        """Return the prefixes for which a read-back says something else, except those ``written`` meanwhile."""
        installed = self.installed
        keys = installed.keys() | found.keys()
        return [key for key in keys if installed.get(key) != found.get(key) and key not in written]

    # Use of objects

    def uses(self, action: int) -> bool:
        """Tell whether a prefix has this action, or may still have it on the plane."""
        return action in self._references

    @property
    def unsure(self) -> bool:
        """Whether a prefix has an action on the plane that is not known, as a change of it was refused."""
        return UNKNOWN_ACTION in self._references

    def actions_in_use(self) -> set[int]:
        """Return all actions for which `uses` holds."""
        return set(self._references)

    # Inside

    def _up_to_one_under_way(self, keys: list[bytes]) -> list[bytes]:
        wanted = set(keys)
        met = [sent for ticket in self._under_way for sent in ticket.sent if not wanted.isdisjoint(sent)]
        if not met:
            return keys
        self._blocked = True
        waited_for = set[bytes]().union(*met)
        return list(takewhile(lambda key: key not in waited_for, keys))

    def _let_go(self, action: int) -> None:
        del self._references[action]
        self.let_go[action] = None

    def _refuse(self, key: bytes) -> bool:
        self.refused[key] = self._usage.full(f"ipv{family_of(key)}_routes")
        return False

    def _count(self, octets: int, count: int) -> None:
        self._sizes[octets] += count
        self._usage.add("ipv4_routes" if octets == 5 else "ipv6_routes", count)
