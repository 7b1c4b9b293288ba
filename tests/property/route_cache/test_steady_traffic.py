"""Where traffic does not change, hardware does not either, however prefixes lie in each other."""

import random

from hypothesis import given
from hypothesis import strategies as st

from controller.planes.base import FALLBACK
from controller.route_cache.fast_table import FastTable
from wire.columns import prefix_key

VRF = 1
ONE_IN = 10
"""Of the packets in software, one of so many is sampled."""
RATES = (0, 0, 50, 100, 150, 200, 300, 500, 1000)
SETTLED_S, WATCHED_S = 150, 50


def nested_routes(chance: random.Random) -> dict[bytes, int]:
    """Return up to eleven prefixes, most of them inside others."""
    found = {prefix_key("10.0.0.0/8"), prefix_key("10.0.0.0/16")}
    for _ in range(chance.randrange(4, 10)):
        length = chance.choice((8, 9, 10, 12, 16, 20, 24))
        address = chance.choice((10, 11, 12)) << 24 | chance.randrange(4) << 22
        address |= chance.randrange(3) << 16 | chance.randrange(2) << 8
        found.add((address >> (32 - length) << (32 - length)).to_bytes(4, "big") + bytes((length,)))
    return {key: 1 + number % 5 for number, key in enumerate(sorted(found))}


def play(fast: FastTable, packets: dict[bytes, int], start: int, seconds: int) -> int:
    """Let traffic pass, in packets a second by prefix; return how many entries were written."""
    written = 0
    for now in range(start, start + seconds):
        held = fast.entries(VRF)
        hard = {key for key in packets if held.get(key, FALLBACK) != FALLBACK}
        fast.count(now, VRF, {key: packets[key] for key in hard})
        sampled = [key for key in packets if key not in hard for _ in range(packets[key] // ONE_IN)]
        fast.sample(now, VRF, sampled, ONE_IN)
        written += sum(map(len, fast.rebalance(now, 1000).values()))
    return written


@given(st.integers(0, 1 << 32))
def test_what_is_exchanged_comes_to_an_end(seed: int) -> None:
    chance = random.Random(seed)
    routes = nested_routes(chance)
    packets = {key: chance.choice(RATES) for key in routes}
    fast = FastTable(4, chance.randrange(2, len(routes)), reserve=0)
    fast.add(VRF, "red")
    fast.change(VRF, routes)
    play(fast, packets, 0, SETTLED_S)
    assert play(fast, packets, SETTLED_S, WATCHED_S) == 0
