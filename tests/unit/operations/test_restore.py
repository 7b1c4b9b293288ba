"""A backup replaces what is declared as a whole or not at all, and nothing of what was there is forgotten."""

import asyncio
import contextlib
import errno
import gzip
import io
import os
import sqlite3
import tarfile
import threading
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from operator_world import Controller

from controller.audit.caller import Caller
from controller.audit.log import Filter
from controller.errors import Conflict, GuestError, StoreError
from controller.operations import backups
from controller.store.sqlite import SqliteStore

HEAD = "version: 1\nplanes: [{name: s1, kind: fake}]\ntenants:\n"
RED = """\
  - name: red
    slices: [{plane: s1, ports: {p1: [100]}}]
    routers: [{name: r1, plane: s1, interfaces: [{name: eth0, port: p1, vlan: 100}]}]
"""
BLUE = RED.replace("red", "blue").replace("100", "200")


async def test_a_backup_restores_into_an_empty_controller(tmp_path: Path) -> None:
    old = Controller(tmp_path / "old")
    await old.apply(HEAD + RED)
    await old.operations.backup(tmp_path / "backup")
    assert (tmp_path / "backup").stat().st_mode & 0o777 == 0o600
    with pytest.raises(Conflict, match="give --force"):
        await old.operations.restore(tmp_path / "backup", force=False)

    new = Controller(tmp_path / "new")
    await new.operations.restore(tmp_path / "backup", force=False)
    assert new.restarts == 1
    new.store.close()
    assert backups.adopt(tmp_path / "new")
    assert not backups.adopt(tmp_path / "new")
    restored = Controller(tmp_path / "new")
    assert restored.operations.state == old.operations.state
    assert (tmp_path / "new/pki/ca.key").read_bytes() == (tmp_path / "old/pki/ca.key").read_bytes()


async def test_restoring_over_other_routers_deletes_them(tmp_path: Path) -> None:
    old = Controller(tmp_path)
    await old.operations.backup(tmp_path / "backup")
    await old.apply(HEAD + RED)
    await old.operations.restore(tmp_path / "backup", force=True)
    old.store.close()
    backups.adopt(tmp_path)
    snapshot = SqliteStore(tmp_path).load()
    assert [t.router.full_name for t in snapshot.tombstones] == ["red/r1"]
    assert (dict(snapshot.state.routers), snapshot.ids.next_vrf) == ({}, 2)


async def test_something_else_is_not_restored(controller: Controller, tmp_path: Path) -> None:
    (tmp_path / "junk").write_bytes(b"junk")
    with pytest.raises(StoreError, match="this is no backup"):
        await controller.operations.restore(tmp_path / "junk", force=True)
    assert controller.restarts == 0


@pytest.fixture
async def backup(controller: Controller, tmp_path: Path) -> Path:
    """A backup of one router."""
    await controller.apply(HEAD + RED)
    await controller.operations.backup(tmp_path / "backup")
    return tmp_path / "backup"


async def _refused(controller: Controller, path: Path) -> str:
    """Return why a backup is not restored."""
    with pytest.raises(StoreError, match="nothing was restored") as refused:
        await controller.operations.restore(path, force=True)
    state = controller.pki.directory.parent
    assert not (state / "restore").exists()  # keys, and room of a disk that may be full
    assert not backups.adopt(state)
    assert controller.restarts == 0
    return str(refused.value)


async def test_a_backup_with_one_other_bit_is_not_restored(controller: Controller, backup: Path) -> None:
    good = backup.read_bytes()
    content = gzip.decompress(good)
    for at in range(10, len(good), 19):  # after the header, which has the time and the system
        bad = bytearray(good)
        bad[at] ^= 1
        with contextlib.suppress(OSError, EOFError, zlib.error):
            if gzip.decompress(bad) == content:  # deflate can say the same in several ways
                continue
        backup.write_bytes(bad)
        assert (await _refused(controller, backup)).startswith("this is no backup of vr-controller (")


async def test_a_backup_that_was_cut_off_is_not_restored(controller: Controller, backup: Path) -> None:
    good = backup.read_bytes()
    for size in (0, 5, 500, len(good) - 1):
        backup.write_bytes(good[:size])
        assert (await _refused(controller, backup)).startswith("this is no backup of vr-controller (")


