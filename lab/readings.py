"""Reads what ping, traceroute, FRR and the kernel print."""

import json
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

_REPLY = re.compile(r"^\[(\d+\.\d+)\].*icmp_seq=(\d+) ttl=", re.MULTILINE)
_HOP = re.compile(r"^\s*\d+\s+(.*)$", re.MULTILINE)
_ADDRESS = re.compile(r"(?<![\w.:])(?:\d+(?:\.\d+){3}|[0-9a-f]*:[0-9a-f:]+)(?![\w.:])")

NEIGHBOR_COMMANDS = {
    "OSPFv2": "show ip ospf neighbor json",
    "OSPFv3": "show ipv6 ospf6 neighbor json",
    "BGP": "show bgp summary json",
}


@dataclass(frozen=True, slots=True)
class Stream:
    """What came back of a stream of pings."""

    sent: int  # up to the last one answered
    lost: int
    outage_ms: float  # the largest gap between replies in which a request was lost, less the usual one
    lasted_s: float  # from the first reply to the last

    @classmethod
    def read(cls, text: str, interval_s: float) -> "Stream":
        """Read what `ping -D -n` printed; of duplicates the first counts."""
        replies = {int(number): float(at) for at, number in reversed(_REPLY.findall(text))}
        gaps = [
            replies[later] - replies[earlier] - interval_s
            for earlier, later in pairwise(sorted(replies))
            if later > earlier + 1  # a gap without a loss is a busy machine's, not the network's
        ]
        sent = max(replies, default=0)
        lasted_s = max(replies.values()) - min(replies.values()) if replies else 0.0
        return cls(sent, sent - len(replies), 1000 * max(gaps, default=0.0), lasted_s)


def answered(text: str) -> int:
    """Return how many different requests `ping -D -n` saw answered."""
    return len({number for _, number in _REPLY.findall(text)})


def hops(text: str) -> list[str]:
    """Return what answered traceroute, hop by hop; several of one hop are joined by "|", none is "*"."""
    found = (sorted(set(_ADDRESS.findall(hop))) for hop in _HOP.findall(text))
    return ["|".join(hop) or "*" for hop in found]


def neighbors(protocols: Iterable[str], text: str) -> dict[str, int]:
    """Return how many neighbors FRR shows Full (OSPF) or Established (BGP, counted per address family), by protocol.

    ``text`` is what one vtysh printed for the `NEIGHBOR_COMMANDS` of the protocols, in their order. It ends with the
    first whose daemon does not run, which has none: of those after it nothing is known.
    """
    found: dict[str, int] = {}
    for protocol in protocols:
        text, found[protocol] = text.lstrip(), 0
        if not text:
            break
        try:
            shown, end = json.JSONDecoder().raw_decode(text)
        except json.JSONDecodeError:  # the daemon has not read its text yet, as a line says
            end = len(text.partition("\n")[0])
        else:
            found[protocol] = _READERS[protocol](shown)
        text = text[end:]
    return found


def waiting(text: str) -> list[str]:
    """Return the neighbors that are not Established of FRR's `show bgp neighbors json`: "spine2 Active (Waiting for
    NHT)", with why FRR last gave it up."""
    try:
        found = json.loads(text)
    except json.JSONDecodeError:
        return []
    peers = {name: peer for name, peer in found.items() if isinstance(peer, dict) and "bgpState" in peer}
    return [
        f"{name} {peer['bgpState']} ({peer.get('lastResetDueTo', 'never up')})"
        for name, peer in peers.items()
        if peer["bgpState"] != "Established"
    ]


def _ospfv2(found: dict[str, Any]) -> int:
    entries = [entry for listed in found.get("neighbors", {}).values() for entry in listed]
    return sum(str(entry.get("nbrState", entry.get("state"))).startswith("Full") for entry in entries)


def _ospfv3(found: dict[str, Any]) -> int:
    return sum(entry.get("state") == "Full" for entry in found.get("neighbors", []))


def _bgp(found: dict[str, Any]) -> int:
    families = [family for name, family in found.items() if name in ("ipv4Unicast", "ipv6Unicast")]
    return sum(peer.get("state") == "Established" for family in families for peer in family.get("peers", {}).values())


_READERS: dict[str, Callable[[dict[str, Any]], int]] = {"OSPFv2": _ospfv2, "OSPFv3": _ospfv3, "BGP": _bgp}


def forwarded_datagrams(text: str) -> int:
    """Return ForwDatagrams of /proc/net/snmp plus Ip6OutForwDatagrams of /proc/net/snmp6, one after the other."""
    rows = [line.split() for line in text.splitlines() if line]
    names, values = (row for row in rows if row[0] == "Ip:")
    ipv6 = next(int(row[1]) for row in rows if row[0] == "Ip6OutForwDatagrams")
    return int(dict(zip(names, values, strict=True))["ForwDatagrams"]) + ipv6
