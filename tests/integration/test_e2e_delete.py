"""A deleted tenant leaves no flow, group, meter, process, namespace, mount or file; the other one is unharmed."""

import contextlib
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from e2e_world import World, world
from rig import Rig, unbroken, until
from rig_switches import BRIDGE, OvsSwitch

from controller.planes.base import PuntClass
from lab.processes import descendants

pytestmark = pytest.mark.root


@pytest.fixture(scope="module")
def running() -> Iterator[World]:
    with world() as found:
        yield found


def namespaces(rig: Rig) -> set[str]:
    """Return the namespaces that any process has."""
    found = set()
    for pid in descendants(rig.first):
        with contextlib.suppress(OSError):  # it just ended
            found |= {os.readlink(f"/proc/{pid}/ns/{kind}") for kind in ("net", "mnt", "pid", "user", "ipc", "uts")}
    return found


def files(rig: Rig) -> set[str]:
    volatile = re.compile(r"\.(db-wal|db-shm|log)$")
    paths = (path for place in (rig.state, rig.run) for path in place.rglob("*"))
    return {str(path.relative_to(rig.directory)) for path in paths if not volatile.search(path.name)}


def mounts(rig: Rig) -> set[str]:
    """Return all mounts but those of network namespaces: other tests had theirs when this one began, and they go."""
    lines = Path(f"/proc/{rig.first}/mountinfo").read_text().splitlines()
    return {line for line in lines if " /run/netns/" not in line}


def holdings(rig: Rig) -> set[str]:
    """Return the flows, groups and meters of the switch."""
    assert isinstance(rig.switch, OvsSwitch)
    return {line for part in rig.switch.holdings() for line in part}


TRACES = (holdings, namespaces, files, mounts)


def traces(rig: Rig) -> dict[str, set[str]]:
    return {look.__name__: look(rig) for look in TRACES}


def settled(rig: Rig) -> dict[str, set[str]]:
    """Return all traces, once two looks in a row found the same: who is left starts and ends processes as well."""
    looks = [traces(rig)]

    def same() -> bool:
        looks.append(traces(rig))
        return looks[-1] == looks[-2]

    until("nothing changes", same, every_s=0.5)
    return looks[-1]


def removed(rig: Rig, times: int) -> None:
    """Wait until the controller has told that many times that red/r1 is gone."""
    line = "router-removed red/r1: nothing of it is left"
    until("red/r1 gone", lambda: rig.ok("events").count(line) == times, every_s=0.5)


def test_a_deleted_tenant_leaves_nothing(running: World) -> None:
    rig = running.rig
    red = running.declared["red"]
    with unbroken(rig, (running.blue.left, "192.0.2.1")):
        assert rig.ok("delete", "tenant", "red").splitlines()[0] == "delete tenant red"
        removed(rig, 1)
        left = settled(rig)
        assert not [line for line in left["holdings"] if "metadata=0x1" in line or "in_port=1," in line]
        used = set(re.findall(r"group:(\d+)", " ".join(rig.flows())))
        assert used == set(re.findall(r"group_id=(\d+)", rig.ovs.ofctl("dump-groups", BRIDGE)))
        meters = [line for line in left["holdings"] if line.startswith("meter=")]
        assert len(meters) == len(PuntClass)  # blue's
        assert len(rig.api.get("routers")) == 1
        rig.apply(red)
        rig.up("red/r1")
        assert files(rig) > left["files"]
        assert namespaces(rig) > left["namespaces"]
        rig.ok("delete", "router", "red/r1")
        removed(rig, 2)
        rig.ok("delete", "tenant", "red")
    now = settled(rig)
    for kind in now:
        assert now[kind] == left[kind], kind
    rig.verified()
