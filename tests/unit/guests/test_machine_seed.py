"""The seed: what is read of it, and what is refused by one line."""

import json
import os
import stat
import tarfile
from pathlib import Path

import pytest
from seeds import FILES, IDENTITY, MACHINE, archive, member

from vrc.machine.seed import MAX_SEED_BYTES, SeedError, parse_seed, read_seed, unpack, write_identity


@pytest.mark.parametrize("kind", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT])
def test_a_seed_is_read_whatever_follows_its_end(tmp_path: Path, kind: int) -> None:
    device = tmp_path / "vdb"
    device.write_bytes(archive(member("identity/", tarfile.DIRTYPE), kind=kind) + b"\xff" * 512)
    seed = read_seed(str(device))
    assert (seed.router, seed.hostname, seed.time_s) == ("red/r1", "r1", 1_800_000_000)
    assert seed.session == ("10.0.2.100", 6654)
    assert seed.identity == IDENTITY
    assert seed.guest == {"router": "red/r1"}


@pytest.mark.parametrize(
    ("extra", "said"),
    [
        (member("/etc/passwd"), "'/etc/passwd' does not belong there"),
        (member("identity/../../etc/passwd"), "does not belong there"),
        (member("identity/cert.pem", tarfile.SYMTYPE, "/etc/shadow"), "'identity/cert.pem' is not a plain file"),
        (member("identity/cert.pem", tarfile.LNKTYPE, "guest.json"), "'identity/cert.pem' is not a plain file"),
        (member("null", tarfile.CHRTYPE), "'null' is not a plain file"),
        (member("other/", tarfile.DIRTYPE), "is not a plain file"),
        (member("x" * 200), "is not a plain file"),
        (member("guest.json"), "'guest.json' is there twice"),
    ],
)
def test_what_does_not_belong_there_is_refused(extra: tarfile.TarInfo, said: str) -> None:
    with pytest.raises(SeedError) as refused:
        unpack(archive(extra, kind=tarfile.GNU_FORMAT))
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("octets", "said"),
    [
        (b"", "no end"),
        (b"\x7fELF" + bytes(508), "not a tar archive"),
        (archive()[:700], "cut short|no end"),
        (archive()[:512].replace(b"guest", b"Guest") + archive()[512:], "damaged"),
        (
            archive(kind=tarfile.USTAR_FORMAT, files={**FILES, "guest.json": b"x"}).replace(
                b"x" + bytes(511), b"", 1
            ),
            ".",
        ),
    ],
)
def test_damage_is_refused(octets: bytes, said: str) -> None:
    with pytest.raises(SeedError, match=said):
        parse_seed(unpack(octets))


def test_one_that_is_too_large_or_missing_is_refused(tmp_path: Path) -> None:
    device = tmp_path / "vdb"
    device.write_bytes(archive() + bytes(MAX_SEED_BYTES))
    with pytest.raises(SeedError, match=f"larger than {MAX_SEED_BYTES} octets"):
        read_seed(str(device))
    with pytest.raises(SeedError, match="nowhere: No such file or directory"):
        read_seed(str(tmp_path / "nowhere"))


@pytest.mark.parametrize("name", sorted(FILES))
def test_each_file_must_be_there(name: str) -> None:
    with pytest.raises(SeedError, match=f"{name} is missing"):
        parse_seed({other: content for other, content in FILES.items() if other != name})


@pytest.mark.parametrize(
    "machine",
    [
        b"[]",
        b"{",
        b'{"router": 1}',
        json.dumps({**MACHINE, "session": "x"}).encode(),
        json.dumps({**MACHINE, "session": ["10.0.2.100", 65536]}).encode(),
        json.dumps({**MACHINE, "time": float("inf")}).encode(),
    ],
)
def test_a_description_that_makes_no_sense_is_refused(machine: bytes) -> None:
    with pytest.raises(SeedError, match=r"guest\.json or machine\.json"):
        parse_seed({**FILES, "machine.json": machine})


def test_certificates_are_replaced_whole_and_readable_by_their_owner_alone(tmp_path: Path) -> None:
    directory = tmp_path / "identity"
    write_identity(str(directory), IDENTITY, os.getuid())
    with open(directory / "cert.pem", "rb") as old:
        write_identity(str(directory), {**IDENTITY, "cert.pem": b"newer"}, os.getuid())
        assert old.read() == b"certificate"
    assert (directory / "cert.pem").read_bytes() == b"newer"
    assert {path.name: stat.S_IMODE(path.stat().st_mode) for path in directory.iterdir()} == dict.fromkeys(
        IDENTITY, 0o400
    )
    assert stat.S_IMODE(directory.stat().st_mode) == 0o500


def test_certificates_that_do_not_all_have_room_stay_as_they_are(tmp_path: Path) -> None:
    directory = tmp_path / "identity"
    write_identity(str(directory), IDENTITY, os.getuid())
    (directory / "key.pem.new").mkdir()  # the first file has room, the second has not
    with pytest.raises(OSError, match=r"key\.pem\.new"):
        write_identity(str(directory), dict.fromkeys(IDENTITY, b"newer"), os.getuid())
    (directory / "key.pem.new").rmdir()
    assert {path.name: path.read_bytes() for path in directory.iterdir()} == IDENTITY
