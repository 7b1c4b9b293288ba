"""Every fuzz target for a second, after all inputs that are kept of it; what breaks one is printed."""

import json
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "scripts/fuzz"
SECONDS = 1
LIMIT_S = 500
FUZZ: dict[str, Any] = runpy.run_path(str(SCRIPT))
NAMES = (*FUZZ["PYTHON"], *FUZZ["NATIVE"])

BREAKS = """INSTRUMENTED = ("json",)

def seeds():
    return [b"x"]

def try_one(octets):
    assert octets != b"x"
"""


@pytest.mark.root  # as all that needs what scripts/setup tests makes
@pytest.mark.parametrize("name", NAMES)
def test_nothing_breaks(name: str) -> None:
    command = [str(SCRIPT), name, "--seconds", str(SECONDS)]  # as CONTRIBUTING.md has it
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.returncode == 0, done.stderr[-6000:]
    kept = len(list((ROOT / "tests/fuzz/corpus" / name).iterdir()))
    assert json.loads(done.stdout.splitlines()[-1])["inputs"] > kept > 0


@pytest.mark.root
def test_a_break_is_told_and_kept(tmp_path: Path) -> None:
    """The driver itself: an exception of a target is a failure, with the input that caused it."""
    target = tmp_path / "fuzz_breaks.py"
    target.write_text(BREAKS)
    (tmp_path / "corpus").mkdir()
    (tmp_path / "kept").mkdir()
    driver = ROOT / "tests/fuzz/fuzz_python.py"
    options = ["-runs=100", f"-artifact_prefix={tmp_path}/found-", str(tmp_path / "corpus"), str(tmp_path / "kept")]
    command = [sys.executable, str(driver), str(target), *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.returncode != 0
    assert "AssertionError" in done.stdout + done.stderr
    assert [path.read_bytes() for path in tmp_path.glob("found-*")] == [b"x"]
