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
    "openflow+forwarder": (pytest.mark.root,),
    "bmv2+forwarder": (pytest.mark.root, needs_bmv2),
}
PAIRS = [kind for kind in PLANES if "+" in kind]
SINGLE = [kind for kind in PLANES if kind not in PAIRS]
ALSO_ON_PAIRS = ("test_cases", "test_random_tables", "test_changes_under_traffic", "test_isolation")
ONLY_ON_PAIRS = ("test_moving_tables", "test_fallback_link", "test_pairs")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a file against the planes that it is about."""
    if "wired" in metafunc.fixturenames:
        file = metafunc.module.__name__
        kinds = PAIRS if file in ONLY_ON_PAIRS else [*SINGLE, *PAIRS] if file in ALSO_ON_PAIRS else SINGLE
        planes = [pytest.param(kind, marks=MARKS[kind]) for kind in kinds]
        metafunc.parametrize("wired", planes, indirect=True, scope="session")


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def wired(request):
    """One plane for all tests: starting one takes longer than most of them."""
    async with PLANES[request.param]() as plane:
        await plane.start()
        yield plane
