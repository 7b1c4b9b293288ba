"""The table of cases, on every plane: one frame each, and everything that it did.

It comes three times: a switch that remembers what it decided has to decide the same the next time.
"""

from collections import Counter
from dataclasses import replace

import pytest
from case import Case, Leaves
from cases import CASES
from cases.fallback import CASES as OF_A_LINK
from deviations import DEVIATIONS, IN_SOFTWARE
from planes_wired import PLANES, SINGLE
from wired import Observation, WiredPlane

from controller.model import Placement
from controller.planes.base import DropReason, PuntReason, RouterInterface

TIMES = 3
MANUAL = "docs/planes.md, Where Open vSwitch differs"


def observation(case: Case, became: Leaves | PuntReason | DropReason) -> Observation:
    """All that the frames of a case do when one thing becomes of them."""
    arrival, ingress = case.arrival, case.arrival.ingress
    seen = Observation()
    if ingress is not None:
        seen.received[ingress.id] = TIMES
        seen.received_octets[ingress.id] = TIMES * len(arrival.frame)
    if isinstance(became, Leaves):
        seen.outputs = [(became.egress.port, became.frame)] * TIMES
        if isinstance(became.egress, RouterInterface):
            seen.sent[became.egress.id] = TIMES
    elif isinstance(became, PuntReason):
        assert ingress is not None
        seen.punts = [(ingress.id, became, arrival.untagged)] * TIMES
        seen.punted[ingress.vrf_id, became] = TIMES
    else:
        seen.dropped[became] = TIMES
    return seen


def of_a_plane(case: Case) -> object:
    """A case for every kind, except those of a fallback link: the links of a pair are its own."""
    kinds = SINGLE if case in OF_A_LINK else PLANES
    return pytest.param(case, id=case.name, marks=pytest.mark.kinds(*kinds))


@pytest.mark.asyncio(loop_scope="session")
@pytest.mark.parametrize("case", [of_a_plane(case) for case in CASES])
async def test_case(wired: WiredPlane, case: Case, request: pytest.FixtureRequest) -> None:
    if case.needs and case.needs not in wired.plane.capabilities:
        pytest.skip(f"{case.name!r} needs {case.needs}, which {wired.kind} lacks: docs/planes.md, Capabilities")
    if len(case.arrival.frame) > wired.longest_frame:
        why = "docs/forwarder.md says what veth takes in native mode; forwarder_generic runs this"
        pytest.skip(f"{case.name!r} is longer than the {wired.longest_frame} octets of {wired.kind}'s cables: {why}")
    deviation = DEVIATIONS.get(wired.kind.partition("+")[0], {}).get(case.name)
    if deviation:
        request.applymarker(pytest.mark.xfail(strict=True, raises=AssertionError, reason=f"{deviation}: {MANUAL}"))
    await wired.program(case.entries)
    async for place in wired.places():
        otherwise = place == Placement.SOFTWARE and case.name in IN_SOFTWARE
        await check(wired, replace(case, expected=IN_SOFTWARE[case.name][1]) if otherwise else case)


async def check(wired: WiredPlane, case: Case) -> None:
    """Send the frames of a case and see them do what they must."""
    seen = await wired.observe(case.arrival.port, *[case.arrival.frame] * TIMES)
    possible = [observation(case, became) for became in case.possible]
    if wired.counts_too_long_as_sent and PuntReason.MTU_EXCEEDED in case.possible:
        seen.sent = Counter()
        for each in possible:
            each.sent = Counter()
    if len(possible) == 1:
        assert seen == possible[0]
    assert seen in possible


def test_names_are_unique() -> None:
    names = Counter(case.name for case in CASES)
    assert [name for name, count in names.items() if count > 1] == []
    assert len(CASES) >= 120
