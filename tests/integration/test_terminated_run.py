"""What a run of pytest has brought up is taken down where the run is terminated."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

CONFTEST = Path(__file__).parents[1] / "conftest.py"
WAITING = {
    "plain": "def test_waits(up):\n    up()\n    woken.recv(1)",
    "asyncio": "async def test_waits(up):\n    woken.setblocking(False)\n    up()\n"
    "    await asyncio.get_running_loop().sock_recv(woken, 1)",
}
ALONE = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
"""Plugins that have nothing to do here take longer to import than the rest takes."""

# A signal that comes just before pause(2) begins is not waited for any more: it is the wake-up that is waited for.
PROGRAM = """
import asyncio, signal, socket
import pytest

woken, waking = socket.socketpair()
waking.setblocking(False)
signal.set_wakeup_fd(waking.fileno())

@pytest.fixture
def up():
    yield lambda: print("up", flush=True)
    print("down", flush=True)

"""


# Not by preexec_fn: what gRPC does at a fork, where another test left its threads, may end the child.
@pytest.mark.parametrize(
    "inherits", ["--default-signal=INT", "--ignore-signal=INT"], ids=["foreground", "background"]
)
@pytest.mark.parametrize("waits", WAITING)
def test_fixtures_end(tmp_path: Path, waits: str, inherits: str) -> None:
    """In the background of a script SIGINT is ignored."""
    folder = tmp_path / "tests" / "unit"
    folder.mkdir(parents=True)
    for ours in CONFTEST, CONFTEST.with_name("machine_time.py"):
        shutil.copy(ours, folder.parent)
    (folder / "test_waits.py").write_text(PROGRAM + WAITING[waits])
    options = ("-q", "-s", "-p", "no:cacheprovider", "-p", "pytest_asyncio.plugin", "-o", "asyncio_mode=auto")
    with subprocess.Popen(
        ("env", inherits, sys.executable, "-m", "pytest", *options, "--rootdir", str(tmp_path), "tests"),
        cwd=tmp_path,
        env={key: value for key, value in os.environ.items() if not key.startswith("PYTEST_")} | ALONE,
        stdout=subprocess.PIPE,
        text=True,
    ) as run:
        assert run.stdout is not None
        while run.stdout.readline() not in ("up\n", ""):
            pass
        run.terminate()
        said = run.stdout.read()
    assert "down\n" in said
    assert run.returncode == pytest.ExitCode.INTERRUPTED
