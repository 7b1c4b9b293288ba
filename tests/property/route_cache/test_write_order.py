"""From table to table by single writes: every address has the old or the new result at every moment."""

import random

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from plain_changes import changes_between

from controller.planes.base import Op, RouteUpdates
from controller.route_cache.pending_writes import PendingWrites
from controller.route_cache.write_order import Changes, stages
from wire.columns import KEY_STRIDE, prefix_key

# Prefixes of the first five bits: 32 addresses stand for all.
BITS = 5


def keys_of(family: int) -> st.SearchStrategy[bytes]:
    def key(length: int, address: int) -> bytes:
        top = address >> (BITS - length) << (8 - length)
        return bytes((top,)).ljust(KEY_STRIDE[family] - 1, b"\0") + bytes((length,))

    return st.builds(key, st.integers(0, BITS), st.integers(0, 2**BITS - 1))


def tables(family: int) -> st.SearchStrategy[dict[bytes, int]]:
    return st.dictionaries(keys_of(family), st.integers(1, 3), max_size=14)


def results(table: dict[bytes, int]) -> list[int | None]:
    """What longest prefix match gives for each of the addresses."""
    found = []
    for address in range(2**BITS):
        top = address << (8 - BITS)
        around = [key for key in table if top >> (8 - key[-1]) == key[0] >> (8 - key[-1])]
        found.append(table[max(around, key=lambda key: key[-1])] if around else None)
    return found


def play(table: dict[bytes, int], op: Op, key: bytes, action: int) -> None:
    assert (key in table) == (op is not Op.INSERT)
    if op is Op.DELETE:
        del table[key]
    else:
        table[key] = action


slow_is_fine = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
families = st.sampled_from([4, 6])
pairs = families.flatmap(lambda family: st.tuples(st.just(family), tables(family), tables(family)))


@slow_is_fine
@given(pairs, st.sampled_from([1, 2, 3, 5, 100]), st.randoms(use_true_random=False))
def test_every_address_has_the_old_or_the_new_result(
    drawn: tuple[int, dict[bytes, int], dict[bytes, int]], at_once: int, chance: random.Random
) -> None:
    """All of it planned in one go, or the first by rank of what is left, at_once at a time."""
    family, before, after = drawn
    table, old, new = dict(before), results(before), results(after)
    most = len(before) + len(after.keys() - before.keys())
    pending = PendingWrites()
    for key in before.keys() | after.keys():
        pending.note(key, before.get(key), after.get(key))
    while pending:
        part = pending.first(at_once)
        for key in part:
            pending.discard(key)
        for updates in stages(7, family, {key: (table.get(key), after.get(key)) for key in part}):
            assert (updates.vrf_id, updates.family) == (7, family)
            writes = list(zip(updates.ops, updates.keys, updates.actions, strict=True))
            assert writes
            chance.shuffle(writes)
            for op, key, action in writes:
                play(table, op, key, action)
                assert all(now in pair for now, *pair in zip(results(table), old, new, strict=True))
                assert len(table) <= most
    assert table == after


def inside(inner: bytes, outer: bytes) -> bool:
    return inner[-1] > outer[-1] and inner[0] >> (8 - outer[-1]) == outer[0] >> (8 - outer[-1])


def longest_chain(changes: Changes) -> int:
    """How many stages the order asks for that the module states, by trying all that may come before."""

    def first(one: bytes, other: bytes) -> bool:
        one_new, other_gone = changes[one][0] is None, changes[other][1] is None
        return (one_new and inside(one, other)) or (
            other_gone and inside(other, one) and changes[other][0] is not None
        )

    depth: dict[bytes, int] = {}

    def chain(key: bytes) -> int:
        if key not in depth:
            depth[key] = 1 + max((chain(one) for one in changes if first(one, key)), default=0)
        return depth[key]

    return max(map(chain, changes), default=0)


@slow_is_fine
@given(pairs)
def test_no_more_stages_than_the_nesting_asks_for(drawn: tuple[int, dict[bytes, int], dict[bytes, int]]) -> None:
    family, before, after = drawn
    changes = changes_between(before, after)
    assert len(stages(1, family, changes)) == longest_chain(changes)


def kinds(found: list[RouteUpdates]) -> list[list[tuple[Op, bytes]]]:
    return [sorted(zip(updates.ops, updates.keys, strict=True)) for updates in found]


def test_neighbors_share_a_stage_and_nested_ones_do_not() -> None:
    outer, inner, beside = (prefix_key(text) for text in ("10.0.0.0/8", "10.1.0.0/16", "11.0.0.0/8"))
    enter = stages(1, 4, {outer: (None, 1), inner: (None, 2), beside: (None, 3)})
    assert kinds(enter) == [[(Op.INSERT, inner), (Op.INSERT, beside)], [(Op.INSERT, outer)]]
    leave = stages(1, 4, {outer: (1, None), inner: (2, None), beside: (3, None)})
    assert kinds(leave) == [[(Op.DELETE, outer), (Op.DELETE, beside)], [(Op.DELETE, inner)]]
    assert kinds(stages(1, 4, {outer: (1, 2), inner: (2, 3)})) == [[(Op.MODIFY, outer), (Op.MODIFY, inner)]]
    assert stages(1, 4, {outer: (1, 1)}) == []
