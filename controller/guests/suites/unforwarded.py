"""What a router's text asks for and no plane has a table for: its daemons run, and none of its routes are forwarded.

A line is named where it begins such a thing; what belongs to it further down is not. docs/daemons.md has the table.
"""

import re
from collections.abc import Callable, Iterator
from weakref import WeakKeyDictionary

from controller.guests.suites import bird
from controller.model import Routing, Suite

SHOWN = 3
"""Lines that a remark names; the others are counted."""

_OTHER_VRF = r"vrf (?!default(?: |$))\S"
_OTHER_TABLE = r"table (?!254\b)\d"
_FRR = {
    "multicast": r"(ip|ipv6) (pim|igmp|mld|mroute|msdp)\b|router pim6?\b|address-family ipv[46] multicast\b",
    "MPLS": r"mpls\b|label vpn\b|address-family ipv[46] (labeled-unicast|vpn)\b|(ip|ipv6) route .*\blabel \d",
    "segment routing": r"segment-routing\b|srv6\b",
    "VRFs inside of a router": rf"{_OTHER_VRF}|(router|interface) \S.* {_OTHER_VRF}|import vrf\b|"
    rf"(ip|ipv6) route .*\b(nexthop-)?{_OTHER_VRF}",
    "EVPN": r"address-family l2vpn evpn\b|advertise-all-vni\b|vni \d",
    "flow specifications": r"address-family ipv[46] flowspec\b",
    "policy routing": r"pbr-map\b|pbr-policy\b",
    "NHRP": r"((ip|ipv6) )?nhrp\b",
    "other tables than main": rf"(ip|ipv6) route .*\b{_OTHER_TABLE}|ip import-table\b|set {_OTHER_TABLE}",
    "routes for packets of some sources": r"ipv6 route \S+ from\b",
}
_STATEMENT = r"(?:^|[;{}])[^\S\n]*"  # not over ends of lines: each is a beginning already
_BIRD = {
    "multicast": _STATEMENT + r"ipv[46] multicast\b",
    "MPLS": rf"{_STATEMENT}(?:mpls|ipv[46] mpls|vpn[46])\b|\bmpls\s+\d|\bgw_mpls\b",  # a label is inside of a route
    "flow specifications": _STATEMENT + r"flow[46]\b",
    "VRFs inside of a router": _STATEMENT + r"vrf\s+\"",
    "other tables than main": _STATEMENT + r"kernel\s+table\s++(?!254\b)",
    "routes for packets of some sources": _STATEMENT + r"ipv6\s+sadr\b",
}
_KERNEL = re.compile(_STATEMENT + r"protocol\s+kernel\b", re.MULTILINE)


def _of_frr(text: str) -> Iterator[tuple[int, str]]:
    for number, line in enumerate(text.split("\n"), 1):
        squeezed = " ".join(line.split())
        for feature, pattern in _FRR.items():
            if re.match(pattern, squeezed):
                yield number, f"{feature}: {squeezed}"
                break


def _of_bird(text: str) -> Iterator[tuple[int, str]]:
    bare = bird.bare(text)
    found = [
        (match.end() - 1, feature)
        for feature, pattern in _BIRD.items()
        for match in re.finditer(pattern, bare, re.MULTILINE)
    ]
    number, counted, named = 1, 0, (0, "")
    for end, feature in sorted(found):
        number += bare.count("\n", counted, end)
        counted = end
        if (number, feature) != named:  # a route may have a label for each of its ways
            named = number, feature
            yield named
    if not _KERNEL.search(bare):
        yield 1, "nothing is exported to the kernel: add a `protocol kernel`"


_FINDERS: dict[Suite, Callable[[str], Iterator[tuple[int, str]]]] = {Suite.FRR: _of_frr, Suite.BIRD: _of_bird}


def unforwarded(routing: Routing) -> list[tuple[int, str]]:
    """Return the lines of a text whose routes no plane forwards, each with its number and what it is about."""
    find = _FINDERS.get(routing.suite)
    return list(find(routing.text)) if find else []


_remarks: WeakKeyDictionary[Routing, str] = WeakKeyDictionary()
"""Views are made for all routers, again and again. A text that nobody has any more is not kept for it: there may be a
megabyte of it."""


def remark(routing: Routing) -> str:
    """Return in one line what of a router's text no plane forwards; empty where that is nothing."""
    known = _remarks.get(routing)
    if known is None:
        known = _remarks[routing] = _remark(routing)
    return known


def _remark(routing: Routing) -> str:
    found = unforwarded(routing)
    if not found:
        return ""
    shown = "; ".join(f"line {number} ({what})" for number, what in found[:SHOWN])
    more = f"; and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
    return f"no plane forwards what {routing.suite} asks for in {shown}{more}"
