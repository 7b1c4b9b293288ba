"""A vr-forwarder that comes back with nothing, as after a reboot of its host, behind an Open vSwitch that kept all:
what goes by its routes goes on at any time, and what leaves them finds its way in the forwarder."""

from collections.abc import Callable, Iterator

import pytest
from cache_bed import MOST, ROUTER, Bed, Probes, cache_bed
from rig import until
from rig_switches import FallbackSwitch

pytestmark = pytest.mark.root

HOLD_S = 5
"""How long the switch keeps what nobody has repeated, where the guest is not sure that it knows all."""


@pytest.fixture(scope="module")
def bed() -> Iterator[Bed]:
    with cache_bed(FallbackSwitch, hold_time_s=HOLD_S) as found:
        yield found


def alone(bed: Bed) -> None:
    bed.rig.switch.forwarder.lose()
    until("the loss is seen", lambda: not planes(bed)["f1"]["connected"])
    bed.rig.switch.forwarder.start()


def with_the_connection(bed: Bed) -> None:
    bed.rig.switch.cut()
    bed.rig.switch.forwarder.lose()
    until("the loss is seen", lambda: not any(planes(bed)[name]["connected"] for name in ("s1", "f1")))
    bed.rig.switch.connect()
    bed.rig.switch.forwarder.start()


def with_the_controller(bed: Bed) -> None:
    bed.rig.kill_controller()
    bed.rig.switch.forwarder.lose()
    bed.rig.switch.forwarder.start()
    bed.rig.start_controller()


def planes(bed: Bed) -> dict[str, dict[str, object]]:
    return {one["name"]: one for one in bed.rig.api.get("planes")}


@pytest.mark.parametrize("lose", [alone, with_the_connection, with_the_controller])
def test_no_packet_is_lost_whoever_is_away_as_well(bed: Bed, lose: Callable[[Bed], None]) -> None:
    bed.move("hardware")
    until("all in hardware", lambda: not bed.rig.show("fib", ROUTER, "--where", "software"))
    probes = Probes(bed)
    with probes.running():
        until("the first probe", lambda: probes.seen)
        lose(bed)
        until("both planes", lambda: all(one["connected"] for one in planes(bed).values()))
        bed.settled(lambda count: count > MOST)
        bed.rig.verified()
        bed.move("software")
        bed.settled(lambda count: count < MOST // 10)
        bed.rig.verified()
        bed.move("hardware")
        bed.settled(lambda count: count > MOST)
    assert not probes.wrong, probes.wrong[:5]
    assert not probes.lost, probes.account()
