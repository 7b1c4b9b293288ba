"""A program that is forked says what its command line says, and ends with its exit status."""

import os
import signal
import subprocess

import forks
import pytest

pytestmark = pytest.mark.root

LIMIT_S = 60.0
ENVIRONMENT = os.environ | {"PYTHONPATH": str(forks.ROOT), "COLUMNS": "110"}


@pytest.mark.parametrize(
    ("program", "arguments"),
    [
        ("vrctl", ("--help",)),
        ("vrctl", ("frobnicate",)),
        ("vrctl", ("--socket", "/nonexistent.sock", "get", "planes")),
        ("vrctl", ("--socket", "/nonexistent.sock", "apply", "-f", "-")),
        ("vr-controller", ("--help",)),
        ("vr-controller", ("--openflow", "nowhere")),
        ("vr-controller", ("--state", "/proc/nowhere")),
    ],
)
def test_as_from_the_command_line(program: str, arguments: tuple[str, ...]) -> None:
    real = subprocess.run(
        (forks.BIN / program, *arguments), env=ENVIRONMENT, input="version: 1\n", capture_output=True, text=True
    )
    forked = forks.run(program, *arguments, environment=ENVIRONMENT, text="version: 1\n", timeout_s=LIMIT_S)
    assert (forked.returncode, forked.stdout, forked.stderr) == (real.returncode, real.stdout, real.stderr)


def test_killed_while_it_waits() -> None:
    reads, writes = os.pipe()
    with open(reads, "rb") as stdin, open(writes, "wb"), open(os.devnull, "wb") as nothing:
        streams = stdin.fileno(), nothing.fileno(), nothing.fileno()
        process = forks.start("vrctl", ("apply", "-f", "-"), ENVIRONMENT, streams)
        assert process.poll() is None
        process.kill()
        assert process.wait(LIMIT_S) == -signal.SIGKILL
