"""`get --watch`: a list on a terminal that is kept true, or a line for each row of it that changes."""

import json
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

from controller.vrctl import output
from controller.vrctl.client import Unreachable
from controller.vrctl.live import pipe_reader
from controller.vrctl.output import Format

if TYPE_CHECKING:
    from rich.table import Table

EVERY_S = 1.0
"""The controller is asked so often; it answers from memory."""

_FIRST_LEFT_OUT = (
    "groups nexthops neighbors guest placement ipv6_routes ipv4_routes share capabilities entries kind routers "
    "reached_at routes mtu mac vlan port_up addresses sets members interfaces memory rule serial names valid_until "
    "refused pending"
)
"""What a screen does without where it is too narrow, in this order."""

_IDENTITY = ("slice", "serial", "router", "name")
"""What tells the rows of a list apart. A deleted router may still be there beside a new one of its name."""

Row = dict[str, Any]
Read = Callable[[], list[Row]]


def watch(read: Read, columns: Sequence[str], form: Format) -> None:
    """Show what ``read`` returns, and its changes, until KeyboardInterrupt.

    A controller that is away later on is waited for; Unreachable where it is away from the start. BrokenPipeError
    once standard output is a pipe that nobody reads any more, also where nothing changes.
    """
    if form is Format.TABLE and sys.stdout.isatty():
        _show(read, columns)
    else:
        _print_changes(read, columns, form)


def _looks(read: Read) -> Iterator[tuple[list[Row], str]]:
    """Yield what is there now and, where the controller is away, its complaint beside what was there last."""
    rows = read()
    yield rows, ""
    while True:
        if pipe_reader.is_gone(EVERY_S):
            raise BrokenPipeError
        try:
            rows, complaint = read(), ""
        except Unreachable as problem:
            complaint = str(problem)
        yield rows, complaint


def _show(read: Read, columns: Sequence[str]) -> None:
    from rich.live import Live

    looks = _looks(read)
    first = next(looks)
    with Live(auto_refresh=False) as live:
        for rows, complaint in chain([first], looks):
            live.update(frame(rows, complaint, columns, live.console.width), refresh=True)


def frame(rows: list[Row], complaint: str, columns: Sequence[str], width: int) -> "Table":
    """Return what a screen of such a width shows: words are whole, and the line above says what had no room for that.

    Above, because what is longer than a screen is cut at its end.
    """
    from rich.text import Text

    shown, left_out = list(columns), []
    for column in (one for one in _FIRST_LEFT_OUT.split() if one in columns):
        if output.widths_within(width, rows, shown) is not None:
            break
        shown.remove(column)
        left_out.append(column)
    table = output.rich_table(rows, shown, width)
    told = [complaint or time.strftime("%H:%M:%S")]
    if left_out:
        told.append(f"no room for {', '.join(output.titles_of(left_out))}")
    table.title_justify, table.title = "left", Text("; ".join(told))
    return table


def differences(before: list[Row], now: list[Row]) -> Iterator[tuple[str, Row]]:
    """Yield "added", "changed" or "removed" and the row, in the order of the list; what is gone comes last."""
    had, has = _by_identity(before), _by_identity(now)
    for key, row in has.items():
        if key not in had:
            yield "added", row
        elif had[key] != row:
            yield "changed", row
    yield from (("removed", row) for key, row in had.items() if key not in has)


def _by_identity(rows: list[Row]) -> dict[tuple[object, ...], Row]:
    found: dict[tuple[object, ...], Row] = {}
    seen: Counter[tuple[object, ...]] = Counter()
    for row in rows:
        identity = tuple(row.get(column) for column in _IDENTITY)
        found[*identity, seen[identity]] = row
        seen[identity] += 1
    return found


def _print_changes(read: Read, columns: Sequence[str], form: Format) -> None:
    before: list[Row] = []
    complained = ""
    write = _Table(columns).write if form is Format.TABLE else _write_json if form is Format.JSON else _write_yaml
    for rows, complaint in _looks(read):
        if complaint and complaint != complained:
            output.complain(f"{complaint}; waiting for it")
        complained = complaint
        stamp = time.strftime("%Y-%m-%d %H:%M:%S")
        write([{"time": stamp, "change": how, **row} for how, row in differences(before, rows)])
        sys.stdout.flush()
        before = rows


def _write_json(rows: list[Row]) -> None:
    for row in rows:
        print(json.dumps(row, ensure_ascii=False))


def _write_yaml(rows: list[Row]) -> None:
    if rows:
        output.write_yaml(rows)


class _Table:
    """Rows under one head; a column grows with what it has to hold."""

    def __init__(self, columns: Sequence[str]) -> None:
        self._columns = ("time", "change", *columns)
        self._widths = [0, len("changed"), *(0 for _ in columns)]
        self._head = [output.titles_of(self._columns)]

    def write(self, rows: list[Row]) -> None:
        lines = self._head + [[output.cell(row[column]) for column in self._columns] for row in rows]
        self._head = []
        for line in lines:
            self._widths = [max(width, len(text)) for width, text in zip(self._widths, line, strict=True)]
        for line in lines:
            print(output.aligned(line, self._widths))
