"""What the switch refuses is named, and everything else of its batch is in force."""

import asyncio

import pytest
from openflow_net import VRF, Net, columns, interface, mac, openflow_net, via

from controller.planes import base
from controller.planes.base import Nexthop, Op, Refused, RouteUpdates, WriteBatch
from wire.columns import prefix_key

pytestmark = pytest.mark.root


def many(count: int, action: int, ops: Op = Op.INSERT) -> RouteUpdates:
    keys = [bytes((10, n >> 16, n >> 8 & 255, n & 255, 32)) for n in range(count)]
    return RouteUpdates(VRF, 4, [ops] * count, keys, [action] * count)


async def prepared(net: Net) -> None:
    host = net.ovs.add_host("br", "02:00:00:00:00:01")
    assert not await net.write(interface(1, host), Nexthop(1, 1, mac(host.mac)))


async def test_one_bad_entry_of_a_bundle_is_named_and_the_rest_is_in_force() -> None:
    async with openflow_net() as net:
        await prepared(net)
        updates = many(5000, via(1))
        bad = [17, 3210, 3211]
        for position in bad:
            updates.actions[position] = via(99)  # no such group
        refused = await net.plane.write(WriteBatch(routes=[updates]))
        assert [each.key for each in refused] == [updates.keys[position] for position in bad]
        assert {(each.table, each.vrf_id, each.op, each.full) for each in refused} == {
            ("ipv4_route", VRF, Op.INSERT, False)
        }
        assert "OFPBAC_BAD_OUT_GROUP" in refused[0].reason
        good = {key for position, key in enumerate(updates.keys) if position not in bad}
        assert (await net.plane.read()).routes[VRF].keys() == good


async def test_a_full_table_is_named() -> None:
    async with openflow_net() as net:
        await prepared(net)
        limit = ("--", "--id=@t", "create", "Flow_Table", "flow_limit=100", "overflow_policy=refuse")
        net.ovs.vsctl("set", "bridge", "br", "flow_tables:3=@t", *limit)
        refused = await net.plane.write(WriteBatch(routes=[many(120, base.BLACKHOLE)]))
        assert len(refused) == 21  # the table's own miss flow is one of the hundred
        assert all(each.full and "TABLE_FULL" in each.reason for each in refused)
        assert len((await net.plane.read()).routes[VRF]) == 99


async def test_a_later_write_wins_over_a_refused_bundle_that_is_sent_again() -> None:
    async with openflow_net() as net:
        await prepared(net)
        updates = many(1000, via(1))
        updates.actions[500] = via(99)
        first = net.plane.write(WriteBatch(routes=[updates]))
        second = net.plane.write(WriteBatch(routes=[many(400, 0, Op.DELETE)]))
        third = net.plane.write(WriteBatch(routes=[many(10, base.LOCAL)]))
        refused = await asyncio.gather(first, second, third)
        assert [len(each) for each in refused] == [1, 0, 0]
        routes = (await net.plane.read()).routes[VRF]
        local = {key for key, action in routes.items() if action == base.LOCAL}
        assert local == set(updates.keys[:10])
        assert routes.keys() - local == {*updates.keys[400:500], *updates.keys[501:]}


async def test_an_action_this_plane_does_not_have_is_refused_by_name() -> None:
    async with openflow_net() as net:
        await prepared(net)
        routes = columns({"10.1.0.0/16": base.UNKNOWN_ACTION, "10.2.0.0/16": via(1)})
        refused = await net.plane.write(WriteBatch(routes=routes))
        key = prefix_key("10.1.0.0/16")
        text = "this plane does not offer such a route action"
        assert refused == [Refused("ipv4_route", VRF, key, Op.INSERT, text)]
        assert (await net.plane.read()).routes == {VRF: {prefix_key("10.2.0.0/16"): via(1)}}
