from collections.abc import AsyncIterator

import pytest
from marks import needs_bmv2
from planes import PLANES, PlaneUnderTest


@pytest.fixture(
    params=[
        "fake",
        pytest.param("openflow", marks=pytest.mark.root),
        "p4runtime",
        pytest.param("forwarder", marks=pytest.mark.root),
        pytest.param("bmv2", marks=[pytest.mark.root, needs_bmv2]),
    ]
)
async def under_test(request) -> AsyncIterator[PlaneUnderTest]:
    async with PLANES[request.param]() as one:
        yield one
