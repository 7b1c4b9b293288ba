"""Control groups of guests on hosts that offer them in one way or another."""

import argparse
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from controller.daemon import parse_arguments
from controller.errors import GuestError
from controller.guests import limits
from controller.guests.host.options import parse_cpus
from controller.guests.limits import Group, Limits, Policy
from controller.model import GuestConfig
from controller.spec.document import GuestSection

LIMITS = Limits(512 << 20, 0, 1024)
GUEST = Path("/state/guests/7")


def version_1(root: Path, *names: str) -> None:
    for name in names:
        (root / name).mkdir()
        (root / name / "cgroup.procs").touch()


def version_2(root: Path, *names: str) -> None:
    (root / "cgroup.controllers").write_text(" ".join(names))
    for place in (root, root / limits.PARENT):
        place.mkdir(exist_ok=True)
        (place / "cgroup.subtree_control").touch()


def group_of(root: Path, controller: str, directory: Path = GUEST) -> Path:
    (own,) = (group for group in limits.groups(directory, root) if group.is_relative_to(root / controller))
    return own


def test_a_namespace_has_all_processors_time_and_shares_the_disks(tmp_path: Path) -> None:
    version_1(tmp_path, "memory", "cpu", "pids", "blkio")
    group = limits.make(GUEST, LIMITS, tmp_path)
    assert group.missing == ()
    assert len(group.procs) == 4
    assert (group_of(tmp_path, "cpu") / "cpu.cfs_quota_us").read_text() == "-1"


