"""The tree of prefixes against plain search."""

from unittest.mock import patch

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from controller.route_cache import prefix_tree
from controller.route_cache.prefix_tree import PrefixTree
from wire.columns import ADDRESS_BYTES


@st.composite
def some_keys(draw: st.DrawFn, family: int) -> bytes:
    bits = 8 * ADDRESS_BYTES[family]
    length = draw(st.sampled_from([0, 1, 2, 3, 4, 5, bits - 1, bits]))
    address = draw(st.integers(0, 31)) << (bits - 5) | draw(st.integers(0, 3))
    return (address >> (bits - length) << (bits - length)).to_bytes(bits // 8, "big") + bytes((length,))


def holds(outer: bytes, inner: bytes) -> bool:
    away = 8 * (len(outer) - 1) - outer[-1]
    first, other = (int.from_bytes(key[:-1], "big") >> away for key in (outer, inner))
    return outer[-1] <= inner[-1] and first == other


families = st.sampled_from([4, 6])
scripts = families.flatmap(
    lambda family: st.tuples(
        st.just(family),
        st.lists(st.dictionaries(some_keys(family), st.none() | st.integers(1, 9), max_size=12), max_size=5),
        some_keys(family),
    )
)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(scripts, st.sampled_from([1, 2, 512]))
def test_around_inside_and_free_parts(script: tuple[int, list[dict[bytes, int | None]], bytes], bucket: int) -> None:
    with patch.object(prefix_tree, "_BUCKET", bucket):
        compared(*script)


def compared(family: int, steps: list[dict[bytes, int | None]], key: bytes) -> None:
    tree, plain = PrefixTree(family), {}
    for changes in steps:
        tree.update(changes)
        plain = {one: action for one, action in (plain | changes).items() if action is not None}
    assert tree.actions == plain
    around = [one for one in plain if holds(one, key) and one != key]
    inside = [one for one in plain if holds(key, one) and one != key]
    assert tree.above(key) == max(around, key=lambda one: one[-1], default=None)
    outermost = [one for one in inside if not any(holds(other, one) and other != one for other in inside)]
    assert list(tree.inside(key)) == sorted(outermost)
    assert tree.free(key) == (not inside)
    host = key[:-1] + bytes((8 * ADDRESS_BYTES[family],))
    home = max((one for one in plain if holds(one, host)), key=lambda one: one[-1], default=None)
    if home is None:
        assert tree.part(host) is None
        return
    # The shortest prefix around the host, no shorter than its route, with no longer route inside.
    for length in range(home[-1], 8 * ADDRESS_BYTES[family] + 1):
        away = 8 * ADDRESS_BYTES[family] - length
        address = int.from_bytes(host[:-1], "big") >> away << away
        part = address.to_bytes(ADDRESS_BYTES[family], "big") + bytes((length,))
        if not any(holds(part, one) and one != part for one in plain):
            break
    assert tree.part(host) == (part, home)


def test_buckets_split_and_vanish() -> None:
    keys = [number.to_bytes(4, "big") + b"\x20" for number in range(5000)]
    tree = PrefixTree(4)
    for key in keys[::2]:  # one by one
        tree.set(key, 1)
    tree.update(dict.fromkeys(keys[1::2], 2))  # in one piece
    whole = bytes(5)
    assert list(tree.inside(whole)) == keys
    for key in keys[:4000]:
        tree.remove(key)
    assert list(tree.inside(whole)) == keys[4000:]
    assert len(tree) == 1000
