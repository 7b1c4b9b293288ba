from collections.abc import Generator
from typing import Any

import pytest
import pytest_asyncio
from marks import needs_bmv2
from planes_wired import PLANES, SINGLE

MARKS = {
    "fake": (),
    "forwarder": (pytest.mark.root,),
    "forwarder_generic": (pytest.mark.root,),
    "openflow": (pytest.mark.root,),
    "bmv2": (pytest.mark.root, needs_bmv2),
    "openflow+forwarder": (pytest.mark.root,),
    "bmv2+forwarder": (pytest.mark.root, needs_bmv2),
}


@pytest.hookimpl(wrapper=True)
def pytest_pycollect_makeitem() -> Generator[None, Any, Any]:
    """Leave out what is not for a kind: the mark `kinds` says for which, else it is those that are one plane."""
    made = yield
    return [item for item in made if _concerns(item)] if isinstance(made, list) else made


def _concerns(item: pytest.Item | pytest.Collector) -> bool:
    kind = item.callspec.params.get("wired") if hasattr(item, "callspec") else None
    said = item.get_closest_marker("kinds")
    kinds = said.args if said else SINGLE
    assert set(kinds) <= set(PLANES), f"{item.nodeid} is for kinds that there are not: {kinds}"
    return kind is None or kind in kinds


@pytest_asyncio.fixture(
    scope="session", loop_scope="session", params=[pytest.param(kind, marks=MARKS[kind]) for kind in PLANES]
)
async def wired(request):
    """One plane for all tests: starting one takes longer than most of them."""
    async with PLANES[request.param]() as plane:
        await plane.start()
        yield plane
