"""New authorities, with the old ones trusted for a while: nobody is locked out before `retire`."""

import asyncio
import ssl
from pathlib import Path

import pytest
from handshakes import client, full_disk, identity, server, shake

from controller.errors import Conflict, StoreError
from controller.model import Quota, RouterConfig
from controller.pki.authority import BATCH, PKI
from controller.store.sqlite import SqliteStore

ROUTER = RouterConfig(7, "red", "r1", "s1", Quota(), ())


@pytest.fixture
async def pki(tmp_path: Path) -> PKI:
    found = PKI(tmp_path, SqliteStore(tmp_path))
    await found.issue([ROUTER])
    return found


def connect(pki: PKI, router: tuple[bytes, bytes, bytes]) -> None:
    shake(server(*pki.server_credentials()), client(*router))


async def test_both_are_trusted_until_the_former_is_retired(pki: PKI) -> None:
    old = identity(pki.identity(7))
    pki.rotate()
    connect(pki, old)
    await pki.issue([ROUTER])
    new = identity(pki.identity(7))
    assert new[1] != old[1]
    connect(pki, new)
    connect(pki, old)
    assert pki.retire()
    connect(pki, new)
    with pytest.raises(ssl.SSLError):
        connect(pki, old)
    assert not pki.retire()


async def test_what_cannot_be_removed_stays_trusted_and_is_named(pki: PKI) -> None:
    pki.rotate()
    former = pki.directory / "routers-former.pem"
    former.rename(pki.directory / "away")
    former.mkdir()  # which is not removed like a file: as good as a disk that is read-only
    before = pki.generation
    with pytest.raises(StoreError, match=r"routers-former\.pem: .*; repair that and retire again"):
        pki.retire()
    assert pki.generation > before  # so that switches do not believe the other one any more
    assert [authority.former is None for authority in (pki.ca, pki.routers)] == [True, False]
    former.rmdir()
    assert pki.retire()
    assert pki.routers.former is None


async def test_a_rotation_outlives_a_restart(pki: PKI, tmp_path: Path) -> None:
    old = identity(pki.identity(7))
    pki.rotate()
    again = PKI(tmp_path, SqliteStore(tmp_path))
    assert again.ca_pem == pki.ca_pem
    assert again.own() == pki.own()
    connect(again, old)
    with pytest.raises(Conflict, match="vrctl pki retire"):
        again.rotate()


async def test_a_rotation_that_does_not_fit_on_the_disk_changes_nothing(pki: PKI, tmp_path: Path) -> None:
    before = pki.ca_pem
    with full_disk(), pytest.raises(StoreError, match="free space and rotate again"):
        pki.rotate()
    assert pki.ca_pem == before
    again = PKI(tmp_path, SqliteStore(tmp_path))
    assert again.ca_pem == before
    again.rotate()


@pytest.mark.parametrize("renamed", [0, 1])
async def test_a_rotation_that_is_cut_short_did_not_happen(pki: PKI, tmp_path: Path, renamed: int) -> None:
    """As `kill -9` leaves it after the former pair was written, and after so many renames of the new one."""
    directory, before = pki.directory, pki.ca_pem
    key = (directory / "ca.key").read_bytes()
    pki.ca.rotate()
    if not renamed:
        (directory / "ca.key").write_bytes(key)
    (directory / "ca.pem").write_bytes(before)
    again = PKI(tmp_path, SqliteStore(tmp_path))
    assert again.ca_pem == before
    assert (directory / "ca.key").read_bytes() == key
    assert again.own() == pki.own()


async def test_a_key_of_another_authority_is_one_line(pki: PKI, tmp_path: Path) -> None:
    (pki.directory / "ca.key").write_bytes((pki.directory / "routers.key").read_bytes())
    with pytest.raises(StoreError, match=r"is damaged \(ca.key is not the key of ca.pem\); restore a backup"):
        PKI(tmp_path, SqliteStore(tmp_path))


async def test_many_certificates_at_once_hold_the_loop_for_no_time_of_theirs(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path)
    pki = PKI(tmp_path, store)
    many = [RouterConfig(number, "red", f"r{number}", "s1", Quota(), ()) for number in range(1, 4 * BATCH + 1)]
    commits: list[str] = []
    store._db.set_trace_callback(lambda statement: commits.append(statement) if statement == "COMMIT" else None)
    issuing = asyncio.create_task(pki.issue(many))
    turns = 0
    while not issuing.done():
        turns += 1
        await asyncio.sleep(0)
    assert len(issuing.result().identities) == len(many)
    assert turns > len(many)
    assert len(commits) == len(many) / BATCH
