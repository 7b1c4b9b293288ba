"""Cases in which a plane cannot follow the contract, by name, and the row of docs/planes.md that says so.

Such a case must fail there; when it does not any more, its line goes. The hardware of a pair fails as it does alone.
"""

from controller.planes.base import PuntReason

VERSION = "IP version other than its EtherType's"
PROTOCOL_0 = "IPv4 protocol 0"
CUT_SHORT = "IPv6 extension header cut short"
SERVICE_TAG = "802.1ad tag"
SNAP = "IP or ARP behind a SNAP header"
FRAGMENTS = "fragments of an IPv6 packet to a group"
HOPS_FIRST = "TTL 0 or 1 to a blackhole"
LINK_LOCAL_FIRST = "link-local source to a blackhole"

DEVIATIONS: dict[str, dict[str, str]] = {
    "openflow": {
        "IPv4: version 6": VERSION,
        "IPv4: version 0": VERSION,
        "IPv6: version 4": VERSION,
        "protocol 0": PROTOCOL_0,
        "an extension header cut short": CUT_SHORT,
        "a service tag (802.1ad)": SERVICE_TAG,
        "IPv4 behind SNAP": SNAP,
        "ARP behind SNAP": SNAP,
    }
}

IN_GROUPS = {"openflow": FRAGMENTS}
"""What a plane that has this spreads although it is one flow."""

IN_SOFTWARE = {
    "TTL 1 to a blackhole": (HOPS_FIRST, PuntReason.TTL_EXPIRED),
    "hop limit 1 to a blackhole": (HOPS_FIRST, PuntReason.TTL_EXPIRED),
    "link-local source, blackhole": (LINK_LOCAL_FIRST, PuntReason.UNREACHABLE),
}
"""Where the routes of a pair are in software its hardware punts instead: rows of the manual as well."""
