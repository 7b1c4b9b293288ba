"""A router that is deleted while something of it is under way leaves nothing behind."""

import asyncio
from collections.abc import Sequence

import pytest
from operator_world import Controller

from controller.model import RouterConfig
from controller.pki.authority import Issued

TEXT = """\
version: 1
planes: [{name: s1, kind: fake}]
tenants:
  - name: red
    slices: [{plane: s1, ports: {p1: [100]}}]
    routers: [{name: r1, plane: s1, interfaces: [{name: eth0, port: p1, vlan: 100}]}]
"""


class _Slow:
    """Issues certificates when it is told to."""

    def __init__(self, controller: Controller) -> None:
        self._issue = controller.pki.issue
        self.asked, self.go_on = asyncio.Event(), asyncio.Event()

    async def issue(self, routers: Sequence[RouterConfig]) -> Issued:
        self.asked.set()
        await self.go_on.wait()
        return await self._issue(routers)


async def test_a_router_that_is_deleted_while_its_certificate_is_issued(
    controller: Controller, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = _Slow(controller)
    monkeypatch.setattr(controller.pki, "issue", slow.issue)
    async with asyncio.timeout(30):
        applied = asyncio.create_task(controller.apply(TEXT))
        await slow.asked.wait()
        deleted = asyncio.create_task(controller.operations.delete_tenant("red"))
        while controller.convergence.unfinished or controller.operations.state.routers:  # noqa: ASYNC110
            await asyncio.sleep(0)  # which nobody tells
        slow.go_on.set()
        await deleted
        assert ((await applied).failed, (await applied).waiting) == ([], [])
    await controller.convergence.look_after_guests()
    await controller.convergence.converge(lambda _: None)
    assert (controller.guests.starts, controller.sessions.admitted) == ([], set())
    assert not controller.pki.identity(1).exists()
    assert controller.store.valid_serials([1]) == {}


async def test_a_router_that_is_changed_while_its_certificate_is_issued_runs_as_declared(
    controller: Controller, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = _Slow(controller)
    monkeypatch.setattr(controller.pki, "issue", slow.issue)
    async with asyncio.timeout(30):
        applied = asyncio.create_task(controller.apply(TEXT))
        await slow.asked.wait()
        changed = asyncio.create_task(controller.apply(TEXT.replace("plane: s1, int", "plane: s1, frr: x, int")))
        while controller.operations.state.routers["red/r1"].routing.text != "x":  # noqa: ASYNC110
            await asyncio.sleep(0)  # which nobody tells
        slow.go_on.set()
        assert ((await applied).failed, (await changed).failed) == ([], [])
    assert controller.guests.running_specs[1].routing.text == "x"
    assert controller.guests.starts == ["red/r1"]
