"""Passes over a router's whole tables, a slice at a time, while the tables change.

    what changed ─► PassRequest ─► routes that were learned, then prefixes that are installed ─► keys to look at again

A pass costs as much as the router has routes. So it is done in slices that the router pays for one by one; what is
asked for while a pass is under way has one of its own after it, together with all else that was asked for.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from controller.routing.rib import NexthopSet

SLICE_COST = 20_000
"""What a slice costs, in tenths of a microsecond: some 2 ms, where the machine is not busy with something else."""

LEARNED_COST, STALE_COST, DIFFERING_COST, INSTALLED_COST, READ_COST = 3, 10, 8, 12, 2
"""What it costs to look at a route that was learned, to withdraw it if it is stale, to compare it with what is
installed, to look at a prefix that is installed, and to count one that was read."""


@dataclass(slots=True)
class PassRequest:
    """What one pass looks for."""

    sets: set[NexthopSet] = field(default_factory=set)  # whose routes are written again
    stale: bool = False  # routes that a resync did not repeat
    differing: bool = False  # routes that the plane was read to have otherwise, or not at all
    unlearned: bool = False  # prefixes that are installed and that nothing desires
    stray: bool = False  # prefixes left on an object that no longer does what their set says

    @property
    def of_learned(self) -> bool:
        """Whether it looks at what was learned."""
        return bool(self.sets) or self.stale or self.differing

    @property
    def of_installed(self) -> bool:
        """Whether it looks at what is installed."""
        return self.unlearned or self.stray

    def __bool__(self) -> bool:
        return self.of_learned or self.of_installed


class KeyScan:
    """Goes once over the keys of a dict that others change meanwhile, and misses none that stays.

    Dicts keep the order of insertion, so what was not seen yet moves forward by no more than what has been taken out.
    """

    def __init__(self) -> None:
        self._table: Mapping[bytes, Any] = {}
        self._keys: Iterator[bytes] = iter(())
        self._position = self._moved = 0

    def next(self, table: Mapping[bytes, Any], moved: int, count: int) -> list[bytes]:
        """Return the next keys, fewer than ``count`` at the end; ``moved`` counts keys put in and taken out so far.

        Another table than the last time is begun from its start.
        """
        if table is not self._table:
            self._table, self._position, self._keys = table, 0, iter(table)
        elif moved != self._moved:
            self._position = max(0, self._position - (moved - self._moved))
            self._keys = islice(table, self._position, None)
        self._moved = moved
        keys = list(islice(self._keys, count))
        self._position += len(keys)
        return keys
