"""Root of a guest is an unprivileged user of the host, and no user of another guest."""

import asyncio
import fcntl
import os
import struct
from asyncio.subprocess import PIPE
from pathlib import Path

import pytest
from guest_net import GuestBed, guest_bed, processes

from controller.guests.base import GuestStatus
from controller.guests.users import IDS_OF_A_GUEST, guest_id_base, vrc_uid
from controller.model import MAX_ROUTERS
from vrc.guest.kernel import watch_directory

pytestmark = pytest.mark.root

NS_GET_OWNER_UID = 0xB704
# Takes all that the kernel lets its user have of what watches files, and keeps it.
GREEDY = """
import ctypes, sys
libc = ctypes.CDLL(None)
while libc.inotify_init() >= 0:
    pass
print("full", flush=True)
sys.stdin.read()
"""


def users(pid: int, kind: str) -> set[int]:
    """The users, or groups, that a process is on the host."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    fields = dict(line.split(":\t", 1) for line in lines if ":\t" in line)
    return {int(number) for number in fields[kind].split()}


def refused(bed: GuestBed, status: GuestStatus, script: str) -> bool:
    return "Permission denied" in bed.run(status, "sh", "-c", script).stderr


async def test_every_process_of_a_guest_is_of_its_own_users() -> None:
    async with guest_bed() as bed:
        for router in ("red/r1", "blue/r1"):
            spec = bed.spec(router)
            status = await bed.started(spec)
            base, vrc = guest_id_base(spec.vrf_id), vrc_uid(spec.vrf_id)
            own = {*range(base, base + IDS_OF_A_GUEST), vrc}
            found = processes(status)
            assert {"vr-guest", "zebra", "bgpd", "python"} <= found.keys()
            for name, pid in found.items():
                assert (users(pid, "Uid") | users(pid, "Gid") | users(pid, "Groups")) <= own, name
            assert users(status.pid, "Uid") == {base}
            assert users(found["python"], "Uid") == {vrc}


async def test_root_of_a_guest_opens_nothing_that_is_root_s_on_the_host() -> None:
    async with guest_bed() as bed:
        status = await bed.started(bed.spec())
        assert bed.run(status, "id", "-u").stdout == "0\n"
        assert refused(bed, status, "cat /etc/shadow")
        for setting in ("kernel/core_pattern", "kernel/panic", "vm/overcommit_memory"):
            assert refused(bed, status, f"true >> /proc/sys/{setting}")
        # What is its own network's it does set.
        assert bed.run(status, "sysctl", "-qw", "net.ipv4.ip_default_ttl=63").stderr == ""


async def test_what_the_kernel_counts_by_user_a_guest_uses_up_for_itself_alone() -> None:
    async with guest_bed() as bed:
        spec = bed.spec(vrf_id=MAX_ROUTERS)  # whose users no guest of another test has
        status = await bed.started(spec)
        users_of_guest = os.open(f"/proc/{status.pid}/ns/user", os.O_RDONLY)
        owner = fcntl.ioctl(users_of_guest, NS_GET_OWNER_UID, bytes(4))
        os.close(users_of_guest)
        assert struct.unpack("=I", owner) == (guest_id_base(spec.vrf_id),)
        inside = bed.driver.exec_argv(spec, status.pid, ["/usr/bin/python3", "-c", GREEDY])
        greedy = await asyncio.create_subprocess_exec(*inside, stdin=PIPE, stdout=PIPE)
        try:
            assert greedy.stdout is not None
            assert await greedy.stdout.readline() == b"full\n"
            os.close(watch_directory(str(bed.base)))
            await bed.started(bed.spec("blue/r1"))
        finally:
            await greedy.communicate(b"")


async def test_what_one_of_an_older_version_left_in_the_directory_leads_nobody_astray() -> None:
    async with guest_bed() as bed:
        spec = bed.spec()
        precious = bed.base / "precious"
        (precious / "identity").mkdir(parents=True)
        (precious / "file").write_text("precious\n")
        before = precious.stat()
        spec.directory.mkdir(parents=True)
        for name in ("guest.log", "guest.log.1", "guest.json", "guest.json.new", "guest.pid.new", "control.sock"):
            (spec.directory / name).symlink_to(precious / "file")
        (spec.directory / "identity").symlink_to(precious / "identity")
        os.mkfifo(spec.directory / "guest.lock")
        for name in ("etc", "run"):
            (spec.directory / name).mkdir()
            (spec.directory / name / "link").symlink_to(precious)
            (spec.directory / name / "text").write_text("left\n")
        await bed.started(spec)
        left = {path.name for path in spec.directory.iterdir()}
        files = {"guest.json", "guest.pid", "guest.lock", "control.sock", "guest.log", "guest.log.1"}
        assert left == {*files, "identity"}
        assert (precious / "file").read_text() == "precious\n"
        assert list((precious / "identity").iterdir()) == []
        assert (precious.stat().st_uid, precious.stat().st_mode) == (before.st_uid, before.st_mode)