def test_a_guest_s_limits_are_changed_where_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its controller may have been started from a shell, and be a service now."""
    version_1(tmp_path, "memory", "cpu", "pids")
    monkeypatch.setattr(limits, "_in_a_group", lambda: False)
    for procs in limits.make(GUEST, LIMITS, tmp_path).procs:
        Path(procs).write_text("1\n")
    here = set(limits.groups(GUEST, tmp_path))
    monkeypatch.setattr(limits, "_in_a_group", lambda: True)
    limits.make(GUEST, Limits(1 << 30, 0, 1024), tmp_path)
    assert (group_of(tmp_path, "memory") / "memory.limit_in_bytes").read_text() == str(1 << 30)
    assert set(limits.groups(GUEST, tmp_path)) == here


@pytest.mark.parametrize(
    ("version", "file", "none"),
    [(version_1, "memory.memsw.limit_in_bytes", str(512 << 20)), (version_2, "memory.swap.max", "0")],
)
def test_a_guest_has_nothing_of_the_host_s_swap(
    tmp_path: Path, version: Callable[..., None], file: str, none: str
) -> None:
    """Where the kernel does not count it by groups, nobody is refused for that."""
    version(tmp_path, "memory", "cpu", "pids")
    assert limits.make(GUEST, LIMITS, tmp_path).missing == ()
    (group,) = (one for one in limits.groups(GUEST, tmp_path) if list(one.glob("memory.*")))
    assert not (group / file).exists()
    (group / file).write_text("max\n")
    limits.make(GUEST, LIMITS, tmp_path)
    assert (group / file).read_text() == none


def test_buffers_of_tcp_are_limited_where_they_are_not_memory_as_any_other(tmp_path: Path) -> None:
    version_1(tmp_path, "memory", "cpu", "pids")
    limits.make(GUEST, LIMITS, tmp_path)
    file = group_of(tmp_path, "memory") / "memory.kmem.tcp.limit_in_bytes"
    assert not file.exists()
    file.write_text("9223372036854771712\n")
    limits.make(GUEST, LIMITS, tmp_path)
    assert file.read_text() == str(512 << 20)


def test_processors_of_version_1_are_inherited_before_they_are_chosen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    version_1(tmp_path, "memory", "cpu", "pids", "cpuset")
    make = Path.mkdir

    def made(path: Path, *given: object, **how: object) -> None:
        make(path, *given, **how)  # type: ignore[arg-type]
        for file in ("cpuset.cpus", "cpuset.mems"):
            for place in (path.parent, path):  # the kernel makes both, empty
                (place / file).touch()

    monkeypatch.setattr(Path, "mkdir", made)
    (tmp_path / "cpuset/cpuset.cpus").write_text("0-7\n")
    (tmp_path / "cpuset/cpuset.mems").write_text("0\n")
    assert limits.make(GUEST, LIMITS, tmp_path, cpus="2-7").missing == ()
    own = group_of(tmp_path, "cpuset")
    assert (own.parent / "cpuset.cpus").read_text() == "0-7\n"
    assert (own / "cpuset.cpus").read_text() == "2-7"
    assert (own / "cpuset.mems").read_text() == "0\n"


def test_disks_are_limited_in_both_versions_and_the_limit_is_lifted_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "disks", lambda: ["254:0", "8:16"])
    written: list[tuple[str, str]] = []
    write = Path.write_text

    def kept(path: Path, text: str) -> int:
        written.append((path.name, text))
        return write(path, text)

    one, two = tmp_path / "1", tmp_path / "2"
    one.mkdir()
    version_1(one, "memory", "cpu", "pids", "blkio")
    two.mkdir()
    version_2(two, "memory", "cpu", "pids", "io")
    monkeypatch.setattr(Path, "write_text", kept)
    limited = Limits(512 << 20, 0, 1024, disk_bytes_per_s=4 << 20)
    for root in (one, two):
        assert limits.make(GUEST, limited, root).missing == ()
        assert limits.make(GUEST, LIMITS, root).missing == ()
    reads, writes = "blkio.throttle.read_bps_device", "blkio.throttle.write_bps_device"
    assert [one for one in written if one[0] in (reads, writes, "io.max")] == [
        *((reads, "254:0 4194304"), (writes, "254:0 4194304"), (reads, "8:16 4194304"), (writes, "8:16 4194304")),
        *((reads, "254:0 0"), (writes, "254:0 0"), (reads, "8:16 0"), (writes, "8:16 0")),
        *(("io.max", f"{disk} rbps=4194304 wbps=4194304") for disk in ("254:0", "8:16")),
        *(("io.max", f"{disk} rbps=max wbps=max") for disk in ("254:0", "8:16")),
    ]


def test_disks_that_cannot_be_limited_are_missing_only_where_they_are_to_be(tmp_path: Path) -> None:
    version_1(tmp_path, "memory", "cpu", "pids")
    assert limits.make(GUEST, LIMITS, tmp_path).missing == ()
    assert limits.make(GUEST, Limits(512 << 20, 0, 1024, 4 << 20), tmp_path).missing == ("blkio",)


def test_a_host_s_disks_are_those_with_room_and_nothing_behind_them(tmp_path: Path) -> None:
    for name, size, number in (("vda", 8, "254:0"), ("loop0", 8, "7:0"), ("zram0", 8, "253:0"), ("sr0", 0, "11:0")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "size").write_text(f"{size}\n")
        (tmp_path / name / "dev").write_text(f"{number}\n")
    assert limits.disks(tmp_path) == ["254:0"]
    assert limits.disks(tmp_path / "nowhere") == []


def test_a_command_enters_the_groups_that_hold_the_guest(tmp_path: Path) -> None:
    version_1(tmp_path, "memory", "cpu", "pids")
    limits.make(GUEST, LIMITS, tmp_path)
    command = ["/bin/echo", "a b", "--", "$x"]
    assert limits.entering(GUEST, command, tmp_path) == command  # nobody is in there: an older version's
    procs = [group_of(tmp_path, controller) / "cgroup.procs" for controller in ("memory", "pids")]
    for file in procs:
        file.write_text("17\n")
    entering = limits.entering(GUEST, command, tmp_path)
    done = subprocess.run(entering, capture_output=True, text=True, check=True)
    assert done.stdout == "a b -- $x\n"
    assert [file.read_text() for file in procs] == ["0\n", "0\n"]
    procs[1].unlink()
    procs[1].mkdir()
    done = subprocess.run(entering, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"vrctl: {procs[1]} cannot be written; run vrctl as root\n"


def test_what_is_missing_is_an_error_unless_it_may() -> None:
    lacking = Group((), ("memory", "pids"))
    limits.require(Group(("procs",), ()), Policy(), "red/r1")
    limits.require(lacking, Policy(best_effort=True), "red/r1")
    with pytest.raises(GuestError) as refused:
        limits.require(lacking, Policy(), "red/r1")
    assert str(refused.value) == (
        "red/r1: no control groups of memory and pids here; "
        "mount them below /sys/fs/cgroup, or give vr-host (or a vr-controller without it) --limits best-effort"
    )


def test_a_guest_in_no_group_is_told_from_one_that_is(tmp_path: Path) -> None:
    version_1(tmp_path, "memory", "cpu", "pids")
    assert limits.lacking(GUEST, tmp_path) == ["memory", "cpu", "pids"]
    limits.make(GUEST, LIMITS, tmp_path)
    assert limits.lacking(GUEST, tmp_path) == ["memory", "cpu", "pids"]  # nobody is in there
    for controller in ("memory", "pids"):
        (group_of(tmp_path, controller) / "cgroup.procs").write_text("17\n")
    assert limits.lacking(GUEST, tmp_path) == ["cpu"]
    assert limits.lacking(GUEST, tmp_path, cpus="1") == ["cpu", "cpuset"]


@pytest.mark.parametrize("file", ["memory.events", "memory.oom_control"])
def test_processes_that_were_killed_for_memory_are_counted(tmp_path: Path, file: str) -> None:
    version_1(tmp_path, "memory")
    assert limits.memory_kills(GUEST, tmp_path) == 0
    limits.make(GUEST, LIMITS, tmp_path)
    (group_of(tmp_path, "memory") / file).write_text("under_oom 0\noom_kill 3\n")
    assert limits.memory_kills(GUEST, tmp_path) == 3


@pytest.mark.parametrize(("grouped", "place"), [(False, "splitplane-{}"), (True, "splitplane/{}")])
def test_guests_are_beside_processes_where_those_are_in_no_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, grouped: bool, place: str
) -> None:
    version_1(tmp_path, "cpu")
    monkeypatch.setattr(limits, "_in_a_group", lambda: grouped)
    limits.make(GUEST, LIMITS, tmp_path)
    own = tmp_path / "cpu" / place.format(limits.name_of(GUEST))
    assert list(limits.groups(GUEST, tmp_path)) == [own]
    assert not (own / "cpu.shares").exists()  # as much as a process, or as the others


def test_a_guest_keeps_its_groups_when_its_controller_is_started_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    version_1(tmp_path, "memory", "cpu", "pids")
    monkeypatch.setattr(limits, "_in_a_group", lambda: True)
    for procs in limits.make(GUEST, LIMITS, tmp_path).procs:
        Path(procs).write_text("17\n")
    monkeypatch.setattr(limits, "_in_a_group", lambda: False)
    assert limits.lacking(GUEST, tmp_path) == []


@pytest.mark.parametrize(
    ("text", "grouped"),
    [
        ("4:memory:/process\n1:cpu,cpuacct:/\n0::/\n", False),
        ("1:cpu,cpuacct:/system.slice/vr-controller.service\n0::/\n", True),
        ("0::/system.slice/vr-controller.service\n", True),
    ],
)
def test_a_service_is_told_from_a_process_in_no_group(tmp_path: Path, text: str, grouped: bool) -> None:
    (tmp_path / "cgroup").write_text(text)
    assert limits._in_a_group(tmp_path / "cgroup") is grouped


def test_processors_are_those_of_this_host() -> None:
    last = (os.cpu_count() or 1) - 1
    for text in ("0", f"0-{last}", f"0,{last}"):
        assert parse_cpus(text) == text
    for text in ("", "a", "1-0", f"0-{last + 1}", "0,", "-1", "0\n1", "²"):
        with pytest.raises(argparse.ArgumentTypeError, match=f"of the processors 0 to {last}$"):
            parse_cpus(text)


def test_limits_are_required_unless_the_operator_says_otherwise() -> None:
    assert parse_arguments([]).limits == "required"
    assert parse_arguments(["--limits", "best-effort"]).limits == "best-effort"


def test_memory_is_of_both_kinds_of_guest() -> None:
    assert GuestSection(memory="512M").config == GuestConfig(memory_mib=512)
    assert str(GuestConfig(memory_mib=512)) == "netns 512M"
    assert GuestSection().config == GuestConfig()
    assert GuestSection(memory="1G", vcpus=2).misplaced == ["vcpus"]
