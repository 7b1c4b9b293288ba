"""Which routers are on their way between a plane and its fallback, from where, and how far they are.

A move begins when a router is placed elsewhere. It is over when rounds of placement find nothing more to do for the
router and the hardware has taken what they decided. Pure.
"""

from collections.abc import Callable
from dataclasses import dataclass

from controller.model import Placement
from controller.views import MoveView

QUIET_ROUNDS = 5
"""So many small rounds end a move also where the router's routes go on changing places with others."""

Entries = Callable[[int], int]
"""Given a vrf_id, tells of so many entries in hardware."""


@dataclass(slots=True)
class Move:
    """One move under way."""

    to: Placement
    before: Placement | None  # where the routes rested; None: here, but the plane lost them
    start: int  # entries in hardware when it began
    begun: bool = False
    quiet: int = 0  # small rounds, one after the other
    decided: bool = False  # the placement has nothing more to do


class Moves:
    """Moves by router. ``held`` counts the entries that the hardware has of it, ``goal`` those it is to have, and
    ``written`` tells whether nothing of it waits for the hardware."""

    def __init__(self, held: Entries, goal: Entries, written: Callable[[int], bool]) -> None:
        self._held, self._goal, self._written = held, goal, written
        self._moves: dict[int, Move] = {}

    def begin(self, vrf_id: int, to: Placement, before: Placement) -> None:
        """Begin a move, in the place of one that is under way: where that came from is where this one does."""
        latest = self._under_way(vrf_id)
        if latest is not None and not latest.begun and latest.before is to:
            del self._moves[vrf_id]  # nothing has moved
            return
        rested = before if latest is None or latest.before is None else latest.before
        self._moves[vrf_id] = Move(to, rested, self._held(vrf_id))

    def resume(self, vrf_id: int, to: Placement, before: Placement | None) -> None:
        """Go on after the plane or the controller was away, if there is anything to do; ``before``: where routes
        rested, as far as it is stored."""
        held, goal = self._held(vrf_id), self._goal(vrf_id)
        latest = self._moves.pop(vrf_id, None)  # what was written of it may be gone
        if (latest is not None and not latest.decided) or (held > goal if to is Placement.SOFTWARE else held < goal):
            self._moves[vrf_id] = Move(to, before if latest is None else latest.before, held)

    def forget(self, vrf_id: int) -> None:
        """Forget a router."""
        self._moves.pop(vrf_id, None)

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
        goal = self._goal(vrf_id)
        way = 1 if goal > move.start else -1
        total = way * (goal - move.start)
        done = max(0, min(total, way * (self._held(vrf_id) - move.start)))
        return MoveView(move.to.value, "" if move.before is None else move.before.value, done, total)

    def _under_way(self, vrf_id: int) -> Move | None:
        move = self._moves.get(vrf_id)
        if move is not None and move.decided and self._written(vrf_id):
            del self._moves[vrf_id]
            return None
        return move
