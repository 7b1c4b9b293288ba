"""Quotas are reserved when they are applied, divided again when a plane says its sizes, and shown."""

from typing import Any

import pytest
from operator_world import Controller

from controller.errors import SpecError, StoreError
from controller.spec.state import State

PLANE = "version: 1\nplanes: [{name: s1, kind: fake}]\ntenants:\n"
SIZES = {"ipv4_route": 1000, "ipv6_route": 1000, "nexthop": 100, "nexthop_group": 50, "interface_classifier": 20}


def tenant(name: str, port: str, more: str = "") -> str:
    return f"  - {{name: {name}, slices: [{{plane: s1, ports: {{{port}: [untagged]}}{more}}}]}}\n"


async def test_what_does_not_fit_is_refused_and_nothing_changes(controller: Controller) -> None:
    controller.core.sizes["s1"] = SIZES
    await controller.apply(PLANE + tenant("red", "p1", ", quota: {ipv4_routes: 700, neighbors: 10}"))
    blue = PLANE + tenant("blue", "p2", ", quota: {ipv4_routes: 400, neighbors: 10}")
    with pytest.raises(SpecError) as refused:
        await controller.apply(blue)
    line = (
        "t.yaml:4: slice blue@s1: table ipv4_route of plane s1 has room for 1,000, and quotas ipv4_routes with what "
    )
    assert str(refused.value).startswith(line)
    assert "come to 1,120 (blue@s1 410, red@s1 710); lower one" in str(refused.value)
    assert set(controller.operations.state.tenants) == {"red"}
    await controller.apply(blue.replace("neighbors: 10}", "neighbors: 10}, overcommit: true"))
    assert controller.core.pooled["s1"] == {"blue"}
    assert controller.core.shares["s1"].pool["ipv4_routes"] == 290


async def test_what_a_plane_said_is_remembered_while_it_is_away(controller: Controller) -> None:
    controller.core.sizes["s1"] = SIZES
    await controller.apply(PLANE + tenant("red", "p1", ", quota: {groups: 40}"))
    controller.core.sizes.clear()
    with pytest.raises(SpecError, match="table nexthop_group of plane s1 has room for 50"):
        await controller.apply(PLANE + tenant("blue", "p2", ", quota: {groups: 11}"))
    assert controller.store.load().state.sizes == {"s1": SIZES}


