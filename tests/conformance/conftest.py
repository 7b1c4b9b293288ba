import pytest
import pytest_asyncio
from bmv2 import needs_bmv2
from planes_wired import PLANES

MARKS = {
    "fake": (),
    "forwarder": (pytest.mark.root,),
    "forwarder_generic": (pytest.mark.root,),
    "openflow": (pytest.mark.root,),
    "bmv2": (pytest.mark.root, needs_bmv2),
}


@pytest_asyncio.fixture(
    scope="session", loop_scope="session", params=[pytest.param(kind, marks=MARKS[kind]) for kind in PLANES]
)
async def wired(request):
    """One plane for all tests: starting one takes longer than most of them."""
    async with PLANES[request.param]() as plane:
        await plane.start()
        yield plane
