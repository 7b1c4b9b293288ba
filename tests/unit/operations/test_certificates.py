"""Certificates as operators and time change them, on one controller: nobody who is known is locked out unasked."""

import asyncio
import threading
from datetime import timedelta
from pathlib import Path

import pytest
from operator_world import Controller

from controller.errors import Conflict, NoSuch, SpecError, StoreError
from controller.guests.base import GuestSpec
from controller.operations import backups
from controller.operations.progress import Steps
from controller.pki.authority import ROUTER_LIFETIME
from controller.pki.certificates import load_certificate
from controller.spec.document import PlaneOptions
from controller.store.base import Certificate

DOCUMENT = """\
version: 1
planes: [{name: s1, kind: fake}]
tenants:
  - name: red
    slices: [{plane: s1, ports: {p1: [100]}}]
    routers: [{name: r1, plane: s1, interfaces: [{name: eth0, port: p1, vlan: 100}]}]
"""


def kinds(controller: Controller) -> list[str]:
    return [event.kind for event in controller.events.recent(0)]


@pytest.fixture
async def applied(controller: Controller) -> Controller:
    await controller.apply(DOCUMENT)
    return controller


async def test_the_old_certificate_is_good_until_the_guest_has_the_new_one(applied: Controller) -> None:
    old = applied.serial(1)
    await applied.certificates.rotate()
    applied.guests.failing["red/r1"] = "identity/cert.pem.new: No space left on device"
    assert (await applied.apply(DOCUMENT)).failed
    new = applied.serial(1)
    assert new != old
    assert applied.pki.is_valid(old, 1)
    assert applied.pki.is_valid(new, 1)
    del applied.guests.failing["red/r1"]
    await applied.apply(DOCUMENT)
    assert not applied.pki.is_valid(old, 1)
    assert applied.pki.is_valid(new, 1)
    assert kinds(applied).count("certificate-renewed") == 1


async def test_a_router_that_is_given_a_certificate_twice_at_once_has_one(applied: Controller) -> None:
    fleet, (router,) = applied.convergence._guests, applied.operations.state.routers.values()
    applied.pki.rotate()
    await asyncio.gather(*(fleet.identify([router]) for _ in range(2)))
    assert len(applied.store.valid_serials([1])) == 2  # and the one that its guest has
    await applied.convergence.converge(lambda _: None)
    assert applied.store.valid_serials([1]) == {applied.serial(1): 1}


async def test_a_certificate_that_a_guest_is_to_be_given_next_is_not_taken_for_a_former_one(
    applied: Controller,
) -> None:
    guests, steps = applied.convergence._guest_tasks, Steps(0, lambda _: None)
    applied.pki.rotate()
    await guests.begin(steps)
    await asyncio.wait(guests._tasks.values())
    applied.pki.retire()
    applied.pki.rotate()  # before it is settled what was given
    await guests.begin(steps)
    await guests.settle()
    await asyncio.wait(guests._tasks.values())
    await applied.convergence.converge(lambda _: None)
    assert applied.store.valid_serials([1]) == {applied.serial(1): 1}


async def test_a_certificate_that_is_being_issued_is_not_taken_for_a_former_one(
    controller: Controller, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: object) -> None:
        raise StoreError("database or disk is full")

    with monkeypatch.context() as patched:
        patched.setattr(controller.store, "keep_certificates", full)
        await controller.apply(DOCUMENT)  # what its guest was given is still to be kept
    fleet, (router,) = controller.convergence._guests, controller.operations.state.routers.values()
    controller.pki.rotate()
    add, added, go = controller.store.add_certificates, asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def slowly(certificates: list[Certificate]) -> None:
        add(certificates)
        loop.call_soon_threadsafe(added.set)
        assert go.wait(10.0)

    monkeypatch.setattr(controller.store, "add_certificates", slowly)
    identified = asyncio.create_task(fleet.identify([router]))
    await added.wait()
    settled = asyncio.create_task(fleet.settle())
    await asyncio.wait([settled], timeout=0.2)  # which it would be at once, were it not for the other
    go.set()
    await asyncio.gather(identified, settled)
    assert controller.serial(1) in controller.store.valid_serials([1])
    assert "certificate-renewed" not in kinds(controller)


