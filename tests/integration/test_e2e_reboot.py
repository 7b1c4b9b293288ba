"""What lost everything gets it back: a switch restarted empty, and a whole host whose state directory was kept."""

from collections.abc import Iterator

import pytest
from e2e_world import FAR, OWN_ROUTES, World, many, world
from rig import until
from rig_switches import SWITCHES

from lab.namespaces import QUIETLY

pytestmark = pytest.mark.root

ROUTES = 2_000


@pytest.fixture(scope="module", params=SWITCHES)
def running(request: pytest.FixtureRequest) -> Iterator[World]:
    with world(switch=request.param, many=many(ROUTES)) as found:
        found.bird.announce("many")
        found.rig.up("red/r1", routes=OWN_ROUTES + 1 + ROUTES)
        yield found


async def reaches(running: World) -> None:
    for host, address in running.ways:
        assert await host.ping(address, 5) == 5, f"{host} → {address}"


def connections(running: World) -> int:
    return sum(event["kind"] == "plane-connected" for event in running.rig.api.get("events"))


def converged(running: World) -> None:
    running.rig.up("red/r1", routes=OWN_ROUTES + 1 + ROUTES)
    running.rig.up("blue/r1")
    running.rig.verified()


async def test_a_switch_restarted_empty_is_refilled(running: World) -> None:
    rig = running.rig
    before = rig.switch.holdings()
    connects = connections(running)
    rig.switch.restart()
    until("the plane connected again", lambda: connections(running) > connects)
    until("the plane connected", lambda: rig.api.get("planes")[0]["connected"])
    converged(running)
    until("all that was installed", lambda: rig.switch.holdings() == before)  # neighbors may have been given up
    await reaches(running)


async def test_after_a_power_cut_all_comes_back_by_itself(running: World) -> None:
    rig = running.rig
    declared = rig.ok("get", "interfaces")
    rig.power_cut()
    assert await running.red.left.ping(FAR, 1, *QUIETLY) == 0
    rig.power_on()
    converged(running)
    assert rig.ok("get", "interfaces").split() == declared.split()
    await reaches(running)
