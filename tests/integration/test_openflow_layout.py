"""A switch with the meters of another layout gets those of today, and loses no punt: of an earlier version (a policer
of four classes), or of a plane whose document lets other classes share one.

four_punt_classes.flows is what the controller before had written for three routers, as `ovs-ofctl dump-flows` shows
it; its meters were four for each router, from 32768.
"""

import re
import socket
from pathlib import Path

import pytest
from openflow_net import BRIDGE, DATAPATH_ID, Net, columns, interface, openflow_net
from scapy.layers.l2 import ARP, Ether

from controller.planes.base import (
    LOCAL,
    Installed,
    Op,
    Policer,
    PuntClass,
    PuntReason,
    SharedMeters,
    Update,
    WriteBatch,
    burst,
    same_rate,
    shared_rates,
)
from controller.planes.openflow.plane import OpenFlowPlane
from controller.planes.openflow.policers import MeterLayout, meter_rate

pytestmark = pytest.mark.root

FLOWS = Path(__file__).with_name("four_punt_classes.flows")
OLD_RATES = {7: (1000, 2000, 200, 100), 8: (500, 600, 0, 700), 9: (800, 900, 300, 100)}
REQUEST = bytes(Ether(dst="ff:ff:ff:ff:ff:ff", src="02:00:00:00:00:01") / ARP(psrc="10.0.7.2", pdst="10.0.7.1"))


def meters(net: Net) -> dict[int, tuple[int, int]]:
    """Rates and bursts by meter."""
    found = re.findall(r"meter=(\d+) .*\n.*rate=(\d+) burst_size=(\d+)", net.ovs.ofctl("dump-meters", BRIDGE))
    return {int(number): (int(rate), int(size)) for number, rate, size in found}


def install(net: Net) -> None:
    for slot, rates in enumerate(OLD_RATES.values()):
        for number, rate in enumerate(rates):
            if rate:
                band = f"type=drop,rate={rate},burst_size={burst(rate)}"
                net.ovs.ofctl("add-meter", BRIDGE, f"meter={32768 + 4 * slot + number},pktps,burst,band={band}")
    net.ovs.ofctl("add-flows", BRIDGE, str(FLOWS))


async def punted(net: Net, sender: socket.socket) -> None:
    """See one ARP request of router 7 come up."""
    net.heard.packets.clear()
    sender.send(REQUEST)
    await net.heard.until(lambda: (1, PuntReason.CONTROL, REQUEST) in net.heard.packets)


def repairs(installed: Installed, *vrf_ids: int) -> WriteBatch:
    """What the mirror writes of what it read: policers that are damaged, routes that it does not know."""
    assert {("policer", vrf_id) for vrf_id in vrf_ids} <= installed.damaged
    changed = [Update(Op.MODIFY, Policer(vrf_id, same_rate(100 * vrf_id))) for vrf_id in vrf_ids]
    routes = [one for vrf_id in vrf_ids for one in columns({f"10.0.{vrf_id}.1/32": LOCAL}, Op.MODIFY, vrf_id)]
    return WriteBatch(policers=changed, routes=routes)


async def test_meters_of_four_classes_become_those_of_today_and_no_punt_is_lost() -> None:
    async with openflow_net(connect=False) as net:
        host = net.ovs.add_host(BRIDGE, "02:00:00:00:00:01")
        net.ovs.set_controller(BRIDGE, "tcp:127.0.0.1:1")  # with its first one a bridge forgets all
        install(net)
        net.ovs.set_controller(BRIDGE, f"tcp:127.0.0.1:{net.server.port}")
        await net.heard.until(lambda: net.plane.connected)
        with host.packet_socket() as sender:
            await punted(net, sender)
            installed = await net.plane.read()
            assert not installed.policers
            assert await net.plane.write(repairs(installed, 8)) == []
            assert meters(net)[32768] == (1000, 100), "of a router whose policer is not written yet"
            await punted(net, sender)
            assert await net.plane.write(repairs(installed, 7, 9)) == []
            await punted(net, sender)
        installed = await net.plane.read()
        assert installed.policers == {vrf_id: Policer(vrf_id, same_rate(100 * vrf_id)) for vrf_id in OLD_RATES}
        assert (installed.damaged, installed.foreign) == (set(), 0)
        slots, layout = {8: 0, 7: 1, 9: 2}, MeterLayout()
        wanted = {
            layout.meter(slot, each): (100 * vrf, 10 * vrf) for vrf, slot in slots.items() for each in range(11)
        }
        assert meters(net) == wanted, "and none of the others is left"


SHARED: SharedMeters = (frozenset(PuntClass) - frozenset({PuntClass.BFD, PuntClass.ARP}),)


async def attached_again(net: Net, shared: SharedMeters) -> None:
    """Serve the switch as a controller whose document says how meters are shared."""
    await net.plane.close()
    net.plane = OpenFlowPlane("edge", DATAPATH_ID, net.server, shared_meters=shared)
    await net.plane.start(net.heard)
    await net.heard.until(lambda: net.plane.connected)


async def test_meters_come_to_be_shared_and_are_no_more_and_no_punt_is_lost() -> None:
    async with openflow_net() as net:
        host = net.ovs.add_host(BRIDGE, "02:00:00:00:00:01")
        own = Policer(7, tuple(range(100, 111)))
        assert await net.write(own, Policer(8, same_rate(50)), interface(1, host)) == []
        assert len(meters(net)) == 2 * len(PuntClass)
        with host.packet_socket() as sender:
            for shared, held in ((SHARED, Policer(7, shared_rates(own.rates, SHARED))), ((), own)):
                await attached_again(net, shared)
                await punted(net, sender)
                installed = await net.plane.read()
                assert installed.damaged == {("policer", 7), ("policer", 8)}
                assert await net.write(held, op=Op.MODIFY) == []
                await punted(net, sender)
                assert await net.write(Policer(8, same_rate(50)), op=Op.MODIFY) == []
                installed = await net.plane.read()
                assert installed.policers == {7: held, 8: Policer(8, same_rate(50))}
                assert (installed.damaged, installed.foreign) == (set(), 0)
                layout = MeterLayout(shared)
                wanted = [meter_rate(held, classes) for classes in layout.classes] + [50] * len(layout.classes)
                found = sorted(meters(net).values())
                assert found == sorted((rate, burst(rate)) for rate in wanted), "and none of the others is left"
