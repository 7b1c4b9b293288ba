"""Every operator's change is recorded before it is made: who, from where, what, old and new, outcome."""

import asyncio
import errno
import json
import os
import pwd
import threading
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any, get_args

import pytest
from operator_world import Controller

from controller.audit import log as audit_log
from controller.audit.caller import Caller
from controller.audit.files import AuditFiles
from controller.audit.log import AuditLog, Filter, ObjectChange, Request
from controller.errors import Conflict, GuestError, SpecError, StoreError
from controller.events.log import EventLog
from controller.model import GuestKind
from controller.views import AuditView
from controller.vrctl.audit import Action

Vrctl = Callable[..., Awaitable[tuple[int, str, str]]]

SECRET = "Xyzzy-17"

RED = """\
version: 1
planes: [{name: s1, kind: fake}]
tenants:
  - name: red
    slices: [{plane: s1, ports: {p1: [untagged, 100]}}]
    routers:
      - name: r1
        plane: s1
        interfaces: [{name: left, port: p1, addresses: [192.0.2.1/24]}]
        frr: |
          router bgp 65000
           neighbor 192.0.2.2 remote-as 65001
           neighbor 192.0.2.2 password Xyzzy-17
"""


async def rows(controller: Controller, **wanted: Any) -> list[AuditView]:
    return await controller.audit.read(Filter(**wanted), 1000)


def all_octets(controller: Controller) -> bytes:
    return b"".join(path.read_bytes() for path in controller.audit.files.path.parent.iterdir())


async def test_a_change_is_recorded_with_old_and_new(controller: Controller) -> None:
    await controller.apply(RED)
    await controller.apply(RED.replace("port: p1, ", "port: p1, mtu: 1400, "))
    created = await rows(controller, name="red/r1", kind="router")
    assert [(one.verb, one.action, one.subject, one.outcome) for one in created] == [
        ("create", "apply", "t.yaml", "done"),
        ("change", "apply", "t.yaml", "done"),
    ]
    first, second = created
    assert first.old is None
    assert first.new is not None
    assert first.new["interfaces"]["left"]["addresses"] == ["192.0.2.1/24"]
    assert second.old == {"interfaces": {"left": {"mtu": 1500}}}
    assert second.new == {"interfaces": {"left": {"mtu": 1400}}}
    await controller.operations.delete_router("red/r1")
    *_, last = await rows(controller, tenant="red")
    assert (last.action, last.verb, last.kind, last.name, last.new) == ("delete", "delete", "router", "red/r1", None)
    assert last.old is not None
    assert last.old["interfaces"]["left"]["mtu"] == 1400


async def test_whether_a_slice_overcommits_and_which_quotas_it_says_are_recorded(controller: Controller) -> None:
    """Also a quota that comes to what it was: it is reserved from then on."""
    await controller.apply(RED)
    for more in (", overcommit: true", ", quota: {nexthops: 4096}"):
        await controller.apply(RED.replace("100]}}]", f"100]}}{more}}}]"))
    created, first, second = await rows(controller, name="red@s1")
    assert created.new is not None
    assert (created.new["overcommit"], created.new["quota"]["nexthops"]) == (False, "an equal part")
    assert (first.old, first.new) == ({"overcommit": False}, {"overcommit": True})
    assert second.old == {"overcommit": True, "quota": {"nexthops": "an equal part"}}
    assert second.new == {"overcommit": False, "quota": {"nexthops": 4096}}


async def test_who_changed_it_is_who_connected(controller: Controller, vrctl: Vrctl, tmp_path: Path) -> None:
    (tmp_path / "red.yaml").write_text(RED)
    status, _, _ = await vrctl("apply", "-f", str(tmp_path / "red.yaml"))
    assert status == 0
    for one in await rows(controller):
        assert (one.uid, one.user, one.pid) == (os.getuid(), pwd.getpwuid(os.getuid()).pw_name, os.getpid())
        assert one.origin == f"unix:{tmp_path}/api.sock"


