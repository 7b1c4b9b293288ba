"""Forwarding tables as functions over the whole address space, and where these differ.

A table of prefixes is flattened into breakpoints: sorted first addresses, each with the value that holds up to the
next one. Two tables forward alike exactly when their functions are equal, however different their prefixes.

    rows in order ─► Ranges: the prefixes around an address, each with the value of every table ─► breakpoints

What is large is sorted, and gone through, in steps.
"""

import heapq
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Generic, TypeVar

V = TypeVar("V")

Values = tuple[V | None, ...]
"""What each of some tables has for a prefix, or says of an address; None where it has no such prefix, or none
matches."""

Row = tuple[bytes, Values[V]]
"""A prefix and what some tables have for it."""

SORTED_AT_ONCE = 4096
"""Rows that are sorted in one step: a millisecond or two."""


def in_order(parts: Iterable[list[Row[V]]]) -> Generator[None, None, dict[int, Iterator[Row[V]]]]:
    """Sort rows, of which there is one for each prefix, in steps; returns those of each family, 4 and 6, by address,
    shorter first."""
    runs, run = {4: list[list[Row[V]]](), 6: list[list[Row[V]]]()}, list[Row[V]]()

    def sort() -> None:
        run.sort(key=itemgetter(0))
        for family, size in ((4, 5), (6, 17)):
            runs[family].append([row for row in run if len(row[0]) == size])

    for part in parts:
        run += part
        if len(run) >= SORTED_AT_ONCE:
            sort()
            run = []
        yield
    sort()
    return {family: heapq.merge(*of_family, key=itemgetter(0)) for family, of_family in runs.items()}


class Ranges(Generic[V]):
    """The longest-prefix-match functions of some tables, as one over all addresses.

    Prefixes in order of (address, length) nest like brackets: a table that has no such prefix has there what it has
    around it.
    """

    def __init__(self, tables: int, family: int) -> None:
        """``tables`` is how many there are."""
        self._bits = 32 if family == 4 else 128
        self.end = 1 << self._bits
        """The address after the last one."""
        nothing: Values[V] = (None,) * tables
        self._around = [(self.end, nothing)]  # the end of each prefix around, and what holds in it, outermost first
        self._next = 0  # address
        self._latest: Values[V] | None = None

    def take(self, rows: Iterable[Row[V]]) -> Iterator[tuple[int, Values[V]]]:
        """Iterate over the breakpoints before the last of the next prefixes."""
        around = self._around
        for key, values in rows:
            start = int.from_bytes(key[:-1], "big")
            while around[-1][0] <= start:
                yield from self._up_to(*around.pop())
            outside = around[-1][1]
            yield from self._up_to(start, outside)
            inside = tuple([out if own is None else own for own, out in zip(values, outside, strict=True)])
            around.append((start + (1 << (self._bits - key[-1])), inside))

    def finish(self) -> Iterator[tuple[int, Values[V]]]:
        """Iterate over the breakpoints that are left."""
        while self._around:
            yield from self._up_to(*self._around.pop())

    def _up_to(self, end: int, values: Values[V]) -> Iterator[tuple[int, Values[V]]]:
        if end > self._next:
            if values != self._latest:
                yield self._next, values
                self._latest = values
            self._next = end


class Differences(Generic[V]):
    """Where tables differ: the first ``most`` ranges, as (first address, last address, each table's value), and how
    many there are in all."""

    def __init__(self, tables: int, family: int, most: int) -> None:
        self.found: list[tuple[int, int, Values[V]]] = []
        self.total = 0
        self._ranges, self._most = Ranges[V](tables, family), most
        self._since: tuple[int, Values[V]] | None = None  # where they began to differ

    def take(self, rows: Iterable[Row[V]]) -> None:
        """Look at the next prefixes in order."""
        self._note(self._ranges.take(rows))

    def finish(self) -> None:
        """Look at what is left."""
        self._note(self._ranges.finish())
        self._close(self._ranges.end)

    def _note(self, breakpoints: Iterable[tuple[int, Values[V]]]) -> None:
        for start, values in breakpoints:
            self._close(start)
            if values.count(values[0]) < len(values):
                self._since = start, values

    def _close(self, end: int) -> None:
        if self._since is not None:
            self.total += 1
            if len(self.found) < self._most:
                self.found.append((self._since[0], end - 1, self._since[1]))
            self._since = None


def flatten(table: Mapping[bytes, V], family: int) -> list[tuple[int, V | None]]:
    """Return the breakpoints of a table's function at once; keys of the other family are passed over."""
    ranges = Ranges[V](1, family)
    return [(start, value) for start, (value,) in (*ranges.take(_rows([table], family)), *ranges.finish())]


def differences(tables: Sequence[Mapping[bytes, V]], family: int) -> list[tuple[int, int, Values[V]]]:
    """Return at once where tables differ; keys of the other family are passed over."""
    rows = _rows(tables, family)
    different = Differences[V](len(tables), family, 2 * len(rows) + 1)
    different.take(rows)
    different.finish()
    return different.found


def _rows(tables: Sequence[Mapping[bytes, V]], family: int) -> list[Row[V]]:
    size = 5 if family == 4 else 17
    keys = sorted({key for table in tables for key in table if len(key) == size})
    return [(key, tuple([table.get(key) for table in tables])) for key in keys]
