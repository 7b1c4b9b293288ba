"""What goes up to the guest goes up as it came, under its reason; what is dropped is dropped under its name."""

import asyncio
import time
from collections.abc import AsyncIterator
from socket import socket

import pytest
import pytest_asyncio
from openflow_net import DEADLINE_S, RATES, VRF, Net, interface, mac, openflow_net, via, via_group
from scapy.layers.inet import ICMP, IP, UDP
from scapy.layers.inet6 import ICMPv6EchoRequest, IPv6
from scapy.layers.l2 import ARP, LLC, Dot1Q, Dot3, Ether
from scapy.packet import Packet, Raw

from controller.planes import base
from controller.planes.base import (
    DropReason,
    GroupMember,
    Nexthop,
    NexthopGroup,
    NexthopState,
    Policer,
    PuntClass,
    PuntReason,
)
from lab.namespaces import Host

pytestmark = pytest.mark.root

HOST, ROUTER, VIRTUAL = "02:00:00:00:00:01", "02:00:00:00:ff:01", "00:00:5e:00:01:01"
TO_ROUTER = Ether(src=HOST, dst=ROUTER)
BROADCAST = Ether(src=HOST, dst="ff:ff:ff:ff:ff:ff")


class Bench:
    """One sending host and a plane with one entry for every case."""

    def __init__(self, net: Net, host: Host, packets: socket) -> None:
        self.net, self.host, self.packets = net, host, packets

    async def punted(self, packet: Packet) -> tuple[int, PuntReason, bool]:
        """Send a frame; return the router interface and reason it came up with, and whether it was unchanged."""
        self.net.heard.packets.clear()
        frame = bytes(packet)
        self.packets.send(frame)
        await self.net.heard.until(lambda: self.net.heard.packets)
        interface_id, reason, octets = self.net.heard.packets[0]
        return interface_id, reason, octets == frame

    async def dropped(self, packet: Packet, reason: DropReason, vrf_id: int = 0) -> None:
        """Send a frame and wait until it is counted as dropped for ``reason``."""
        before = (await self.net.plane.counters()).drops.get((vrf_id, reason), (0, 0))[0]
        self.packets.send(bytes(packet))
        await self.net.counted(lambda c: c.drops.get((vrf_id, reason), (0, 0))[0] > before)


@pytest_asyncio.fixture(loop_scope="function")
async def bench() -> AsyncIterator[Bench]:
    async with openflow_net() as net:
        left = net.ovs.add_host("br", HOST)
        right = net.ovs.add_host("br", "02:00:00:00:00:02")
        for host in (left, right):
            await host.run("sysctl", "-qw", "net.ipv6.conf.eth0.disable_ipv6=1")
        assert not await net.write(
            Policer(VRF, RATES),
            interface(1, left, virtual_macs=(mac(VIRTUAL),)),
            interface(2, right, mtu=1400),
            Nexthop(1, 2, mac(right.mac)),
            Nexthop(2, 2, bytes(6), NexthopState.GLEAN),
            Nexthop(3, 2, bytes(6), NexthopState.DROP),
            NexthopGroup(1, (GroupMember(1, 1, right.port),)),
            routes={
                "10.0.1.1/32": base.LOCAL,
                "10.0.2.0/24": base.GLEAN,
                "10.3.0.0/16": base.BLACKHOLE,
                "10.4.0.0/16": via(1),
                "10.5.0.0/16": via(2),
                "10.6.0.0/16": via(3),
                "10.7.0.0/16": via_group(1),
                "2001:db8::1/128": base.LOCAL,
                "2001:db8:4::/48": via(1),
            },
        )
        with left.packet_socket() as packets:
            yield Bench(net, left, packets)


PUNTS = {
    "arp": (BROADCAST / ARP(), PuntReason.CONTROL),
    "ospf": (Ether(src=HOST, dst="01:00:5e:00:00:05") / IP(dst="224.0.0.5", ttl=1, proto=89), PuntReason.CONTROL),
    "dhcp": (BROADCAST / IP(src="0.0.0.0", dst="255.255.255.255") / UDP(), PuntReason.CONTROL),
    "is-is": (Dot3(src=HOST, dst="01:80:c2:00:00:14") / LLC(dsap=0xFE, ssap=0xFE, ctrl=3), PuntReason.CONTROL),
    "nd": (Ether(src=HOST, dst="33:33:00:00:00:01") / IPv6(src="fe80::2", dst="ff02::1"), PuntReason.CONTROL),
    "link-local": (TO_ROUTER / IPv6(src="fe80::2", dst="fe80::1"), PuntReason.CONTROL),
    "local": (TO_ROUTER / IP(src="10.0.1.2", dst="10.0.1.1", ttl=1) / ICMP(), PuntReason.LOCAL),
    "virtual": (Ether(src=HOST, dst=VIRTUAL) / IP(src="10.0.1.2", dst="10.0.1.1"), PuntReason.LOCAL),
    "local from link-local": (TO_ROUTER / IPv6(src="fe80::2", dst="2001:db8::1"), PuntReason.LOCAL),
    "glean": (TO_ROUTER / IP(src="10.0.1.2", dst="10.0.2.9", ttl=9), PuntReason.GLEAN),
    "unresolved": (TO_ROUTER / IP(src="10.0.1.2", dst="10.5.0.1", ttl=2), PuntReason.GLEAN),
    "unreachable": (TO_ROUTER / IP(src="10.0.1.2", dst="192.0.2.1", ttl=9), PuntReason.UNREACHABLE),
    "beyond scope": (TO_ROUTER / IPv6(src="fe80::2", dst="2001:db8:4::1"), PuntReason.UNREACHABLE),
    "ttl 1": (TO_ROUTER / IP(src="10.0.1.2", dst="10.4.0.1", ttl=1), PuntReason.TTL_EXPIRED),
    "ttl 0": (TO_ROUTER / IP(src="10.0.1.2", dst="10.0.2.9", ttl=0), PuntReason.TTL_EXPIRED),
    "hop limit 1": (TO_ROUTER / IPv6(src="2001:db8::2", dst="2001:db8:4::1", hlim=1), PuntReason.TTL_EXPIRED),
    "too long": (TO_ROUTER / IP(src="10.0.1.2", dst="10.4.0.1") / Raw(bytes(1381)), PuntReason.MTU_EXCEEDED),
    "too long, group": (TO_ROUTER / IP(src="10.0.1.2", dst="10.7.0.1") / Raw(bytes(1381)), PuntReason.MTU_EXCEEDED),
}


