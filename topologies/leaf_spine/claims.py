"""What must hold in leaf_spine."""

from lab.topology import Lab, Progress
from topologies import proofs
from topologies.checks import Claim
from topologies.leaf_spine.topology import H2, SPINES

_ENDS = [("h1", address) for address in H2]
_LAN = ("10.2.0.0/24", "2001:db8:2::/64")
_HOPS4 = [{"10.1.0.1"}, {"10.255.0.11", "10.255.0.12"}, {"10.255.0.2", "10.2.0.1"}, {H2[0]}]
_HOPS6 = [{"2001:db8:1::1"}, {"2001:db8:ff::11", "2001:db8:ff::12"}, {"2001:db8:ff::2", "2001:db8:2::1"}, {H2[1]}]
_UPLINKS = {f"leaf2-{spine}": (("leaf1", f"leaf1-{spine}"), (spine, f"{spine}-leaf1")) for spine in SPINES}
"""Where packets from leaf1 arrive at leaf2, and the first link of each such path."""
_REROUTE_LIMIT_MS = 3000.0
"""The far leaf hears of it by BGP, after the guest's kernel, which tells of a lost carrier up to a second late."""


def reach(lab: Lab, progress: Progress) -> list[str]:
    """The hosts reach each other."""
    return proofs.reach(lab, _ENDS)


def trace(lab: Lab, progress: Progress) -> list[str]:
    """The path leads from leaf to spine to leaf."""
    paths = zip(H2, (_HOPS4, _HOPS6), strict=True)
    return [line for address, hops in paths for line in proofs.trace(lab, "h1", address, hops)]


def multipath(lab: Lab, progress: Progress) -> list[str]:
    """leaf1 has a nexthop by each spine, and flows use both."""
    found = proofs.equal_cost(lab, "fabric/leaf1", _LAN, len(SPINES))
    for address in H2:
        found += proofs.spreads(lab, "h1", address, "leaf2", tuple(_UPLINKS))
    return found


def reroute(lab: Lab, progress: Progress) -> list[str]:
    """A link between leaf and spine is cut under traffic."""
    return [
        line for end in _ENDS for line in proofs.reroutes(lab, progress, end, "leaf2", _UPLINKS, _REROUTE_LIMIT_MS)
    ]


def restart(lab: Lab, progress: Progress) -> list[str]:
    """The controller of four switches is killed and started again under traffic."""
    return proofs.survives_restart(lab, progress, _ENDS)


def switch_forwards(lab: Lab, progress: Progress) -> list[str]:
    """Transit traffic does not touch the guests."""
    return proofs.switch_forwards(lab, progress, _ENDS)


def verified(lab: Lab, progress: Progress) -> list[str]:
    """Learned, desired and installed are equal."""
    return proofs.verified(lab)


CLAIMS = (
    Claim("BGP unnumbered is Established between leaves and spines", proofs.sessions_up),
    Claim("hosts reach each other over the fabric, IPv4 and IPv6", reach),
    Claim("the path leads from leaf to spine to leaf", trace),
    Claim("both spines are installed and used", multipath),
    Claim("the switches forward, not the guests", switch_forwards),
    Claim("a cut link is rerouted", reroute),
    Claim("kill -9 of the controller loses no packet", restart),
    Claim("vrctl verify finds learned, desired and installed equal", verified),
)
