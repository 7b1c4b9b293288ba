"""In virtual machines: IS-IS of FRR, its addresses in FRR's text alone; babeld by the suite `command`, with a program
that is started again, told of changed files, and logged."""

import re
from collections.abc import Iterator
from dataclasses import replace

import pytest
import test_babel
import test_isis
from daemon_rig import Between, lab
from machines import BOOT_S, IMAGE, needs_image
from rig import until
from test_e2e_command import KEEPER, OTHER, SCRIPT

pytestmark = pytest.mark.root

MACHINE = {"guest": {"kind": "kvm", "image": str(IMAGE)}}
FILES = {"keep.sh": f"echo keeper is $$\n{SCRIPT}", "route": "203.0.113.0/24 via 10.2.0.2\n"}
COMMAND = {"files": test_babel.BABELD["files"] | FILES, "daemons": [*test_babel.BABELD["daemons"], KEEPER]}
OTHERS = {"levels-1-2": test_isis, "babeld": test_babel}
MORE = {"levels-1-2": MACHINE, "babeld": {**MACHINE, "command": COMMAND}}
FOUND = {name: module.NETS[name] for name, module in OTHERS.items()}
NETS = {name: replace(net, router={**net.router, **MORE[name]}) for name, net in FOUND.items()}


@pytest.fixture(scope="module")
def machines() -> Iterator[dict[str, Between]]:
    needs_image()
    with lab(NETS, limit_s=BOOT_S) as found:
        yield found


@pytest.mark.parametrize("name", NETS)
def test_neighbors_are_joined_through_the_plane(machines: dict[str, Between], name: str) -> None:
    OTHERS[name].adjacent(machines[name], name)
    machines[name].forwards(4, 6)


def test_a_program_that_dies_is_started_again_and_a_changed_file_is_told_by_its_signal(
    machines: dict[str, Between],
) -> None:
    net = machines["babeld"]
    rig = net.rig

    def started() -> list[str]:
        """Return the process ids that the program has told, as the log has them."""
        return re.findall(r"keeper: keeper is (\d+)", rig.ok("logs", net.name))

    until("the route", lambda: net.route("203.0.113.0/24"), BOOT_S)
    (first,) = started()
    rig.ok("exec", net.name, "--", "sh", "-c", f"kill -KILL {first}", text="")
    until("another process", lambda: len(started()) == 2)
    assert "keeper ended: killed by SIGKILL" in rig.ok("logs", net.name)
    rig.up(net.name)
    changed = {"command": COMMAND | {"files": COMMAND["files"] | {"route": OTHER}}}
    routers = [one | changed if one["name"] == "babeld" else one for one in net.declared["routers"]]
    rig.apply(net.declared | {"routers": routers})
    until("the new route", lambda: net.route("198.51.100.0/24"))
    assert len(started()) == 2
    rig.verified()
