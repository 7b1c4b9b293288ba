"""Where packets of the lab's generator go: a random host of a random route each (struct generator_destination).

Routes are as likely as each other, or by Zipf's law: the r-th of them in a random order gets 1/r^s of what the first
gets.
"""

import random
import struct
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path

from lab.prefixes import Announcement

MOST = 1 << 18
"""GENERATOR_DESTINATIONS: as many as the generator takes, which is a power of two as any number of them has to be."""


def write(
    directory: Path, tables: Sequence[Sequence[Announcement]], count: int, seed: int, exponent: float = 0.0
) -> Path:
    """Write so many into a file in a directory, and return it; with several tables, VLAN n is that of the n-th. With
    an ``exponent``, Zipf's s, one route may be many of them."""
    chance = random.Random(seed)
    path = directory / f"destinations-{len(tables)}-{exponent:g}"
    octets = bytearray()
    for place, route in _zipf(tables, count, exponent, chance) if exponent else _uniform(tables, count, chance):
        address = route.network | chance.getrandbits(32 - route.length)
        octets += struct.pack("!I", address) + struct.pack("=HH", place + 1 if len(tables) > 1 else 0, 0)
    path.write_bytes(octets)
    return path


_Chosen = list[tuple[int, Announcement]]  # each with the place of its table


def _uniform(tables: Sequence[Sequence[Announcement]], count: int, chance: random.Random) -> _Chosen:
    places = [chance.randrange(len(tables)) for _ in range(count)]
    return [(place, chance.choice(tables[place])) for place in places]


def _zipf(tables: Sequence[Sequence[Announcement]], count: int, exponent: float, chance: random.Random) -> _Chosen:
    routes = [(place, route) for place, table in enumerate(tables) for route in table]
    chance.shuffle(routes)
    shares = list(accumulate(rank**-exponent for rank in range(1, len(routes) + 1)))
    return chance.choices(routes, cum_weights=shares, k=count)
