"""An unexpected error at one guest is told to who changes it, and keeps nobody from another."""

from collections.abc import Awaitable, Callable

import pytest
from operator_world import Controller

from controller.audit.log import Filter
from controller.guests.base import GuestSpec

HEAD = "version: 1\nplanes: [{name: s1, kind: fake}]\ntenants:\n"
RED = "  - {name: red, slices: [{plane: s1}], routers: [{name: r1, plane: s1}]}\n"
BLUE = RED.replace("red", "blue")
FAULT = "red/r1: a fault of the controller at its guest: tried again; see vrctl events"


def failing(asked: Callable[[GuestSpec], Awaitable[list[str]]]) -> Callable[[GuestSpec], Awaitable[list[str]]]:
    """Ask the driver as before, but for the guest of red/r1."""

    async def fail(spec: GuestSpec) -> list[str]:
        if spec.router == "red/r1":
            raise RuntimeError("a bug")
        return await asked(spec)

    return fail


async def slow(_spec: GuestSpec) -> list[str]:
    return ["it is slow"]


async def test_who_changes_it_hears_of_it_and_nobody_else(
    controller: Controller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(controller.guests, "start", failing(controller.guests.start))
    assert (await controller.apply(HEAD + RED)).failed == [FAULT]
    assert (await controller.apply(HEAD + BLUE)).failed == []
    rows = await controller.audit.read(Filter(kind="router"), 10)
    assert [(one.name, one.outcome, one.reason) for one in rows] == [
        ("red/r1", "failed", "red/r1"),
        ("blue/r1", "done", ""),
    ]
    told = [(one.subject, one.text) for one in controller.events.recent() if one.kind == "router-failed"]
    assert told[0] == ("red/r1", "its guest: RuntimeError: a bug")
    monkeypatch.undo()
    assert (await controller.convergence.converge(lambda _: None)).failed == {}
    assert controller.guests.starts[-1] == "red/r1"


async def test_the_others_are_looked_at(controller: Controller, monkeypatch: pytest.MonkeyPatch) -> None:
    await controller.apply(HEAD + RED + BLUE)
    monkeypatch.setattr(controller.guests, "look_after", failing(slow))
    await controller.convergence.look_after_guests()
    told = [(one.kind, one.subject) for one in controller.events.recent()][-2:]
    assert told == [("router-failed", "red/r1"), ("guest-trouble", "blue/r1")]
