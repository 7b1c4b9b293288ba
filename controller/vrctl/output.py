"""What vrctl prints: tables for people, JSON or YAML for programs."""

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # it takes a tenth of a second to import, which only terminals need
    from rich.table import Table

_SAMPLE = 200
"""Rows of a long table that its column widths are taken from; the rest is printed as it comes."""


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
        from rich.console import Console

        Console().print(rich_table(sample, columns))
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
    return "  ".join(text.ljust(width) for text, width in zip(texts, widths, strict=True)).rstrip()


def rich_table(rows: Iterable[dict[str, Any]], columns: Sequence[str]) -> "Table":
    """Return a table as a terminal shows it."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for title in titles_of(columns):
        table.add_column(title, overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell(row[column]), style=_style(column, row[column])) for column in columns))
    return table


def _style(column: str, value: Any) -> str:
    if column in ("state", "connected", "up", "port_up", "level"):
        return {"up": "green", "True": "green", "info": "green", "warning": "yellow"}.get(str(value), "red")
    return ""


def complain(text: str) -> None:
    """Print one line about something that went wrong."""
    print(f"vrctl: {text}", file=sys.stderr)


def warn(text: str) -> None:
    """Print one line about something that has to wait, or that should be known."""
    print(f"vrctl: warning: {text}", file=sys.stderr)
