"""What vrctl prints: tables for people, JSON or YAML for programs."""

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # it takes a tenth of a second to import, which only terminals need
    from rich.table import Table
    from rich.text import Text

_SAMPLE = 200
"""Rows of a long table that its column widths are taken from; the rest is printed as it comes."""

_GAP = 2
"""Between two columns."""


class Format(StrEnum):
    """How to print."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"


def cell(value: Any) -> str:
    """Return a value as a table shows it."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict):
        return ", ".join(f"{key}: {cell(item)}" for key, item in value.items())
    if isinstance(value, list):
        return ", ".join(map(cell, value))
    return str(value)


def write_yaml(value: Any) -> None:
    """Print a value as YAML."""
    from ruamel.yaml import YAML

    yaml = YAML(typ="safe", pure=True)
    yaml.default_flow_style = False
    yaml.sort_base_mapping_type_on_output = False  # type: ignore[assignment]  # keys stay in the API's order
    yaml.dump(value, sys.stdout)


def write_value(value: Any, form: Format) -> None:
    """Print a value for a program."""
    if form is Format.YAML:
        write_yaml(value)
    else:
        print(json.dumps(value, indent=2, ensure_ascii=False))


def write_rows(rows: Iterable[dict[str, Any]], columns: Sequence[str], form: Format, empty: str = "none") -> int:
    """Print rows; returns how many. Long tables are printed as they come, never held as a whole."""
    walk = iter(rows)
    if form is Format.TABLE:
        return _write_table(walk, columns, empty)
    count = 0
    for row in walk:
        count += 1
        if form is Format.YAML:
            write_yaml([row])
        else:
            print("[\n  " if count == 1 else ",\n  ", json.dumps(row, ensure_ascii=False), sep="", end="")
    if not count:
        print("[]")
    elif form is Format.JSON:
        print("\n]")
    return count


def _write_table(rows: Iterator[dict[str, Any]], columns: Sequence[str], empty: str) -> int:
    sample = list(islice(rows, _SAMPLE))
    if not sample:
        print(empty, file=sys.stderr)
        return 0
    rest = next(rows, None)
    titles = titles_of(columns)
    if rest is None and sys.stdout.isatty():
        _write_to_terminal(sample, columns)
        return len(sample)
    cells = [[cell(row[column]) for column in columns] for row in sample]
    widths = [max(map(len, column)) for column in zip(titles, *cells, strict=True)]
    count = 0
    print(aligned(titles, widths))
    later = chain((rest,), rows) if rest is not None else ()
    for texts in chain(cells, ([cell(row[column]) for column in columns] for row in later)):
        count += 1
        print(aligned(texts, widths))
    return count


def titles_of(columns: Sequence[str]) -> list[str]:
    """Return the titles that a table's columns have."""
    return [column.replace("_", " ").upper() for column in columns]


def aligned(texts: Sequence[str], widths: Sequence[int]) -> str:
    """Return the line of a table; what is wider than its column moves the rest."""
    return (" " * _GAP).join(text.ljust(width) for text, width in zip(texts, widths, strict=True)).rstrip()


def _write_to_terminal(rows: list[dict[str, Any]], columns: Sequence[str]) -> None:
    """Print a table as wide as the terminal; one whose words are too wide for it in lines that the terminal breaks,
    so that names can be copied.
    """
    from rich.console import Console
    from rich.text import Text

    console = Console()
    if widths_within(console.width, rows, columns) is not None:
        console.print(rich_table(rows, columns, console.width))
        return
    titles = [Text(title, style="bold") for title in titles_of(columns)]
    lines = [titles, *_styled(rows, columns)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        for text, width in zip(line, widths, strict=True):
            text.pad_right(width - len(text))
        whole = Text(" " * _GAP).join(line)
        whole.rstrip()
        console.print(whole, soft_wrap=True)


def widths_within(width: int, rows: Iterable[dict[str, Any]], columns: Sequence[str]) -> list[int] | None:
    """Return how wide columns are in a table of such a width; None where not every word fits."""
    lines = [titles_of(columns), *([cell(row[column]) for column in columns] for row in rows)]
    by_column = list(zip(*lines, strict=True))
    widths = [max(map(len, texts)) for texts in by_column]
    least = [max(len(word) for text in texts for word in text.split() or [""]) for texts in by_column]
    room = width - _GAP * (len(columns) - 1)
    if sum(least) > room:
        return None
    while sum(widths) > room:
        _, widest = max((size, at) for at, size in enumerate(widths) if size > least[at])
        widths[widest] -= 1
    return widths


def rich_table(rows: Sequence[dict[str, Any]], columns: Sequence[str], width: int) -> "Table":
    """Return a table of such a width as a terminal shows it; words are split only where they do not fit."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, _GAP, 0, 0))
    widths = widths_within(width, rows, columns)
    for at, title in enumerate(titles_of(columns)):
        table.add_column(title, overflow="fold", width=None if widths is None else widths[at])
    for texts in _styled(rows, columns):
        table.add_row(*texts)
    return table


def _styled(rows: Iterable[dict[str, Any]], columns: Sequence[str]) -> Iterator[list["Text"]]:
    from rich.text import Text

    for row in rows:
        yield [Text(cell(row[column]), style=_style(column, row[column])) for column in columns]


def _style(column: str, value: Any) -> str:
    if column in ("state", "connected", "up", "port_up", "level"):
        if value in ("up", "resolved", "valid", "info", True):
            return "green"
        return "yellow" if value == "warning" else "red"
    return ""


def complain(text: str) -> None:
    """Print one line about something that went wrong."""
    print(f"vrctl: {text}", file=sys.stderr)


def warn(text: str) -> None:
    """Print one line about something that has to wait, or that should be known."""
    print(f"vrctl: warning: {text}", file=sys.stderr)
