"""An Open vSwitch that is full sooner than it said, and one that has lost everything, with vr-forwarder behind it."""

from collections.abc import Iterator

import pytest
from cache_bed import MOST, ROUTER, ROUTES, Bed, Probes, cache_bed
from rig import until
from rig_switches import FallbackSwitch

from lab.commands import NetworkError

pytestmark = pytest.mark.root

LIMIT = 3000


@pytest.fixture(scope="module")
def bed() -> Iterator[Bed]:
    with cache_bed(FallbackSwitch) as found:
        yield found


def test_the_forwarder_carries_what_a_refilled_switch_has_not_yet(bed: Bed) -> None:
    """From the first packet after the restart none is lost, though all but a few of the routes are still missing."""
    bed.rig.switch.restart()
    until("the switch's data path takes commands", lambda: looks_up_every_packet(bed))
    probes = Probes(bed)
    with probes.running():
        until("the first probe", lambda: probes.seen, every_s=0.01)
        begun = len(bed.rig.switch.flows())
        bed.settled(lambda count: count > MOST)
        bed.rig.verified()
    assert begun < ROUTES
    assert not probes.wrong, probes.wrong[:5]
    assert not [number for number in probes.lost if number > probes.first_seen], probes.account()


def test_what_a_full_table_refuses_is_in_software_and_counted(bed: Bed) -> None:
    rig, ovs = bed.rig, bed.rig.switch.ovs
    bed.move("software")
    bed.settled(lambda count: count < LIMIT)
    limit = ("--", "--id=@t", "create", "Flow_Table", f"flow_limit={LIMIT}", "overflow_policy=refuse")
    ovs.vsctl("set", "bridge", "br", "flow_tables:3=@t", *limit)
    probes = Probes(bed)
    with probes.running():
        bed.move("hardware")
        bed.settled(lambda count: LIMIT // 2 < count < LIMIT)
        view = rig.router(ROUTER)
        assert (view["state"], view["refused"]) == ("up", 0)
        rig.verified()
    assert not probes.wrong, probes.wrong[:5]
    assert not probes.lost, probes.account()
    (plane,) = [one for one in rig.show("get", "planes") if one["name"] == "s1"]
    assert plane["entries"]["refused ipv4_route"] > 0
    assert (plane["tables"]["ipv4_route"]["capacity"], plane["tables"]["ipv4_route"]["source"]) == (
        LIMIT - 1,
        "learned",
    )
    ovs.vsctl("clear", "bridge", "br", "flow_tables")


def looks_up_every_packet(bed: Bed) -> bool:
    """Whether the switch does now: it takes other commands a moment before it knows this one."""
    try:
        bed.rig.switch.look_up_every_packet()
    except NetworkError:
        return False
    return True
