"""What was written is read back the same, and a new connection changes and wipes nothing."""

import pytest
from openflow_net import RATES, VRF, Net, interface, mac, mac_text, openflow_net, via, via_group

from controller.planes import base
from controller.planes.base import GroupMember, Nexthop, NexthopGroup, NexthopState, Policer
from wire.columns import prefix_key

pytestmark = pytest.mark.root

ROUTES = {
    "0.0.0.0/0": via_group(1),
    "10.0.1.2/32": via(1),
    "10.0.0.0/8": base.BLACKHOLE,
    "10.0.1.1/32": base.LOCAL,
    "::/0": via_group(1),
    "2001:db8::/32": base.UNREACHABLE,
    "2001:db8::1/128": base.GLEAN,
}


async def fill(net: Net) -> list[object]:
    """Write one entry of every kind and return them."""
    left = net.ovs.add_host("br", "02:00:00:00:00:01", "10.0.1.2/24")
    right = net.ovs.add_host("br", "02:00:00:00:00:02", "10.0.2.2/24")
    virtual = (mac("00:00:5e:00:01:09"), mac("00:00:5e:00:01:08"))
    entries = [
        *(Policer(VRF, RATES), Policer(VRF + 1, (5000, 0, 10, 200, 0, 1, 2, 3, 4, 5, 0))),
        interface(1, left, virtual_macs=virtual),
        interface(2, right, vlan=4094, mtu=9000),
        interface(3, right, enabled=False, vlan=5, vrf_id=0xFFFFFF01),
        *(Nexthop(1, 1, mac(left.mac)), Nexthop(2, 2, bytes(6), NexthopState.GLEAN)),
        Nexthop(0xFFFFFF, 2, bytes(6), NexthopState.DROP),
        NexthopGroup(1, (GroupMember(1, 256, left.port), GroupMember(2, 1, right.port))),
    ]
    assert await net.write(*entries, routes=ROUTES) == []  # type: ignore[arg-type]
    return entries  # type: ignore[return-value]


async def read_equals_written(net: Net, entries: list[object]) -> None:
    installed = await net.plane.read()
    assert installed.damaged == set()
    assert installed.foreign == 0
    read = (installed.policers, installed.router_interfaces, installed.nexthops, installed.groups)
    assert [entry for kind in read for _, entry in sorted(kind.items())] == entries
    assert installed.routes == {VRF: {prefix_key(text): action for text, action in ROUTES.items()}}


async def test_read_returns_what_was_written() -> None:
    async with openflow_net() as net:
        await read_equals_written(net, await fill(net))


async def test_a_new_connection_keeps_flows_and_counters() -> None:
    async with openflow_net() as net:
        entries = await fill(net)
        host = net.ovs.add_host("br", "02:00:00:00:00:09", "10.0.9.2/24")
        near = interface(9, host)
        await net.write(near)
        host.neighbor("10.0.9.1", mac_text(near.mac))
        await host.ping("10.0.9.1", 4)
        await net.counted(lambda c: c.router_interfaces[9].rx_packets >= 4)
        before = listing(net)
        assert net.plane.channel is not None
        net.plane.channel.close("cut by the test")
        await net.heard.until(lambda: net.heard.connects == 2)
        assert net.heard.disconnects == ["cut by the test"]
        assert listing(net) == before
        assert (await net.plane.counters()).router_interfaces[9].rx_packets >= 4
        await read_equals_written(net, [*entries[:5], near, *entries[5:]])


def listing(net: Net) -> list[str]:
    return sorted(line.strip() for line in net.ovs.ofctl("dump-flows", "br", "--no-stats").splitlines())


async def test_a_switch_that_comes_back_empty_gets_its_pipeline_again() -> None:
    async with openflow_net() as net:
        await fill(net)
        net.ovs.restart()
        await net.heard.until(lambda: net.heard.connects == 2)
        installed = await net.plane.read()
        assert (installed.routes, installed.router_interfaces, installed.foreign) == ({}, {}, 0)
        assert "table=9" in net.ovs.ofctl("dump-flows", "br")
