"""From one route table to another by single writes, every address at every moment with the old or the new result.

With longest prefix match a write shows at once, and hides or uncovers what nests with it. So, of two changed prefixes
of which the outer holds the inner, this goes first and that second:

    outer        inner
    insert       insert      the inner one: its addresses must not meet the outer one's new action
    modify       insert      the inner one, for the same reason
    delete       insert      the inner one: its addresses must not fall through to what is around both
    insert       delete      the outer one: it is what the addresses of the inner one get
    modify       delete      the outer one
    delete       delete      the outer one: the inner one's addresses must not fall through to an old action
    any          modify      in any order: neither shows where the other does

Writes that do not have to wait for each other share a stage. The plane confirms one before the next is sent, and
writes those of one stage in any order.

Of more changes than are to be looked at in one go, the first by `rank` may all be written before the others: inserts,
the longest first, then modifications, then deletions, the shortest first. By no rule above does one of them wait for
one that comes later.
"""

from collections.abc import Mapping

from controller.planes.base import Op, RouteUpdates
from wire.columns import ADDRESS_BYTES

_NO_CHANGE = -256

Changes = dict[bytes, tuple[int | None, int | None]]
"""Prefix key → (action before, action after); None where there is no entry."""


def rank(key: bytes, before: int | None, after: int | None) -> int:
    """Return where the change of a prefix comes among many, what is no change first: those of a lower rank may all be
    written before."""
    if before == after:
        return _NO_CHANGE
    if before is None:
        return -key[-1]
    return 1 if after is not None else 2 + key[-1]


def stages(vrf_id: int, family: int, changes: Mapping[bytes, tuple[int | None, int | None]]) -> list[RouteUpdates]:
    """Return the writes of ``changes``, all keys of ``family``, in as few stages as their nesting allows.

    At no moment are there more entries than before and inserted ones together. O(n log n).
    """
    keys = sorted(key for key, (old, new) in changes.items() if old != new)
    ops = [_op(*changes[key]) for key in keys]
    outer = _outer(keys, family)
    stage = [0] * len(keys)
    # Inner ones first: what is around an insert has to wait for it.
    for position in range(len(keys) - 1, -1, -1):
        around = outer[position]
        if around >= 0:
            stage[around] = max(stage[around], stage[position] + (ops[position] is Op.INSERT))
    # Then outer ones first: a delete has to wait for what is around it.
    latest = [0] * len(keys)  # the last stage of all that is around
    for position, around in enumerate(outer):
        if around >= 0:
            latest[position] = max(latest[around], stage[around])
            if ops[position] is Op.DELETE:
                stage[position] = max(stage[position], latest[position] + 1)
    done = [RouteUpdates(vrf_id, family) for _ in range(max(stage, default=-1) + 1)]
    for position, key in enumerate(keys):
        updates = done[stage[position]]
        updates.ops.append(ops[position])
        updates.keys.append(key)
        updates.actions.append(changes[key][1] or 0)
    return done


def _op(old: int | None, new: int | None) -> Op:
    if old is None:
        return Op.INSERT
    return Op.DELETE if new is None else Op.MODIFY


def _outer(keys: list[bytes], family: int) -> list[int]:
    """Return for each of the sorted keys the position of the nearest one around it, -1 where there is none."""
    bits = 8 * ADDRESS_BYTES[family]
    outer: list[int] = []
    around: list[tuple[int, int]] = []  # (end, position), outermost first
    for position, key in enumerate(keys):
        start = int.from_bytes(key[:-1], "big")
        while around and around[-1][0] <= start:
            around.pop()
        outer.append(around[-1][1] if around else -1)
        around.append((start + (1 << (bits - key[-1])), position))
    return outer
