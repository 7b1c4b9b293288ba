"""Destinations of the lab's generator: in their routes, as often as they are popular."""

import struct
from collections import Counter
from pathlib import Path

from bench import destinations
from lab.prefixes import announcements

_TABLES = [announcements(500, seed) for seed in (1, 2)]


def _routes_hit(path: Path) -> Counter[tuple[int, int, int]]:
    """Return how often each route, as VLAN, network and length, is the longest of an address in a file."""
    known = [{(one.network, one.length) for one in table} for table in _TABLES]
    hit: Counter[tuple[int, int, int]] = Counter()
    for address, vlan, _ in struct.iter_unpack("!I2s2s", path.read_bytes()):
        number = int.from_bytes(vlan, "little")
        parts = ((number, address >> (32 - length) << (32 - length), length) for length in range(32, 0, -1))
        hit[next(part for part in parts if part[1:] in known[number - 1])] += 1
    return hit


def test_all_routes_are_alike_without_an_exponent(tmp_path: Path) -> None:
    hit = _routes_hit(destinations.write(tmp_path, _TABLES, 1 << 14, 1))
    assert len(hit) > 900
    assert max(hit.values()) < 100


def test_the_first_route_gets_zipfs_share(tmp_path: Path) -> None:
    count, exponent = 1 << 14, 1.1
    (_, first), (_, second), *_ = _routes_hit(destinations.write(tmp_path, _TABLES, count, 1, exponent)).most_common()
    whole = sum(rank**-exponent for rank in range(1, 1001))
    assert 0.9 < first / (count / whole) < 1.2  # some of shorter routes fall into longer ones
    assert 0.7 < second / first * 2**exponent < 1.3
