"""A forwarding table as a function over the whole address space, and where two such functions differ.

A table of prefixes is flattened into breakpoints: sorted first addresses, each with the value that holds up to the
next one. Two tables forward alike exactly when their functions are equal, however different their prefixes.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeVar

V = TypeVar("V")

Breakpoints = list[tuple[int, V | None]]


def flatten(table: Mapping[bytes, V], family: int) -> Breakpoints[V]:
    """Return the breakpoints of the longest-prefix-match function; None where no prefix matches.

    Keys of the other family are passed over. O(n log n): prefixes sorted by (address, length) nest like brackets.
    """
    size, bits = (4, 32) if family == 4 else (16, 128)
    space = 1 << bits
    points: Breakpoints[V] = []
    open_prefixes: list[tuple[int, V]] = []  # (end, value), outermost first

    def emit(start: int, value: V | None) -> None:
        if points and points[-1][0] == start:
            points.pop()
        if not points or points[-1][1] != value:
            points.append((start, value))

    emit(0, None)
    for key in sorted(key for key in table if len(key) == size + 1):
        start = int.from_bytes(key[:-1], "big")
        end = start + (1 << (bits - key[-1]))
        _close(open_prefixes, start, emit)
        emit(start, table[key])
        open_prefixes.append((end, table[key]))
    _close(open_prefixes, space, emit)
    if points[-1][0] == space:
        points.pop()
    return points


def _close(open_prefixes: list[tuple[int, V]], until: int, emit: Callable[[int, V | None], None]) -> None:
    while open_prefixes and open_prefixes[-1][0] <= until:
        end, _ = open_prefixes.pop()
        emit(end, open_prefixes[-1][1] if open_prefixes else None)


def differences(functions: Sequence[Breakpoints[V]], family: int) -> Iterator[tuple[int, int, tuple[V | None, ...]]]:
    """Iterate over (first address, last address, each function's value) where not all functions agree."""
    space = 1 << (32 if family == 4 else 128)
    starts = sorted({start for function in functions for start, _ in function})
    at = [0] * len(functions)
    for position, start in enumerate(starts):
        for i, function in enumerate(functions):
            while at[i] + 1 < len(function) and function[at[i] + 1][0] <= start:
                at[i] += 1
        values = tuple(function[at[i]][1] for i, function in enumerate(functions))
        if any(value != values[0] for value in values):
            end = starts[position + 1] if position + 1 < len(starts) else space
            yield start, end - 1, values
