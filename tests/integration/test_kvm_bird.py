"""A router in a virtual machine that runs BIRD: it comes up, forwards, and takes a changed text without a restart."""

from collections.abc import Iterator

import pytest
from e2e_world import OWN_ROUTES, RED_BIRD, World, world
from machines import BOOT_S, IMAGE, control_groups, machines_of, needs_image
from rig import unbroken, until

pytestmark = pytest.mark.root

ROUTES = OWN_ROUTES + 1


@pytest.fixture
def running() -> Iterator[World]:
    needs_image()
    guest = {"kind": "kvm", "memory": "256M"}
    image = ("--guest-image", str(IMAGE))
    with world(*image, hold_time_s=120, red_guest=guest, red_text=RED_BIRD, limit_s=BOOT_S) as found:
        try:
            yield found
        finally:
            directory = found.rig.state / "guests" / "1"
            found.rig.ok("delete", "tenant", "red")
            until("its control groups are gone", lambda: not control_groups(directory))


def test_a_machine_with_bird_forwards_and_is_changed_while_it_runs(running: World) -> None:
    rig, (qemu,) = running.rig, machines_of(running.rig.state)
    rig.verified()
    daemons = rig.api.get("routers", "red", "r1", "daemons")
    assert (daemons["machine"], daemons["vrc"], daemons["bird"]) == ("up", "up", "up")
    assert "zebra" not in daemons
    more = RED_BIRD["bird"] + "protocol static more { ipv4; route 203.0.113.0/24 via 10.2.0.2; }\n"
    red = running.declared["red"]
    with unbroken(rig, *running.ways):
        rig.apply(red | {"routers": [red["routers"][0] | {"bird": more}]})
        rig.up("red/r1", routes=ROUTES + 1, limit_s=BOOT_S)
    assert "203.0.113.0/24" in rig.ok("exec", "red/r1", "--", "birdc", "show", "route", text="")
    assert machines_of(rig.state) == [qemu]