def _with(path: Path, changed: str, octets: bytes) -> None:
    """Replace a file in a backup."""
    with tarfile.open(path) as tar:
        found = [(one, tar.extractfile(one)) for one in tar.getmembers()]
        contents = {one.name: file.read() for one, file in found if file is not None} | {changed: octets}
    with gzip.open(path, "wb") as file, tarfile.open(fileobj=file, mode="w") as tar:
        for name, content in contents.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("pki/ca.pem", "Unable to load PEM file"),
        ("pki/routers.key", "Unable to load PEM file"),
        ("state.sqlite", "file is not a database"),
    ],
)
async def test_a_backup_with_a_file_that_cannot_be_used_is_not_restored(
    controller: Controller, backup: Path, name: str, words: str
) -> None:
    _with(backup, name, b"-" * 4096)
    refused = await _refused(controller, backup)
    assert words in refused
    assert "restore a backup" not in refused


async def test_a_backup_with_an_authority_without_its_key_is_not_restored(
    controller: Controller, backup: Path, tmp_path: Path
) -> None:
    Controller(tmp_path / "other")
    _with(backup, "pki/ca.key", (tmp_path / "other/pki/ca.key").read_bytes())
    assert "ca.key is not the key of ca.pem" in await _refused(controller, backup)


async def test_what_waits_behind_a_restore_is_refused(controller: Controller, backup: Path) -> None:
    restored = asyncio.create_task(controller.operations.restore(backup, force=True))
    await asyncio.sleep(0)
    with pytest.raises(Conflict, match="the controller restarts with a backup; try again"):
        await controller.apply(HEAD + BLUE)
    await restored
    assert [*controller.operations.state.routers] == ["red/r1"]
    with pytest.raises(Conflict, match="the controller restarts with a backup; try again"):
        await controller.operations.by(Caller(0, 0, 1, "unix:/x")).restore(backup, force=True)
    with pytest.raises(Conflict, match="the controller restarts with a backup; try again"):
        await controller.operations.rotate_authorities()
    assert controller.restarts == 1
    found = [(one.action, one.outcome) for one in await controller.audit.read(Filter(), 1000)]
    assert found[-4:] == [("restore", "done"), ("apply", "refused"), ("restore", "refused"), ("rotate", "refused")]


