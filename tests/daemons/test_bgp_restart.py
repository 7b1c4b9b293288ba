"""Graceful restart of BGP (RFC 4724) of FRR: of a neighbor, and of the virtual router."""

import os
import signal

import pytest
from daemon_rig import BURST, LIMIT_S, LOOPBACKS, Between, Net
from rig import unbroken, until
from test_bgp import TEXTS, established, with_line

pytestmark = pytest.mark.root

# Where both ends connect, the one that stays now and then gives up what it keeps (docs/frr.md).
PASSIVE, *_ = with_line("passive")
NETS = {"neighbor": Net(PASSIVE, *TEXTS[1:]), "guest": Net(*with_line("password swordfish"))}
FAR = [theirs for _, theirs in LOOPBACKS.values()]


def test_a_neighbor_that_restarts_gracefully_is_forwarded_to_meanwhile(nets: dict[str, Between]) -> None:
    net = nets["neighbor"]
    established(net)
    net.forwards(4, 6)
    # Its own FRR withdraws routes when it is back (docs/frr.md): these stay, and have the loopback as their source.
    for (ours, theirs), gateway in zip(LOOPBACKS.values(), ("10.1.0.1", "2001:db8:1::1"), strict=True):
        net.n1.run("ip", "route", "add", theirs, "via", gateway, "src", ours, "metric", "1")
    with unbroken(net.rig, *((net.n1.host, theirs) for theirs in FAR)):
        net.n1.kill("bgpd")
        for family in ("ipv4", "ipv6"):
            net.sees(f"bgp {family} json", "stale")
        net.n1.start("bgpd")
        established(net)
        for family in ("ipv4", "ipv6"):
            until("nothing stale", lambda family=family: "stale" not in net.show(f"bgp {family} json"), LIMIT_S)
    net.forwards(4, 6)


def test_a_bgpd_that_dies_is_back_with_its_sessions_and_routes(nets: dict[str, Between]) -> None:
    net = nets["guest"]
    established(net)
    net.forwards(4, 6)
    old = net.rig.process(net.name, "bgpd")
    os.kill(old, signal.SIGKILL)
    until("another bgpd", lambda: net.rig.process(net.name, "bgpd") not in (0, old))
    established(net)
    # FRR gives up what it kept when bgpd is back, and not when all its neighbors are (docs/frr.md).
    until("all packets again", lambda: all(net.answered(theirs) == BURST for theirs in FAR))
    net.forwards(4, 6)
