"""A deleted tenant leaves no flow, group, meter, process, namespace, mount or file; the other one is unharmed."""

import contextlib
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from e2e_world import World, world
from rig import Rig, unbroken
from rig_switches import BRIDGE

from bench.processes import descendants

pytestmark = pytest.mark.root


@pytest.fixture(scope="module")
def running() -> Iterator[World]:
    with world() as found:
        yield found


def namespaces(rig: Rig) -> set[str]:
    """Return the namespaces that any process has."""
    found = set()
    for pid in descendants(rig.first):
        with contextlib.suppress(FileNotFoundError):  # it just ended
            found |= {os.readlink(f"/proc/{pid}/ns/{kind}") for kind in ("net", "mnt", "pid", "user", "ipc", "uts")}
    return found


def files(rig: Rig) -> set[str]:
    volatile = re.compile(r"\.(db-wal|db-shm|log)$")
    paths = (path for place in (rig.state, rig.run) for path in place.rglob("*"))
    return {str(path.relative_to(rig.directory)) for path in paths if not volatile.search(path.name)}


def mounts(rig: Rig) -> str:
    return Path(f"/proc/{rig.first}/mountinfo").read_text()


def test_a_deleted_tenant_leaves_nothing(running: World) -> None:
    rig = running.rig
    red = running.declared["red"]
    with unbroken(rig, (running.blue.left, "192.0.2.1")):
        assert rig.ok("delete", "tenant", "red").splitlines()[0] == "delete tenant red"
        left = rig.switch.holdings(), namespaces(rig), files(rig), mounts(rig)
        assert not [flow for flow in left[0][0] if "metadata=0x1" in flow or "in_port=1," in flow]
        used = set(re.findall(r"group:(\d+)", " ".join(rig.flows())))
        assert used == set(re.findall(r"group_id=(\d+)", rig.ovs.ofctl("dump-groups", BRIDGE)))
        assert sum(line.startswith("meter=") for line in left[0][2]) == 4  # blue's, one for each punt class
        assert len(rig.api.get("routers")) == 1
        rig.apply(red)
        rig.up("red/r1")
        assert (files(rig), namespaces(rig)) > (left[2], left[1])
        rig.ok("delete", "router", "red/r1")
        rig.ok("delete", "tenant", "red")
    assert (rig.switch.holdings(), namespaces(rig), files(rig), mounts(rig)) == left
    assert "router-removed red/r1: nothing of it is left" in rig.ok("events")
    rig.verified()