async def test_a_renewal_that_the_disk_does_not_take_stops_no_guest_and_no_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = Controller(tmp_path)
    await first.apply(DOCUMENT)
    serial = first.serial(1)
    first.store.close()
    again = Controller(tmp_path)
    monkeypatch.setattr("controller.pki.authority.RENEW_BEFORE", ROUTER_LIFETIME + timedelta(days=1))
    directory = again.pki.identity(1)
    (directory / ".ca.pem.new").mkdir()  # where a file is to be written: as good as no room, for one file
    await again.convergence.start()
    assert again.sessions.admitted == {1}
    unfinished = await again.convergence.converge(lambda _: None)
    assert (unfinished.waiting, unfinished.failed) == ([], {})
    assert again.guests.starts == ["red/r1"]
    assert again.serial(1) == serial
    assert again.pki.is_valid(serial, 1)
    assert "certificate-not-renewed" in kinds(again)
    started = list(again.guests.starts)
    await again.convergence.converge(lambda _: None)
    assert again.guests.starts == started  # it is tried again in a while, not at once


async def test_a_rotation_reaches_guests_and_may_then_be_ended(applied: Controller) -> None:
    before = applied.pki.ca_pem
    trusted = await applied.certificates.rotate()
    assert trusted.waiting == ["red/r1 have not been given the new authority yet"]
    with pytest.raises(Conflict, match=r"^red/r1 have not been given the new authority yet; do that first"):
        await applied.certificates.retire(force=False)
    await applied.convergence.converge(lambda _: None)
    assert applied.guests.starts == ["red/r1", "red/r1"]
    assert (applied.pki.identity(1) / "ca.pem").read_bytes() == applied.pki.ca_pem
    await applied.certificates.issue("s1", [], "")
    assert (await applied.certificates.retire(force=False)).waiting == []
    assert before not in applied.pki.ca_pem
    await applied.convergence.converge(lambda _: None)
    assert (applied.pki.identity(1) / "ca.pem").read_bytes() == applied.pki.ca_pem
    with pytest.raises(Conflict, match="vrctl pki rotate makes a new one"):
        await applied.certificates.retire(force=False)


async def test_a_guest_that_is_started_amid_a_rotation_is_given_a_certificate_that_is_kept(
    controller: Controller, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go_on, given = asyncio.Event(), asyncio.Event(), list[str]()
    run = controller.guests.start

    async def start(spec: GuestSpec) -> None:
        begun.set()
        await go_on.wait()
        given.append(controller.serial(1))
        await run(spec)

    monkeypatch.setattr(controller.guests, "start", start)
    creating = asyncio.create_task(controller.apply(DOCUMENT))
    await begun.wait()
    await controller.certificates.rotate()
    others = await controller.convergence.program(lambda _: None)
    await controller.convergence.run_guests(others, lambda _: False)  # as the change of another router does
    go_on.set()
    await creating
    assert controller.pki.is_valid(given[0], 1)
    await controller.convergence.converge(lambda _: None)
    assert controller.pki.is_valid(given[-1], 1)
    assert (await controller.certificates.retire(force=False)).waiting == []


async def test_a_guest_whose_new_certificate_does_not_fit_on_the_disk_is_in_the_way(applied: Controller) -> None:
    old = applied.serial(1)
    await applied.certificates.rotate()
    obstacle = applied.pki.identity(1) / ".ca.pem.new"
    obstacle.mkdir()
    await applied.convergence.converge(lambda _: None)
    assert "certificate-not-renewed" in kinds(applied)
    assert applied.serial(1) == old
    assert applied.pki.is_valid(old, 1)
    with pytest.raises(Conflict, match="red/r1 have not been given the new authority yet"):
        await applied.certificates.retire(force=False)


async def test_a_plane_with_an_old_certificate_is_in_the_way_unless_forced(applied: Controller) -> None:
    await applied.certificates.issue("s1", [], "")
    await applied.certificates.rotate()
    await applied.convergence.converge(lambda _: None)
    with pytest.raises(Conflict, match=r"^plane s1 needs a new certificate; do that first, or give --force"):
        await applied.certificates.retire(force=False)
    await applied.certificates.retire(force=True)


async def test_revoking_cuts_what_is_connected(applied: Controller) -> None:
    await applied.certificates.issue("s1", [], "")
    applied.core.calls.clear()
    (serial,) = await applied.certificates.revoke("s1", "")
    assert applied.core.calls[:2] == [("remove_plane", "s1"), ("add_plane", "s1")]
    assert [one.state for one in applied.certificates.states() if one.serial == serial] == ["revoked"]
    assert "certificate-revoked" in kinds(applied)


async def test_a_deleted_planes_certificate_is_not_good_for_the_next_of_its_name(applied: Controller) -> None:
    await applied.operations.attach_plane("s2", PlaneOptions(kind="fake"))
    await applied.certificates.issue("s2", [], "")
    await applied.operations.delete_plane("s2", force=False)
    assert [one.state for one in applied.certificates.states() if one.owner == "plane s2"] == ["revoked"]


def full(_: object) -> None:
    raise StoreError("state.sqlite: database or disk is full")


@pytest.mark.parametrize("restarted", [False, True])
async def test_a_deleted_planes_certificate_that_the_disk_does_not_let_be_revoked_is_revoked_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, restarted: bool
) -> None:
    controller = Controller(tmp_path)
    await controller.operations.attach_plane("s2", PlaneOptions(kind="fake"))
    await controller.certificates.issue("s2", [], "")
    with monkeypatch.context() as patched:
        patched.setattr(controller.store, "revoke_plane_certificates", full)
        outcome = await controller.operations.delete_plane("s2", force=False)
        told = "plane s2: its certificates are good until there is room: state.sqlite: database or disk is full"
        assert outcome.waiting == [told]
        assert "certificate-not-revoked" in kinds(controller)
    if restarted:
        controller.store.close()
        controller = Controller(tmp_path)
    monkeypatch.setattr("controller.operations.certificates.RENEW_EVERY_S", 0.0)
    await controller.certificates.look()
    assert [one.state for one in controller.certificates.states() if one.owner == "plane s2"] == ["revoked"]


