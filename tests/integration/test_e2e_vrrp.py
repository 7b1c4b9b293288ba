"""A declared virtual MAC: FRR's vrrpd becomes master with it, and hosts use the virtual router as their gateway."""

import pytest
from e2e_single import FAR, ROUTER, single
from rig import until

pytestmark = pytest.mark.root

VIRTUAL, MAC = "10.1.0.254", "00:00:5e:00:01:0a"
FRR = f"""ip route 192.0.2.0/24 10.2.0.2
interface left
 vrrp 10
 vrrp 10 advertisement-interval 100
 vrrp 10 ip {VIRTUAL}
exit
interface left-v1
 ip address {VIRTUAL}/32
exit
"""
"""The VRC makes left-v1, a macvlan with the virtual MAC; FRR has it up while it is master."""


async def test_a_virtual_router() -> None:
    with single(FRR, virtual_macs=[MAC]) as net:
        until("master", lambda: "Master" in net.guest("vtysh", "-c", "show vrrp summary"))
        try:
            until("its address", lambda: f"{VIRTUAL}/32" in net.rig.ok("fib", ROUTER))
        except AssertionError as late:
            guest = net.guest("ip", "address"), net.guest("vtysh", "-c", "show vrrp")
            said = str(late), net.rig.ok("fib", ROUTER), *guest, net.rig.ok("logs", ROUTER)[-4000:]
            raise AssertionError("\n".join(said)) from None
        until("the route", lambda: "192.0.2.0/24" in net.rig.ok("fib", ROUTER))
        assert await net.left.ping(VIRTUAL, 3) == 3
        assert MAC in net.left.ip("neigh", "show", VIRTUAL)
        net.left.ip("route", "replace", "default", "via", VIRTUAL)
        assert await net.left.ping(FAR, 5) == 5
        net.rig.verified()
