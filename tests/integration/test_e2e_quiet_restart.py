"""A controller that is started again finds on the plane what it wants there, and writes nothing."""

from collections.abc import Iterator

import pytest
from e2e_world import OWN_ROUTES, World, many, world
from marks import needs_bmv2
from rig import unbroken
from rig_switches import Bmv2Switch, DeviceSwitch, ForwarderSwitch

pytestmark = pytest.mark.root

ROUTES = 2_000


SWITCHES = (pytest.param(ForwarderSwitch, id="forwarder"), pytest.param(Bmv2Switch, id="bmv2", marks=needs_bmv2))


@pytest.fixture(scope="module", params=SWITCHES)
def running(request: pytest.FixtureRequest) -> Iterator[World]:
    with world(switch=request.param, many=many(ROUTES)) as found:
        found.bird.announce("many")
        found.rig.up("red/r1", routes=OWN_ROUTES + 1 + ROUTES)
        yield found


def test_a_restart_writes_nothing(running: World) -> None:
    rig, switch = running.rig, running.rig.switch
    assert isinstance(switch, DeviceSwitch)
    rig.up("blue/r1")
    held, before = switch.holdings(), switch.requests
    assert before["Write"] > ROUTES // 1000, "the relay has seen the routes go by"
    with unbroken(rig, *running.ways):
        rig.kill_controller()
        rig.start_controller()
        rig.up("red/r1", routes=OWN_ROUTES + 1 + ROUTES)
        rig.up("blue/r1")
    rig.verified()
    sent = switch.requests - before
    assert sent["StreamChannel"] == 1
    assert sent["Read"] > 0
    assert not sent["Write"]
    assert not sent["SetForwardingPipelineConfig"]
    assert switch.holdings() == held
