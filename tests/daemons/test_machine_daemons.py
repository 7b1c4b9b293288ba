"""In virtual machines: IS-IS of FRR, its addresses in FRR's text alone, and babeld by the suite `command`."""

from collections.abc import Iterator
from dataclasses import replace

import pytest
import test_babel
import test_isis
from daemon_rig import Between, lab
from machines import BOOT_S, IMAGE, needs_image

pytestmark = pytest.mark.root

MACHINE = {"guest": {"kind": "kvm", "image": str(IMAGE)}}
OTHERS = {"levels-1-2": test_isis, "babeld": test_babel}
FOUND = {name: module.NETS[name] for name, module in OTHERS.items()}
NETS = {name: replace(net, router={**net.router, **MACHINE}) for name, net in FOUND.items()}


@pytest.fixture(scope="module")
def machines() -> Iterator[dict[str, Between]]:
    needs_image()
    with lab(NETS, limit_s=BOOT_S) as found:
        yield found


@pytest.mark.parametrize("name", NETS)
def test_neighbors_are_joined_through_the_plane(machines: dict[str, Between], name: str) -> None:
    OTHERS[name].adjacent(machines[name], name)
    machines[name].forwards(4, 6)
