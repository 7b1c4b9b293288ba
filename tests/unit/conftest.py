"""Fixtures of several packages: shards over fake planes, and the operator's side.

The latter are a controller on fakes, its API on a real Unix socket, and vrctl against it.
"""

import asyncio
import contextlib
import functools
import os
import sqlite3
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from fastapi import FastAPI
    from operator_world import Controller
    from worlds import WorldFactory


_MEMORY = "/dev/shm"


def _memory() -> str | None:
    """Return where files are kept in memory and may be run, None where there is no such place."""
    usable = os.access(_MEMORY, os.W_OK) and not os.statvfs(_MEMORY).f_flag & os.ST_NOEXEC
    return _MEMORY if usable else None


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """An empty directory, in memory: stores and identities are synced again and again, which no disk does at once."""
    with tempfile.TemporaryDirectory(prefix="sp-unit-", dir=_memory()) as name:
        yield Path(name)


@pytest.fixture(autouse=True)
def _closed_databases(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Close the stores that a test leaves open, which from Python 3.13 on warn of it."""
    connect, opened = sqlite3.connect, []

    def connected(*given: Any, **named: Any) -> sqlite3.Connection:
        opened.append(connect(*given, **named))
        return opened[-1]

    monkeypatch.setattr(sqlite3, "connect", connected)
    yield
    for connection in opened:
        with contextlib.suppress(sqlite3.ProgrammingError):  # another thread's own, which has closed it
            connection.close()


@pytest.fixture
async def make_world() -> "AsyncIterator[WorldFactory]":
    """Makes shards over a fake plane, with these routers."""
    from worlds import World

    made: list[World] = []

    async def make(*configs, plane=None) -> World:
        world = World(plane)
        made.append(world)
        await world.start(*configs)
        return world

    yield make
    for world in made:
        await world.close()


@pytest.fixture
def controller(tmp_path: Path) -> "Controller":
    from operator_world import Controller

    return Controller(tmp_path / "state")


@functools.cache
def make_app_once() -> "FastAPI":
    from controller.api.app import make_app

    return make_app()


@pytest.fixture
def asgi_app(controller: "Controller") -> "FastAPI":
    """The controller's API."""
    app = make_app_once()
    app.state.operations, app.state.views = controller.operations, controller.views
    return app


@pytest.fixture
async def served(asgi_app: "FastAPI", tmp_path: Path) -> AsyncIterator[Path]:
    """The socket of the controller's API."""
    from controller.api.server import ApiServer

    server = ApiServer(asgi_app, tmp_path)
    task = asyncio.create_task(server.run())
    yield server.path
    server.close()
    await task


def run_blocking(argv: list[str]) -> int:
    from controller.vrctl.cli import main

    with pytest.raises(SystemExit) as ended:
        main(argv)
    return int(ended.value.code or 0)


@pytest.fixture
def vrctl(served: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., Awaitable[tuple[int, str, str]]]:
    """Runs vrctl against the controller: exit status, standard output, standard error."""

    async def run(*argv: str) -> tuple[int, str, str]:
        status = await asyncio.to_thread(run_blocking, ["--socket", str(served), *argv])
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return run
