"""What somebody else does to the switch is seen: our entries are named and repaired, theirs are counted and kept."""

import pytest
from openflow_net import RATES, VRF, Net, interface, mac, openflow_net, via

from controller.planes import base
from controller.planes.base import FallbackLink, Nexthop, Op, Policer, RouterInterface
from wire.columns import prefix_key

pytestmark = pytest.mark.root


async def filled(net: Net) -> tuple[Policer, RouterInterface, Nexthop]:
    host = net.ovs.add_host("br", "02:00:00:00:00:01")
    entries = Policer(VRF, RATES), interface(1, host), Nexthop(1, 1, mac(host.mac))
    assert not await net.write(*entries, routes={"10.1.0.0/16": via(1), "10.2.0.0/16": base.LOCAL})
    return entries


async def test_a_route_changed_by_hand_is_unknown_and_can_be_modified() -> None:
    async with openflow_net() as net:
        await filled(net)
        match = "table=3,priority=1016,metadata=0x700000000/0xffffffff00000000,ip,nw_dst=10.1.0.0/16"
        net.ovs.ofctl("mod-flows", "br", "--strict", f"{match},actions=drop")
        keys = prefix_key("10.1.0.0/16"), prefix_key("10.2.0.0/16")
        installed = await net.plane.read()
        assert installed.routes[VRF] == {keys[0]: base.UNKNOWN_ACTION, keys[1]: base.LOCAL}
        await net.write(routes={"10.1.0.0/16": via(1)}, op=Op.MODIFY)
        assert (await net.plane.read()).routes[VRF] == {keys[0]: via(1), keys[1]: base.LOCAL}


async def test_a_route_deleted_by_hand_is_missing() -> None:
    async with openflow_net() as net:
        await filled(net)
        net.ovs.ofctl("del-flows", "br", "table=3,ip,nw_dst=10.2.0.0/16")
        assert (await net.plane.read()).routes[VRF] == {prefix_key("10.1.0.0/16"): via(1)}


@pytest.mark.parametrize("table", [0, 1, 6, 7])
async def test_a_router_interface_without_one_of_its_flows_is_damaged_and_repaired(table: int) -> None:
    async with openflow_net() as net:
        _, near, _ = await filled(net)
        net.ovs.ofctl("del-flows", "br", f"table={table},cookie=0x5350200000000100/0xfffff0ffffffff00")
        installed = await net.plane.read()
        if table == 0:  # what is left is a router interface that is down
            assert not installed.router_interfaces[1].enabled
        else:
            assert installed.damaged == {("router_interface", 1)}
        assert not await net.write(near, op=Op.MODIFY)
        repaired = await net.plane.read()
        assert (repaired.router_interfaces, repaired.damaged) == ({1: near}, set())


@pytest.mark.parametrize("flows", ["table=0,cookie=0x5350200000000201/0xfffff0ffffffffff", "table=10"])
async def test_a_fallback_link_without_one_of_its_flows_is_damaged_and_repaired(flows: str) -> None:
    async with openflow_net() as net:
        host = net.ovs.add_host("br", "02:00:00:00:00:01")
        linked = interface(2, host, fallback=FallbackLink(host.port, 300))
        assert not await net.write(linked, routes={"0.0.0.0/0": base.FALLBACK})
        net.ovs.ofctl("del-flows", "br", flows if "cookie" in flows else f"{flows},metadata=0x700000002")
        assert (await net.plane.read()).damaged == {("router_interface", 2)}
        assert not await net.write(linked, op=Op.MODIFY)
        repaired = await net.plane.read()
        assert (repaired.router_interfaces, repaired.damaged) == ({2: linked}, set())
        assert repaired.routes == {VRF: {prefix_key("0.0.0.0/0"): base.FALLBACK}}


async def test_a_modified_router_interface_leaves_nothing_of_what_it_was() -> None:
    async with openflow_net() as net:
        await filled(net)
        host = net.ovs.add_host("br", "02:00:00:00:00:02")
        old = interface(2, host, virtual_macs=(mac("00:00:5e:00:01:01"),))
        await net.write(old)
        stray = "table=1,cookie=0x5350200000000200,metadata=0x700000002,dl_dst=02:aa:aa:aa:aa:aa,actions=goto_table:2"
        net.ovs.ofctl("add-flow", "br", stray)
        assert (await net.plane.read()).damaged == {("router_interface", 2)}
        new = interface(2, host, vlan=9, mtu=1400)
        for wanted in (new, old, new, old, new):
            assert not await net.write(wanted, op=Op.MODIFY)
            installed = await net.plane.read()
            assert (installed.router_interfaces[2], installed.damaged) == (wanted, set())
        assert not await net.write(new, op=Op.DELETE)
        assert 2 not in (await net.plane.read()).router_interfaces


async def test_a_nexthop_and_a_policer_changed_by_hand_are_damaged_and_repaired() -> None:
    async with openflow_net() as net:
        policer, _, nexthop = await filled(net)
        net.ovs.ofctl("mod-group", "br", "group_id=0x51000001,type=indirect,bucket=actions=output:1")
        net.ovs.ofctl("del-meters", "br", "meter=0x1001")
        assert (await net.plane.read()).damaged == {("nexthop", 1), ("policer", VRF)}
        assert not await net.write(policer, nexthop, op=Op.MODIFY)
        installed = await net.plane.read()
        assert (installed.damaged, installed.nexthops, installed.policers) == (set(), {1: nexthop}, {VRF: policer})


async def test_flows_of_others_are_counted_and_kept() -> None:
    async with openflow_net() as net:
        entries = await filled(net)
        mine = "table=3,cookie=0xf00,priority=5,ip,nw_dst=10.77.0.0/16,actions=drop"
        net.ovs.ofctl("add-flow", "br", mine)
        net.ovs.ofctl("add-flow", "br", "table=0,cookie=0xf00,priority=5,in_port=9,actions=drop")
        net.ovs.ofctl("add-flow", "br", "table=99,cookie=0xf00,actions=drop")
        net.ovs.ofctl("add-group", "br", "group_id=5,type=all,bucket=actions=drop")
        installed = await net.plane.read()
        assert (installed.foreign, installed.damaged) == (2, set())
        await net.write(routes={"10.77.0.0/16": base.LOCAL})
        await net.write(routes={"10.77.0.0/16": 0, "10.1.0.0/16": 0}, op=Op.DELETE)
        await net.write(*entries, op=Op.DELETE)
        assert net.ovs.ofctl("dump-flows", "br", "cookie=0xf00/-1").count("cookie=0xf00") == 3
        assert "group_id=5" in net.ovs.ofctl("dump-groups", "br")


async def test_the_pipelines_own_flows_are_put_right_when_read() -> None:
    async with openflow_net() as net:
        await filled(net)
        before = sorted(net.ovs.ofctl("dump-flows", "br", "--no-stats").split("\n"))
        net.ovs.ofctl("del-flows", "br", "table=5")
        net.ovs.ofctl("mod-flows", "br", "table=2,arp,actions=drop")
        net.ovs.ofctl("add-flow", "br", "table=2,cookie=0x5350100000000000,priority=999,actions=drop")
        await net.plane.read()
        assert sorted(net.ovs.ofctl("dump-flows", "br", "--no-stats").split("\n")) == before
