"""A nexthop group spreads flows over its members, and loses a member with its port without the controller."""

import asyncio

import pytest
from openflow_net import DEADLINE_S, RATES, VRF, Net, interface, mac, mac_text, openflow_net, via, via_group

from controller.planes.base import GroupMember, Nexthop, NexthopGroup, Op, Policer
from lab.namespaces import QUIETLY, Host, sh

pytestmark = pytest.mark.root

TARGETS = [f"10.9.0.{number}" for number in range(1, 33)]


async def two_ways(net: Net) -> tuple[Host, list[Host]]:
    """A host that reaches one network by two other hosts, each of which has all its addresses."""
    left = net.ovs.add_host("br", "02:00:00:00:00:01", "10.0.1.2/24")
    ways = [net.ovs.add_host("br", f"02:00:00:00:00:0{number}", f"10.0.{number}.2/24") for number in (2, 3)]
    near, *far = (interface(number, host) for number, host in enumerate((left, *ways), 1))
    left.neighbor("10.0.1.1", mac_text(near.mac))
    left.ip("route", "add", "default", "via", "10.0.1.1")
    for number, (host, outer) in enumerate(zip(ways, far, strict=True), 2):
        host.neighbor(f"10.0.{number}.1", mac_text(outer.mac))
        host.ip("route", "add", "default", "via", f"10.0.{number}.1")
        for target in TARGETS:
            host.ip("address", "add", f"{target}/32", "dev", "lo")
    members = tuple(GroupMember(number, 1, host.port) for number, host in enumerate(ways, 2))
    nexthops = [Nexthop(number, number, mac(host.mac)) for number, host in enumerate((left, *ways), 1)]
    group = NexthopGroup(1, members)
    routes = {"10.0.1.0/24": via(1), "10.9.0.0/24": via_group(1)}
    assert not await net.write(Policer(VRF, RATES), near, *far, *nexthops, group, routes=routes)
    return left, ways


async def reach_all(host: Host, *options: str) -> int:
    return sum(await asyncio.gather(*(host.ping(target, 1, *options) for target in TARGETS)))


async def test_flows_spread_and_fail_over_to_the_live_member() -> None:
    async with openflow_net() as net:
        left, ways = await two_ways(net)
        assert await reach_all(left) == len(TARGETS)
        counters = await net.counted(
            lambda c: sum(c.router_interfaces[number].tx_packets for number in (2, 3)) >= len(TARGETS)
        )
        assert all(counters.router_interfaces[number].tx_packets > 3 for number in (2, 3))

        sh("ip", "-n", ways[0].namespace, "link", "set", "eth0", "down")
        await net.heard.until(lambda: not net.heard.ports[ways[0].port].up)
        async with asyncio.timeout(DEADLINE_S):  # the switch tells of the port a moment before flows have moved
            while await reach_all(left, *QUIETLY) < len(TARGETS):
                pass


async def test_a_group_reduced_to_one_member_takes_effect_for_its_routes() -> None:
    async with openflow_net() as net:
        left, ways = await two_ways(net)
        sh("ip", "-n", ways[0].namespace, "neigh", "flush", "dev", "eth0")
        only = NexthopGroup(1, (GroupMember(3, 1, ways[1].port),))
        assert not await net.write(only, op=Op.MODIFY)
        assert await reach_all(left) == len(TARGETS)
        await net.counted(lambda c: c.router_interfaces[3].tx_packets >= len(TARGETS))
        assert (await net.plane.counters()).router_interfaces[2].tx_packets == 0


async def test_a_group_that_flows_use_is_not_deleted() -> None:
    async with openflow_net() as net:
        await two_ways(net)
        group = (await net.plane.read()).groups[1]
        refused = await net.write(group, op=Op.DELETE)
        assert [(each.table, each.key, each.reason) for each in refused] == [
            ("nexthop_group", 1, "1 flows still use it")
        ]
        assert not await net.write(routes={"10.9.0.0/24": via(2)}, op=Op.MODIFY)
        assert not await net.write(group, op=Op.DELETE)
        installed = await net.plane.read()
        assert (installed.groups, len(installed.routes[VRF])) == ({}, 2)
