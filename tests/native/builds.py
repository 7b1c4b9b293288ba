"""The forwarder's own tests in a build of it, as meson lists them."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
LIMIT_S = 560


def listed_in(build: str) -> list[Any]:
    """Return every test of a folder below build/; where that is missing, one that says so."""
    listing = ROOT / "build" / build / "meson-info" / "intro-tests.json"
    tests = json.loads(listing.read_text()) if listing.exists() else [{"name": "build", "cmd": []}]
    return [pytest.param(test, id=test["name"]) for test in tests]


def run(build: str, test: dict[str, Any]) -> None:
    """Run one of them; AssertionError, with the last it printed, where it fails."""
    folder = ROOT / "build" / build
    assert test["cmd"], f"{folder} is missing; run: scripts/setup tests"
    done = subprocess.run(
        test["cmd"],
        cwd=test["workdir"] or folder,
        env=os.environ | test["env"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-6000:]