async def test_what_a_plane_said_is_stored_later_where_the_disk_is_full_and_hinders_no_change(
    controller: Controller, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit, states = controller.store.commit, []

    def fill(state: State, *more: Any) -> None:
        states.append(state)
        if len(states) > 1:
            raise StoreError("database or disk is full")
        commit(state, *more)

    controller.core.sizes["s1"] = SIZES
    monkeypatch.setattr(controller.store, "commit", fill)
    outcome = await controller.apply(PLANE + tenant("red", "p1", ", quota: {groups: 40}"))
    assert [change.name for change in outcome.changes] == ["s1", "red", "red@s1"]
    assert len(states) > 1
    assert controller.core.shares["s1"].limits["red"].groups == 40
    monkeypatch.undo()
    with pytest.raises(SpecError, match="table nexthop_group of plane s1 has room for 50"):
        await controller.apply(PLANE + tenant("blue", "p2", ", quota: {groups: 11}"))
    await controller.apply(PLANE + tenant("blue", "p2", ", quota: {groups: 10}"))
    assert controller.store.load().state.sizes == {"s1": SIZES}


async def test_a_plane_that_turns_out_to_be_smaller_cuts_the_largest_and_says_so_once(controller: Controller) -> None:
    """Its size was not known when the quotas were applied."""
    await controller.apply(PLANE + tenant("red", "p1", ", quota: {groups: 90}") + tenant("blue", "p2"))
    assert controller.core.shares["s1"].limits["red"].groups == 90
    controller.core.sizes["s1"] = SIZES
    controller.core.used["s1"] = {"blue": {"groups": 20}}
    for _ in range(2):
        controller.core.on_adopted()
    assert controller.core.shares["s1"].limits["red"].groups == 30
    assert controller.core.shares["s1"].limits["blue"].groups == 20
    told = [event.text for event in controller.events.recent() if event.kind == "quotas-cut"]
    assert told == ["table nexthop_group has 50 entries, 60 less than quotas groups: the largest are cut"]
    await controller.apply(PLANE + tenant("green", "p3"))  # which made nothing worse


async def test_sizes_that_the_disk_does_not_take_are_used_and_stored_with_the_next_change(
    controller: Controller, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or the plane would not be served: the shares are divided while it is adopted."""
    await controller.apply(PLANE + tenant("red", "p1", ", quota: {groups: 90}"))

    def full(*_: object) -> None:
        raise StoreError("database or disk is full")

    monkeypatch.setattr(controller.store, "commit", full)
    controller.core.sizes["s1"] = SIZES
    controller.core.on_adopted()
    controller.convergence.follow_use()
    assert controller.core.shares["s1"].limits["red"].groups == 50
    await controller.convergence.program(lambda _: None)
    told = [(event.subject, event.text) for event in controller.events.recent() if event.kind == "not-stored"]
    assert told == [("table sizes", "database or disk is full")]
    assert controller.store.load().state.sizes == {}
    monkeypatch.undo()
    await controller.apply(PLANE + tenant("red", "p1", ", quota: {groups: 50}"))
    assert controller.store.load().state.sizes == {"s1": SIZES}


async def test_a_part_that_use_made_larger_shrinks_with_it(controller: Controller) -> None:
    controller.core.sizes["s1"] = SIZES
    controller.core.used["s1"] = {"red": {"nexthops": 80}}
    await controller.apply(PLANE + tenant("red", "p1") + tenant("blue", "p2"))
    shares = controller.core.shares
    assert [shares["s1"].limits[name].nexthops for name in ("red", "blue")] == [80, 20]
    controller.core.used["s1"] = {"red": {"nexthops": 10}}
    controller.convergence.follow_use()
    assert [shares["s1"].limits[name].nexthops for name in ("red", "blue")] == [50, 50]


async def test_a_pool_that_use_made_larger_shrinks_with_it(controller: Controller) -> None:
    """Or a slice that came while it was used would have its small part until the next change of a document."""
    controller.core.sizes["s1"] = SIZES
    both = "".join(tenant(name, port, ", overcommit: true") for name, port in (("red", "p1"), ("blue", "p2")))
    controller.core.used["s1"] = {"red": {"nexthops": 70}, "blue": {"nexthops": 20}}
    await controller.apply(PLANE + both + tenant("green", "p3"))
    shares = controller.core.shares
    assert [shares["s1"].pool["nexthops"], shares["s1"].limits["green"].nexthops] == [90, 10]
    controller.core.used["s1"] = {"red": {"nexthops": 20}, "blue": {"nexthops": 70}}
    before = shares["s1"]
    controller.convergence.follow_use()
    assert shares["s1"] is before, "what one gives back to the pool another one has taken"
    controller.core.used["s1"] = {"red": {"nexthops": 20}, "blue": {"nexthops": 50}}
    controller.convergence.follow_use()
    assert [shares["s1"].pool["nexthops"], shares["s1"].limits["green"].nexthops] == [70, 30]
    controller.core.used["s1"] = {"red": {"nexthops": 20}}
    controller.convergence.follow_use()
    assert [shares["s1"].pool["nexthops"], shares["s1"].limits["green"].nexthops] == [66, 33]


@pytest.mark.parametrize("more", ["", ", overcommit: true"])
async def test_a_quota_that_use_of_others_cut_grows_when_that_has_gone(controller: Controller, more: str) -> None:
    await controller.apply(
        PLANE + tenant("red", "p1", ", quota: {groups: 45}") + tenant("blue", "p2", ", quota: {groups: 60}")
    )
    await controller.apply(PLANE + tenant("green", "p3", more))
    controller.core.sizes["s1"] = SIZES
    controller.core.used["s1"] = {"red": {"groups": 30}, "green": {"groups": 8}}
    controller.core.on_adopted()
    limits = [controller.core.shares["s1"].limits[name].groups for name in ("red", "blue")]
    assert limits == [30, 12]
    controller.core.used["s1"] = {"red": {"groups": 30}}
    controller.convergence.follow_use()
    limits = [controller.core.shares["s1"].limits[name].groups for name in ("red", "blue")]
    assert limits == [30, 20]
    controller.core.used["s1"] = {}
    controller.convergence.follow_use()
    limits = [controller.core.shares["s1"].limits[name].groups for name in ("red", "blue")]
    assert limits == [25, 25]


async def test_what_deleted_tenants_still_have_is_divided_when_it_has_gone(controller: Controller) -> None:
    controller.convergence.memory = 1_000_000
    controller.core.sizes["s1"] = SIZES
    controller.core.used["s1"] = {"red": {"nexthops": 80, "memory": 900_000}}
    await controller.apply(PLANE + tenant("red", "p1") + tenant("blue", "p2"))
    await controller.operations.delete_tenant("red")
    shares = controller.core.shares
    assert [shares["s1"].limits["blue"].nexthops, shares["s1"].limits["blue"].memory] == [20, 100_000]
    for used, nexthops, memory in (
        ({"nexthops": 0, "memory": 900_000}, 100, 100_000),
        ({"nexthops": 0, "memory": 0}, 100, 1_000_000),
    ):
        controller.core.used["s1"] = {"red": used}
        controller.convergence.follow_use()
        assert [shares["s1"].limits["blue"].nexthops, shares["s1"].limits["blue"].memory] == [nexthops, memory]


async def test_parts_are_no_change_of_the_document(controller: Controller) -> None:
    controller.core.sizes["s1"] = SIZES
    await controller.apply(PLANE + tenant("red", "p1"))
    outcome = await controller.apply(PLANE + tenant("red", "p1") + tenant("blue", "p2"))
    assert [change.name for change in outcome.changes] == ["blue", "blue@s1"]
    outcome = await controller.apply(PLANE + tenant("red", "p1", ", quota: {groups: 7}, overcommit: true"))
    assert outcome.changes[0].details == ["overcommits", "quota groups an equal part → 7"]


async def test_slices_are_shown_with_what_is_reserved_and_used(controller: Controller) -> None:
    controller.core.sizes["s1"] = SIZES
    await controller.apply(PLANE + tenant("red", "p1", ", quota: {ipv4_routes: 600, neighbors: 10}"))
    (view,) = controller.views.slice_views()
    assert (view.slice, view.said, view.overcommit) == ("red@s1", ["ipv4_routes"], False)
    assert (view.quota["ipv4_routes"], view.reserved["ipv4_routes"]) == (600, 610)
    assert (view.quota["groups"], view.reserved["interfaces"], view.used["interfaces"]) == (50, 20, 0)
