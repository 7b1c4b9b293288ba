"""Tests of daemons stand on the rig of the integration tests; a file's NETS are brought up together."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1] / "integration"))

from daemon_rig import Between, lab


@pytest.fixture(scope="module")
def nets(request: pytest.FixtureRequest) -> Iterator[dict[str, Between]]:
    """The NETS of a file, by name, on vr-forwarder or the kind of switch that is its parameter."""
    with lab(request.module.NETS, getattr(request, "param", "forwarder")) as found:
        yield found
