"""Whatever dies while 10,000 entries of the hardware change: no packet goes wrong at any time, none is lost,
and both planes are equal to the routes afterwards."""

from collections.abc import Callable, Iterator

import pytest
from cache_bed import MOST, Bed, Probes, cache_bed
from rig import until
from rig_switches import FALLBACK_SWITCHES

pytestmark = pytest.mark.root


@pytest.fixture(scope="module", params=FALLBACK_SWITCHES)
def bed(request: pytest.FixtureRequest) -> Iterator[Bed]:
    with cache_bed(request.param) as found:
        yield found


def controller(bed: Bed) -> Callable[[], None]:
    def come_back() -> None:
        bed.rig.start_controller()

    bed.rig.kill_controller()
    return come_back


def forwarder(bed: Bed) -> Callable[[], None]:
    def come_back() -> None:
        until("the loss is seen", lambda: not planes(bed)["f1"]["connected"])
        bed.rig.switch.forwarder.start()

    bed.rig.switch.forwarder.kill()
    return come_back


def connection(bed: Bed) -> Callable[[], None]:
    def come_back() -> None:
        until("the loss is seen", lambda: not planes(bed)["s1"]["connected"])
        bed.rig.switch.connect()

    bed.rig.switch.cut()
    return come_back


def planes(bed: Bed) -> dict[str, dict[str, object]]:
    return {one["name"]: one for one in bed.rig.api.get("planes")}


@pytest.mark.parametrize("kill", [controller, forwarder, connection])
def test_killed_while_entries_change(bed: Bed, kill: Callable[[Bed], Callable[[], None]]) -> None:
    bed.move("hardware")
    bed.settled(lambda count: count > MOST)
    probes = Probes(bed)
    with probes.running():
        until("the first probe", lambda: probes.seen)
        come_back: list[Callable[[], None]] = []
        bed.in_the_middle(lambda: come_back.append(kill(bed)))
        come_back[0]()
        for placement in ("software", "hardware"):
            bed.rig.up("red/r1")
            bed.move(placement)
            bed.settled(lambda count, wanted=placement: (count > MOST) is (wanted == "hardware"))
            bed.rig.verified()
    assert not probes.wrong, probes.wrong[:5]
    assert not probes.lost, probes.account()
