"""BGP unnumbered: IPv4 routes over a link-local IPv6 gateway, with zebra's own static neighbor left alone."""

import asyncio
import struct

import pytest
from vrc_guest import Controller, Guest, guest, interface

from wire import splitplane_pb2 as pb

pytestmark = pytest.mark.root

BGP = """
router bgp {number}
 bgp router-id 1.1.1.{number}
 no bgp ebgp-requires-policy
 neighbor eth0 interface remote-as external
 neighbor eth0 timers connect 1
 address-family ipv4 unicast
  network 10.{number}.0.0/16
 exit-address-family
"""


async def patch(one: Controller, other: Controller) -> None:
    """Carry the frames of two routers to each other."""

    async def carry(source: Controller, sink: Controller) -> None:
        while True:
            await source.until(lambda: bool(source.frames), 60)
            await sink.send_frame(1, source.frames.popleft()[2])

    await asyncio.gather(carry(one, other), carry(other, one))


async def start(g: Guest, number: int) -> None:
    await g.start_vrc()
    await g.until("ip", "link", "show", "eth0", has="LOWER_UP")
    await g.start_zebra()
    await g.start_daemon("staticd", f"ip route 10.{number}.0.0/16 Null0\n")
    options = "interface eth0\n ipv6 nd ra-interval 1\n no ipv6 nd suppress-ra\n"
    await g.start_daemon("bgpd", options + BGP.format(number=number), "-p", "179")


def mac(number: int) -> bytes:
    return bytes((2, 0, 0, 0, 1, number))


async def test_routes_over_link_local_gateways() -> None:
    one, two = Controller(interface(1, mac=mac(1))), Controller(interface(1, mac=mac(2)))
    async with guest(one) as g, guest(two) as h:
        await asyncio.gather(start(g, 1), start(h, 2))
        carrying = asyncio.ensure_future(patch(one, two))
        try:
            await g.vtysh("conf t", "interface eth0", "ipv6 nd ra-interval 1", "no ipv6 nd suppress-ra")
            await one.until(lambda: "10.2.0.0/16" in one.routes)
            (way,) = one.routes["10.2.0.0/16"]
            gateway = way.split()[1]
            await one.until(lambda: (1, gateway) in one.neighbors)
            assert one.neighbors[1, gateway] == pb.Neighbor(
                interface_id=1, address=one.neighbors[1, gateway].address, mac=mac(2)
            )
            assert struct.unpack(">H", one.neighbors[1, gateway].address[:2])[0] in (0xFE80, 0xA9FE)
            if gateway == "169.254.0.1":
                assert "PERMANENT" in await g.run("ip", "neigh", "show", gateway)
            # Routes of its own that go nowhere are no routes over a gateway.
            await one.until(lambda: one.routes.get("10.1.0.0/16") == ("blackhole",))
        finally:
            carrying.cancel()
