"""The aggregated table forwards as the full one at any time, is as small as can be, and follows with few writes."""

import random
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plain_aggregation import bits_of, directly_inside, fewest_entries, key_of

from controller.route_cache.aggregate import LEAST_BUDGET, Aggregate
from controller.routing.ranges import flatten
from wire.columns import ADDRESS_BYTES, prefix_key

NO_LIMIT = 1000
ACTIONS = st.integers(1, 4)

# Near the root and down to single addresses; close together, so that edges of one bit, two and more are frequent.
BASES = {4: ["", "0000101", "0000101000001010000010100000"], 6: ["", "0010000000000001", "0010" * 31]}
TAILS = st.one_of(st.text("01", max_size=3), st.text("01", max_size=4), st.text("01", max_size=8))


def keys(family: int) -> st.SearchStrategy[bytes]:
    width = 8 * ADDRESS_BYTES[family]
    return st.tuples(st.sampled_from(BASES[family]), TAILS).map(lambda one: key_of("".join(one)[:width], family))


@dataclass
class Pair:
    """A full table, its aggregate, and what a plane holds that got every write."""

    aggregate: Aggregate
    full: dict[bytes, int] = field(default_factory=dict)
    kept: set[bytes] = field(default_factory=set)
    plane: dict[bytes, int] = field(default_factory=dict)

    def change(self, changes: dict[bytes, int | None], kept: bool = False) -> dict[bytes, int | None]:
        for key, action in changes.items():
            self.kept.discard(key)
            if action is None:
                self.full.pop(key, None)
            else:
                self.full[key] = action
                self.kept |= {key} if kept else set()
        return self.write(self.aggregate.change(changes, kept=kept))

    def write(self, writes: dict[bytes, int | None]) -> dict[bytes, int | None]:
        for key, action in writes.items():
            assert self.plane.get(key) != action, "a write that changes nothing"
            if action is None:
                del self.plane[key]
            else:
                self.plane[key] = action
        return writes

    def check(self) -> None:
        family = self.aggregate.family
        assert flatten(self.plane, family) == flatten(self.full, family)
        assert self.aggregate.table() == self.plane
        assert (len(self.aggregate), self.aggregate.routes) == (len(self.plane), len(self.full))
        assert set(self.plane.values()) <= set(self.full.values())
        assert {key: self.plane.get(key) for key in self.kept} == {key: self.full[key] for key in self.kept}


def scripts(family: int) -> st.SearchStrategy[tuple[int, list[tuple[dict[bytes, int | None], bool, int]]]]:
    actions = st.one_of(ACTIONS, ACTIONS, st.none())
    some = st.dictionaries(keys(family), actions, min_size=1, max_size=6)
    kept = st.integers(0, 5).map(lambda number: not number)
    return st.tuples(st.just(family), st.lists(st.tuples(some, kept, st.integers(0, 9)), min_size=1, max_size=20))


both_families = st.sampled_from([4, 6])


@settings(deadline=None)
@given(both_families.flatmap(scripts), st.sampled_from([0, 1, 2, 3, NO_LIMIT]))
def test_it_forwards_as_the_full_table_after_every_change(script, limit: int) -> None:
    family, changes = script
    pair = Pair(Aggregate(family, limit))
    for some, kept, budget in changes:
        writes = pair.change(some, kept)
        assert len(writes) <= pair.aggregate.write_bound * len(some)
        pair.check()
        if budget >= LEAST_BUDGET:
            assert len(pair.write(pair.aggregate.improve(budget))) <= budget
            pair.check()


@settings(deadline=None)
@given(both_families.flatmap(scripts), st.booleans())
def test_improved_to_the_end_it_is_as_small_as_can_be(script, at_once: bool) -> None:
    family, changes = script
    pair = Pair(Aggregate(family, NO_LIMIT))
    for some, kept, _ in changes:
        pair.change(some, kept)
    if at_once:
        pair.write(pair.aggregate.improve())
    while pair.aggregate.queued:
        pair.write(pair.aggregate.improve(LEAST_BUDGET))
    pair.check()
    assert len(pair.plane) == fewest_entries(pair.full, frozenset(pair.kept))


