"""Prefixes as the Internet's table has them: a seeded mix of lengths, spread and nested, with the ASes they are of.

The shares follow the IPv4 BGP table of the mid-2020s: three fifths are /24, and what is longer is not carried. About
five prefixes share an origin and so an AS path, which decides how many of them one UPDATE message holds.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network

# Prefix length → routes per thousand.
IPV4_SHARES = {
    24: 600,
    23: 100,
    22: 110,
    21: 50,
    20: 45,
    19: 27,
    18: 15,
    17: 9,
    16: 14,
    15: 8,
    14: 8,
    13: 6,
    12: 5,
    11: 3,
}
_PREFIXES_PER_ORIGIN = 5
_FIRST_ORIGIN = 100_000  # beyond the ASes of topologies and benches

# RFC 6890; links of topologies and benches are in 10.0.0.0/8.
_SPECIAL = tuple(
    IPv4Network(text)
    for text in (
        "0.0.0.0/8",
        "10.0.0.0/8",
        "100.64.0.0/10",
        "127.0.0.0/8",
        "169.254.0.0/16",
        "172.16.0.0/12",
        "192.0.0.0/24",
        "192.0.2.0/24",
        "192.88.99.0/24",
        "192.168.0.0/16",
        "198.18.0.0/15",
        "198.51.100.0/24",
        "203.0.113.0/24",
        "224.0.0.0/3",
    )
)


@dataclass(frozen=True, slots=True)
class Announcement:
    """A prefix and the AS it comes from."""

    network: int
    length: int
    origin: int

    @property
    def text(self) -> str:
        """The prefix as people write it."""
        return f"{IPv4Address(self.network)}/{self.length}"


def announcements(count: int, seed: int) -> list[Announcement]:
    """Return ``count`` different prefixes, the same for the same seed; every one is outside the special ranges."""
    chance = random.Random(seed)
    origins = max(1, count // _PREFIXES_PER_ORIGIN)
    chosen: dict[tuple[int, int], int] = {}
    for network, length in _candidates(chance):
        if (network, length) not in chosen:
            chosen[network, length] = _FIRST_ORIGIN + chance.randrange(origins)
            if len(chosen) == count:
                break
    return [Announcement(network, length, origin) for (network, length), origin in chosen.items()]


def _candidates(chance: random.Random) -> Iterator[tuple[int, int]]:
    lengths, weights = list(IPV4_SHARES), list(IPV4_SHARES.values())
    special = [(int(one.network_address), int(one.broadcast_address)) for one in _SPECIAL]
    while True:
        for length in chance.choices(lengths, weights, k=1000):
            first = chance.getrandbits(length) << (32 - length)
            last = first | ((1 << (32 - length)) - 1)
            if not any(first <= high and low <= last for low, high in special):
                yield first, length
