"""Slices of one switch: quotas that do not fit are refused, parts keep a greedy tenant from another's room, and a
slice that is added later takes nothing that is installed."""

from collections.abc import Iterator

import pytest
from e2e_world import OWN_ROUTES, World, many, world
from rig import document, until
from rig_switches import OvsSwitch

pytestmark = pytest.mark.root

ROOM = 400
SPARE = 16
ROUTES = 600


class SmallSwitch(OvsSwitch):
    """A switch that is said to have room for few routes."""

    @property
    def declared(self) -> dict[str, object]:
        return super().declared | {"capacity": {"ipv4_route": ROOM}}


@pytest.fixture(scope="module")
def running() -> Iterator[World]:
    with world(switch=SmallSwitch, many=many(ROUTES)) as found:
        yield found


def slices(running: World) -> dict[str, dict[str, dict[str, int]]]:
    return {view["slice"]: view for view in running.rig.show("get", "slices")}


def declare(running: World, name: str, **quota: int) -> str:
    """Apply a tenant with these quotas of routes; returns what vrctl says."""
    tenant = running.declared[name]
    part = {key: value for key, value in tenant["slices"][0].items() if key not in ("quota", "overcommit")}
    tenant["slices"] = [part | ({"quota": quota | {"neighbors": SPARE}} if quota else {})]
    return document(tenant, plane=running.rig.switch.declared)


def test_a_greedy_router_fills_its_part_alone(running: World) -> None:
    rig = running.rig
    parts = slices(running)
    assert [parts[name]["reserved"]["ipv4_routes"] for name in ("red@s1", "blue@s1")] == [ROOM // 2, ROOM // 2]
    running.bird.announce("many")
    until("the refusal", lambda: rig.router("red/r1")["state"] == "degraded")
    until("all that may be is written", lambda: not rig.router("red/r1")["pending"])
    red = slices(running)["red@s1"]
    assert red["used"]["ipv4_routes"] <= red["reserved"]["ipv4_routes"]
    assert rig.router("red/r1")["reason"] == f"quota ipv4_routes of {red['quota']['ipv4_routes']}"
    assert rig.router("blue/r1")["state"] == "up"
    rig.verified()


def test_a_slice_added_later_does_not_shrink_what_is_installed(running: World) -> None:
    rig = running.rig
    rig.ok("apply", "-f", "-", text=declare(running, "red", ipv4_routes=300))
    until("the larger quota is used", lambda: slices(running)["red@s1"]["used"]["ipv4_routes"] == 300)
    rig.ok("apply", "-f", "-", text=declare(running, "red"))
    red, blue = (slices(running)[name]["reserved"]["ipv4_routes"] for name in ("red@s1", "blue@s1"))
    assert red == slices(running)["red@s1"]["used"]["ipv4_routes"] == 300
    assert blue == ROOM - red
    rig.verified()


def test_a_quota_that_does_not_fit_is_refused_in_one_line(running: World) -> None:
    rig, before = running.rig, declared(running)
    line = rig.complaint("apply", "-f", "-", text=declare(running, "blue", ipv4_routes=200))
    assert "slice blue@s1: table ipv4_route of plane s1 has room for 400, and quotas ipv4_routes" in line
    assert "come to 516 (blue@s1 216, red@s1 300)" in line
    assert line.endswith("lower one, leave it out for an equal part, or say overcommit: true")
    assert declared(running) == before


def declared(running: World) -> dict[str, dict[str, object]]:
    """What slices are declared and have reserved; what they use may still change."""
    return {name: {key: one[key] for key in one if key != "used"} for name, one in slices(running).items()}


def test_what_leaves_the_table_goes_to_the_others(running: World) -> None:
    rig = running.rig
    declare(running, "blue")
    running.bird.withdraw("many")
    rig.up("red/r1", routes=OWN_ROUTES + 1)
    until("equal parts", lambda: slices(running)["blue@s1"]["reserved"]["ipv4_routes"] == ROOM // 2)


def test_a_restarted_controller_divides_what_it_finds(running: World) -> None:
    rig = running.rig
    rig.ok("apply", "-f", "-", text=declare(running, "red", ipv4_routes=300))
    running.bird.announce("many")
    until("the quota is used", lambda: slices(running)["red@s1"]["used"]["ipv4_routes"] == 300)
    rig.ok("apply", "-f", "-", text=declare(running, "red", ipv4_routes=100))
    rig.kill_controller()
    rig.start_controller()
    until("adopted", lambda: rig.show("get", "planes")[0]["connected"])
    until("divided", lambda: slices(running)["red@s1"]["reserved"]["ipv4_routes"] == 300)
    shown = rig.ok("get", "slices")
    assert f"/{ROOM - 300}" in shown
    assert slices(running)["red@s1"]["quota"]["ipv4_routes"] == 100
