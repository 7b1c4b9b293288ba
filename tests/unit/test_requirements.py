"""The lock files have what setup.cfg pins, one version of each package in all of them, and a digest of every file."""

import configparser
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LOCKS = ("builder", "host", "setup", "tests")
EXTRAS = {"host": (), "setup": ("build",), "tests": ("build", "dev")}


def canonical(name: str) -> str:
    """A package's name as an index has it (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def pinned(lines: str) -> dict[str, str]:
    found = (line.split("==") for line in lines.split())
    return {canonical(name): version for name, version in found}


def locked(lock: str) -> dict[str, str]:
    text = (ROOT / "requirements" / f"{lock}.txt").read_text()
    return {canonical(name): version for name, version in re.findall(r"^([\w.-]+)==(\S+)", text, re.MULTILINE)}


@pytest.mark.parametrize("lock", EXTRAS)
def test_a_lock_has_the_versions_of_setup_cfg(lock: str) -> None:
    settings = configparser.ConfigParser()
    settings.read(ROOT / "setup.cfg")
    wanted = pinned(settings["options"]["install_requires"])
    for extra in EXTRAS[lock]:
        wanted |= pinned(settings["options.extras_require"][extra])
    assert wanted.items() <= locked(lock).items(), "setup.cfg has changed; run: scripts/lock"


def test_a_package_has_one_version_everywhere() -> None:
    everywhere = locked("tests")
    for lock in LOCKS:
        assert locked(lock).items() <= everywhere.items()


@pytest.mark.parametrize("lock", LOCKS)
def test_every_package_has_digests(lock: str) -> None:
    text = (ROOT / "requirements" / f"{lock}.txt").read_text()
    packages = re.split(r"^(?=[a-z])", text, flags=re.MULTILINE)[1:]
    assert len(packages) == len(locked(lock))
    assert all(re.search(r"--hash=sha256:[0-9a-f]{64}\b", package) for package in packages)
