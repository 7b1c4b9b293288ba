"""What does not fit on the disk is tried again; whoever has a certificate goes on with it."""

from datetime import timedelta
from pathlib import Path

import pytest
from handshakes import Clock, client, full_disk, identity, server, shake

from controller.guests.guest_files import replace_file, replace_files
from controller.model import Quota, RouterConfig
from controller.pki.authority import BATCH, PKI
from controller.store.sqlite import SqliteStore

ROUTERS = [RouterConfig(number, "red", f"r{number}", "s1", Quota(), ()) for number in range(1, 4)]


def contents(directory: Path) -> dict[str, bytes]:
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


async def test_a_renewal_on_a_full_disk_leaves_the_old_certificates_in_force(tmp_path: Path) -> None:
    store, clock = SqliteStore(tmp_path), Clock()
    pki = PKI(tmp_path, store, clock)
    before = (await pki.issue(ROUTERS)).identities
    files = contents(pki.directory)
    clock.off = timedelta(days=61)  # of 90: renewed 30 days before the end
    with full_disk():
        issued = await pki.issue(ROUTERS)
    assert "File too large; free space" in issued.trouble
    assert issued.identities == before
    assert contents(pki.directory) == files
    assert all(pki.is_valid(one.serial, vrf_id) for vrf_id, one in before.items())

    again = await pki.issue(ROUTERS)
    assert again.trouble == ""
    assert all(pki.is_valid(one.serial, vrf_id) for vrf_id, one in before.items())  # until the guest has the new one
    await pki.keep({vrf_id: one.serial for vrf_id, one in again.identities.items()})
    assert not any(pki.is_valid(one.serial, vrf_id) for vrf_id, one in before.items())
    assert all(pki.is_valid(one.serial, vrf_id) for vrf_id, one in again.identities.items())


async def test_a_router_without_any_is_told_apart(tmp_path: Path) -> None:
    pki = PKI(tmp_path, SqliteStore(tmp_path))
    await pki.issue(ROUTERS[:2])
    with full_disk():
        issued = await pki.issue(ROUTERS)
    assert set(issued.identities) == {1, 2}
    assert issued.trouble


async def test_one_batch_that_fails_does_not_undo_the_others(tmp_path: Path) -> None:
    pki = PKI(tmp_path, SqliteStore(tmp_path))
    many = [RouterConfig(n, "red", f"r{n}", "s1", Quota(), ()) for n in range(1, 2 * BATCH + 1)]
    pki.identity(1).parent.mkdir()
    pki.identity(2).touch()  # where a directory should be
    issued = await pki.issue(many)
    assert issued.trouble
    assert set(issued.identities) == set(range(BATCH + 1, 2 * BATCH + 1))


async def test_the_controllers_own_certificate_works_from_memory_until_there_is_room(tmp_path: Path) -> None:
    store, clock = SqliteStore(tmp_path), Clock(timedelta(days=-500))
    pki = PKI(tmp_path, store, clock)
    clock.off = timedelta()  # it has ended
    with full_disk():
        pki.refresh()
        assert "server.pem: File too large" in pki.unwritten
    await pki.issue(ROUTERS[:1])
    shake(server(*pki.server_credentials()), client(*identity(pki.identity(1))))
    pki.refresh()
    assert pki.unwritten == ""
    assert PKI(tmp_path, store, clock).own() == pki.own()


def test_a_guest_that_fills_its_disk_keeps_what_it_was_given(tmp_path: Path) -> None:
    old = {"cert.pem": b"1", "key.pem": b"1", "ca.pem": b"1"}
    replace_files(tmp_path, old, tmp_path.stat().st_uid, 0o400)
    # The first file fits, the second does not.
    (tmp_path / "key.pem.new").mkdir()
    try:
        replace_files(tmp_path, dict.fromkeys(old, b"2"), tmp_path.stat().st_uid, 0o400)
    except OSError:
        pass
    else:
        raise AssertionError("it fitted")
    (tmp_path / "key.pem.new").rmdir()
    assert contents(tmp_path) == old


@pytest.mark.parametrize("octets", [1, 1 << 20])  # written as the file is closed, and before that
def test_a_file_that_has_no_room_is_named(tmp_path: Path, octets: int) -> None:
    with full_disk(), pytest.raises(OSError, match=r"File too large: '.*/guest.json'$") as refused:
        replace_file(tmp_path / "guest.json", b"x" * octets, tmp_path.stat().st_uid, 0o600)
    assert refused.value.filename == str(tmp_path / "guest.json")
    assert list(tmp_path.iterdir()) == []
