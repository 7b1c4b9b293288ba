"""What a guest sends leaves by its interface's port and VLAN, unchanged."""

import pytest
from case import ROUTERS, interface_mac, lan, lan_vlan, trunk, up
from frames import ARP, IPV4, ethernet, ipv4, mac, tagged
from wired import WiredPlane

pytestmark = pytest.mark.asyncio(loop_scope="session")

FRAMES = {
    "ARP": ethernet("ffffffffffff", ARP, bytes(28), src=interface_mac(11).hex()),
    "TTL 1": ethernet("01005e000005", IPV4, ipv4("224.0.0.5", ttl=1), src=interface_mac(11).hex()),
    "TTL 0, a wrong checksum": ethernet(
        "020000000099", IPV4, ipv4("10.2.0.1", ttl=0, header_checksum=1), src=interface_mac(11).hex()
    ),
    "to the router's own MAC": ethernet(lan.mac, IPV4, ipv4("10.1.0.1"), src=interface_mac(11).hex()),
    "LLC": ethernet("0180c2000014", 40, bytes(40), src=interface_mac(11).hex()),
    "as long as the MTU": ethernet("020000000099", IPV4, ipv4("10.2.0.1", payload=bytes(1480))),
    "malformed": ethernet(mac("020000000099"), IPV4, b"\x45\0\0"),
}


@pytest.mark.parametrize(
    "interface", [lan, lan_vlan, up, trunk], ids=lambda each: f"port {each.port} VLAN {each.vlan}"
)
@pytest.mark.parametrize("frame", FRAMES.values(), ids=FRAMES)
async def test_a_packet_out_is_sent_as_it_is(wired: WiredPlane, interface, frame: bytes) -> None:
    await wired.program(ROUTERS)
    assert wired.plane.packet_out(interface, frame)
    wanted = (interface.port, tagged(frame, interface.vlan) if interface.vlan else frame)
    await wired.heard.until(lambda: wanted in wired.heard.outputs, 3)
    seen = await wired.observe(1)
    assert (seen.outputs, seen.punts) == ([wanted], [])
    assert (sum(seen.received.values()), sum(seen.dropped.values())) == (0, 0)
