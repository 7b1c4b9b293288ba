"""Prefixes in buckets that are split and emptied: what is around, inside and beside each, against a look at all."""

import random

import pytest

from controller.route_cache import prefix_tree
from controller.route_cache.prefix_tree import PrefixTree

DEFAULT = bytes(5)


def bits_of(key: bytes) -> str:
    return f"{int.from_bytes(key[:-1], 'big'):032b}"[: key[-1]]


def key_of(bits: str) -> bytes:
    return int(bits.ljust(32, "0"), 2).to_bytes(4, "big") + bytes((len(bits),))


def above(keys: set[bytes], key: bytes) -> bytes | None:
    around = [one for one in keys if one[-1] < key[-1] and bits_of(key).startswith(bits_of(one))]
    return max(around, key=lambda one: one[-1], default=None)


def inside(keys: set[bytes], key: bytes) -> list[bytes]:
    found = {one for one in keys if one[-1] > key[-1] and bits_of(one).startswith(bits_of(key))}
    return sorted(one for one in found if above(found, one) is None)


def part(keys: set[bytes], host: bytes) -> tuple[bytes, bytes] | None:
    if host in keys:
        return host, host
    home = above(keys, host)
    if home is None:
        return None
    others = [bits_of(one) for one in keys if one != home]
    parts = (bits_of(host)[:length] for length in range(home[-1], 33))
    return next((key_of(one), home) for one in parts if not any(other.startswith(one) for other in others))


@pytest.mark.parametrize("order", ["ascending", "descending", "random", "at once"])
def test_all_of_a_tree_is_as_looking_at_every_prefix_says(order: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prefix_tree, "_BUCKET", 3)
    chance = random.Random(7)
    lengths = chance.choices((2, 3, 5, 6, 31, 32), k=90)
    everything = sorted({key_of("".join(chance.choices("01", k=length))) for length in lengths})
    keys = list(everything)
    if order == "descending":
        keys.reverse()
    elif order == "random":
        chance.shuffle(keys)
    tree, there = PrefixTree(4), set[bytes]()
    if order == "at once":
        tree.update({key: number for number, key in enumerate(keys)})
    for number, key in enumerate(keys):
        tree.set(key, number)
    there.update(keys)
    hosts = [key_of("".join(chance.choices("01", k=32))) for _ in range(60)]
    while there:
        assert (len(tree), set(tree.actions)) == (len(there), there)
        for key in (DEFAULT, *everything[::7]):
            assert tree.above(key) == above(there, key)
            assert list(tree.inside(key)) == inside(there, key)
            assert tree.free(key) is (not inside(there, key))
        for host in hosts:
            assert tree.part(host) == part(there, host)
        gone = chance.sample(sorted(there), min(11, len(there)))
        tree.update(dict.fromkeys(gone))
        there.difference_update(gone)
    assert (list(tree.inside(DEFAULT)), tree.above(hosts[0]), tree.part(hosts[0])) == ([], None, None)