async def test_a_plane_is_not_declared_again_while_certificates_of_before_are_good(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    controller = Controller(tmp_path)
    await controller.operations.attach_plane("s2", PlaneOptions(kind="fake"))
    await controller.certificates.issue("s2", [], "")
    with monkeypatch.context() as patched:
        patched.setattr(controller.store, "revoke_plane_certificates", full)
        await controller.operations.delete_plane("s2", force=False)
        with pytest.raises(StoreError, match=r"^plane s2: its certificates are good until there is room: "):
            await controller.operations.attach_plane("s2", PlaneOptions(kind="fake"))
        assert "s2" not in controller.operations.state.planes
        await controller.operations.attach_plane("s3", PlaneOptions(kind="fake"))
    await controller.operations.attach_plane("s2", PlaneOptions(kind="fake"))  # before anybody has looked
    assert [one.state for one in controller.certificates.states() if one.owner == "plane s2"] == ["revoked"]


async def test_what_no_plane_may_be_called(applied: Controller) -> None:
    with pytest.raises(NoSuch, match="no plane 's9'"):
        await applied.certificates.issue("s9", [], "")
    with pytest.raises(SpecError, match="'a b' is neither a DNS name nor an IP address"):
        await applied.certificates.issue("s1", ["a b"], "")
    with pytest.raises(Conflict, match="vr-controller is the controller's own name"):
        await applied.certificates.issue("s1", ["VR-Controller."], "")


async def test_time_renews_what_lies_in_folders(applied: Controller, tmp_path: Path) -> None:
    folder = tmp_path / "etc"
    folder.mkdir()
    files = await applied.certificates.issue("s1", [], str(folder))
    for name, content in (("key", files.key), ("cert", files.certificate), ("ca", files.ca)):
        (folder / f"{name}.pem").write_bytes(content)
    await applied.certificates.look()
    assert (folder / "cert.pem").read_bytes() == files.certificate
    await applied.certificates.rotate()
    assert (folder / "ca.pem").read_bytes() == applied.pki.ca_pem
    assert (folder / "cert.pem").read_bytes() != files.certificate
    assert "plane-certificate" in kinds(applied)


async def test_a_backup_has_all_authorities(tmp_path: Path) -> None:
    old = Controller(tmp_path / "old")
    await old.certificates.rotate()
    await old.operations.backup(tmp_path / "backup")
    new = Controller(tmp_path / "new")
    await new.certificates.rotate()
    await new.operations.restore(tmp_path / "backup", force=True)
    new.store.close()
    assert backups.adopt(tmp_path / "new")
    restored = Controller(tmp_path / "new")
    assert restored.pki.server_credentials()[2] == old.pki.server_credentials()[2]


@pytest.mark.parametrize("cut", [1, 2, 3])
async def test_a_restore_that_is_cut_short_is_finished(tmp_path: Path, cut: int) -> None:
    old = Controller(tmp_path / "old")
    await old.operations.backup(tmp_path / "backup")
    new = Controller(tmp_path / "new")
    await new.certificates.rotate()
    await new.operations.restore(tmp_path / "backup", force=True)
    new.store.close()
    staged, state = tmp_path / "new/restore/pki", tmp_path / "new/pki"
    for name in ("ca-former.key", "ca-former.pem", "routers-former.key", "routers-former.pem"):
        (state / name).unlink()
    for name in ("ca.key", "ca.pem", "routers.key")[:cut]:
        (staged / name).replace(state / name)
    assert backups.adopt(tmp_path / "new")
    restored = Controller(tmp_path / "new")
    assert restored.pki.server_credentials()[2] == old.pki.server_credentials()[2]
    assert load_certificate(restored.pki.own()[1])
