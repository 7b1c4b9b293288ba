"""What a P4Runtime device refuses is named entry by entry, also where it refuses all of a large request."""

import pytest
from device_net import DEVICES, device_net
from openflow_net import VRF

from controller.planes.base import (
    GLEAN,
    LOCAL,
    MAX_GROUP_WEIGHT,
    GroupMember,
    NexthopGroup,
    Op,
    RouteUpdates,
    Update,
    WriteBatch,
)
from controller.planes.p4runtime.sender import UPDATES_PER_REQUEST

pytestmark = [pytest.mark.root, pytest.mark.parametrize("make", DEVICES)]


async def test_a_group_whose_weights_are_too_large_is_named(make) -> None:
    async with device_net(make) as net:
        await net.install({})
        most = NexthopGroup(8, (GroupMember(1, MAX_GROUP_WEIGHT - 1, 1), GroupMember(2, 1, 2)))
        over = NexthopGroup(9, (GroupMember(1, MAX_GROUP_WEIGHT, 1), GroupMember(2, 1, 2)))
        (refused,) = await net.plane.write(WriteBatch(groups=[Update(Op.INSERT, one) for one in (most, over)]))
        assert (refused.table, refused.key) == ("nexthop_group", 9)
        assert "max_group_size" in refused.reason or str(MAX_GROUP_WEIGHT) in refused.reason
        assert (await net.plane.read()).groups == {8: most}


async def test_a_request_of_which_every_update_is_refused_is_put_right(make) -> None:
    async with device_net(make) as net:
        keys = [bytes((10, n >> 8, n & 255, 0, 24)) for n in range(UPDATES_PER_REQUEST)]
        for action in (LOCAL, GLEAN):  # the second time all of them are there, and the status says so for each
            routes = RouteUpdates(VRF, 4, [Op.INSERT] * len(keys), keys, [action] * len(keys))
            assert await net.plane.write(WriteBatch(routes=[routes])) == []
        assert (await net.plane.read()).routes == {VRF: dict.fromkeys(keys, GLEAN)}
