"""FIB aggregation: a table with fewer entries that forwards every address as the full one does.

    the router's FIB ── change ──► Aggregate ── few writes ──► fast table ──► hardware

What is kept is a trie with a label on each node; _labels.h says how, with a picture. Sources: Draves, King,
Venkatachary and Zill, "Constructing Optimal IP Routing Tables", INFOCOM 1999, whose optimum this is once `improve`
has run to its end; Fitch, "Toward defining the course of evolution", Systematic Zoology 1971, for the same as the
labels of a tree; Uzmi et al., "SMALTA", CoNEXT 2011, for changing the aggregated table where the route changed and
repairing the rest later.

Ours is the bound. No table that is optimal can follow every change with few writes: where ORTC gives a /8 the action
of most of its /24s, and each of its holes an entry, a change of the /8 rewrites all of these. So a prefix with more
than ``limit`` prefixes directly inside it stands alone: its own entry serves all its holes, and nothing is merged
across them. Its change is then one write, and that of any other prefix costs `write_bound` at most, however large the
table. How many entries that costs, bench/aggregate measures.
"""

from collections.abc import Mapping

from controller.route_cache._aggregate import Labels

WIDTH = {4: 32, 6: 128}

LIMIT = 64
"""How many prefixes a prefix may have directly inside it and still be merged."""

LEAST_BUDGET = 5
"""Writes that one step of `Aggregate.improve` may take."""

LOOKS_PER_WRITE = 16
"""Places that `Aggregate.improve` looks at for each write of its budget."""

_UNLIMITED = (1 << 64) - 1
_MOST_LIMIT = (1 << 31) - 1


class Aggregate:
    """The aggregated route table of one VRF and family.

    Keys are prefix keys (wire/columns.py), actions are those of controller/planes/base.py, and nothing is known of
    them but whether they are equal. At any time

    - each address has the action that the full table gives it, and none where that has none;
    - every action in the table is that of some prefix of the full table;
    - the prefixes that are ``kept`` have their own entries.

    The time of a change is bounded as its writes are. Memory is some 100 to 200 octets for each prefix that was there
    at once, and is not given back. Of the actions, 255 at a time can be merged; prefixes with others stand alone.
    """

    def __init__(self, family: int, limit: int = LIMIT) -> None:
        """``limit``: prefixes directly inside a prefix that is still merged, 0 to 2³¹ - 1."""
        if family not in WIDTH:
            raise ValueError(f"family {family} is neither 4 nor 6")
        if not 0 <= limit <= _MOST_LIMIT:
            raise ValueError(f"limit {limit} is not from 0 to {_MOST_LIMIT}")
        self.family = family
        self.write_bound = write_bound(family, limit)
        self._labels = Labels(WIDTH[family], limit)

    def __len__(self) -> int:
        """Return the number of entries of the aggregated table."""
        return self._labels.entries

    @property
    def routes(self) -> int:
        """The number of prefixes of the full table."""
        return self._labels.routes

    @property
    def queued(self) -> int:
        """How many places `improve` has to look at; with 0 the table is as small as ``limit`` allows."""
        return self._labels.queued

    def change(self, changes: Mapping[bytes, int | None], *, kept: bool = False) -> dict[bytes, int | None]:
        """Give prefixes of the full table actions, or None; return what to write: key → action, None to delete.

        The writes are `write_bound` for each change at most. ``kept`` prefixes have their own entry as it is, until
        they are changed again without. ValueError, and nothing changed, for what is no key or action.
        """
        return self._labels.change(dict(changes), kept, 0)

    def load(self, routes: Mapping[bytes, int | None]) -> dict[bytes, int | None]:
        """Do as `change` and then `improve` to the end, without a bound: for a table of which nothing is written."""
        return self._labels.change(dict(routes), False, _UNLIMITED)

    def improve(self, budget: int | None = None) -> dict[bytes, int | None]:
        """Make the table smaller where changes left it larger than it could be; return what to write.

        With a ``budget`` of writes, LEAST_BUDGET at least, it looks at 16 places for each of them at most.
        """
        if budget is None:
            return self._labels.improve(_UNLIMITED, _UNLIMITED)
        if budget < LEAST_BUDGET:
            raise ValueError(f"a budget of {budget} writes is too small; {LEAST_BUDGET} is the least")
        return self._labels.improve(budget, budget * LOOKS_PER_WRITE)

    def match(self, address: bytes) -> tuple[bytes, int] | None:
        """Return the entry that an address of 4 or 16 octets goes by, as key and action; None where there is none."""
        return self._labels.match(address)

    def table(self) -> dict[bytes, int]:
        """Return all entries."""
        return self._labels.table()


def write_bound(family: int, limit: int) -> int:
    """Return how many writes one changed prefix may cost.

    At most 2 * limit + 1 prefixes lie directly inside the two that a change touches, its own and the one around it.
    With the forks between them that makes twice as many edges, of three entries each, and the first entry on both
    sides of each prefix inside: eight for each. On the way up, an edge and what is beside it have two entries for
    each bit. The rest is the change's own place, and the nodes put in or taken out there.
    """
    return 8 * (2 * limit + 1) + 2 * WIDTH[family] + 24