async def test_punts_keep_the_frame_and_name_the_reason(bench: Bench) -> None:
    results = {name: await bench.punted(packet) for name, (packet, _) in PUNTS.items()}
    assert results == {name: (1, reason, True) for name, (_, reason) in PUNTS.items()}
    await bench.net.counted(lambda c: c.punts[VRF, PuntReason.MTU_EXCEEDED][0] == 2)


DROPS = {
    "vlan": (Ether(src=HOST, dst=ROUTER) / Dot1Q(vlan=9) / IP(), DropReason.UNKNOWN_INTERFACE),
    "other mac": (Ether(src=HOST, dst="02:00:00:00:00:77") / IP(dst="10.4.0.1"), DropReason.NOT_FOR_US),
    "multicast": (Ether(src=HOST, dst="01:00:5e:01:01:01") / IP(dst="239.1.1.1"), DropReason.MULTICAST),
    "in broadcast": (BROADCAST / IP(src="10.0.1.2", dst="10.4.0.1"), DropReason.L2_MULTICAST),
    "loopback": (TO_ROUTER / IP(src="127.0.0.1", dst="10.4.0.1"), DropReason.MARTIAN),
    "class e": (TO_ROUTER / IP(src="10.0.1.2", dst="250.0.0.1"), DropReason.MARTIAN),
    "v6 unspecified": (TO_ROUTER / IPv6(src="::", dst="2001:db8:4::1") / ICMPv6EchoRequest(), DropReason.MARTIAN),
    "lldp": (Ether(src=HOST, dst="01:80:c2:00:00:0e", type=0x88CC), DropReason.ETHERTYPE),
}


async def test_drops_are_counted_by_name(bench: Bench) -> None:
    for packet, reason in DROPS.values():
        await bench.dropped(packet, reason)
    await bench.dropped(TO_ROUTER / IP(dst="10.3.0.1"), DropReason.BLACKHOLE, VRF)
    await bench.dropped(TO_ROUTER / IP(dst="10.6.0.1"), DropReason.NEIGHBOR_FAILED, VRF)
    assert bench.net.heard.packets == []


async def test_a_tagged_port_punts_and_sends_untagged_frames(bench: Bench) -> None:
    host = bench.net.ovs.add_host("br", HOST, vlan=12)  # its cable adds and removes the tag
    tagged = interface(3, host, vlan=12)
    assert not await bench.net.write(tagged)
    up = bytes(Ether(src=HOST, dst="02:00:00:00:ff:03") / IP(src="10.0.1.2", dst="10.0.1.1") / ICMP())
    down = bytes(Ether(src="02:00:00:00:ff:03", dst=HOST) / IP(src="10.0.1.1", dst="10.0.1.2") / ICMP(type=0))
    with host.packet_socket() as packets:
        packets.send(up)
        await bench.net.heard.until(lambda: (3, PuntReason.LOCAL, up) in bench.net.heard.packets)
        assert bench.net.plane.packet_out(tagged, down)
        async with asyncio.timeout(DEADLINE_S):
            while await asyncio.get_running_loop().sock_recv(packets, 2000) != down:
                pass


async def test_punts_over_the_rate_are_dropped_for_their_class_alone(bench: Bench) -> None:
    rates = tuple(10 if each is PuntClass.LOCAL else 1000 for each in PuntClass)
    await bench.net.write(Policer(VRF, rates), op=base.Op.MODIFY)
    frame = bytes(TO_ROUTER / IP(src="10.0.1.2", dst="10.0.1.1"))
    heard, began = bench.net.heard, time.monotonic()
    for _ in range(100):
        bench.packets.send(frame)
    bench.packets.send(bytes(BROADCAST / ARP()))
    await heard.until(lambda: any(reason is PuntReason.CONTROL for _, reason, _ in heard.packets))
    most = 40 + 10 * (time.monotonic() - began)
    assert 10 <= sum(reason is PuntReason.LOCAL for _, reason, _ in heard.packets) < most
    await bench.net.counted(lambda c: c.punts[VRF, PuntReason.LOCAL][0] == 100)
