"""What scripts/setup finds missing, when it asks for it again, and how long it waits for another one."""

import os
import signal
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "scripts" / "setup"


def function(name: str) -> str:
    """Return a function of the script."""
    text = SCRIPT.read_text()
    return text[text.index(f"\n{name}() {{") :].split("\n}\n")[0] + "\n}\n"


def bash(folder: Path, program: str) -> "subprocess.CompletedProcess[str]":
    """Run lines as the script would, below a folder of their own."""
    lines = f"set -euo pipefail\ncd {folder}\nhave={folder}/have\n{program}"
    return subprocess.run(["bash", "-c", lines], capture_output=True, text=True, timeout=60, check=False)


def test_a_package_that_dpkg_has_never_heard_of_is_missing(tmp_path: Path) -> None:
    done = bash(tmp_path, f"{function('missing_packages')}missing_packages bash splitplane-none")
    assert (done.returncode, done.stdout) == (0, "splitplane-none\n")


@pytest.fixture
def optional(tmp_path: Path) -> str:
    """The functions about optional packages, for root, with APT's places in a folder."""
    (tmp_path / ".setup").mkdir()
    for name in ("etc/apt/sources.list.d", "var/lib/apt/lists/partial"):
        (tmp_path / name).mkdir(parents=True)
    known = function("known_to_apt").replace("(/etc", f"({tmp_path}/etc").replace(" /", f" {tmp_path}/")
    known = known.replace(f"2>{tmp_path}/dev", "2>/dev")
    return "id() { echo 0; }\n" + function("missing_packages") + known + function("missing_optional")


def asked(folder: Path, optional: str, before: str = "") -> list[str]:
    done = bash(folder, f"{optional}{before}\nmissing_optional bash splitplane-none")
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.split()


def test_an_optional_package_is_asked_for_again_when_apt_knows_of_others(tmp_path: Path, optional: str) -> None:
    assert asked(tmp_path, optional) == ["splitplane-none"]
    assert asked(tmp_path, optional, "known_to_apt >.setup/without-splitplane-none") == []
    assert asked(tmp_path, optional) == []
    (tmp_path / "var/lib/apt/lists/deb.example_dists_stable_InRelease").touch()
    assert asked(tmp_path, optional) == ["splitplane-none"]
    assert asked(tmp_path, optional, "known_to_apt >.setup/without-splitplane-none") == []
    (tmp_path / "etc/apt/sources.list.d/more.list").touch()
    assert asked(tmp_path, optional) == ["splitplane-none"]


def test_a_mark_of_an_earlier_setup_does_not_count(tmp_path: Path, optional: str) -> None:
    (tmp_path / ".setup/without-splitplane-none").touch()
    assert asked(tmp_path, optional) == ["splitplane-none"]


def test_only_root_is_asked_for_optional_packages(tmp_path: Path, optional: str) -> None:
    assert asked(tmp_path, optional, "id() { echo 1000; }") == []


def test_a_venv_that_could_not_be_made_is_none(tmp_path: Path) -> None:
    (tmp_path / ".setup").mkdir()
    (tmp_path / ".setup/venv").write_text("pins setup")
    fails = 'logged() { [ "$1" != pip ]; }'
    done = bash(tmp_path, f"say() {{ :; }}\n{fails}\n{function('make_venv')}make_venv tests")
    assert done.returncode != 0
    assert not (tmp_path / ".setup/venv").exists()


def test_whoever_holds_the_lock_is_named_and_not_waited_for_for_ever(tmp_path: Path) -> None:
    lock, says = tmp_path / "lock", 'say() { echo "$*"; }\n'
    program = f"{says}{function('lock')}lock {lock} 60; echo has it; sleep 600"
    holder = subprocess.Popen(["bash", "-c", program], stdout=subprocess.PIPE, text=True, start_new_session=True)
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "has it\n"
        done = bash(tmp_path, f"{says}{function('lock')}lock {lock} 1")
    finally:
        os.killpg(holder.pid, signal.SIGKILL)
        holder.communicate()
    assert done.returncode == 1
    assert done.stdout == f"waiting for another scripts/setup, process {holder.pid}, at most 1 s\n"
    what = f"process {holder.pid} has held {lock} for more than 1 s; see what it does, or end it"
    assert done.stderr == f"setup: {what}\n"
    assert bash(tmp_path, f"{says}{function('lock')}lock {lock} 1; cat {lock}").stdout.strip().isdecimal()


@pytest.mark.parametrize(
    ("named", "runs"),
    [
        ("", True),
        ("tests", True),
        ("tests/fuzz/", True),
        ("tests/unit tests/fuzz/test_fuzz.py", True),
        ("'tests/fuzz/test_fuzz.py::test_nothing_breaks[packet]'", True),
        ("tests/unit tests/fuzz/test_fuzz", False),
        ("tests/native tests/integration", False),
    ],
)
def test_what_no_named_test_runs_is_left_out(tmp_path: Path, named: str, runs: bool) -> None:
    program = f"wanted_tests=({named})\n{function('runs')}runs tests/fuzz/test_fuzz.py"
    assert bash(tmp_path, program).returncode == (0 if runs else 1)