async def test_it_is_recorded_before_it_is_stored(controller: Controller, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[list[str]] = []
    commit = controller.convergence.commit

    async def spy(*given: Any) -> None:
        lines = controller.audit.files.path.read_text().splitlines()
        seen.append([json.loads(line).get("name", "") for line in lines])
        await commit(*given)

    monkeypatch.setattr(controller.convergence, "commit", spy)
    await controller.apply(RED)
    assert seen == [["s1", "red", "red@s1", "red/r1"]]


@pytest.mark.parametrize("full", [errno.ENOSPC, errno.EROFS])
async def test_what_cannot_be_recorded_is_not_done(
    controller: Controller, monkeypatch: pytest.MonkeyPatch, full: int
) -> None:
    def fail(_: object) -> None:
        raise OSError(full, os.strerror(full))

    monkeypatch.setattr(controller.audit.files, "append", fail)
    with pytest.raises(StoreError, match="a change that cannot be recorded is not made: make room"):
        await controller.apply(RED)
    assert not controller.operations.state.routers
    with pytest.raises(StoreError, match="make room"):
        await controller.operations.backup(controller.audit.files.path.with_name("backup"))


async def test_an_outcome_without_room_is_counted_and_told(
    controller: Controller, monkeypatch: pytest.MonkeyPatch
) -> None:
    append, calls = controller.audit.files.append, []

    def fail_later(lines: Any) -> None:
        calls.append(1)
        if len(calls) > 1:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        append(lines)

    monkeypatch.setattr(controller.audit.files, "append", fail_later)
    await controller.apply(RED)
    assert "red/r1" in controller.operations.state.routers
    assert controller.audit.unrecorded == 1
    assert controller.events.recent()[-1].kind == "audit-incomplete"
    assert {one.outcome for one in await rows(controller)} == {"unfinished"}


async def test_no_text_of_a_tenant_is_recorded(controller: Controller) -> None:
    await controller.apply(RED)
    await controller.apply(RED.replace("65001", "65002"))
    controller.refused["red/r1"] = f"red/r1: line 3: password {SECRET} is refused"
    with pytest.raises(GuestError):
        await controller.apply(RED.replace("65001", "65003"))
    with pytest.raises(SpecError):
        await controller.apply(RED.replace("frr: |", f"frr: {{password: {SECRET}}}\n        bird: |"))
    await _exec(controller, ["vtysh", "-c", f"password {SECRET}"])
    octets = all_octets(controller)
    assert SECRET.encode() not in octets
    changed = [one for one in await rows(controller, kind="router") if one.verb == "change"]
    assert changed[0].old is not None
    assert changed[0].new is not None
    old, new = changed[0].old["routing"]["text"], changed[0].new["routing"]["text"]
    assert set(old) <= {"octets", "sha256"}
    assert old["sha256"] != new["sha256"]
    assert [(one.outcome, one.reason) for one in await rows(controller, outcome="refused")] == [
        ("refused", "GuestError"),
        ("refused", "t.yaml:10"),
    ]


async def _exec(controller: Controller, argv: list[str]) -> None:
    router = controller.operations.state.routers["red/r1"]
    await controller.operations.exec_argv(router, argv)


async def test_what_is_given_away_is_recorded(controller: Controller, tmp_path: Path) -> None:
    await controller.apply(RED)
    await _exec(controller, ["vtysh", "-c", "show run"])
    await controller.operations.plane_certificate("s1", [], "")
    await controller.operations.revoke_plane("s1", "")
    await controller.operations.rotate_authorities()
    await controller.operations.retire_authorities(force=True)
    await controller.operations.backup(tmp_path / "backup")
    with pytest.raises(Conflict):
        await controller.operations.restore(tmp_path / "backup", force=False)
    found = [(one.action, one.subject, one.outcome) for one in await rows(controller) if not one.verb]
    assert found == [
        ("exec", "red/r1 vtysh", "done"),
        ("certificate", "s1", "done"),
        ("revoke", "s1", "done"),
        ("rotate", "pki", "done"),
        ("retire", "pki", "done"),
        ("backup", "", "done"),
        ("restore", "", "refused"),
    ]


async def test_a_guest_that_fails_shows_in_the_outcome(controller: Controller) -> None:
    await controller.apply(RED)
    controller.drivers.pop(GuestKind.NETNS)
    await controller.apply(RED.replace("65001", "65002"))
    assert [(one.outcome, one.reason) for one in await rows(controller, outcome="failed")] == [("failed", "red/r1")]


@pytest.mark.parametrize("where", ["commit", "program", "run_guests"])
async def test_a_change_that_an_unforeseen_error_ends_has_failed(
    controller: Controller, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError(SECRET)

    monkeypatch.setattr(controller.convergence, where, fail)
    with pytest.raises(RuntimeError):
        await controller.apply(RED)
    assert {(one.outcome, one.reason) for one in await rows(controller)} == {("failed", "RuntimeError")}


async def test_what_is_broken_off_while_it_is_recorded_has_failed(
    controller: Controller, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go = asyncio.Event(), threading.Event()
    loop, append = asyncio.get_running_loop(), controller.audit.files.append

    def waiting(lines: Iterable[bytes]) -> None:
        loop.call_soon_threadsafe(begun.set)
        assert go.wait(10.0)
        append(lines)

    monkeypatch.setattr(controller.audit.files, "append", waiting)
    asked = asyncio.create_task(controller.operations.rotate_authorities())
    await begun.wait()
    asked.cancel()
    go.set()
    with pytest.raises(asyncio.CancelledError):
        await asked
    (row,) = await rows(controller)
    assert (row.action, row.outcome, row.reason) == ("rotate", "failed", "it was broken off")


async def test_vrctl_audit_filters(controller: Controller, vrctl: Vrctl, tmp_path: Path) -> None:
    (tmp_path / "red.yaml").write_text(RED)
    await vrctl("apply", "-f", str(tmp_path / "red.yaml"))
    await controller.operations.by(Caller(4_000_001, 1, 2, "unix:/x", 4_000_002)).delete_tenant("red")

    async def found(*options: str) -> list[tuple[str, str, str]]:
        status, out, _ = await vrctl("audit", "-o", "json", *options)
        assert status == 0
        return [(one["verb"], one["kind"], one["name"]) for one in json.loads(out)]

    assert await found("--user", "4000001") == await found("--user", "4000002")
    assert await found("--user", "4000001") == [
        ("delete", "tenant", "red"),
        ("delete", "slice", "red@s1"),
        ("delete", "router", "red/r1"),
    ]
    assert await found("--kind", "router") == [("create", "router", "red/r1"), ("delete", "router", "red/r1")]
    assert await found("--kind", "plane", "--since", "1h") == [("create", "plane", "s1")]
    assert await found("--since", "2999-01-01") == []
    assert await found("--outcome", "failed") == []
    assert len(await found("--tenant", "red", "--outcome", "done")) == 6
    assert await found("--tenant", "red", "-n", "1") == [("delete", "router", "red/r1")]
    status, out, _ = await vrctl("audit", "--name", "red/r1", "--action", "delete")
    assert (status, out.splitlines()[1].split()[2:4]) == (0, ["4000001", "(4000002)"])
    status, _, err = await vrctl("audit", "--since", "yesterday")
    assert (status, "'yesterday' is no time; write 15m, 2h, 7d or" in err) == (2, True)
    for option in ("--outcome", "--action"):
        assert (await vrctl("audit", option, "nonsense"))[0] == 2


def test_vrctl_and_the_audit_log_know_the_same_actions() -> None:
    assert tuple(Action) == get_args(audit_log.Action)


def caller() -> Caller:
    return Caller(0, 0, 1, "unix:/x")


async def test_files_are_private_rotated_and_bounded(tmp_path: Path) -> None:
    log = AuditLog(tmp_path / "audit", EventLog())
    log.files = AuditFiles(tmp_path / "audit", file_bytes=4000, files=3)
    for number in range(200):
        await log.end(await log.begin(Request(caller(), "move", f"r{number}")), "done")
    paths = list((tmp_path / "audit").iterdir())
    assert sorted(path.name for path in paths) == ["audit.1.log", "audit.2.log", "audit.log"]
    assert all(path.stat().st_size <= 4000 and path.stat().st_mode & 0o777 == 0o600 for path in paths)
    assert (tmp_path / "audit").stat().st_mode & 0o777 == 0o700
    found = await log.read(Filter(), 1000)
    assert found[-1].subject == "r199"
    assert [one.subject for one in found] == [f"r{200 - len(found) + number}" for number in range(len(found))]


async def test_a_line_that_was_cut_off_spoils_no_other(tmp_path: Path) -> None:
    log = AuditLog(tmp_path, EventLog())
    await log.begin(Request(caller(), "move", "first"))
    with log.files.path.open("ab") as file:
        file.write(b'{"id": "12')
    await log.begin(Request(caller(), "move", "second"))
    assert [one.subject for one in await log.read(Filter(), 10)] == ["first", "second"]


async def test_a_disk_that_fills_leaves_no_half_of_a_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log, write, room = AuditLog(tmp_path, EventLog()), os.write, [2000]
    await log.begin(Request(caller(), "move", "first"))

    def bounded(descriptor: int, octets: bytes) -> int:
        if not room[0]:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        written = write(descriptor, octets[: room[0]])
        room[0] -= written
        return written

    monkeypatch.setattr(os, "write", bounded)
    many = [ObjectChange("create", "tenant", f"t{number}", f"t{number}", None, {}) for number in range(100)]
    with pytest.raises(StoreError, match="No space left on device"):
        await log.begin(Request(caller(), "apply", "second"), lambda: many)
    assert [one.subject for one in await log.read(Filter(), 1000)] == ["first"]


async def test_one_change_cannot_push_all_others_out(tmp_path: Path) -> None:
    log = AuditLog(tmp_path, EventLog())
    values = {"text": "x" * 60_000}
    many = [ObjectChange("create", "router", f"red/r{number}", "red", None, values) for number in range(300)]
    await log.begin(Request(caller(), "apply", "t.yaml"), lambda: many)
    huge = [ObjectChange("create", "router", "red/huge", "red", None, {"text": "x" * 100_000})]
    await log.begin(Request(caller(), "apply", "t.yaml"), lambda: huge)
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) < 5 << 20
    found = await log.read(Filter(), 1000)
    assert len(found) == 301
    assert set(found[-1].new or {}) == {"octets", "sha256"}


def test_a_file_that_cannot_follow_the_last_one_costs_nobody_a_descriptor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = AuditFiles(tmp_path, file_bytes=100)
    files.append([b"x" * 80 + b"\n"])
    rotate, others = files._rotate, []

    def rotate_and_fail() -> None:
        rotate()
        others.append(os.open(os.devnull, os.O_RDONLY))  # as another thread does at this moment
        files.path.mkdir()

    monkeypatch.setattr(files, "_rotate", rotate_and_fail)
    with pytest.raises(IsADirectoryError):
        files.append([b"y" * 80 + b"\n"])
    os.close(others[0])


def test_a_line_cut_off_on_a_disk_that_is_full_costs_no_descriptor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each request of an operator is recorded, those that are refused too."""
    files = AuditFiles(tmp_path)
    files.path.write_bytes(b'{"id": "12')

    def full(_descriptor: int, _octets: bytes) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "write", full)
    before = os.listdir("/proc/self/fd")
    for _ in range(3):
        with pytest.raises(OSError, match="No space left on device"):
            files.append([b"second\n"])
    assert os.listdir("/proc/self/fd") == before


def test_a_line_that_cannot_be_made_takes_those_before_it_along(tmp_path: Path) -> None:
    files = AuditFiles(tmp_path)
    files.append([b"first\n"])
    with pytest.raises(UnicodeEncodeError):
        files.append(line.encode() for line in ("second\n", "\ud800\n"))
    assert files.path.read_bytes() == b"first\n"
