"""`get --watch`: what is printed for each look at a list."""

import io
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from ruamel.yaml import YAML

from controller.vrctl import listings
from controller.vrctl.client import Unreachable
from controller.vrctl.live import watching
from controller.vrctl.output import Format

COLUMNS = ("router", "state", "pending")


def row(router: str, state: str = "up", pending: int = 0) -> dict[str, Any]:
    return {"router": router, "state": state, "pending": pending}


AWAY = Unreachable(Path("/run/splitplane/api.sock"))
LOOKS = [
    [row("red/r1"), row("red/r2", "starting")],
    [row("red/r1"), row("red/r2", "starting")],
    [row("red/r1"), row("red/r2"), row("blue/r1", "starting", 7)],
    AWAY,
    AWAY,
    [row("red/r2"), row("blue/r1")],
]


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "EVERY_S", 0.0)


def watched(capsys: pytest.CaptureFixture[str], form: Format) -> tuple[str, str]:
    """Return what was printed for LOOKS and what was complained of."""
    looks: Iterator[Any] = iter(LOOKS)

    def read() -> list[dict[str, Any]]:
        look = next(looks, None)
        if look is None:
            raise KeyboardInterrupt
        if isinstance(look, Unreachable):
            raise look
        return list(look)

    with pytest.raises(KeyboardInterrupt):
        watching.watch(read, COLUMNS, form)
    said = capsys.readouterr()
    return said.out, said.err


CHANGES = [
    ("added", "red/r1", "up"),
    ("added", "red/r2", "starting"),
    ("changed", "red/r2", "up"),
    ("added", "blue/r1", "starting"),
    ("changed", "blue/r1", "up"),
    ("removed", "red/r1", "up"),
]


def test_a_table_has_one_head_and_a_line_for_each_change(capsys: pytest.CaptureFixture[str]) -> None:
    out, err = watched(capsys, Format.TABLE)
    head, *lines = out.splitlines()
    assert head.split() == ["TIME", "CHANGE", "ROUTER", "STATE", "PENDING"]
    assert [tuple(line.split()[2:5]) for line in lines] == CHANGES
    assert len({line.index(router) for line, (_, router, _) in zip(lines, CHANGES, strict=True)}) == 1
    assert err == (
        "vrctl: no controller at /run/splitplane/api.sock; start vr-controller or give --socket; waiting for it\n"
    )


@pytest.mark.parametrize(
    ("width", "titles", "line"),
    [
        (60, ["ROUTER", "STATE", "GROUPS", "REASON"], "away [/run]"),
        (46, ["ROUTER", "STATE", "REASON"], "away [/run]; no room for GROUPS"),
    ],
)
def test_a_narrow_screen_leaves_columns_out_and_names_them(width: int, titles: list[str], line: str) -> None:
    """In front, as a long list is cut at its end."""
    rows = [
        {"router": "customer-red/edge-1", "state": "disconnected", "groups": 1, "reason": "its machine is booting"}
    ]
    console = Console(width=width, file=io.StringIO())
    with console.capture() as shown:
        console.print(watching.frame(rows, "away [/run]", ["router", "state", "groups", "reason"], width))
    first, head, row, *_ = (line.rstrip() for line in shown.get().splitlines())
    assert (first, head.split()) == (line, titles)
    assert row.startswith("customer-red/edge-1  disconnected  ")


def test_40_columns_take_the_routers_and_what_ails_them() -> None:
    columns = listings._COLUMNS[listings.Kind.ROUTERS].split()
    named = {"router": "blue/edge-1", "plane": "leaf-1", "state": "degraded", "reason": "booting"}
    console = Console(width=40, file=io.StringIO())
    with console.capture() as shown:
        console.print(watching.frame([dict.fromkeys(columns, 0) | named], "", columns, 40))
    head, row = (line.split() for line in shown.get().splitlines()[-2:])
    assert (head, row) == (["ROUTER", "PLANE", "STATE", "REASON"], list(named.values()))


def test_programs_get_a_value_for_each_change(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [json.loads(line) for line in watched(capsys, Format.JSON)[0].splitlines()]
    assert [(one["change"], one["router"], one["state"]) for one in rows] == CHANGES
    assert rows[3]["pending"] == 7
    again = YAML(typ="safe", pure=True).load(watched(capsys, Format.YAML)[0])
    assert [one | {"time": ""} for one in again] == [one | {"time": ""} for one in rows]


def test_rows_are_told_apart_by_router_and_name() -> None:
    before = [{"router": "red/r1", "name": "eth0", "up": True}, {"router": "red/r2", "name": "eth0", "up": True}]
    now = [before[0], before[1] | {"up": False}]
    assert list(watching.differences(before, now)) == [("changed", now[1])]


@pytest.mark.parametrize("column", ["slice", "serial", "name", "router"])
def test_each_row_of_a_list_is_followed(column: str) -> None:
    before: list[dict[str, Any]] = [{column: "one", "used": 1}, {column: "other", "used": 1}]
    now = [{column: "one", "used": 2}, {column: "other", "used": 3}]
    assert list(watching.differences([], before)) == [("added", row) for row in before]
    assert list(watching.differences(before, now)) == [("changed", row) for row in now]
    assert list(watching.differences(now, now[:1])) == [("removed", now[1])]


def test_a_router_is_followed_beside_a_deleted_one_of_its_name() -> None:
    before = [row("red/r1", "starting"), row("red/r1", "deleting")]
    now = [row("red/r1", "up"), row("red/r1", "deleting")]
    assert list(watching.differences(before, now)) == [("changed", now[0])]


def test_a_controller_that_is_away_from_the_start_is_an_error() -> None:
    def read() -> list[dict[str, Any]]:
        raise AWAY

    with pytest.raises(Unreachable):
        watching.watch(read, COLUMNS, Format.JSON)


QUIET = """
from controller.vrctl.live import watching
from controller.vrctl.output import Format

try:
    watching.watch(lambda: [{"router": "red/r1"}], ["router"], Format.JSON)
except BrokenPipeError:
    raise SystemExit(7)
"""


def test_a_list_that_does_not_change_ends_with_the_reader_of_its_pipe() -> None:
    with subprocess.Popen([sys.executable, "-c", QUIET], stdout=subprocess.PIPE, text=True) as watcher:
        try:
            assert watcher.stdout is not None
            assert json.loads(watcher.stdout.readline())["router"] == "red/r1"
            watcher.stdout.close()
            assert watcher.wait(timeout=30) == 7
        finally:
            watcher.kill()
