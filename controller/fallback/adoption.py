"""Begins with what a hardware plane and its fallback were read to hold, and keeps what may stay where it is.

1. What the hardware forwards enters the fast tables first, so that it keeps its room.
2. Own addresses that it lacks follow, then whatever the placement of the router asks for.
3. A router is frozen where the software has lost routes: its entries in hardware stay as they are until the FIB has
   everything from the guest again (`complete`).

Pure.
"""

import contextlib
from collections.abc import Collection, Iterable, Mapping

from controller.fallback.hardware_tables import HardwareTables, insertions
from controller.fallback.move_progress import MoveProgress
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

    def adopt(
        self,
        hardware: Mapping[int, Mapping[bytes, int]],
        software: Mapping[int, Mapping[bytes, int]],
        routers: Iterable[int],
    ) -> None:
        """Begin with what both planes were read to hold for these routers.

        What the hardware holds of them, or was to hold before it lost it, stays where it may stay; the rest is
        pending. Where the software has lost routes, nothing is written before `complete`.
        """
        tables, writes = self._tables, self._tables.writes
        frozen = writes.frozen & tables.routers
        frozen |= {i for i, entries in hardware.items() if has_lost_routes(entries, software.get(i, {}))}
        before = {vrf_id: self._forwarding(vrf_id) for vrf_id in tables.routers}
        tables.set_unopened({})
        self._reopen(routers)
        tables.set_unopened(software)
        tables.set_installed(hardware)  # what does not stay is in the way of what is not there
        writes.freeze(frozen)
        here: dict[int, set[bytes]] = {}
        for vrf_id in tables.routers & frozen:
            self._load(vrf_id, software.get(vrf_id, {}), set(), {})
        for vrf_id in tables.routers - frozen:
            there = hardware.get(vrf_id, {})
            here[vrf_id] = _own_routes(there) or before.get(vrf_id, set())
            self._load(vrf_id, software.get(vrf_id, {}), here[vrf_id], there)
        for vrf_id in tables.routers:
            self._load_missing(vrf_id, software.get(vrf_id, {}), here.get(vrf_id, ()))
        tables.audit(hardware)
        for vrf_id in tables.routers - frozen:
            self._moves.resume(vrf_id)
        tables.mark_changed()

    def _reopen(self, routers: Iterable[int]) -> None:
        """Open these routers with empty tables, as far as there is room, and close all others."""
        tables = self._tables
        for vrf_id in list(tables.routers):
            tables.close(vrf_id)
        tables.set_installed({})
        for vrf_id in routers:
            with contextlib.suppress(ValueError):
                tables.open(vrf_id)

    def _load(self, vrf_id: int, routes: Mapping[bytes, int], here: set[bytes], there: Collection[bytes]) -> None:
        """Take a router's routes, and let those of ``here`` have their place in hardware before all others.

        ``there`` are the entries that the hardware has of it now, covers included.
        """
        for fast in self._tables.fast.values():
            fast.set_placement(vrf_id, Placement.SOFTWARE)
        for columns in insertions(vrf_id, {key: one for key, one in routes.items() if one != LOCAL or key in here}):
            self._tables.change(columns)
        self._tables.keep(vrf_id, here, there)

    def _load_missing(self, vrf_id: int, routes: Mapping[bytes, int], here: Collection[bytes]) -> None:
        """Bring in own addresses that are not in hardware, and from now on what the placement says."""
        for columns in insertions(
            vrf_id, {key: one for key, one in routes.items() if one == LOCAL and key not in here}
        ):
            self._tables.change(columns)
        self._tables.follow_placement(vrf_id)

    def complete(self, vrf_id: int) -> None:
        """The software has all routes of a router again: from now on the hardware follows it, if it did not."""
        tables, writes = self._tables, self._tables.writes
        if vrf_id not in writes.frozen:
            return
        if vrf_id in tables.routers:
            there = writes.entries(vrf_id)
            tables.keep(vrf_id, _own_routes(there), there)
        writes.unfreeze(vrf_id)
        if vrf_id in tables.routers:
            tables.follow_placement(vrf_id)
            self._moves.resume(vrf_id)
        tables.mark_changed()

    def release_users(self, batch: WriteBatch) -> None:
        """Before nexthops or groups of a batch are deleted, release the frozen routers that use them."""
        actions = {action_to("nexthop", one.entry.id) for one in batch.nexthops if one.op is Op.DELETE}
        actions |= {action_to("nexthop_group", one.entry.id) for one in batch.groups if one.op is Op.DELETE}
        writes = self._tables.writes
        for vrf_id in list(writes.frozen) if actions else ():
            if not actions.isdisjoint(writes.entries(vrf_id).values()):
                self.complete(vrf_id)

    def _forwarding(self, vrf_id: int) -> set[bytes]:
        wanted = self._tables.wanted
        return {key for family in self._tables.fast for key in _own_routes(wanted[vrf_id, family])}


def action_to(table: str, object_id: int) -> int:
    """Return the action of a route to an entry of the nexthop or nexthop group table."""
    return route_action(RouteKind.NEXTHOP if table == "nexthop" else RouteKind.GROUP, object_id)


def _own_routes(entries: Mapping[bytes, int]) -> set[bytes]:
    """Return the prefixes that the hardware does not leave to the software."""
    return {key for key, action in entries.items() if action != FALLBACK}