async def test_the_event_loop_turns_while_a_backup_is_written_and_unpacked(
    controller: Controller, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = asyncio.get_running_loop()

    def meanwhile(work: Callable[..., None]) -> Callable[..., None]:
        def waiting(*arguments: object) -> None:
            turned = threading.Event()
            loop.call_soon_threadsafe(turned.set)
            assert turned.wait(10.0), "the event loop does not turn"
            work(*arguments)

        return waiting

    monkeypatch.setattr(controller.store, "backup", meanwhile(controller.store.backup))
    monkeypatch.setattr(backups, "_unpack", meanwhile(backups._unpack))
    await controller.operations.backup(tmp_path / "backup")
    await controller.operations.restore(tmp_path / "backup", force=True)
    assert controller.restarts == 1


async def test_what_is_changed_while_a_backup_is_unpacked_is_refused(
    controller: Controller, backup: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, unpacked = asyncio.Event(), threading.Event()
    loop, unpack = asyncio.get_running_loop(), backups._unpack

    def waiting(*arguments: Any) -> None:
        loop.call_soon_threadsafe(begun.set)
        assert unpacked.wait(10.0)
        unpack(*arguments)

    monkeypatch.setattr(backups, "_unpack", waiting)
    backup.write_bytes(b"junk")
    restored = asyncio.create_task(controller.operations.restore(backup, force=True))
    await begun.wait()
    with pytest.raises(Conflict, match="the controller restarts with a backup; try again"):
        await controller.operations.rotate_authorities()
    unpacked.set()
    with pytest.raises(StoreError, match="nothing was restored"):
        await restored
    await controller.operations.rotate_authorities()


async def test_a_restore_that_is_cancelled_while_it_is_unpacked_does_not_happen(
    controller: Controller, backup: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, unpacked, over = asyncio.Event(), threading.Event(), asyncio.Event()
    loop, unpack, stage = asyncio.get_running_loop(), backups._unpack, backups.stage

    def waiting(*arguments: Any) -> None:
        loop.call_soon_threadsafe(begun.set)
        assert unpacked.wait(10.0)
        unpack(*arguments)

    def told(*arguments: Any) -> None:
        try:
            stage(*arguments)
        finally:
            loop.call_soon_threadsafe(over.set)

    monkeypatch.setattr(backups, "_unpack", waiting)
    monkeypatch.setattr(backups, "stage", told)
    restored = asyncio.create_task(controller.operations.restore(backup, force=True))
    await begun.wait()
    restored.cancel()
    with pytest.raises(asyncio.CancelledError):
        await restored
    *_, row = await controller.audit.read(Filter(action="restore"), 10)
    assert (row.outcome, row.reason) == ("failed", "it was broken off")
    unpacked.set()
    await over.wait()
    state = controller.pki.directory.parent
    assert not (state / "restore").exists()  # a stop does not wait for all of it
    assert controller.restarts == 0
    assert not backups.adopt(state)


async def test_a_restore_that_cannot_be_made_ready_leaves_nothing(
    controller: Controller, backup: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, **_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    with monkeypatch.context() as patched:
        patched.setattr(Path, "touch", full)
        assert "restore.ready: No space left on device; nothing was restored" in await _refused(controller, backup)
    await controller.operations.rotate_authorities()


async def test_a_backup_that_nobody_waits_for_is_not_packed_to_its_end(
    controller: Controller, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, over, go = asyncio.Event(), asyncio.Event(), threading.Event()
    loop, write, add = asyncio.get_running_loop(), backups.write, tarfile.TarFile.addfile
    added: list[str] = []

    def adding(tar: tarfile.TarFile, member: tarfile.TarInfo, *content: Any) -> None:
        loop.call_soon_threadsafe(begun.set)
        assert go.wait(10.0)
        add(tar, member, *content)
        added.append(member.name)

    def told(*arguments: Any) -> None:
        try:
            write(*arguments)
        finally:
            loop.call_soon_threadsafe(over.set)

    monkeypatch.setattr(tarfile.TarFile, "addfile", adding)
    monkeypatch.setattr(backups, "write", told)
    written = asyncio.create_task(controller.operations.backup(tmp_path / "backup"))
    await begun.wait()
    written.cancel()
    with pytest.raises(asyncio.CancelledError):
        await written
    go.set()
    await over.wait()
    assert not added
    assert not list(tmp_path.glob("*.sqlite"))


async def test_what_was_deleted_is_no_part_of_a_backup_s_size(
    controller: Controller, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backups, "MAX_BACKUP_BYTES", 512 << 10)
    text = "! " + "x" * 200_000
    routers = ", ".join(f"{{name: r{number}, plane: s1, frr: '{text}'}}" for number in range(4))
    await controller.apply(f"{HEAD}  - {{name: red, slices: [{{plane: s1}}], routers: [{routers}]}}\n")
    with pytest.raises(StoreError, match=r"declare less, or copy the state directory of a stopped controller$"):
        await controller.operations.backup(tmp_path / "backup")
    await controller.operations.delete_tenant("red")
    await controller.operations.backup(tmp_path / "backup")


async def test_a_backup_that_could_not_be_restored_is_not_written(
    controller: Controller, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backups, "MAX_BACKUP_BYTES", 4096)
    with pytest.raises(StoreError, match=r"the store has [\d,]+ octets and a backup may have 4,096; declare less"):
        await controller.operations.backup(tmp_path / "backup")
    assert not list(tmp_path.glob("backup*"))


async def test_a_restore_that_fails_leaves_none_that_is_ready(controller: Controller, backup: Path) -> None:
    state = controller.pki.directory.parent
    backups.stage(state, backup, controller.store.load(), [], threading.Event())
    backups.make_ready(state)
    backup.write_bytes(b"junk")
    assert await _refused(controller, backup)
    assert not (state / "restore.ready").exists()


async def test_a_restore_without_room_for_what_it_deletes_is_refused(
    controller: Controller, backup: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the disk is full in that moment, SQLite keeps the write-ahead log when it closes, and tells nobody."""
    await controller.apply(HEAD + BLUE)
    with contextlib.ExitStack() as held:

        def kept(store: SqliteStore) -> None:
            reader = held.enter_context(contextlib.closing(sqlite3.connect(store._path, check_same_thread=False)))
            reader.execute("SELECT * FROM meta").fetchone()
            store._db.close()

        monkeypatch.setattr(SqliteStore, "close", kept)
        assert "no room to write all of it" in await _refused(controller, backup)


async def test_what_was_unpacked_when_the_controller_was_killed_goes_at_the_next_start(
    controller: Controller, backup: Path
) -> None:
    state = controller.pki.directory.parent
    backups.stage(state, backup, controller.store.load(), [], threading.Event())
    assert not backups.adopt(state)
    assert not (state / "restore").exists()


async def test_what_is_being_deleted_at_a_restore_still_is_afterwards(
    controller: Controller, backup: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(_: object) -> None:
        raise GuestError("vr-host is away")

    await controller.apply(HEAD + BLUE)
    monkeypatch.setattr(controller.guests, "delete", away)
    assert (await controller.operations.delete_tenant("blue")).waiting == ["blue/r1: vr-host is away"]
    again = await _restored(controller, backup)
    assert [*again.operations.state.routers] == ["red/r1"]
    assert [one.router.full_name for one in again.convergence.tombstones.values()] == ["blue/r1"]
    again.guests.running_specs = controller.guests.running_specs
    await again.convergence.converge(lambda _: None)
    assert [spec.router for spec in again.guests.running_specs.values()] == ["red/r1"]
    assert not again.convergence.unfinished


@pytest.mark.parametrize("deleted", [False, True])
async def test_over_another_controller_s_routers_nobody_goes_on_with_their_guests_and_interfaces(
    controller: Controller, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, deleted: bool
) -> None:
    other = Controller(tmp_path / "other")
    await other.apply(HEAD + RED)
    await other.operations.backup(tmp_path / "backup")
    await controller.apply(HEAD + BLUE)
    if deleted:
        controller.core.unreachable.add("s1")
        await controller.operations.delete_tenant("blue")
    again = await _restored(controller, tmp_path / "backup")
    again.guests.running_specs = controller.guests.running_specs
    router = again.operations.state.routers["red/r1"]
    assert (router.vrf_id, [one.id for one in router.interfaces]) == (2, [2])
    assert router.interfaces[0].mac == again.convergence.ids.mac(2)
    assert [one.router.full_name for one in again.convergence.tombstones.values()] == ["blue/r1"]
    await again.convergence.converge(lambda _: None)
    assert {i: spec.router for i, spec in again.guests.running_specs.items()} == {2: "red/r1"}
    assert not again.convergence.unfinished
    assert (await again.apply(HEAD + RED)).changes == []


async def test_what_a_router_of_the_same_name_still_has_on_the_plane_is_not_taken_for_its_own(
    controller: Controller, tmp_path: Path
) -> None:
    other = Controller(tmp_path / "other")
    await other.apply(HEAD + RED)
    await other.operations.backup(tmp_path / "backup")
    await controller.apply(HEAD + "  - {name: blue, slices: [{plane: s1}], routers: [{name: r1, plane: s1}]}\n")
    await controller.apply(HEAD + RED)
    former = controller.operations.state.routers["red/r1"]
    assert (former.vrf_id, [one.id for one in former.interfaces]) == (2, [1])
    again = await _restored(controller, tmp_path / "backup")
    router = again.operations.state.routers["red/r1"]
    assert (router.vrf_id, [one.id for one in router.interfaces]) == (3, [2])
    again.core.unreachable.add("s1")
    await again.convergence.converge(lambda _: None)
    assert again.attached()["red/r1"] == []  # until the plane has confirmed what is gone
    again.core.unreachable.clear()
    await again.convergence.converge(lambda _: None)
    assert again.attached() == {"red/r1": [("p1", 100)]}


async def test_over_its_own_routers_all_ids_stay(controller: Controller, backup: Path) -> None:
    await controller.apply(HEAD + BLUE)
    before = controller.operations.state.routers["red/r1"]
    again = await _restored(controller, backup)
    assert again.operations.state.routers["red/r1"] == before


async def test_a_port_that_a_restore_gives_to_another_router_waits_for_the_plane(
    controller: Controller, backup: Path
) -> None:
    without = "  - {name: red, slices: [{plane: s1}], routers: [{name: r1, plane: s1}]}\n"
    await controller.apply(HEAD + without + RED.replace("red", "blue"))
    assert controller.attached() == {"red/r1": [], "blue/r1": [("p1", 100)]}
    again = await _restored(controller, backup)
    again.core.unreachable.add("s1")
    await again.convergence.start()
    await again.convergence.converge(lambda _: None)
    assert again.attached()["red/r1"] == []
    again.core.unreachable.clear()
    await again.convergence.converge(lambda _: None)
    assert again.attached() == {"red/r1": [("p1", 100)]}
    assert not again.convergence.unfinished


async def test_routers_of_a_plane_that_a_backup_does_not_have_go_without_it(
    controller: Controller, tmp_path: Path
) -> None:
    await controller.operations.backup(tmp_path / "backup")
    await controller.apply(HEAD + RED)
    again = await _restored(controller, tmp_path / "backup")
    again.guests.running_specs = controller.guests.running_specs
    assert (await again.convergence.converge(lambda _: None)).waiting == []
    assert again.store.load().tombstones == ()
    assert again.guests.running_specs == {}


async def test_a_certificate_that_a_backup_does_not_have_is_not_believed(
    controller: Controller, backup: Path
) -> None:
    await controller.operations.plane_certificate("s1", [], "")
    assert controller.planes.trusted("s1").exists()
    again = await _restored(controller, backup)
    assert not again.planes.believed()
    assert not again.planes.trusted("s1").exists()


async def test_what_was_revoked_since_a_backup_stays_revoked(controller: Controller, tmp_path: Path) -> None:
    await controller.apply(HEAD + RED)
    await controller.operations.plane_certificate("s1", [], "")
    await controller.operations.backup(tmp_path / "backup")
    await controller.operations.plane_certificate("s1", [], "")  # which a switch of OpenFlow could still show
    revoked = await controller.operations.revoke_plane("s1", "")
    again = await _restored(controller, tmp_path / "backup")
    assert again.planes.revoked() == [int(serial, 16) for serial in revoked]
    assert not again.planes.believed()
    assert not again.planes.trusted("s1").exists()


async def test_what_is_being_revoked_when_a_restore_begins_stays_revoked(
    controller: Controller, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await controller.apply(HEAD + RED)
    await controller.operations.plane_certificate("s1", [], "")
    await controller.operations.backup(tmp_path / "backup")
    revoke, begun, go = controller.store.revoke_plane_certificates, asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def slowly(serials: list[str]) -> None:
        loop.call_soon_threadsafe(begun.set)
        assert go.wait(10.0)
        revoke(serials)

    monkeypatch.setattr(controller.store, "revoke_plane_certificates", slowly)
    revoked = asyncio.create_task(controller.operations.revoke_plane("s1", ""))
    await begun.wait()
    restored = asyncio.create_task(controller.operations.restore(tmp_path / "backup", force=True))
    await asyncio.wait([restored], timeout=1.0)  # which it would be, were it not for the other
    go.set()
    await asyncio.gather(revoked, restored)
    again = _started_with_it(controller)
    assert again.planes.revoked() == [int(serial, 16) for serial in revoked.result()]
    assert not again.planes.believed()


async def _restored(controller: Controller, backup: Path) -> Controller:
    """Restore a backup and return the controller that starts with it."""
    await controller.operations.restore(backup, force=True)
    return _started_with_it(controller)


def _started_with_it(controller: Controller) -> Controller:
    state = controller.pki.directory.parent
    controller.store.close()
    backups.adopt(state)
    return Controller(state)
