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
ISIS, BABELD = test_isis.NETS["levels-1-2"], test_babel.NETS["babeld"]
NETS = {name: replace(net, router={**net.router, **MACHINE}) for name, net in (("isis", ISIS), ("babeld", BABELD))}


@pytest.fixture(scope="module")
def machines() -> Iterator[dict[str, Between]]:
    needs_image()
    with lab(NETS, limit_s=BOOT_S) as found:
        yield found


@pytest.mark.parametrize("name", NETS)
def test_neighbors_are_joined_through_the_plane(machines: dict[str, Between], name: str) -> None:
    machines[name].forwards(4, 6)
