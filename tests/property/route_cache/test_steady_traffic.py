"""Where traffic does not change, hardware does not either, however prefixes, routers and quotas lie in each other."""

import random

from hypothesis import given
from hypothesis import strategies as st

from controller.model import Placement
from controller.planes.base import FALLBACK
from controller.route_cache.fast_table import FastTable
from wire.columns import prefix_key

PINNED = prefix_key("10.0.0.1/32")
ONE_IN = 10
"""Of the packets in software, one of so many is sampled."""
RATES = (0, 0, 50, 100, 150, 200, 300, 500, 1000)
PLACEMENTS = (*[Placement.AUTO] * 3, *[Placement.HARDWARE] * 2, Placement.SOFTWARE)
SETTLED_S, WATCHED_S = 120, 30

Traffic = dict[int, dict[bytes, int]]
"""By router and prefix, packets a second."""


def nested_routes(chance: random.Random) -> dict[bytes, int]:
    """Return up to eleven prefixes, most of them inside others."""
    found = {prefix_key("10.0.0.0/8"), prefix_key("10.0.0.0/16")}
    for _ in range(chance.randrange(3, 10)):
        length = chance.choice((8, 9, 10, 12, 16, 20, 24))
        address = chance.choice((10, 11, 12)) << 24 | chance.randrange(4) << 22
        address |= chance.randrange(3) << 16 | chance.randrange(2) << 8
        found.add((address >> (32 - length) << (32 - length)).to_bytes(4, "big") + bytes((length,)))
    return {key: 1 + number % 5 for number, key in enumerate(sorted(found))}


def a_world(chance: random.Random) -> tuple[FastTable, Traffic]:
    """Return a plane that has not room for all, and what traffic its routers have."""
    routers = range(1, 1 + chance.choice((1, 1, 2, 3)))
    fast = FastTable(4, len(routers) + chance.randrange(1, 7 * len(routers)), chance.choice((0, 0, 1, 2)))
    traffic = {}
    for vrf_id in routers:
        fast.add(vrf_id, "red" if vrf_id <= 2 else "blue")
    for vrf_id in routers:
        routes = nested_routes(chance)
        fast.change(vrf_id, routes)
        traffic[vrf_id] = {key: chance.choice(RATES) for key in routes}
        fast.set_placement(vrf_id, chance.choice(PLACEMENTS) if len(routers) > 1 else Placement.AUTO)
        if chance.random() < 0.3:
            fast.change(vrf_id, {PINNED: 7}, pinned=True)
    if chance.random() < 0.4:
        fast.limit("red", chance.randrange(2, 14))
    return fast, traffic


def play(fast: FastTable, traffic: Traffic, start: int, seconds: int) -> int:
    """Let traffic pass; return how many entries were written."""
    written = 0
    for now in range(start, start + seconds):
        for vrf_id, packets in traffic.items():
            held = fast.entries(vrf_id)
            hard = {key for key in packets if held.get(key, FALLBACK) != FALLBACK}
            list(fast.count(now, vrf_id, {key: packets[key] for key in hard}))
            sampled = [key for key in packets if key not in hard for _ in range(packets[key] // ONE_IN)]
            fast.sample(now, vrf_id, sampled, ONE_IN)
        written += sum(map(len, fast.rebalance(now, 1000).values()))
    return written


@given(st.integers(0, 1 << 32))
def test_what_is_exchanged_comes_to_an_end(seed: int) -> None:
    fast, traffic = a_world(random.Random(seed))
    play(fast, traffic, 0, SETTLED_S)
    assert play(fast, traffic, SETTLED_S, WATCHED_S) == 0
