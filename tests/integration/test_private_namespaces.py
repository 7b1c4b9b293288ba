"""Nothing stays of a namespace of a test, wherever its making or its removal is interrupted."""

from pathlib import Path

import pytest

from lab import namespaces

pytestmark = pytest.mark.root


@pytest.mark.parametrize("interrupted", ["add", "set", "pids"])
def test_it_goes_where_a_command_is_interrupted(monkeypatch: pytest.MonkeyPatch, interrupted: str) -> None:
    """SIGINT may come when the command has done its work already."""
    run, made = namespaces.sh, []

    def sh(*command: str) -> str:
        said = run(*command)
        if command[:3] == ("ip", "netns", "add"):
            made.append(Path("/run/netns", command[3]))
            assert made[0].exists()
        if interrupted in command:
            raise KeyboardInterrupt
        return said

    monkeypatch.setattr(namespaces, "sh", sh)
    with pytest.raises(KeyboardInterrupt), namespaces.namespace():
        pass
    assert not made[0].exists()
