"""Groups on hardware with a fallback: the same member wherever the route is, and what the hardware does not take."""

import pytest
from ecmp import GROUP, INGRESS, flows, group, member_of, world
from entries import route_columns
from openflow_net import BRIDGE
from paired import PairedPlane

from controller.planes.base import FALLBACK, Op, Update, WriteBatch
from controller.planes.openflow.program import MEMBER_GROUPS
from wire.columns import prefix_key

pytestmark = pytest.mark.asyncio(loop_scope="session")

FLOWS = 400
PREFIX = prefix_key("10.0.0.0/8")


async def members(wired: PairedPlane, family: int) -> dict[bytes, int]:
    """Send each flow and return its member, by what is behind the MACs and the TTL."""
    outputs = await wired.stream(INGRESS.port, flows(FLOWS, 7, family))
    return {frame[-20:]: member_of(frame) for _, frame in outputs}


@pytest.mark.kinds("bmv2+forwarder")  # Open vSwitch has a hash of its own
@pytest.mark.parametrize("family", [4, 6])
async def test_a_flow_keeps_its_member_when_its_prefix_moves(wired: PairedPlane, family: int) -> None:
    await wired.program(world(1, 2, 3))
    found = [await members(wired, family) async for _place in wired.places()]
    assert set(found[0].values()) == {0, 1, 2}
    assert found[0] == found[1]


@pytest.mark.kinds("openflow+forwarder")  # BMv2 takes every group that is written
async def test_a_group_that_the_hardware_refuses_is_in_software_and_counted(wired: PairedPlane) -> None:
    assert wired.ovs is not None
    pair, entries = wired.pair, world(1, 1, 1)
    routes, entries.routes = entries.routes, {}
    del entries.groups[GROUP]
    wired.programmed = None
    await wired.program(entries)
    wired.programmed = None
    wired.ovs.ofctl("add-group", BRIDGE, f"group_id={MEMBER_GROUPS | GROUP},type=select,bucket=drop")  # in the way
    before = pair.refusals.get("nexthop_group", 0)
    write = WriteBatch(groups=[Update(Op.INSERT, group(1, 1, 1))], routes=route_columns(1, routes[1], Op.INSERT))
    await wired.write(write)
    # at least: what `program` deleted made room a while ago, so that the group may have been tried again at once
    assert pair.refusals["nexthop_group"] > before
    async for _place in wired.places():
        assert set((await members(wired, 4)).values()) == {0, 1, 2}
    assert (await pair.hardware.read()).routes[1].get(PREFIX) in (None, FALLBACK)
    wired.ovs.ofctl("del-groups", BRIDGE, f"group_id={MEMBER_GROUPS | GROUP}")
    await pair.hardware.read()  # as an audit does; it took that one for its own
    await wired.write(WriteBatch(groups=[Update(Op.MODIFY, group(1, 1, 1))]))  # as the mirror does
    async for place in wired.places():
        held = (await pair.hardware.read()).routes[1].get(PREFIX)
        assert (held not in (None, FALLBACK)) is (place == "hardware")
        assert set((await members(wired, 4)).values()) == {0, 1, 2}
