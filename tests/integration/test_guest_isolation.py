"""What a guest can see and do: its own session, identity and configuration, and nothing of the host or of others."""

import os
import socket
from pathlib import Path

import pytest
from guest_net import MGMTD, guest_bed, processes

from controller.guests.users import vrc_uid
from vrc.guest.enclosure import MAX_TERMINALS

pytestmark = pytest.mark.root

FRR_10 = ["frr"] if Path("/var/lib/frr").is_dir() else []
CONNECT = "import socket, sys; s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); print('connected')"

# Takes terminals until it gets none.
TERMINALS = """
import os, resource
most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
taken = 0
try:
    while os.open("/dev/ptmx", os.O_RDWR | os.O_NOCTTY):
        taken += 1
except OSError:
    print(taken)
"""


def as_user(user: str) -> tuple[str, ...]:
    return ("setpriv", "--reuid", user, "--regid", user, "--clear-groups", "--bounding-set", "-all")


def listen(directory: Path) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX)
    path = directory / "session.sock"
    path.unlink(missing_ok=True)
    listener.bind(str(path))
    path.chmod(0o666)
    listener.listen()
    return listener


async def test_directories_of_the_controller_and_of_other_guests_are_hidden_for_good() -> None:
    async with guest_bed() as bed:
        spec, other = bed.spec(), bed.spec("blue/r1")
        status = await bed.started(spec)
        await bed.started(other)
        for hidden in (*bed.hidden, Path("/root"), Path("/home")):
            assert bed.run(status, "ls", "-A", str(hidden)).stdout == ""
            # Even root of the guest, with every capability there, cannot lift what hides them.
            assert bed.run(status, "umount", "-l", str(hidden)).returncode != 0
        assert bed.run(status, "ls", str(other.directory)).returncode != 0
        assert bed.run(status, "ls", "/run/splitplane/session", "/run/netns").stdout.split() == [
            "/run/splitplane/session:"
        ]


async def test_no_socket_of_a_service_of_the_host_is_reached() -> None:
    """Neither a network of its own nor a file system that is read-only keeps a guest from one with a path."""
    async with guest_bed() as bed:
        status = await bed.started(bed.spec())
        bed.base.chmod(0o755)  # below /var/lib
        with listen(bed.base):
            done = bed.run(status, "/usr/bin/python3", "-c", CONNECT, str(bed.base / "session.sock"))
            assert done.stderr.splitlines()[-1:] == ["FileNotFoundError: [Errno 2] No such file or directory"]
        places = ("/var/cache", "/var/lib", "/var/spool")
        assert bed.run(status, "ls", *places).stdout.split() == ["/var/cache:", "/var/lib:", *FRR_10, "/var/spool:"]


async def test_the_session_socket_is_reached_also_after_the_controller_made_it_anew() -> None:
    async with guest_bed() as bed:
        spec = bed.spec()
        status = await bed.started(spec)
        user = str(vrc_uid(spec.vrf_id))
        for _ in range(2):
            with listen(spec.session):
                command = (*as_user(user), "/usr/bin/python3", "-c", CONNECT, "/run/splitplane/session/session.sock")
                assert bed.run(status, *command).stdout == "connected\n"


async def test_the_key_is_readable_by_the_vrc_alone() -> None:
    async with guest_bed() as bed:
        spec = bed.spec()
        status = await bed.started(spec)
        key = "/run/splitplane/identity/key.pem"
        assert bed.run(status, *as_user(str(vrc_uid(spec.vrf_id))), "cat", key).stdout == "key.pem of red/r1"
        assert bed.run(status, *as_user("frr"), "cat", key).returncode != 0
        assert bed.run(status, "sh", "-c", f"echo > {key}").returncode != 0


