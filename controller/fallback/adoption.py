"""Begins with what a hardware plane and its fallback were read to hold, and keeps what may stay where it is.

1. What the hardware forwards enters the fast tables first, so that it keeps its room.
2. Own addresses that it lacks follow, then whatever the placement of the router asks for.
3. A router is frozen where the software has lost routes: its entries in hardware stay as they are until the FIB has
   everything from the guest again (`complete`), and `thaw` has brought back what it has there.

Pure.
"""

import contextlib
from collections import ChainMap
from collections.abc import Callable, Collection, Iterator, Mapping

from controller.fallback.hardware_tables import HardwareTables, insertions
from controller.fallback.move_progress import MoveProgress
from controller.fallback.pace import parts
from controller.fallback.recovery import has_lost_routes
from controller.model import Placement
from controller.planes.base import (
    FALLBACK,
    LOCAL,
    Op,
    RouteKind,
    WriteBatch,
    route_action,
)


class Adoption:
    """Takes over the routers of one hardware plane; their moves go on."""

    def __init__(self, tables: HardwareTables, moves: MoveProgress) -> None:
        self._tables, self._moves = tables, moves
        self._before: dict[int, set[bytes]] = {}  # what the hardware was to hold, of an adoption that was given up
        self._complete: dict[int, None] = {}  # routers of which the software has all routes again
        self._begun = 0  # adoptions
        self._to_open = set[int]()  # routers that an adoption is to open

    def begin(self) -> None:
        """Before both planes are read: what was said of routers until now is of no use any more."""
        self._begun += 1
        self._complete.clear()

    def adopt(
        self,
        hardware: Mapping[int, Mapping[bytes, int]],
        software: Mapping[int, Mapping[bytes, int]],
        routers: Collection[int],
    ) -> Iterator[None]:
        """Begin with what both planes were read to hold for these routers, in steps; nothing is written meanwhile.

        What the hardware holds of them, or was to hold before it lost it, stays where it may stay; the rest is
        pending. Where the software has lost routes, nothing is written before `complete`. Routers may be forgotten,
        and placed, between two steps; an adoption that is given up is begun anew.
        """
        tables, writes = self._tables, self._tables.writes
        frozen = {vrf_id for vrf_id in writes.frozen if hardware.get(vrf_id)}  # of others nothing is left to stay
        yield from self._reopen(routers, software)
        for vrf_id, entries in hardware.items():
            if not tables.declares(vrf_id):
                continue  # nobody would ever say that its guest has repeated all
            if (yield from has_lost_routes(entries, software.get(vrf_id, {}))):
                frozen.add(vrf_id)
        frozen = {vrf_id for vrf_id in frozen if tables.declares(vrf_id)}  # others were forgotten meanwhile
        writes.freeze(frozen)
        yield from tables.set_installed(hardware)  # what does not stay is in the way of what is not there
        here: dict[int, set[bytes]] = {}
        for vrf_id in tables.routers & frozen:
            yield from self._load(vrf_id, software.get(vrf_id, {}), set(), {})
        for vrf_id in tables.routers - frozen:
            there = hardware.get(vrf_id, {})
            here[vrf_id] = _own_routes(there) or self._before.get(vrf_id, set())
            yield from self._load(vrf_id, software.get(vrf_id, {}), here[vrf_id], there)
        for vrf_id in set(tables.routers):
            yield from self._load_missing(vrf_id, software.get(vrf_id, {}), here.get(vrf_id, ()))
        yield from writes.find_differing()
        for vrf_id in tables.routers - frozen:
            if vrf_id in tables.routers:
                self._moves.resume(vrf_id)
                yield
        tables.mark_changed()
        self._before = {}

    def _reopen(self, routers: Collection[int], software: Mapping[int, Mapping[bytes, int]]) -> Iterator[None]:
        """Open these routers with empty tables, as far as there is room, and no others, one in each step."""
        tables, self._to_open = self._tables, set(routers)
        for vrf_id in tables.routers.copy():
            if vrf_id in tables.routers:
                self._before.setdefault(vrf_id, self._forwarding(vrf_id))
                tables.drop(vrf_id)
                yield
        tables.forget_installed()
        tables.set_unopened({})
        for vrf_id in routers:
            if vrf_id in self._to_open:
                with contextlib.suppress(ValueError):
                    tables.open(vrf_id)
                yield
        tables.set_unopened(software)

    def forget(self, vrf_id: int) -> None:
        """A router is gone: an adoption that is under way does not open it."""
        self._to_open.discard(vrf_id)

    def _load(
        self, vrf_id: int, routes: Mapping[bytes, int], here: set[bytes], there: Collection[bytes]
    ) -> Iterator[None]:
        """Take a router's routes, and let those of ``here`` have their place in hardware before all others.

        ``there`` are the entries that the hardware has of it now, covers included.
        """
        if vrf_id in self._tables.routers:
            for fast in self._tables.fast.values():
                fast.set_placement(vrf_id, Placement.SOFTWARE)
        yield from self._take(vrf_id, routes, lambda key, action: action != LOCAL or key in here)
        yield from self._tables.keep(vrf_id, here, there)

    def _load_missing(self, vrf_id: int, routes: Mapping[bytes, int], here: Collection[bytes]) -> Iterator[None]:
        """Bring in own addresses that are not in hardware, and from now on what the placement says."""
        yield from self._take(vrf_id, routes, lambda key, action: action == LOCAL and key not in here)
        if vrf_id in self._tables.routers:
            self._tables.follow_placement(vrf_id)

    def _take(self, vrf_id: int, routes: Mapping[bytes, int], chosen: Callable[[bytes, int], bool]) -> Iterator[None]:
        for part in parts(routes.items()):
            if vrf_id not in self._tables.routers:
                return
            for columns in insertions(vrf_id, {key: action for key, action in part if chosen(key, action)}):
                self._tables.change(columns)
            yield

    def complete(self, vrf_id: int) -> None:
        """The software has all routes of a router again: `thaw` has the hardware follow it, if it does not."""
        self._complete[vrf_id] = None

    def thaw(self) -> Iterator[None]:
        """Have the hardware follow the routers that are complete, in steps; given up where an adoption begins."""
        begun = self._begun
        while self._complete:
            vrf_id = next(iter(self._complete))
            for _ in self._thaw(vrf_id):
                yield
                if begun != self._begun:
                    return
            self._complete.pop(vrf_id, None)

    def _thaw(self, vrf_id: int) -> Iterator[None]:
        tables, writes = self._tables, self._tables.writes
        if vrf_id not in writes.frozen:
            return
        there, here = self._there(vrf_id), set[bytes]()
        for entries in there:
            for part in parts(list(entries)):
                here.update(key for key in part if entries.get(key, FALLBACK) != FALLBACK)
                yield
        yield from tables.keep(vrf_id, here, ChainMap(*there))
        if vrf_id not in writes.frozen:
            return  # it was closed meanwhile, or released
        writes.unfreeze(vrf_id)
        if vrf_id in tables.routers:
            tables.follow_placement(vrf_id)
            self._moves.resume(vrf_id)
        tables.mark_changed()

    def _there(self, vrf_id: int) -> list[dict[bytes, int]]:
        """Return the entries that the hardware has of a router, of each family."""
        installed = self._tables.writes.installed
        return [installed.get((vrf_id, family), {}) for family in self._tables.fast]

    def release_users(self, batch: WriteBatch) -> Iterator[None]:
        """Before nexthops or groups of a batch are deleted, release the frozen routers that use them, in steps."""
        actions = {action_to("nexthop", one.entry.id) for one in batch.nexthops if one.op is Op.DELETE}
        actions |= {action_to("nexthop_group", one.entry.id) for one in batch.groups if one.op is Op.DELETE}
        for vrf_id in list(self._tables.writes.frozen) if actions else ():
            for part in parts([action for entries in self._there(vrf_id) for action in entries.values()]):
                if not actions.isdisjoint(part):
                    yield from self._thaw(vrf_id)
                    break
                yield

    def _forwarding(self, vrf_id: int) -> set[bytes]:
        wanted = self._tables.wanted
        return {key for family in self._tables.fast for key in _own_routes(wanted[vrf_id, family])}


def action_to(table: str, object_id: int) -> int:
    """Return the action of a route to an entry of the nexthop or nexthop group table."""
    return route_action(RouteKind.NEXTHOP if table == "nexthop" else RouteKind.GROUP, object_id)


def _own_routes(entries: Mapping[bytes, int]) -> set[bytes]:
    """Return the prefixes that the hardware does not leave to the software."""
    return {key for key, action in entries.items() if action != FALLBACK}
