"""Each topology, brought up by topologies/run, holds what it claims; what it lacks it says in one line."""

import asyncio
import os
import sys
from pathlib import Path

import pytest
from bmv2 import needs_bmv2

from topologies.bmv2 import PROGRAM, Bmv2Planes

pytestmark = pytest.mark.root

ROOT = Path(__file__).parents[2]
LIMIT_S = 240


async def finish(*command: str, limit_s: float = LIMIT_S, **environment: str) -> tuple[int, str]:
    """Run a command to its end and return its exit status and what it printed."""
    pipes = {"stdin": asyncio.subprocess.DEVNULL, "stdout": asyncio.subprocess.PIPE}
    pipes["stderr"] = asyncio.subprocess.STDOUT
    process = await asyncio.create_subprocess_exec(*command, **pipes, env=os.environ | environment)
    try:
        printed, _ = await asyncio.wait_for(process.communicate(), limit_s)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return process.returncode, printed.decode()


@pytest.mark.parametrize("plane", ["forwarder", "ovs", pytest.param("bmv2", marks=needs_bmv2)])
@pytest.mark.parametrize("name", ["two_tenants", "leaf_spine"])
async def test_everything_claimed_holds(name, plane):
    status, printed = await finish(str(ROOT / "topologies/run"), name, "--plane", plane, "--test")
    lines = printed.splitlines()
    assert status == 0, printed
    assert sum(line.startswith("ok ") for line in lines) >= 8
    assert not any(line.startswith("FAIL") for line in lines)


async def test_missing_programs_are_named_in_one_line():
    command = (sys.executable, "-m", "topologies.running", "two_tenants", "--test")
    status, printed = await finish(*command, limit_s=30, PATH="/nonexistent", PYTHONPATH=str(ROOT))
    assert status == 1
    (line,) = printed.splitlines()
    assert line.startswith("run: ")
    assert "apt-get install" in line
    assert "openvswitch-switch" in line


async def test_a_missing_bmv2_says_who_documents_it(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    said = Bmv2Planes().missing()
    assert said.startswith(f"{PROGRAM} is not on PATH; install p4lang's package p4lang-bmv2, as https://")
    assert "\n" not in said
    (tmp_path / PROGRAM).touch(mode=0o755)
    assert not Bmv2Planes().missing()
