"""What a router gives up goes to another one when its plane has confirmed that it is free, and that is stored."""

import asyncio
import itertools
from collections.abc import Set
from dataclasses import replace
from typing import Any

import pytest
from growth import MUCH, TIMES, Growth
from operator_world import Controller

from controller.errors import StoreError
from controller.model import RouterConfig

HEAD = "version: 1\nplanes: [{name: s1, kind: fake}]\ntenants:\n"


def with_vlans(blue: list[int], red: list[int]) -> str:
    """Return a document of two tenants that have VLANs of one port, and in each an interface."""
    text = HEAD
    for tenant, vlans in (("blue", blue), ("red", red)):
        interfaces = ", ".join(f"{{name: eth{vlan}, port: p1, vlan: {vlan}}}" for vlan in vlans)
        router = f"{{name: r1, plane: s1, interfaces: [{interfaces}]}}"
        text += (
            f"  - {{name: {tenant}, slices: [{{plane: s1, ports: {{p1: {vlans or [9]}}}}}], routers: [{router}]}}\n"
        )
    return text


def one_owner_each(controller: Controller, monkeypatch: pytest.MonkeyPatch) -> None:
    """See with each router that is put that no VLAN of a port is given to two."""
    put = controller.core.put_router

    async def watched(config: RouterConfig) -> None:
        await put(config)
        given = [one for owned in controller.attached().values() for one in owned]
        assert len(given) == len(set(given)), controller.attached()

    monkeypatch.setattr(controller.core, "put_router", watched)


async def test_what_is_given_up_while_more_is_not_confirmed_is_taken_first(
    controller: Controller, monkeypatch: pytest.MonkeyPatch
) -> None:
    await controller.apply(with_vlans([], [1, 2, 3]))
    one_owner_each(controller, monkeypatch)
    controller.core.unreachable.add("s1")
    assert (await controller.apply(with_vlans([], [2, 3]))).waiting
    controller.core.unreachable.clear()
    assert (await controller.apply(with_vlans([2], [3]))).waiting == []
    assert controller.attached() == {"blue/r1": [("p1", 2)], "red/r1": [("p1", 3)]}
    assert not controller.convergence.unfinished


async def test_what_is_given_up_while_a_plane_confirms_is_not_confirmed_by_that(
    controller: Controller, monkeypatch: pytest.MonkeyPatch
) -> None:
    await controller.apply(with_vlans([], [1, 2, 3]))
    one_owner_each(controller, monkeypatch)
    controller.core.unreachable.add("s1")
    await controller.apply(with_vlans([], [2, 3]))
    controller.core.unreachable.clear()
    ports_left, commit = controller.core.ports_left, controller.store.commit
    asked, stored, confirmed = asyncio.Event(), asyncio.Event(), asyncio.Event()

    def committed(*args) -> None:
        commit(*args)
        stored.set()

    async def slowly(vrf_id: int, interface_ids: Set[int]) -> None:
        asked.set()
        await confirmed.wait()
        await ports_left(vrf_id, interface_ids)

    monkeypatch.setattr(controller.store, "commit", committed)
    monkeypatch.setattr(controller.core, "ports_left", slowly)
    before = asyncio.create_task(controller.convergence.program(lambda _: None))
    await asked.wait()
    after = asyncio.create_task(controller.apply(with_vlans([2], [3])))
    await stored.wait()
    confirmed.set()
    await asyncio.gather(before, after)
    assert controller.attached() == {"blue/r1": [("p1", 2)], "red/r1": [("p1", 3)]}
    assert not controller.convergence.unfinished


