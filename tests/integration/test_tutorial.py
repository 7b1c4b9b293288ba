"""The tutorial's commands, run as they are printed, print what the tutorial says."""

import pytest
from printed_commands import ROOT, blurred, printed_commands, run_enclosed_page

pytestmark = pytest.mark.root

TUTORIAL = ROOT / "docs" / "tutorial.md"


def test_the_tutorial_prints_what_it_says_and_leaves_nothing():
    page = printed_commands(TUTORIAL.read_text())
    done, left = run_enclosed_page(TUTORIAL)
    for said, did in zip(page, done, strict=True):
        assert (did.command, blurred(did.output)) == (said.command, blurred(said.output))
    assert left["namespaces"] == left["processes"] == []
    assert left["interfaces"] == ["lo"]
    assert set(left["run"]) == {"/run/frr", "/run/lock", "/run/netns"}
    assert not {"tutorial"} & set(left["bpf"])
