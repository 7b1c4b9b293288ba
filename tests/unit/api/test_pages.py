"""Lists go a page at a time: others have the loop in between, however long one is."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from fastapi import FastAPI
from operator_world import Controller

from controller.api import streams
from controller.audit.caller import this_process
from controller.views import Event, NeighborView, RouteView

TEXT = """\
version: 1
planes: [{name: s1, kind: fake}, {name: s2, kind: fake}]
tenants:
  - name: red
    slices: [{plane: s1, ports: {p1: [100]}}, {plane: s2, ports: {p1: [100]}}]
    routers: [{name: r1, plane: s1, interfaces: [{name: eth0, port: p1, vlan: 100}]}]
  - name: blue
    slices: [{plane: s1, ports: {p1: [200]}}]
    routers: [{name: r1, plane: s1, interfaces: [{name: eth0, port: p1, vlan: 200}]}]
"""

Parts = Callable[[str], Awaitable[list[bytes]]]


@pytest.fixture
def parts(asgi_app: FastAPI) -> Parts:
    """Asks for a list; returns its body in the pieces in which it is sent."""

    async def ask(target: str) -> list[bytes]:
        sent: list[dict[str, Any]] = []

        async def send(message: dict[str, Any]) -> None:
            sent.append(message)

        scope = {"type": "http", "method": "GET", "path": f"/v1/{target}", "query_string": b"", "headers": []}
        scope |= {"asgi": {"spec_version": "2.4"}, "state": {"caller": this_process()}}
        await asgi_app(scope, asyncio.Event().wait, send)  # type: ignore[arg-type]
        start, *rest = sent
        assert (start["status"], dict(start["headers"])[b"content-type"]) == (200, b"application/json")
        return [message["body"] for message in rest if message["body"]]

    return ask


@pytest.mark.parametrize(
    ("target", "names"),
    [
        ("tenants", ["blue", "red"]),
        ("slices", ["blue@s1", "red@s1", "red@s2"]),
        ("planes", ["s1", "s2"]),
        ("routers", ["blue/r1", "red/r1"]),
        ("interfaces", ["blue/r1", "red/r1"]),
        ("certificates", ["authority ca", "authority routers", "controller", "plane s1", "plane s1"]),
        ("events", [*range(1, 10)]),
        ("routers/red/r1/neighbors", ["eth0", "eth1"]),
    ],
)
async def test_a_list_is_sent_in_pages(
    controller: Controller, parts: Parts, monkeypatch: pytest.MonkeyPatch, target: str, names: list[Any]
) -> None:
    monkeypatch.setattr(streams, "VIEWS_PAGE", 1)
    await controller.apply(TEXT)
    for _ in range(2):
        await controller.certificates.issue("s1", [], "")
    shown = [NeighborView(name, "192.0.2.1", "02:00:00:00:00:01", "resolved") for name in ("eth0", "eth1")]
    monkeypatch.setattr(controller.core, "neighbors", lambda _: iter(shown))
    pages = await parts(target)
    assert [next(iter(row.values())) for row in json.loads(b"".join(pages))] == names
    assert len(pages) == len(names) + 1


async def test_the_load_is_sent_in_pages(
    controller: Controller, parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "VIEWS_PAGE", 1)
    await controller.apply(TEXT)
    pages = await parts("load")
    found = json.loads(b"".join(pages))
    assert list(found) == ["planes", "routers"]
    assert [one["name"] for one in found["planes"]] == ["s1", "s2"]
    assert [one["router"] for one in found["routers"]] == ["red/r1", "blue/r1"]
    assert found["planes"][0]["tables"]["ipv4_route"] == {"used": 3, "capacity": 1000, "source": "given"}
    assert len(pages) == 9  # a name, two rows and an end of both lists, and the end of all


async def test_a_page_of_long_rows_is_as_short_in_octets(monkeypatch: pytest.MonkeyPatch) -> None:
    """A route may have hundreds of nexthops."""
    monkeypatch.setattr(streams, "PAGE_OCTETS", 1000)
    routes = [
        RouteView("10.0.0.0/24", "forward", ["192.0.2.1 eth0 weight 1"] * ways, False, True) for ways in (50, 1)
    ]
    assert [page.count(b"\n") async for page in streams.table(routes * 2)] == [1, 2, 1]
    assert [part.count(b"10.0.0") async for part in streams.array(routes * 2, RouteView)] == [1, 2, 1, 0]


async def test_others_have_the_loop_while_many_lines_come_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "VIEWS_PAGE", 2)

    async def events() -> AsyncIterator[Event]:
        for number in range(5):
            asyncio.get_running_loop().call_soon(order.append, "another")
            yield Event(number, 0.0, "info", "kind", "subject", "text")

    order: list[object] = []
    async for one in streams.lines(events()):
        order.append(json.loads(one)["sequence"])
    assert order[:6] == [0, 1, "another", "another", 2, 3]


async def test_no_plane_is_shown_that_was_deleted_while_others_were(
    controller: Controller, monkeypatch: pytest.MonkeyPatch
) -> None:
    await controller.apply("version: 1\nplanes: [{name: s1, kind: fake}, {name: s2, kind: fake}]\n")
    plane_view = controller.core.plane_view

    async def deleting(name: str) -> Any:
        found = await plane_view(name)
        if name == "s1":
            await controller.operations.delete_plane("s1", False)
        return found

    monkeypatch.setattr(controller.core, "plane_view", deleting)
    assert [view.name async for view in controller.views.plane_views()] == ["s2"]


async def test_a_plane_is_shown_as_it_is_in_its_turn(controller: Controller) -> None:
    await controller.apply(TEXT)
    planes = controller.views.plane_views()
    assert (await anext(planes)).connected
    await controller.operations.detach_plane("s2")
    view = await anext(planes)
    assert (view.name, view.connected, view.reason, view.routers) == ("s2", False, "detached", 0)


async def test_each_tenant_is_shown_as_it_is_in_its_turn(controller: Controller) -> None:
    await controller.apply(TEXT)
    tenants, slices = controller.views.tenant_views(), controller.views.slice_views()
    assert (next(tenants).name, next(slices).slice) == ("blue", "blue@s1")
    more = "{name: r2, plane: s2, interfaces: [{name: eth0, port: p1, vlan: 100}, {name: eth1, port: p1, vlan: 101}]}"
    changed = TEXT.replace("vlan: 100}]}]", f"vlan: 100}}]}}, {more}]").replace(
        "{plane: s2, ports: {p1: [100]}}", "{plane: s2, ports: {p1: [100, 101]}}"
    )
    await controller.apply(changed)
    (red,) = tenants
    assert red.routers == ["r1", "r2"]
    assert [(one.slice, one.used["interfaces"]) for one in red.slices] == [("red@s1", 1), ("red@s2", 2)]
    assert red.slices == list(slices)


async def test_no_tenant_is_shown_that_was_deleted_while_others_were(controller: Controller) -> None:
    await controller.apply(TEXT)
    tenants, slices = controller.views.tenant_views(), controller.views.slice_views()
    assert (next(tenants).name, next(slices).slice) == ("blue", "blue@s1")
    await controller.operations.delete_tenant("red")
    assert list(tenants) == list(slices) == []


class Counted(dict[str, Any]):
    """Counts who goes over all of it."""

    walks = 0

    def values(self) -> Any:
        self.walks += 1
        return super().values()


async def test_routers_are_gone_over_once_for_all_tenants_and_planes(controller: Controller) -> None:
    await controller.apply(TEXT)
    state = controller.convergence.state
    routers = Counted(state.routers)
    object.__setattr__(state, "routers", routers)
    for _ in range(2):
        assert [view.routers for view in controller.views.tenant_views()] == [["r1"], ["r1"]]
        assert [view.used["interfaces"] for view in controller.views.slice_views()] == [1, 1, 0]
    assert routers.walks <= 1
