"""What vr-controller tells systemd: sd_notify(3), and the watchdog by the event loop alone."""

import asyncio
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from controller.notify import keep_notifying, notify_service, watchdog_s

LIMIT_US = 60_000


@pytest.fixture
def heard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as manager:
        manager.bind(str(tmp_path / "notify"))
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        yield manager


def test_a_state_is_one_message(heard: socket.socket) -> None:
    notify_service("READY=1")
    notify_service("STOPPING=1")
    assert [heard.recv(100), heard.recv(100)] == [b"READY=1", b"STOPPING=1"]


def test_an_abstract_socket_is_reached_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as manager:
        name = f"splitplane-test-{os.getpid()}"
        manager.bind(f"\0{name}")
        monkeypatch.setenv("NOTIFY_SOCKET", f"@{name}")
        notify_service("READY=1")
        assert manager.recv(100) == b"READY=1"


@pytest.mark.parametrize("where", [None, "", "run/notify", "/nobody/listens"])
def test_without_a_service_manager_nothing_is_said(where: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    if where is not None:
        monkeypatch.setenv("NOTIFY_SOCKET", where)
    notify_service("READY=1")


def test_a_manager_that_does_not_read_holds_nobody_up(heard: socket.socket) -> None:
    for _ in range(10_000):  # more than its queue takes
        notify_service("WATCHDOG=1")
    assert heard.recv(100) == b"WATCHDOG=1"


def test_the_watchdog_is_this_process_alone() -> None:
    own = str(os.getpid())
    assert watchdog_s({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": own}) == 30.0
    assert watchdog_s({"WATCHDOG_USEC": "500000"}) == 0.5
    assert watchdog_s({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "1"}) is None
    for text in ("", "0", "-1", "soon"):
        assert watchdog_s({"WATCHDOG_USEC": text}) is None


async def test_the_loop_tells_the_watchdog_well_within_its_limit(
    heard: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WATCHDOG_USEC", str(LIMIT_US))
    monkeypatch.delenv("WATCHDOG_PID", raising=False)
    loop, turns = asyncio.get_running_loop(), iter(range(100))
    task = asyncio.create_task(keep_notifying(lambda: f"turn {next(turns)}"))
    begun = loop.time()
    said = [await loop.sock_recv(heard, 100) for _ in range(4)]
    assert said == [f"WATCHDOG=1\nSTATUS=turn {number}".encode() for number in range(4)]
    assert loop.time() - begun >= 0.9 * LIMIT_US / 1e6  # three pauses of a third
    task.cancel()


async def test_a_loop_that_is_stuck_tells_nothing(heard: socket.socket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WATCHDOG_USEC", str(LIMIT_US))
    monkeypatch.delenv("WATCHDOG_PID", raising=False)
    loop = asyncio.get_running_loop()
    task = asyncio.create_task(keep_notifying(lambda: "serving"))
    await loop.sock_recv(heard, 100)
    until = loop.time() + 2 * LIMIT_US / 1e6
    while loop.time() < until:  # nothing is awaited
        pass
    with pytest.raises(BlockingIOError):
        heard.recv(100)
    assert await loop.sock_recv(heard, 100)
    task.cancel()
