"""What a guest takes of the host is limited by control groups of its own, and want of it is its own affair."""

import dataclasses
import json
import os
from pathlib import Path

import pytest
from guest_net import guest_bed, processes
from machines import control_groups

from controller.errors import GuestError
from controller.guests import limits
from controller.guests.limits import Policy
from controller.guests.netns import MAX_TASKS, NetnsDriver
from controller.model import GuestConfig, Routing, Suite

pytestmark = pytest.mark.root

MEMORY_MIB = 160
# Takes memory until it is killed, the first time; the next one has had enough.
GREEDY = """
import pathlib, time
once = pathlib.Path("/run/command/run/once")
if once.exists():
    time.sleep(1000)
once.touch()
taken = [bytearray(1 << 20) for _ in range(1000)]
"""


def greedy() -> Routing:
    daemon = {"name": "greedy", "argv": ["/usr/bin/python3", "-c", GREEDY], "reload": "restart"}
    return Routing(Suite.COMMAND, json.dumps({"user": "nobody", "files": {}, "daemons": [daemon]}))


def setting(directory: Path, *names: str) -> str:
    """What a guest's group says under the first of these names: that of version 2, or of 1."""
    found = [Path(group) / name for group in control_groups(directory) for name in names]
    return next(path.read_text().strip() for path in found if path.exists())


async def test_all_processes_of_a_guest_are_in_its_groups_which_go_with_it() -> None:
    async with guest_bed() as bed:
        spec = bed.spec()
        status = await bed.started(spec)
        groups = control_groups(spec.directory)
        assert groups
        for group in groups:
            inside = {int(pid) for pid in (Path(group) / "cgroup.procs").read_text().split()}
            assert set(processes(status).values()) <= inside, group
        assert setting(spec.directory, "memory.max", "memory.limit_in_bytes") == str(2 << 30)
        assert setting(spec.directory, "pids.max") == str(MAX_TASKS)
        changed = dataclasses.replace(spec, guest=GuestConfig(memory_mib=MEMORY_MIB))
        assert (await bed.started(changed)).pid == status.pid
        assert setting(spec.directory, "memory.max", "memory.limit_in_bytes") == str(MEMORY_MIB << 20)
        await bed.driver.delete(spec)
        assert control_groups(spec.directory) == set()


async def test_who_takes_too_much_memory_is_killed_and_nobody_else() -> None:
    async with guest_bed() as bed:
        other = bed.spec("blue/r1")
        before = processes(await bed.started(other))
        spec = dataclasses.replace(bed.spec(routing=greedy()), guest=GuestConfig(memory_mib=MEMORY_MIB))
        await bed.driver.start(spec)
        status = await bed.settled(spec, lambda seen: seen.restarts == 1 and set(seen.daemons.values()) == {"up"})
        assert {"vr-guest", "python"} <= processes(status).keys()
        told = await bed.driver.look_after(spec)
        remedy = f"raise memory: under guest: (now {MEMORY_MIB}M)"
        assert told == [f"out of memory, 1 of its processes were killed; {remedy}"]
        assert await bed.driver.look_after(spec) == []
        assert processes(await bed.settled(other)) == before


async def test_guests_run_on_the_processors_that_are_theirs() -> None:
    last = (os.cpu_count() or 1) - 1
    async with guest_bed() as bed:
        bed.driver = NetnsDriver(bed.hidden, bed.command, Policy(cpus=str(last)))
        status = await bed.started(bed.spec())
        for name, pid in processes(status).items():
            assert os.sched_getaffinity(pid) == {last}, name


async def test_a_host_that_lacks_control_groups_is_an_error_unless_it_may(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nowhere = tmp_path / "cgroup"
    for name in ("make", "lacking", "remove", "memory_kills"):
        there = getattr(limits, name)
        monkeypatch.setattr(limits, name, lambda *given, there=there, **_: there(*given, root=nowhere))
    async with guest_bed() as bed:
        spec = bed.spec()
        with pytest.raises(
            GuestError, match=r"^red/r1: no control groups of memory and cpu and pids here; mount them"
        ):
            await bed.driver.start(spec)
        bed.driver = NetnsDriver(bed.hidden, bed.command, Policy(best_effort=True))
        await bed.driver.start(spec)
        status = await bed.settled(spec, lambda seen: seen.daemons.get("bgpd") == "up")
        assert status.daemons["limits"] == "without memory, cpu, pids"
