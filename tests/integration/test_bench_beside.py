"""What bench/mirror --beside tells where what it measures beside fails."""

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from bench import beside
from lab.network import NetworkError


class Broken:
    """An API that does not answer."""

    def router(self, name: str) -> dict[str, Any]:
        raise NetworkError(f"GET routers/{name}: 500")


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> beside.Beside:
    monkeypatch.setattr(beside, "Api", Broken)
    monkeypatch.setattr(beside, "inside", lambda *_: ["echo", "{}"])
    monkeypatch.setattr(beside.Beside, "_ospf_state", lambda _: "Full/-")
    monkeypatch.setattr(beside.Beside, "_adjacency_changes", lambda _: ["AdjChg"])
    found = object.__new__(beside.Beside)
    found._rig, found._host = SimpleNamespace(guest_pid=lambda _: 1), None
    found._changes, found._changing, found._problem = [0.01], threading.Event(), ""
    found.start()
    return found


def test_routes_that_are_not_changed_any_more_are_no_result(started: beside.Beside) -> None:
    words = "routes of side/net are not changed any more: GET routers/side/net: 500"
    with pytest.raises(NetworkError, match=f"^{words}$"):
        started.stop()


def test_nobody_waits_for_it_where_something_else_has_failed(started: beside.Beside) -> None:
    assert started._thread.daemon
    with pytest.raises(NetworkError):
        started.stop()
