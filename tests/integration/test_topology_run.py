"""Each topology, brought up by topologies/run, holds what it claims; what it lacks it says in one line."""

import sys

import pytest
from marks import needs_bmv2
from programs import ROOT, all_hold, finish

from lab.planes.bmv2 import PROGRAM, Bmv2Planes

pytestmark = pytest.mark.root


@pytest.mark.parametrize("plane", ["forwarder", "ovs", pytest.param("bmv2", marks=needs_bmv2)])
async def test_everything_claimed_of_two_tenants_holds(plane):
    all_hold(*await finish(str(ROOT / "topologies/run"), "two_tenants", "--plane", plane, "--test"))


async def test_everything_claimed_of_a_leaf_spine_holds():
    all_hold(*await finish(str(ROOT / "topologies/run"), "leaf_spine", "--test"))


async def test_everything_claimed_of_a_fallback_holds():
    all_hold(*await finish(str(ROOT / "topologies/run"), "fallback", "--routes", "10000", "--test"))


async def test_missing_programs_are_named_in_one_line():
    command = (sys.executable, "-m", "topologies.running", "two_tenants", "--test")
    status, printed = await finish(*command, PATH="/nonexistent", PYTHONPATH=str(ROOT))
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
