"""A port that goes down takes its members out of their groups without a word from the controller."""

import asyncio

import pytest
from ecmp import EGRESS, INGRESS, flows, world
from wired import WiredPlane

from controller.planes.base import Capability

pytestmark = pytest.mark.asyncio(loop_scope="session")

FLOWS = flows(1000, 4)  # some for whoever has one in a hundred
LOST = EGRESS[1].port


async def until_by(wired: WiredPlane, ports: set[int]) -> None:
    """Send all flows again and again until all of them leave, by these ports; nobody tells when."""
    outputs = wired.heard.outputs
    async with asyncio.timeout(60):
        while {port for port, _ in outputs} != ports or len(outputs) != len(FLOWS):
            outputs.clear()
            await wired.pour(INGRESS.port, FLOWS)
    outputs.clear()


@pytest.mark.parametrize("weights", [(1, 1, 1), (100, 1, 1), (1, 100, 1)], ids=str)
async def test_members_leave_and_come_back_with_their_port(wired: WiredPlane, weights: tuple[int, ...]) -> None:
    if Capability.LOCAL_FAILOVER not in wired.plane.capabilities:
        pytest.skip(f"needs {Capability.LOCAL_FAILOVER}, which {wired.kind} lacks: docs/planes.md, Capabilities")
    await wired.program(world(*weights))
    wired.programmed = None
    every = {each.port for each in EGRESS[:3]}
    await until_by(wired, every)
    with wired.doubtful(LOST):
        wired.set_link(LOST, False)
        await until_by(wired, every - {LOST})
        wired.set_link(LOST, True)
        await until_by(wired, every)
