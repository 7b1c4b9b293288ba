"""Which releases scripts/in-debian takes."""

import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "in-debian"


@pytest.mark.parametrize("release", ["", "14", "012", "13x", "trixie", "release", "*"])
def test_another_release_is_refused_in_one_line(release: str) -> None:
    done = subprocess.run([SCRIPT, release, "true"], capture_output=True, text=True, timeout=60, check=False)
    said = f"in-debian: there is no Debian {release} here; there are: 12, 13\n"
    assert (done.returncode, done.stdout, done.stderr) == (1, "", said)
