"""Shares are refused where a plane that is connected has none, with nothing applied; slices and routers show them."""

import pytest
from operator_world import Controller

from controller.errors import SpecError
from controller.model import Share
from controller.views import ShareView

TEXT = """\
version: 1
planes: [{name: s1, kind: fake}]
tenants:
  - name: red
    slices:
      - {plane: s1, ports: {p1: [untagged]}}
    routers:
      - name: r1
        plane: s1
        interfaces: [{name: eth0, port: p1}]
"""
OF_SLICE = TEXT.replace("{plane: s1, ports", "{plane: s1, share: {weight: 3, ceiling: 40 %}, ports")
OF_ROUTER = TEXT.replace("      - name: r1", "      - name: r1\n        share: {weight: 2}")


@pytest.mark.parametrize(("text", "line", "whose"), [(OF_SLICE, 6, "slice red@s1"), (OF_ROUTER, 8, "router red/r1")])
async def test_a_plane_without_shares_takes_no_document_that_asks_for_one(
    controller: Controller, text: str, line: int, whose: str
) -> None:
    await controller.apply(TEXT)
    controller.core.lacking_shares = {"s1"}
    with pytest.raises(SpecError) as refused:
        await controller.apply(text.replace("p1", "p2"))
    why = f"plane s1 has no shares, and so none for {whose}; leave share out, or use a plane that has them"
    assert str(refused.value) == f"t.yaml:{line}: {why}"
    state = controller.operations.state
    assert state.routers["red/r1"].interfaces[0].port == "p1", "nothing of it is applied"
    await controller.apply(TEXT.replace("p1", "p2"))


async def test_what_cannot_be_kept_is_refused_and_nothing_changes(controller: Controller) -> None:
    await controller.apply(OF_SLICE)
    before = controller.operations.state
    with pytest.raises(SpecError, match=r":8: slice red@s1 has a ceiling of 40 %, and guarantees come to 50 %"):
        await controller.apply(OF_SLICE.replace("- name: r1", "- name: r1\n        share: {guarantee: 50 %}"))
    assert controller.operations.state == before


async def test_a_router_is_put_with_its_share_and_that_of_its_slice(controller: Controller) -> None:
    await controller.apply(OF_SLICE)
    await controller.apply(OF_ROUTER.replace("{plane: s1, ports", "{plane: s1, share: {weight: 5}, ports"))
    (part,) = controller.operations.state.tenants["red"].slices
    (config,) = controller.core.routers.values()
    assert (config.share, config.slice_id, config.slice_share) == (Share(2), part.id, Share(5))
    assert controller.store.load().state.routers["red/r1"] == config


async def test_they_are_shown(controller: Controller) -> None:
    await controller.apply(OF_SLICE)
    assert [view.share for view in controller.views.slice_views()] == [ShareView(3, None, 40.0)]
    assert [view.share for view in controller.views.router_views()] == [None]
    await controller.apply(OF_ROUTER)
    assert [view.share for view in controller.views.slice_views()] == [ShareView(1, None, None)]
    assert [view.share for view in controller.views.router_views()] == [ShareView(2, None, None)]
