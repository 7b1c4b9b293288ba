"""How many octets a frame counts where it leaves with another tag than it came in with."""

import pytest
from case import ROUTERS, arrives, lan, lan_vlan, trunk, up
from frames import ipv4
from wired import WiredPlane

AS_THEY_CAME = ("openflow", "bmv2")  # docs/planes.md, Counters


@pytest.mark.asyncio(loop_scope="session")
@pytest.mark.parametrize(
    ("ingress", "dst", "egress"),
    [(lan, "10.4.0.9", trunk), (lan_vlan, "10.2.0.9", up), (lan, "10.2.0.9", up)],
    ids=["a tag more", "a tag less", "no tag"],
)
async def test_octets_sent_are_those_of_the_frame_as_it_leaves(wired: WiredPlane, ingress, dst, egress) -> None:
    await wired.program(ROUTERS)
    before = (await wired.counters()).router_interfaces.get(egress.id)
    frame = arrives(ingress, ipv4(dst)).frame
    seen = await wired.observe(ingress.port, frame)
    after = (await wired.counters()).router_interfaces[egress.id]
    counted = frame if wired.kind in AS_THEY_CAME else seen.outputs[0][1]
    assert after.tx_bytes - (before.tx_bytes if before else 0) == len(counted)
