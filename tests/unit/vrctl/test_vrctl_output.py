"""vrctl with a standard output that takes nothing, without a reader, or in another encoding than ours."""

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest
from operator_world import Controller

from controller.vrctl import output
from controller.vrctl.output import Format

TEXT = """\
version: 1
planes: [{name: s1, kind: fake}]
tenants: [{name: red, slices: [{plane: s1}], routers: [{name: r1, plane: s1, frr: "! é\\n"}]}]
"""
NO_LOCALE = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}

Run = Callable[..., Awaitable[tuple[int, str, str]]]


@pytest.fixture
def run(served: Path) -> Run:
    """Runs vrctl as a process of its own: exit status, and what it wrote into pipes."""

    async def run(
        *argv: str, stdout: int = asyncio.subprocess.PIPE, given: str = "", closed: str = "", **environment: str
    ) -> object:
        process = await asyncio.create_subprocess_exec(
            *("sh", "-c", f'exec "$@" {closed}', "sh", sys.executable, "-m", "controller.vrctl.cli"),
            *("--socket", str(served), *argv),
            env=os.environ | environment,
            stdin=asyncio.subprocess.PIPE,
            stdout=stdout,
            stderr=asyncio.subprocess.PIPE,
        )
        out, err = await process.communicate(given.encode())
        return process.returncode, (out or b"").decode(), err.decode()

    return run  # type: ignore[return-value]


@pytest.fixture
def full() -> Iterator[int]:
    """A disk without room."""
    with open("/dev/full", "wb") as file:
        yield file.fileno()


@pytest.fixture
def unread() -> Iterator[int]:
    """A pipe whose reader has gone."""
    reader, writer = os.pipe()
    os.close(reader)
    yield writer
    os.close(writer)


@pytest.mark.parametrize("command", [("get", "routers"), ("diff", "-f", "-")])
async def test_a_disk_without_room_is_one_line(
    run: Run, full: int, controller: Controller, command: tuple[str, ...]
) -> None:
    await controller.apply(TEXT)
    said = await run(*command, stdout=full, given=TEXT)
    assert said == (1, "", "vrctl: standard output: No space left on device\n")


async def test_a_reader_that_has_seen_enough_is_no_failure(run: Run, unread: int, controller: Controller) -> None:
    await controller.apply(TEXT)
    assert await run("get", "routers", "-o", "yaml", stdout=unread) == (0, "", "")


@pytest.mark.parametrize("lost", ["full", "unread"])
async def test_what_failed_is_told_whatever_becomes_of_the_output(
    run: Run, controller: Controller, request: pytest.FixtureRequest, lost: str
) -> None:
    controller.guests.failing["red/r1"] = "FRR is missing"
    status, _, err = await run("apply", "-f", "-", stdout=request.getfixturevalue(lost), given=TEXT)
    assert status == 1
    assert "vrctl: red/r1: FRR is missing\n" in err
    assert "Traceback" not in err


async def test_closed_descriptors_are_as_good_as_none(run: Run, controller: Controller) -> None:
    await controller.apply(TEXT)
    assert await run("get", "routers", closed=">&-") == (0, "", "")
    empty = "vrctl: <stdin>: the file is empty; a document starts with 'version: 1'\n"
    assert await run("apply", "-f", "-", closed="<&- >&-") == (1, "", empty)


async def test_a_document_is_utf_8_whatever_the_locale(run: Run, controller: Controller, tmp_path: Path) -> None:
    assert (await run("apply", "-f", "-", given=TEXT, **NO_LOCALE))[0] == 0
    assert controller.views.router("r1").routing.text == "! é\n"
    file = tmp_path / "red.yaml"
    file.write_text(TEXT.replace("frr:", "hold_time_s: 60, frr:"), encoding="utf-8")
    status, out, err = await run("apply", "-f", str(file), **NO_LOCALE)
    assert (status, err) == (0, "")
    assert out == "change router red/r1\n    hold_time_s 120 \\u2192 60\n"


ROW = {
    "router": "customer-red/edge-1",
    "state": "disconnected",
    "pending": 100_005,
    "reason": "its machine is booting",
}


def on_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], width: int, row: dict[str, object]
) -> list[str]:
    """Return the lines of a table of one row on a terminal of such a width."""
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    for name, value in (("COLUMNS", str(width)), ("LINES", "24"), ("TERM", "dumb")):
        monkeypatch.setenv(name, value)
    output.write_rows([row], list(row), Format.TABLE)
    return capsys.readouterr().out.splitlines()


@pytest.mark.parametrize(
    ("state", "style"), [("up", "green"), ("valid", "green"), ("resolved", "green"), ("failed", "red")]
)
def test_what_is_well_is_green(state: str, style: str) -> None:
    """Routers, certificates and neighbors."""
    ((text,),) = output._styled([{"state": state}], ["state"])
    assert text.style == style


@pytest.mark.parametrize("width", [52, 60, 120])
def test_a_terminal_breaks_what_it_shows_between_words(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], width: int
) -> None:
    shown = on_a_terminal(monkeypatch, capsys, width, ROW)
    assert max(map(len, shown)) <= width
    words = {word for value in ROW.values() for word in str(value).split()}
    assert words <= {word for line in shown for word in line.split()}


def test_a_row_whose_words_do_not_fit_the_terminal_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert on_a_terminal(monkeypatch, capsys, 40, ROW) == [
        "ROUTER               STATE         PENDING  REASON",
        "customer-red/edge-1  disconnected  100005   its machine is booting",
    ]
