"""What a change makes of the whole state is computed in a thread, beside the loop, and holds for what is stored."""

import asyncio
import inspect
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from operator_world import Controller

from controller.model import Placement
from controller.operations import operations
from controller.spec.planes import PlaneOptions

SPEC = """\
version: 1
planes: [{name: s1, kind: fake}]
tenants:
  - name: red
    slices: [{plane: s1, ports: {p1: [1-9]}}]
    routers:
      - {name: r1, plane: s1, interfaces: [{name: eth0, port: p1, vlan: 1}], frr: ""}
      - {name: r2, plane: s1, interfaces: [{name: eth0, port: p1, vlan: 2}], frr: ""}
"""
LONG = ("merge", "check", "changes")
"""What goes over the whole state."""


class Watched:
    """Notes in which thread something runs, and has the loop do something once while it runs elsewhere."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
        self.threads: list[int] = []
        self.meanwhile: Callable[[], object] | None = None
        self._loop, self._does = asyncio.get_running_loop(), getattr(operations, name)
        monkeypatch.setattr(operations, name, self)

    def __call__(self, *given: Any) -> Any:
        self.threads.append(threading.get_ident())
        if (meanwhile := self.meanwhile) is not None:
            self.meanwhile = None
            asyncio.run_coroutine_threadsafe(_called(meanwhile), self._loop).result(30)
        return self._does(*given)


async def _called(what: Callable[[], object]) -> None:
    done = what()
    if inspect.isawaitable(done):
        await done


async def test_what_goes_over_the_whole_state_runs_beside_the_loop(
    controller: Controller, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched = {name: Watched(monkeypatch, name) for name in LONG}
    done = controller.operations
    await done.plan_document(SPEC, "t.yaml", {})
    await controller.apply(SPEC)
    await done.attach_plane("s2", PlaneOptions(datapath_id=2))
    await done.detach_plane("s2")
    await done.delete_router("red/r2")
    assert {name: len(one.threads) for name, one in watched.items()} == {"merge": 2, "check": 4, "changes": 5}
    assert not any(threading.get_ident() in one.threads for one in watched.values())


async def ended(controller: Controller) -> None:
    """A move ends."""
    convergence = controller.convergence
    routers = {name: replace(router, came_from=None) for name, router in controller.operations.state.routers.items()}
    await convergence.commit(replace(convergence.state, routers=routers), convergence.ids)


@pytest.mark.parametrize("name", LONG)
async def test_what_ends_while_a_change_is_planned_is_not_undone(
    controller: Controller, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    await controller.apply(SPEC)
    convergence = controller.convergence
    moving = {name: replace(one, came_from=Placement.SOFTWARE) for name, one in convergence.state.routers.items()}
    await convergence.commit(replace(convergence.state, routers=moving), convergence.ids)
    watched = Watched(monkeypatch, name)
    watched.meanwhile = lambda: ended(controller)
    await controller.apply(SPEC.replace("vlan: 2", "vlan: 3"))
    assert len(watched.threads) == 2
    for state in (convergence.state, controller.store.load().state):
        assert {one.came_from for one in state.routers.values()} == {None}
        assert state.routers["red/r2"].interfaces[0].vlan == 3


async def test_a_change_waits_for_the_one_that_is_planned(
    controller: Controller, monkeypatch: pytest.MonkeyPatch
) -> None:
    await controller.apply(SPEC)
    watched, others = Watched(monkeypatch, "merge"), []
    watched.meanwhile = lambda: others.append(asyncio.ensure_future(controller.operations.delete_router("red/r2")))
    await controller.apply(SPEC.replace("vlan: 1}", "vlan: 4}"))
    await asyncio.gather(*others)
    (left,) = controller.operations.state.routers.values()
    assert (left.full_name, left.interfaces[0].vlan) == ("red/r1", 4)


async def test_a_router_that_does_not_change_stays_the_same_object(controller: Controller) -> None:
    """What is known of a guest is looked up by it, and many are compared at each change."""
    await controller.apply(SPEC)
    before = controller.operations.state.routers
    (line,) = [line for line in SPEC.splitlines(keepends=True) if "name: r2" in line]
    await controller.apply(SPEC.replace(line, "").replace("vlan: 1}", "vlan: 4}"))
    after = controller.operations.state.routers
    assert after["red/r1"] != before["red/r1"]
    assert after["red/r2"] is before["red/r2"]


async def test_a_change_that_is_only_planned_takes_no_ids(controller: Controller) -> None:
    await controller.apply(SPEC)
    await controller.operations.plan_document(SPEC.replace("r1", "r3").replace("vlan: 1", "vlan: 3"), "t.yaml", {})
    assert controller.convergence.ids.taken == {1, 2}
    assert controller.convergence.ids == controller.store.load().ids