@settings(deadline=None)
@given(both_families.flatmap(lambda family: st.dictionaries(keys(family), ACTIONS, min_size=1, max_size=40)))
def test_loaded_it_is_as_small_as_can_be(table: dict[bytes, int]) -> None:
    pair = Pair(Aggregate(4 if len(next(iter(table))) == 5 else 6, NO_LIMIT), full=table)
    pair.write(pair.aggregate.load(table))
    pair.check()
    assert pair.aggregate.queued == 0
    assert len(pair.plane) == fewest_entries(table)


@settings(deadline=None)
@given(both_families.flatmap(scripts), st.sampled_from([0, 2, 4]))
def test_a_limit_costs_only_the_prefixes_beyond_it(script, limit: int) -> None:
    family, changes = script
    pair = Pair(Aggregate(family, limit))
    for some, kept, _ in changes:
        pair.change(some, kept)
    pair.write(pair.aggregate.improve())
    pair.check()
    inside = directly_inside(pair.full)
    least, most = (
        fewest_entries(pair.full, frozenset(pair.kept | {key for key, count in inside.items() if count > above}))
        for above in (limit, limit // 2)
    )
    assert least <= len(pair.plane) <= most


def longest_match(table: dict[bytes, int], address: bytes) -> tuple[bytes, int] | None:
    matching = (key for key in table if bits_of(address + bytes((8 * len(address),))).startswith(bits_of(key)))
    longest = max(matching, key=lambda key: key[-1], default=None)
    return None if longest is None else (longest, table[longest])


@settings(deadline=None)
@given(both_families.flatmap(scripts), st.sampled_from([1, NO_LIMIT]))
def test_a_match_is_the_entry_of_the_longest_prefix(script, limit: int) -> None:
    family, changes = script
    pair = Pair(Aggregate(family, limit))
    for some, kept, _ in changes:
        pair.change(some, kept)
    for start, _ in flatten(pair.full, family):
        address = start.to_bytes(ADDRESS_BYTES[family], "big")
        assert pair.aggregate.match(address) == longest_match(pair.plane, address)


@pytest.mark.parametrize("family", [4, 6])
@pytest.mark.parametrize("limit", [2, 8])
def test_a_long_walk(family: int, limit: int) -> None:
    chance = random.Random(f"{family} {limit}")
    pair = Pair(Aggregate(family, limit))
    for step in range(1000):
        tail = "".join(chance.choices("01", k=min(7, chance.randrange(11))))
        key = key_of(BASES[family][step % 2] + tail, family)
        action = None if key in pair.full and chance.random() < 0.6 else chance.randint(1, 3)
        assert len(pair.change({key: action}, kept=chance.random() < 0.03)) <= pair.aggregate.write_bound
        if step % 3 == 0:
            assert len(pair.write(pair.aggregate.improve(LEAST_BUDGET))) <= LEAST_BUDGET
        if step % 10 == 0:
            assert set(pair.plane.values()) <= set(pair.full.values())
            assert pair.aggregate.match(key[:-1]) == longest_match(pair.plane, key[:-1])
        if step % 50 == 0:
            pair.check()


def test_two_halves_become_one() -> None:
    pair = Pair(Aggregate(4))
    pair.change({prefix_key("10.0.0.0/25"): 1, prefix_key("10.0.0.128/25"): 1})
    assert pair.plane == {prefix_key("10.0.0.0/24"): 1}


def test_a_prefix_two_bits_below_takes_the_action_of_the_other_side() -> None:
    table = {prefix_key("10.0.0.0/24"): 1, prefix_key("10.0.0.0/26"): 2, prefix_key("10.0.0.128/25"): 2}
    pair = Pair(Aggregate(4), full=table)
    pair.write(pair.aggregate.load(table))
    assert pair.plane == {prefix_key("10.0.0.0/24"): 2, prefix_key("10.0.0.64/26"): 1}
    assert pair.aggregate.match(bytes((10, 0, 0, 65))) == (prefix_key("10.0.0.64/26"), 1)


def test_nothing_is_forwarded_where_there_was_no_route() -> None:
    pair = Pair(Aggregate(4))
    pair.write(pair.aggregate.load({prefix_key("10.0.0.0/26"): 1, prefix_key("10.0.0.128/25"): 1}))
    assert pair.plane == {prefix_key("10.0.0.0/26"): 1, prefix_key("10.0.0.128/25"): 1}


def test_a_prefix_with_many_inside_changes_with_one_write() -> None:
    inside = {prefix_key(f"10.{n // 256}.{n % 256}.0/24"): 1 + n % 3 for n in range(0, 60000, 7)}
    pair = Pair(Aggregate(4, limit=32), full={})
    pair.change({**inside, prefix_key("10.0.0.0/8"): 1})
    pair.write(pair.aggregate.improve())
    assert pair.change({prefix_key("10.0.0.0/8"): 2}) == {prefix_key("10.0.0.0/8"): 2}
    assert pair.change({prefix_key("10.0.0.0/8"): None}) == {prefix_key("10.0.0.0/8"): None}
    pair.check()


def test_a_prefix_that_is_large_stays_so_until_half_of_it_is_gone() -> None:
    around, inside = prefix_key("10.0.0.0/8"), [prefix_key(f"10.{n}.0.0/16") for n in range(0, 22, 2)]
    pair = Pair(Aggregate(4, limit=10))
    pair.change({around: 1, **dict.fromkeys(inside[:10], 1)})
    assert pair.plane == {around: 1}
    pair.change({inside[10]: 1})
    assert len(pair.plane) == 12
    for action in (None, 1) * 3:
        assert pair.change({inside[10]: action}) == {inside[10]: action}
    pair.change(dict.fromkeys(inside[5:]))
    pair.write(pair.aggregate.improve())
    assert pair.plane == {around: 1}


def test_a_label_is_free_again_when_the_last_route_of_its_action_is_gone() -> None:
    pair = Pair(Aggregate(4))
    halves = [prefix_key("10.0.0.0/25"), prefix_key("10.0.0.128/25")]
    for action in range(1, 1000):
        pair.change(dict.fromkeys(halves, action))
    pair.write(pair.aggregate.improve())
    assert pair.plane == {prefix_key("10.0.0.0/24"): 999}


def test_kept_entries_are_not_merged_and_may_be_released() -> None:
    pair = Pair(Aggregate(6))
    own = {prefix_key("2001:db8::1/128"): 1}
    pair.change({prefix_key("2001:db8::/64"): 1})
    assert pair.change(dict(own), kept=True) == own
    assert pair.change(dict(own)) == {prefix_key("2001:db8::1/128"): None}
    pair.check()


def test_what_is_never_improved_does_not_pile_up() -> None:
    aggregate = Aggregate(4)
    for _ in range(100):
        for action in (1, None):
            aggregate.change({prefix_key(f"10.0.{n}.0/24"): action for n in range(0, 20, 3)})
    assert aggregate.queued < 30


def test_more_actions_than_labels_are_right_though_not_merged() -> None:
    pair = Pair(Aggregate(4))
    pair.change({prefix_key(f"10.{n // 256}.{n % 256}.0/24"): 1 + n // 2 for n in range(1000)})
    pair.write(pair.aggregate.improve())
    pair.check()
    assert len(pair.plane) == 1000 - 255
    pair.change(dict.fromkeys(pair.full, 7))
    pair.write(pair.aggregate.improve())
    pair.check()
    assert len(pair.plane) == fewest_entries(pair.full)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({b"\n\0\0\x18": 1}, "is no prefix key of 5 octets"),
        ({b"\n\0\0\1\x18": 1}, "has bits set beyond its length"),
        ({b"\n\0\0\0\x21": 1}, "is longer than its address"),
        ({prefix_key("10.0.0.0/8"): -1}, "-1 is no action of 32 bits"),
        ({prefix_key("10.0.0.0/8"): 1 << 32}, "is no action of 32 bits"),
    ],
)
def test_what_is_no_key_or_action_changes_nothing(changes: dict[bytes, int], message: str) -> None:
    aggregate = Aggregate(4)
    with pytest.raises(ValueError, match=message):
        aggregate.change({prefix_key("11.0.0.0/8"): 1, **changes})
    assert (len(aggregate), aggregate.routes) == (0, 0)


def test_arguments_out_of_range_are_refused() -> None:
    with pytest.raises(ValueError, match="family 5 is neither 4 nor 6"):
        Aggregate(5)
    with pytest.raises(ValueError, match="limit -1 is not from 0"):
        Aggregate(4, -1)
    with pytest.raises(ValueError, match=f"limit {1 << 31} is not from 0 to {(1 << 31) - 1}$"):
        Aggregate(4, 1 << 31)
    Aggregate(4, (1 << 31) - 1)
    with pytest.raises(ValueError, match="a budget of 4 writes is too small"):
        Aggregate(4).improve(4)
    with pytest.raises(ValueError, match="is no address of 4 octets"):
        Aggregate(4).match(bytes(16))
