"""What somebody does to the switch with ovs-ofctl is named by `vrctl verify`, and repaired by it and by the audit."""

import re
from collections.abc import Callable, Iterator

import pytest
from e2e_world import World, world
from rig import until
from rig_switches import BRIDGE

pytestmark = pytest.mark.root

_ROUTE = "table=3,ip,nw_dst=192.0.2.0/24"


@pytest.fixture(scope="module")
def running() -> Iterator[World]:
    with world() as found:
        yield found


@pytest.fixture(scope="module")
def audited() -> Iterator[World]:
    with world("--audit-interval", "1") as found:
        yield found


def delete_route(running: World) -> str:
    running.rig.ovs.ofctl("del-flows", BRIDGE, _ROUTE)
    return "192.0.2.0 – 192.0.2.255"


def change_route(running: World) -> str:
    running.rig.ovs.ofctl("mod-flows", BRIDGE, f"{_ROUTE},actions=drop")
    return "192.0.2.0 – 192.0.2.255"


def delete_group(running: World) -> str:
    """Open vSwitch deletes the flows that use a group together with it."""
    flow = running.rig.flows("table=3,ip,nw_dst=198.51.100.0/24")[0]
    (group,) = re.findall(r"group:(\d+)", flow)
    running.rig.ovs.ofctl("del-groups", BRIDGE, f"group_id={group}")
    return "198.51.100.0 – 198.51.100.255"


def delete_meter(running: World) -> str:
    """The flows that use a meter go with it too: here those that punt."""
    meter = running.rig.ovs.ofctl("dump-meters", BRIDGE).splitlines()[1].split()[0]
    running.rig.ovs.ofctl("del-meters", BRIDGE, meter)
    return "damaged: policer"


def delete_everything(running: World) -> str:
    running.rig.ovs.ofctl("del-flows", BRIDGE)
    running.rig.ovs.ofctl("del-groups", BRIDGE)
    return "damaged: router_interface"


BACK_S = 30.0
"""While nothing was forwarded a guest may have given a neighbor up: it is back with the kernel's next probe."""

DAMAGES = (delete_route, change_route, delete_group, delete_meter, delete_everything)


@pytest.mark.parametrize("damage", DAMAGES)
def test_verify_names_it_and_repairs_it(running: World, damage: Callable[[World], str]) -> None:
    rig = running.rig
    before = rig.switch.holdings()
    what = damage(running)
    seen = rig.vrctl("verify")
    assert (seen.returncode, what in seen.stdout) == (1, True), seen.stdout + seen.stderr
    repaired = rig.ok("verify", "--repair")
    assert "repaired" in repaired
    until("the tables as they were", lambda: rig.switch.holdings() == before, BACK_S)
    rig.verified()


@pytest.mark.parametrize("damage", DAMAGES)
def test_the_audit_repairs_it(audited: World, damage: Callable[[World], str]) -> None:
    rig = audited.rig
    before = rig.switch.holdings()
    damage(audited)
    until("the audit's repair", lambda: rig.switch.holdings() == before, BACK_S)
    assert "repaired" in rig.ok("events")