async def test_what_the_supervisor_has_for_the_root_of_its_guest_is_closed_to_daemons_and_vrc() -> None:
    async with guest_bed() as bed:
        spec = bed.spec()
        status = await bed.started(spec)
        own = "/run/splitplane-guest"
        assert bed.run(status, "ls", own).stdout.split() == ["etc", "guest.log", "guest.log.1", "pam"]
        assert bed.run(status, "head", "-n1", f"{own}/guest.log").stdout.endswith("is user 1073807360 of the host\n")
        assert "Permission denied" in bed.run(status, "sh", "-c", f": >> {own}/guest.log").stderr
        for user in ("frr", str(vrc_uid(spec.vrf_id))):
            assert "Permission denied" in bed.run(status, *as_user(user), "ls", own).stderr
        # It has the log and the controller's socket open; not even root of the guest gets at them.
        assert "Permission denied" in bed.run(status, "ls", "/proc/1/fd").stderr


async def test_the_file_system_of_the_host_is_read_only() -> None:
    async with guest_bed() as bed:
        status = await bed.started(bed.spec())
        assert "Permission denied" in bed.run(status, "sh", "-c", ": >> /etc/passwd").stderr
        assert "Read-only" in bed.run(status, "sh", "-c", ": >> /etc/frr/frr.conf").stderr
        assert bed.run(status, "mount", "-o", "remount,bind,rw", "/").returncode != 0


async def test_a_guest_does_not_use_up_the_pseudo_terminals_of_all_others() -> None:
    async with guest_bed() as bed:
        status = await bed.started(bed.spec())
        done = bed.run(status, "/usr/bin/python3", "-c", TERMINALS)
        assert (done.stdout, done.stderr) == (f"{MAX_TERMINALS}\n", "")


async def test_no_process_keeps_a_privilege_it_does_not_need() -> None:
    allowed = {"vrc": 1 << 12, "zebra": 1 << 12 | 1 << 13 | 1 << 21, "staticd": 0}
    allowed |= dict.fromkeys(("bgpd", *MGMTD), allowed["zebra"] | 1 << 10)
    async with guest_bed() as bed:
        spec = bed.spec()
        found = processes(status := await bed.started(spec))
        found["vrc"] = found.pop("python")
        for name, most in allowed.items():
            lines = Path(f"/proc/{found[name]}/status").read_text().splitlines()
            fields = dict(line.split(":\t", 1) for line in lines if ":\t" in line)
            assert int(fields["CapPrm"], 16) & ~most == 0, name
            assert int(fields["Uid"].split()[0]) != 0, name
            assert fields["NoNewPrivs"] == "1", name
        assert os.readlink(f"/proc/{status.pid}/ns/user") != os.readlink("/proc/self/ns/user")


async def test_guests_see_no_process_of_each_other_or_of_the_host() -> None:
    async with guest_bed() as bed:
        status = await bed.started(bed.spec())
        await bed.started(bed.spec("blue/r1"))
        names = bed.run(status, "ps", "axo", "comm=").stdout.split()
        assert names.count("zebra") == 1
        assert "systemd" not in names


async def test_a_guest_does_not_inherit_its_controllers_priority() -> None:
    own = os.getpriority(os.PRIO_PROCESS, 0)
    async with guest_bed() as bed:
        os.setpriority(os.PRIO_PROCESS, 0, -10)
        try:
            status = await bed.started(bed.spec())
        finally:
            os.setpriority(os.PRIO_PROCESS, 0, own)
        found = processes(status)
        priorities = {name: os.getpriority(os.PRIO_PROCESS, pid) for name, pid in found.items()}
        assert priorities
        assert min(priorities.values()) >= 0
        assert {os.sched_getscheduler(pid) for pid in found.values()} == {os.SCHED_BATCH}
        # zebra 10.3 asks it without a pause while it waits (docs/frr.md).
        threads = {int(path.name): path for path in Path(f"/proc/{found['zebra']}/task").iterdir()}
        others = [path for thread, path in threads.items() if os.sched_getscheduler(thread) != os.SCHED_BATCH]
        assert [(path / "comm").read_text().strip() for path in others] == ["dplane_fpm_nl"]
