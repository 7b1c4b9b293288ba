"""What a plane lacks is exactly what docs/planes.md says that it lacks."""

import re
from pathlib import Path

import pytest
from cases import CASES
from deviations import DEVIATIONS, IN_GROUPS, IN_SOFTWARE
from wired import WiredPlane

from controller.planes.base import Capability
from controller.planes.fake import FakePlane
from controller.planes.openflow.plane import OpenFlowPlane

COLUMNS = {"openflow": 1, "bmv2": 2, "forwarder": 3, "forwarder_generic": 3}
MANUAL = (Path(__file__).parents[2] / "docs" / "planes.md").read_text()


def rows(heading: str) -> list[list[str]]:
    """The rows of the first table below a heading of the manual, without its head."""
    text = MANUAL.split(f"\n{heading}\n", 1)[1]
    table = re.search(r"(?:^\|.*\n)+", text, re.MULTILINE)
    assert table is not None
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table.group().splitlines()[2:]]


def documented(column: int) -> set[Capability]:
    return {
        Capability(row[0].strip("`")) for row in rows("## Capabilities") if row[column].split()[0].strip(",") == "yes"
    }


def test_every_capability_is_documented() -> None:
    assert {row[0].strip("`") for row in rows("## Capabilities")} == set(Capability)


def test_open_vswitch_lacks_what_the_manual_says() -> None:
    assert OpenFlowPlane.capabilities == documented(1)
    assert set(Capability) - OpenFlowPlane.capabilities == {
        Capability.IPV4_CHECKSUM,
        Capability.IP_OPTIONS,
        Capability.HOP_BY_HOP,
        Capability.RESILIENT_HASH,
        Capability.EXACT_WEIGHTS,
        Capability.SAMPLED_ROUTE_COUNTERS,
        Capability.SAMPLES,
        Capability.PUNT_SHARES,
        Capability.HASH_BY_ROUTER,
        Capability.SHARES,
    }


@pytest.mark.asyncio(loop_scope="session")
@pytest.mark.kinds(*COLUMNS)
async def test_a_plane_lacks_what_the_manual_says(wired: WiredPlane) -> None:
    assert wired.plane.capabilities - {Capability.SAMPLES} == documented(COLUMNS[wired.kind])


def test_the_fake_lacks_nothing() -> None:
    assert FakePlane("fake").capabilities == set(Capability)


def test_deviations_are_those_of_the_manual() -> None:
    named = {*DEVIATIONS["openflow"].values(), IN_GROUPS["openflow"]}
    assert named == {row[0] for row in rows("### Where Open vSwitch differs")}
    assert set(DEVIATIONS) == set(IN_GROUPS) == {"openflow"}
    assert {row for row, _ in IN_SOFTWARE.values()} <= {
        row[0] for row in rows("### Where a plane with a fallback differs")
    }


def test_deviations_name_cases() -> None:
    names = {case.name for case in CASES}
    assert all(set(each) <= names for each in (*DEVIATIONS.values(), IN_SOFTWARE))
