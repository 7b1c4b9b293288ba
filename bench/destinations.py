"""Where packets of the lab's generator go: a random host of a random route each (struct generator_destination)."""

import random
import struct
from collections.abc import Sequence
from pathlib import Path

from lab.prefixes import Announcement

MOST = 1 << 18
"""GENERATOR_DESTINATIONS: as many as the generator takes, which is a power of two as any number of them has to be."""


def write(directory: Path, tables: Sequence[Sequence[Announcement]], count: int, seed: int) -> Path:
    """Write so many into a file in a directory, and return it; with several tables, VLAN n is that of the n-th."""
    chance = random.Random(seed)
    path = directory / f"destinations-{len(tables)}"
    octets = bytearray()
    for _ in range(count):
        place = chance.randrange(len(tables))
        route = chance.choice(tables[place])
        address = route.network | chance.getrandbits(32 - route.length)
        octets += struct.pack("!I", address) + struct.pack("=HH", place + 1 if len(tables) > 1 else 0, 0)
    path.write_bytes(octets)
    return path
