"""The image of guests in machines: its digests, its release, its byte code, and what cannot be made is refused."""

import hashlib
import json
import platform
import struct
import subprocess
from pathlib import Path

import pytest
from machines import IMAGE, ROOT, needs_image

pytestmark = pytest.mark.root

UNCHECKED_HASH = 0b01
USAGE = "usage: guest/build [--fresh] [--release 12|13] [DIRECTORY]\n"


def build(*words: str, before: tuple[str, ...] = ()) -> "subprocess.CompletedProcess[str]":
    command = (*before, str(ROOT / "guest/build"), *words)
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@pytest.fixture(scope="module")
def sums() -> dict[str, str]:
    """The digest of each file, as the image says it."""
    needs_image()
    return {name: digest for digest, name in map(str.split, (IMAGE / "SHA256SUMS").read_text().splitlines())}


def test_every_file_of_the_image_has_its_digest(sums: dict[str, str]) -> None:
    description = json.loads((IMAGE / "image.json").read_text())
    named = {description[name] for name in ("kernel", "initrd", "root")}
    assert sums.keys() == named | {"image.json", "packages.list"}
    for name, digest in sums.items():
        with (IMAGE / name).open("rb") as file:
            assert hashlib.file_digest(file, "sha256").hexdigest() == digest, name


def test_it_is_of_this_host_s_release(sums: dict[str, str]) -> None:
    description = json.loads((IMAGE / "image.json").read_text())
    assert description["name"] == f"splitplane-{platform.freedesktop_os_release()['VERSION_CODENAME']}"
    packages = dict(line.split(maxsplit=1) for line in (IMAGE / "packages.list").read_text().splitlines())
    assert packages["frr"].startswith(description["frr"])


def test_no_machine_compiles_what_is_in_it(sums: dict[str, str], tmp_path: Path) -> None:
    """Byte code with its source's date (PEP 552) is of no use: in the image all sources have another one."""
    command = ("unsquashfs", "-quiet", "-no-progress", "-no-xattrs", "-dest", f"{tmp_path}/root", "root.squashfs")
    subprocess.run([*command, "usr/lib/python3*", "usr/lib/splitplane/app"], cwd=IMAGE, check=True, timeout=60)
    flags = {path: struct.unpack_from("<I", path.read_bytes(), 4)[0] for path in (tmp_path / "root").rglob("*.pyc")}
    assert {path.name.partition(".")[0] for path in flags} >= {"enum", "argparse", "init", "agent"}
    assert [path.name for path, flag in flags.items() if flag != UNCHECKED_HASH] == []


@pytest.mark.parametrize("words", [("--release", "11"), ("--release",), ("--release", ""), ("--rebuild",)])
def test_what_it_does_not_know_is_refused(words: tuple[str, ...], tmp_path: Path) -> None:
    done = build(*words)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", USAGE)


def test_a_host_of_another_release_has_to_name_one(tmp_path: Path) -> None:
    (tmp_path / "os-release").write_text("VERSION_CODENAME=forky\n")
    elsewhere = (
        "unshare",
        "--mount",
        "sh",
        "-c",
        f'mount --bind {tmp_path}/os-release /etc/os-release && exec "$@"',
        "sh",
    )
    done = build(str(tmp_path / "image"), before=elsewhere)
    said = "guest/build: this machine is neither Debian 12 nor 13; say --release 12 or 13\n"
    assert (done.returncode, done.stdout, done.stderr) == (1, "", said)
    assert not (tmp_path / "image").exists()
