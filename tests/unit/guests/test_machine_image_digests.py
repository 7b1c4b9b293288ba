"""An image whose files are not those of its SHA256SUMS starts no machine, and is read once for each change."""

import hashlib
import os
import re
from pathlib import Path

import pytest
from test_machine_host_seed import make_image

from controller.errors import GuestError
from controller.guests.machine import image, image_digests
from controller.guests.machine.image_digests import ImageDigests

pytestmark = pytest.mark.asyncio

NAMES = ("image.json", "vmlinuz", "initrd.img", "root.squashfs")


def sums_of(directory: Path, mark: str = " ") -> str:
    return "".join(f"{hashlib.sha256((directory / name).read_bytes()).hexdigest()} {mark}{name}\n" for name in NAMES)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    made = make_image(tmp_path / "image")
    (made / "SHA256SUMS").write_text(sums_of(made))
    return made


async def check(directory: Path, digests: ImageDigests | None = None) -> list[str]:
    return await (digests or ImageDigests()).check(image.load(directory, "red/r1"), "red/r1")


@pytest.mark.parametrize("mark", [" ", "*"])
async def test_an_image_as_it_was_made_is_taken(directory: Path, mark: str) -> None:
    (directory / "SHA256SUMS").write_text(sums_of(directory, mark))
    assert await check(directory) == []


@pytest.mark.parametrize("name", ["vmlinuz", "initrd.img", "root.squashfs"])
async def test_a_file_that_changed_is_named_until_it_is_as_before(directory: Path, name: str) -> None:
    digests = ImageDigests()
    await check(directory, digests)
    (directory / name).write_bytes(b"another")
    with pytest.raises(GuestError) as refused:
        await check(directory, digests)
    made = f"make it anew with guest/build {directory}"
    assert str(refused.value) == f"red/r1: image file {directory / name} is not what SHA256SUMS says; {made}"
    (directory / name).write_bytes(b"x")
    assert await check(directory, digests) == []


async def test_a_manifest_that_changed_is_named(directory: Path) -> None:
    make_image(directory, append="init=/bin/sh")
    with pytest.raises(GuestError, match=r"image\.json is not what SHA256SUMS says"):
        await check(directory)


async def test_a_file_without_a_digest_is_named(directory: Path) -> None:
    (directory / "SHA256SUMS").write_text(sums_of(directory).splitlines()[0] + "\n")
    with pytest.raises(GuestError, match=r"SHA256SUMS has no vmlinuz; make it anew with guest/build"):
        await check(directory)


@pytest.mark.parametrize("content", ["x\n", f"{'0' * 64}  ../vmlinuz\n", f"{'0' * 63}  vmlinuz\n", "\x00\xff\n"])
async def test_what_is_no_list_of_digests_is_said(directory: Path, content: str) -> None:
    (directory / "SHA256SUMS").write_bytes(content.encode("latin-1"))
    with pytest.raises(GuestError, match="SHA256SUMS is not what sha256sum writes"):
        await check(directory)


async def test_an_image_without_digests_is_taken_and_that_is_said(tmp_path: Path) -> None:
    said = await check(make_image(tmp_path))
    assert said == [f"image {tmp_path} has no SHA256SUMS: nobody would notice a damaged file"]


async def test_files_are_read_once_for_each_change(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    really = image_digests._read
    monkeypatch.setattr(image_digests, "_read", lambda path: [read.append(path.name), really(path)][1])
    digests = ImageDigests()
    for _ in range(3):
        await check(directory, digests)
    assert read == list(NAMES)
    os.utime(directory / "root.squashfs", ns=(1, 1))  # as if the same octets had been written again
    await check(directory, digests)
    assert read == [*NAMES, "root.squashfs"]


async def test_a_file_that_goes_away_meanwhile_is_named(directory: Path) -> None:
    found = image.load(directory, "red/r1")
    found.root.unlink()
    with pytest.raises(GuestError, match=re.escape(f"red/r1: image file {found.root}: No such file or directory")):
        await ImageDigests().check(found, "red/r1")
