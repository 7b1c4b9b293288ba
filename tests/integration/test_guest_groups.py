"""What a guest takes of the host is limited by control groups of its own, and want of it is its own affair."""

import asyncio
import dataclasses
import json
import os
import signal
import subprocess
import sys
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

FORKING = """
import os, signal, sys
made = []
try:
    while len(made) < 3000:
        pid = os.fork()
        if not pid:
            signal.pause()
        made.append(pid)
except BlockingIOError:
    pass
for pid in made:
    os.kill(pid, signal.SIGKILL)
print(len(made))
"""
RATE = 1 << 20
# Reads so many octets of a file of the host, past the cache; says how long that took, in seconds.
READING = """
import mmap, os, sys, time
begun, left, into = time.monotonic(), int(sys.argv[1]), mmap.mmap(-1, 1 << 18)
try:
    file = os.open(sys.executable, os.O_RDONLY | os.O_DIRECT)
except OSError as error:
    print("no direct reads here:", error)
    sys.exit(3)
while left > 0 and (got := os.readv(file, [into])):
    left -= got
print(time.monotonic() - begun)
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


async def test_groups_go_with_a_guest_in_which_an_operator_still_runs_something() -> None:
    async with guest_bed() as bed:
        spec = bed.spec(routing=Routing(Suite.IP, "route add blackhole 198.51.100.0/24\n"))
        status = await bed.started(spec)
        command = bed.driver.exec_argv(spec, status.pid, ["/bin/sh", "-c", "echo inside; sleep 600"])
        running = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
        assert running.stdout is not None
        assert await running.stdout.readline() == b"inside\n"
        await bed.driver.delete(spec)
        assert await running.wait()
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


async def test_what_an_operator_runs_in_a_guest_is_within_its_limits() -> None:
    async with guest_bed() as bed:
        spec = dataclasses.replace(bed.spec(), guest=GuestConfig(memory_mib=MEMORY_MIB))
        before = processes(status := await bed.started(spec))
        own = {line.rpartition(":")[2] for line in bed.run(status, "cat", "/proc/self/cgroup").stdout.splitlines()}
        name = limits.name_of(spec.directory)
        assert own & {f"/{limits.PARENT}/{name}", f"/{limits.PARENT}-{name}"}, own
        tried = bed.run(status, "/usr/bin/python3", "-c", "bytearray(1 << 30)")
        assert tried.returncode in (-signal.SIGKILL, 128 + signal.SIGKILL)
        # It was the largest: the guest's own go on.
        assert processes(await bed.settled(spec)) == before
        await bed.started(dataclasses.replace(spec, guest=GuestConfig()))  # with memory for a thousand more
        tried = bed.run(status, "/usr/bin/python3", "-c", FORKING)
        assert 0 < int(tried.stdout) < MAX_TASKS
        assert processes(await bed.settled(spec)) == before


def limits_disks() -> bool:
    """Whether this host's kernel has control groups that limit what is read of a disk."""
    controllers = limits.ROOT / "cgroup.controllers"
    unified = controllers.read_text().split() if controllers.exists() else []
    return "io" in unified or (limits.ROOT / "blkio/blkio.throttle.read_bps_device").exists()


@pytest.mark.skipif(not limits_disks(), reason="no control groups of io or blkio here: docs/guests.md")
async def test_a_guest_reads_no_more_of_a_disk_in_a_second_than_it_may() -> None:
    async with guest_bed() as bed:
        bed.driver = NetnsDriver(bed.hidden, bed.command, Policy(disk_bytes_per_s=RATE))
        spec = bed.spec()
        status = await bed.started(spec)
        read = bed.run(status, "/usr/bin/python3", "-c", READING, str(2 * RATE))
        if read.returncode == 3:
            pytest.skip(
                f"only reads past the cache are limited, and {sys.executable} cannot be read so: {read.stdout}"
            )
        assert float(read.stdout) > 1.5
        bed.driver = NetnsDriver(bed.hidden, bed.command)
        await bed.driver.start(spec)
        read = bed.run(status, "/usr/bin/python3", "-c", READING, str(2 * RATE))
        assert float(read.stdout) < 1.5, "the limit is lifted"


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


def test_a_command_enters_groups_that_are_read_only_where_it_comes_from(tmp_path: Path) -> None:
    """As in vr-controller's unit, whose namespaces vrctl enters first: what process 1 sees can be written."""
    guest = tmp_path / "1"
    group = tmp_path / "memory" / limits.PARENT / limits.name_of(guest)
    group.mkdir(parents=True)
    (group / "cgroup.procs").write_text("17\n")
    entering = limits.entering(guest, ["/bin/echo", "inside"], tmp_path)
    read_only = 'mount --bind "$0" "$0"; mount -o remount,bind,ro "$0"; ! echo 1 2>&- >"$1"; shift; exec "$@"'
    unit = ["unshare", "--mount", "sh", "-ec", read_only, str(tmp_path), str(group / "cgroup.procs"), *entering]
    host = ["unshare", "--pid", "--fork", "--mount-proc", "sh", "-c", '"$@"; exit $?', "sh"]
    done = subprocess.run([*host, *unit], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "inside\n"), done.stderr
    assert (group / "cgroup.procs").read_text() == "0\n"
