"""The forwarder's own tests, as built for use and under AddressSanitizer and UndefinedBehaviorSanitizer."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
BUILDS = {"product": ROOT / "build/forwarder", "sanitized": ROOT / "build/forwarder-sanitized"}
LIMIT_S = 560


def native_tests() -> list[Any]:
    """Return every test of every build, as meson lists them; for a build that is missing one that says so."""
    found = []
    for build, folder in BUILDS.items():
        listed = folder / "meson-info" / "intro-tests.json"
        tests = json.loads(listed.read_text()) if listed.exists() else [{"name": "build", "cmd": []}]
        found += [pytest.param(folder, test, id=f"{build}: {test['name']}") for test in tests]
    return found


@pytest.mark.root
@pytest.mark.parametrize(("folder", "test"), native_tests())
def test_native(folder: Path, test: dict[str, Any]) -> None:
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
