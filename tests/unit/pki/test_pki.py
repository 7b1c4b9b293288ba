"""The authority: certificates say which router they are for, and end with it."""

import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from cryptography import x509
from cryptography.x509.oid import NameOID
from handshakes import client, identity, server, shake

from controller.errors import StoreError
from controller.model import Quota, RouterConfig
from controller.pki import authority
from controller.pki.authority import PKI
from controller.store.sqlite import SqliteStore

ROUTER = RouterConfig(7, "red", "r1", "s1", Quota(), ())


@pytest.fixture
def store(tmp_path: Path) -> SqliteStore:
    return SqliteStore(tmp_path)


async def issued(pki: PKI) -> Path:
    assert (await pki.issue([ROUTER])).trouble == ""
    return pki.identity(ROUTER.vrf_id)


def certificate(directory: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate((directory / "cert.pem").read_bytes())


def serial_of(directory: Path) -> str:
    names = certificate(directory).extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    (uri,) = names.get_values_for_type(x509.UniformResourceIdentifier)
    prefix, serial = uri.rsplit(":", 1)
    assert prefix == "splitplane:router:7"
    return serial


async def test_a_routers_certificate_names_it(tmp_path: Path, store: SqliteStore) -> None:
    pki = PKI(tmp_path, store)
    directory = await issued(pki)
    (name,) = certificate(directory).subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    assert name.value == "red/r1"
    assert pki.is_valid(serial_of(directory), 7)
    assert not pki.is_valid(serial_of(directory), 8)
    assert not pki.is_valid("00", 7)


async def test_the_server_can_be_verified_by_its_name(tmp_path: Path, store: SqliteStore) -> None:
    pki = PKI(tmp_path, store)
    directory = await issued(pki)
    shown = shake(server(*pki.server_credentials()), client(*identity(directory)))
    assert ("subject", ((("commonName", "red/r1"),),)) in shown.items()


async def test_private_files_are_private(tmp_path: Path, store: SqliteStore) -> None:
    directory = await issued(PKI(tmp_path, store))
    for path in (directory / "key.pem", tmp_path / "pki" / "ca.key", tmp_path / "pki" / "server.key"):
        assert path.stat().st_mode & 0o777 == 0o600


async def test_a_restart_keeps_authority_server_and_routers(tmp_path: Path, store: SqliteStore) -> None:
    first = PKI(tmp_path, store)
    serial = serial_of(await issued(first))
    second = PKI(tmp_path, store)
    assert second.server_credentials() == first.server_credentials()
    assert serial_of(await issued(second)) == serial


async def test_a_damaged_identity_is_issued_again_and_the_old_one_refused(tmp_path: Path, store: SqliteStore) -> None:
    pki = PKI(tmp_path, store)
    directory = await issued(pki)
    old = serial_of(directory)
    (directory / "cert.pem").write_text("-----BEGIN CERTIFICATE-----\nnonsense\n")
    new = serial_of(await issued(pki))
    assert new != old
    await pki.keep({7: new})
    assert not pki.is_valid(old, 7)
    assert pki.is_valid(new, 7)


async def test_revoking_refuses_the_serial_and_removes_the_files(tmp_path: Path, store: SqliteStore) -> None:
    pki = PKI(tmp_path, store)
    directory = await issued(pki)
    serial = serial_of(directory)
    await pki.revoke(7)
    assert not pki.is_valid(serial, 7)
    assert not directory.exists()


def test_a_damaged_authority_is_one_line(tmp_path: Path, store: SqliteStore) -> None:
    PKI(tmp_path, store)
    (tmp_path / "pki" / "ca.key").write_text("nonsense")
    with pytest.raises(StoreError, match="is damaged"):
        PKI(tmp_path, store)


async def test_while_many_are_issued_the_event_loop_has_the_interpreter_after_each(
    tmp_path: Path, store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    monkeypatch.setattr(authority, "time", SimpleNamespace(sleep=lambda _: done.append("pause")))
    new_key = authority.new_key
    monkeypatch.setattr(authority, "new_key", lambda: (done.append("key"), new_key())[1])
    pki = PKI(tmp_path, store)
    done.clear()
    await pki.issue([replace(ROUTER, vrf_id=number) for number in range(1, 4)])
    assert done == ["key", "pause"] * 3 + ["pause"] * 3  # the latter where they are read back


@pytest.mark.parametrize("when", ["write_beside", "put_in_place"])
async def test_a_router_that_is_deleted_while_many_are_issued_leaves_the_others_theirs(
    tmp_path: Path, store: SqliteStore, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    pki, step = PKI(tmp_path, store), getattr(authority, when)

    def meanwhile(directory: Path, *given: object) -> None:
        if directory == pki.identity(2):
            shutil.rmtree(directory)
        step(directory, *given)

    monkeypatch.setattr(authority, when, meanwhile)
    issued = await pki.issue([replace(ROUTER, vrf_id=number) for number in (1, 2, 3)])
    assert (issued.trouble, set(issued.identities)) == ("", {1, 3})
