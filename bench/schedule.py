"""In which order packets of several routers are offered: destinations for the lab's generator, set after set.

Each set is a power of two of them, in random order, in which every router has its part; the generator goes through
one of the sets again and again.
"""

import random
import struct
from collections.abc import Sequence
from pathlib import Path

from bench.destinations import MOST
from lab.prefixes import Announcement

NOBODYS = 127 << 24 | 1
"""A destination that a router drops before it looks for a route (a martian, RFC 1812, section 5.3.7)."""


class Schedule:
    """Sets of destinations for routers with VLAN 1, 2, …, each behind one of ``entrances`` links in turns."""

    def __init__(self, tables: Sequence[Sequence[Announcement]], entrances: int, seed: int) -> None:
        self._tables, self._entrances, self._chance = tables, entrances, random.Random(seed)
        self._octets = bytearray()

    def mixed(self, parts: Sequence[float], count: int, nobodys: bool = False) -> tuple[int, int]:
        """Add a set in which each router has a part of all, proportional to ``parts``; returns its first and its
        count.

        Those of one router go to random hosts of random routes; or all of them to where nobody is. ValueError where
        there is no more room, or a router that is to have some has none among so few.
        """
        first = len(self._octets) // _DESTINATION.size
        if count & (count - 1) or first + count > MOST:
            raise ValueError(f"{count} destinations after {first}: they are a power of two, and {MOST} at most")
        places = [place for place, number in enumerate(_counts(parts, count)) for _ in range(number)]
        self._chance.shuffle(places)
        for place in places:
            address = NOBODYS if nobodys else self._address(place)
            self._octets += _DESTINATION.pack(address.to_bytes(4, "big"), place + 1, place % self._entrances)
        return first, count

    def _address(self, place: int) -> int:
        route = self._chance.choice(self._tables[place])
        return route.network | self._chance.getrandbits(32 - route.length)

    def write(self, path: Path) -> Path:
        """Write all sets into a file for the generator, and return it."""
        path.write_bytes(self._octets)
        return path


_DESTINATION = struct.Struct("=4sHH")


def _counts(parts: Sequence[float], count: int) -> list[int]:
    """Divide a count by largest remainders."""
    whole = sum(parts)
    exact = [part / whole * count for part in parts]
    found = [int(number) for number in exact]
    by_remainder = sorted(range(len(parts)), key=lambda place: found[place] - exact[place])
    for place in by_remainder[: count - sum(found)]:
        found[place] += 1
    if any(part and not number for part, number in zip(parts, found, strict=True)):
        raise ValueError(f"{count} destinations are too few for parts of {whole:g} as small as {min(parts):g}")
    return found
