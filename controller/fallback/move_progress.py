"""Which routers are on their way between a plane and its fallback, from where, and how far they are.

A move begins when a router is placed elsewhere. It is over when rounds of placement find nothing more to do for the
router and the hardware has taken what they decided. Pure.
"""

from collections.abc import Callable
from dataclasses import dataclass

from controller.fallback.hardware_tables import HardwareTables
from controller.model import Placement
from controller.views import MoveView

QUIET_ROUNDS = 5
"""So many small rounds end a move also where the router's routes go on changing places with others."""


@dataclass(slots=True)
class Move:
    """One move under way."""

    to: Placement
    before: Placement | None  # where the routes rested; None: here, but the plane lost them
    start: int  # entries in hardware when it began
    begun: bool = False
    quiet: int = 0  # small rounds, one after the other
    decided: bool = False  # the placement has nothing more to do


class MoveProgress:
    """The moves of all routers of one hardware plane."""

    def __init__(self, tables: HardwareTables) -> None:
        self._tables = tables
        self._moves: dict[int, Move] = {}
        self._came_from: dict[int, Placement | None] = {}  # as it is stored

    def place(self, vrf_id: int, placement: Placement, before: Placement | None, came_from: Placement | None) -> None:
        """A router was placed, by ``before`` elsewhere; ``came_from``: what is stored of a move."""
        self._came_from[vrf_id] = came_from
        if before not in (None, placement):
            self._begin(vrf_id, placement, before)

    def _begin(self, vrf_id: int, to: Placement, before: Placement) -> None:
        """Begin a move, in the place of one that is under way: where that came from is where this one does."""
        latest = self._under_way(vrf_id)
        if latest is not None and not latest.begun and latest.before is to:
            del self._moves[vrf_id]  # nothing has moved
            return
        rested = before if latest is None or latest.before is None else latest.before
        self._moves[vrf_id] = Move(to, rested, self._count(vrf_id))

    def resume(self, vrf_id: int) -> None:
        """Go on after the plane or the controller was away, if there is anything to do."""
        installed, goal = self._count(vrf_id), self._tables.goal(vrf_id)
        to, before = self._tables.placement(vrf_id), self._came_from.get(vrf_id)
        latest = self._moves.pop(vrf_id, None)  # what was written of it may be gone
        incomplete = installed > goal if to is Placement.SOFTWARE else installed < goal
        if (latest is not None and not latest.decided) or incomplete:
            self._moves[vrf_id] = Move(to, before if latest is None else latest.before, installed)

    def forget(self, vrf_id: int) -> None:
        """Forget a router."""
        self._moves.pop(vrf_id, None)
        self._came_from.pop(vrf_id, None)

    def round(self, moved: Callable[[int], int], limited: bool) -> None:
        """A round of placement moved so many prefixes of each router; ``limited``: it may have had more to do."""
        for vrf_id, move in self._moves.items():
            move.begun = True
            move.quiet = 0 if limited else move.quiet + 1
            move.decided = move.quiet >= QUIET_ROUNDS or (move.quiet > 0 and not moved(vrf_id))

    def view(self, vrf_id: int) -> MoveView | None:
        """Return how far a router's move is, None where none is under way."""
        move = self._under_way(vrf_id)
        if move is None:
            return None
        goal = self._tables.goal(vrf_id)
        way = 1 if goal > move.start else -1
        total = way * (goal - move.start)
        done = max(0, min(total, way * (self._count(vrf_id) - move.start)))
        return MoveView(move.to.value, "" if move.before is None else move.before.value, done, total)

    def unknown(self, vrf_id: int) -> MoveView:
        """Return what is stored of a router of which it is not known how far it is."""
        return MoveView(self._tables.placement(vrf_id).value, self._came_from.get(vrf_id) or "", 0, 0)

    def _count(self, vrf_id: int) -> int:
        return self._tables.writes.count(vrf_id)

    def _under_way(self, vrf_id: int) -> Move | None:
        move = self._moves.get(vrf_id)
        if move is not None and move.decided and not self._tables.writes.waits(vrf_id):
            del self._moves[vrf_id]
            return None
        return move
