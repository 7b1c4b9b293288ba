"""What must hold in two_tenants."""

from lab.probes import capture, ping
from lab.topology import Lab, Progress
from topologies import proofs
from topologies.checks import Claim, expect
from topologies.two_tenants.topology import H2, LAN, RED_ALONE, TENANTS

_ENDS = {tenant: [(f"{tenant}-h1", address) for address in H2] for tenant in TENANTS}
_UPLINKS = {"eth1": "a", "eth2": "b"}
_HOPS4 = [{"10.1.0.1"}, {"10.0.1.1"}, {"10.0.12.2"}, {"10.0.21.2", "10.0.22.2"}, {H2[0]}]
_HOPS6 = [{"2001:db8:1::1"}, {"2001:db8:101::1"}, {"2001:db8:12::2"}, {"2001:db8:21::2", "2001:db8:22::2"}, {H2[1]}]
REROUTE_LIMIT_MS = 1000.0
"""The switch does it alone, in some 10 ms; the limit leaves room for a busy machine."""


def reach(lab: Lab, progress: Progress) -> list[str]:
    """Both tenants' ends reach each other under the same addresses."""
    return proofs.reach(lab, [end for tenant in TENANTS for end in _ENDS[tenant]])


def trace(lab: Lab, progress: Progress) -> list[str]:
    """The path leads through both virtual routers of the tenant."""
    found = []
    for tenant in TENANTS:
        for address, hops in ((H2[0], _HOPS4), (H2[1], _HOPS6)):
            progress(f"{tenant}-h1 → {address}")
            found += proofs.trace(lab, f"{tenant}-h1", address, hops)
    return found


def tagged(lab: Lab, progress: Progress) -> list[str]:
    """The neighbor behind VLAN 100 is reached, and by that VLAN."""
    interfaces = {(view["router"], view["name"]): view for view in lab.controller.get("interfaces")}
    n1 = interfaces["red/r1", "n1"]
    expect((n1["port"], n1["vlan"]) == ("trunk", 100), f"n1 of red/r1 is on {n1['port']} VLAN {n1['vlan']}")
    return proofs.reach(lab, [("red-n1", "10.0.1.1"), ("red-n1", "2001:db8:101::1")])


def isolated(lab: Lab, progress: Progress) -> list[str]:
    """What only red has is reached from red and not from blue, and nothing that blue sends arrives in red."""
    found = []
    for address in RED_ALONE:
        with capture(lab.network["red-n2"], f"dst host {address}") as seen:
            progress(f"blue-h1 → {address}")
            answered = ping(lab.network["blue-h1"], address, 10)
            leaked = seen(0)  # a second after the last ping
        expect(answered == 0 and leaked == 0, f"{address} from blue: {answered} of 10 answered, {leaked} seen in red")
        with capture(lab.network["red-n2"], f"dst host {address}") as seen:
            answered = ping(lab.network["red-h1"], address, 10)
            arrived = seen(10)
        expect(answered == 10 and arrived >= 10, f"{address} from red: {answered} of 10 answered, {arrived} seen")
        found.append(f"{address}: blue 0 of 10 (none seen in red), red 10 of 10")
    return found


def multipath(lab: Lab, progress: Progress) -> list[str]:
    """r2 has two nexthops for the far LAN, and flows use both."""
    found = []
    for tenant in TENANTS:
        found += proofs.equal_cost(lab, f"{tenant}/r2", LAN, 2)
        for address in H2:
            found += proofs.spreads(lab, f"{tenant}-h1", address, f"{tenant}-n2", tuple(_UPLINKS))
    return found


def reroute(lab: Lab, progress: Progress) -> list[str]:
    """One of the two links of each tenant is cut under traffic."""
    found = []
    for tenant, address in zip(TENANTS, H2, strict=True):
        links = {name: ((f"{tenant}-n2", name), ("s1", f"{tenant}-n2-{letter}")) for name, letter in _UPLINKS.items()}
        found += proofs.reroutes(lab, progress, (f"{tenant}-h1", address), f"{tenant}-n2", links, REROUTE_LIMIT_MS)
    return found


def restart(lab: Lab, progress: Progress) -> list[str]:
    """The controller is killed and started again under traffic of both tenants."""
    return proofs.survives_restart(lab, progress, [end for tenant in TENANTS for end in _ENDS[tenant]])


def switch_forwards(lab: Lab, progress: Progress) -> list[str]:
    """Transit traffic does not touch the guests."""
    return proofs.switch_forwards(lab, progress, [end for tenant in TENANTS for end in _ENDS[tenant]])


def verified(lab: Lab, progress: Progress) -> list[str]:
    """Learned, desired and installed are equal."""
    return proofs.verified(lab)


CLAIMS = (
    Claim("OSPF is Full and BGP Established on routers and neighbors", proofs.sessions_up),
    Claim("both tenants' hosts reach each other, IPv4 and IPv6", reach),
    Claim("the path leads through both routers of the tenant", trace),
    Claim("the neighbor behind VLAN 100 is reached", tagged),
    Claim("tenants do not reach each other", isolated),
    Claim("equal-cost paths are installed and used", multipath),
    Claim("the switch forwards, not the guests", switch_forwards),
    Claim("a cut link is rerouted", reroute),
    Claim("kill -9 of the controller loses no packet", restart),
    Claim("vrctl verify finds learned, desired and installed equal", verified),
)