async def test_what_is_given_up_again_while_a_plane_confirms_is_not_confirmed_by_that(
    controller: Controller, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is held already, since an interface came back to it that had left it."""

    def with_vlan(red: int, blue: int) -> str:
        return with_vlans([blue], [red]).replace(f"eth{blue},", "eth0,").replace(f"eth{red},", "eth0,")

    await controller.apply(with_vlan(red=1, blue=9))
    one_owner_each(controller, monkeypatch)
    controller.core.unreachable.add("s1")
    for vlan in (2, 1):
        await controller.apply(with_vlan(red=vlan, blue=9))
    controller.core.unreachable.clear()
    ports_left, commit = controller.core.ports_left, controller.convergence.commit
    asked, stored, confirmed = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def committed(*given: Any) -> None:
        await commit(*given)
        stored.set()

    async def slowly(vrf_id: int, interface_ids: Set[int]) -> None:
        asked.set()
        await confirmed.wait()
        await ports_left(vrf_id, interface_ids)

    monkeypatch.setattr(controller.convergence, "commit", committed)
    monkeypatch.setattr(controller.core, "ports_left", slowly)
    before = asyncio.create_task(controller.convergence.program(lambda _: None))
    await asked.wait()
    after = asyncio.create_task(controller.apply(with_vlan(red=3, blue=1)))
    await stored.wait()
    confirmed.set()
    await asyncio.gather(before, after)
    assert controller.attached() == {"blue/r1": [("p1", 1)], "red/r1": [("p1", 3)]}
    assert not controller.convergence.unfinished


@pytest.mark.parametrize("done", ["release", "mark_clean"])
async def test_guests_are_started_again_though_the_disk_does_not_take_what_is_done(
    controller: Controller, monkeypatch: pytest.MonkeyPatch, done: str
) -> None:
    """That ports are free, or that nothing is left of a router."""
    await controller.apply(with_vlans([1], [2, 3]))
    controller.core.unreachable.add("s1")
    await controller.apply(with_vlans([1], [2]))
    if done == "mark_clean":
        await controller.operations.delete_tenant("red")
    guests, (blue,) = controller.guests, (i for i, one in controller.core.routers.items() if one.tenant == "blue")

    def full(*_: object, **_named: object) -> None:
        raise StoreError("database or disk is full")

    with monkeypatch.context() as patched:
        patched.setattr(controller.store, done, full)
        controller.core.unreachable.clear()
        del guests.running_specs[blue]
        guests.starts.clear()
        await controller.convergence.look_after_guests()
        controller.convergence.wake()
        running = asyncio.create_task(controller.convergence.run())
        while not running.done() and not guests.starts:  # noqa: ASYNC110 - the fake tells nobody
            await asyncio.sleep(0)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        assert guests.starts == ["blue/r1"]
        assert "red/r1: database or disk is full" in (await controller.convergence.program(lambda _: None)).waiting
        assert controller.convergence.unfinished
    assert {event.subject for event in controller.events.recent() if event.kind == "not-stored"} == {"red/r1"}
    assert (await controller.convergence.program(lambda _: None)).waiting == []
    assert not controller.convergence.unfinished
    assert controller.store.load().holds == controller.store.load().tombstones == ()


async def test_what_thousands_of_deleted_routers_hold_costs_the_others_nothing(controller: Controller) -> None:
    """Each round looks at all routers, every two seconds for as long as a plane is away."""
    text = HEAD.replace("fake}]", "fake}, {name: s2, kind: fake}]")
    for plane in ("s1", "s2"):
        router = f"{{name: r1, plane: {plane}, interfaces: [{{name: eth0, port: p1}}]}}"
        part = f"{{plane: {plane}, ports: {{p1: [untagged]}}}}"
        text += f"  - {{name: t-{plane}, slices: [{part}], routers: [{router}]}}\n"
    await controller.apply(text)
    state, growth = controller.operations.state, Growth()
    for count in (200, 200 * TIMES):
        ids, routers = controller.convergence.ids.copy(), {}
        for number, plane in itertools.product(range(count), ("s1", "s2")):
            like = state.routers[f"t-{plane}/r1"]
            (one,) = like.interfaces
            four = tuple(replace(one, id=ids.interface(), name=f"eth{at}", port=f"q{number}-{at}") for at in range(4))
            router = replace(like, vrf_id=ids.vrf(), name=f"q{count}-{number}", interfaces=four)
            routers[router.full_name] = router
        controller.core.unreachable.discard("s1")
        await controller.convergence.commit(replace(state, routers=routers), ids.copy())
        await controller.convergence.program(lambda _: None)
        controller.core.unreachable.add("s1")
        stay = {name: router for name, router in routers.items() if router.plane == "s2"}
        await controller.convergence.commit(replace(state, routers=stay), ids)
        with growth.of(count):
            programmed = await controller.convergence.program(lambda _: None)
        assert len(programmed.waiting) == count
    assert growth.times < MUCH
