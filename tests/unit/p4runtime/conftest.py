"""A device in this process, and a plane that is connected to it."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.unit.p4runtime.edge import Edge, attached
from tests.unit.p4runtime.server import Device, device


@pytest.fixture
async def one(tmp_path: Path) -> AsyncIterator[Device]:
    async with device(tmp_path) as running:
        yield running


@pytest.fixture
async def edge(one: Device) -> AsyncIterator[Edge]:
    async with attached(one) as connected:
        yield connected
