"""The fewest entries that forward as a table does, found without any of the product's ways: by trying every label."""

from collections.abc import Mapping

from wire.columns import ADDRESS_BYTES

NOWHERE = float("inf")
BASE = None
"""What is inherited where there is no entry above, or only one that stands alone."""

Costs = dict[int | None, float]
"""What is inherited from above → fewest entries below."""


def bits_of(key: bytes) -> str:
    """Return a key's prefix as zeros and ones."""
    return f"{int.from_bytes(key[:-1], 'big'):0{8 * len(key) - 8}b}"[: key[-1]]


def key_of(bits: str, family: int) -> bytes:
    """Return the key of a prefix of zeros and ones."""
    size = ADDRESS_BYTES[family]
    return int(bits.ljust(8 * size, "0"), 2).to_bytes(size, "big") + bytes((len(bits),))


def directly_inside(table: Mapping[bytes, int]) -> dict[bytes, int]:
    """Return how many prefixes lie inside each and in none between."""
    ways = {bits_of(key): key for key in table}
    count = dict.fromkeys(table, 0)
    for bits in ways:
        around = next((bits[:n] for n in range(len(bits) - 1, -1, -1) if bits[:n] in ways), None)
        if around is not None:
            count[ways[around]] += 1
    return count


def fewest_entries(table: Mapping[bytes, int], alone: frozenset[bytes] = frozenset()) -> int:
    """Return the size of the smallest equal table; ``alone`` have entries of their own, across which nothing goes."""
    ways = {bits_of(key): (action, key in alone) for key, action in table.items()}
    inner = {bits[:n] for bits in ways for n in range(len(bits))}
    labels: list[int | None] = [BASE, *sorted(set(table.values()))]

    def leaf(hole: int | None) -> Costs:
        return {above: 0 if above == hole else NOWHERE if hole is BASE else 1 for above in labels}

    def below(bits: str, hole: int | None) -> Costs:
        if bits not in ways and bits not in inner:
            return leaf(hole)
        action, stands_alone = ways.get(bits, (hole, False))
        around = BASE if stands_alone else action
        if bits in inner:
            sides = [below(bits + side, around) for side in "01"]
            keep = {above: sides[0][above] + sides[1][above] for above in labels}
        else:
            keep = leaf(around)
        if stands_alone:
            return dict.fromkeys(labels, 1 + keep[BASE])
        anew = 1 + min((keep[label] for label in labels if label is not BASE), default=NOWHERE)
        return {above: min(keep[above], anew) for above in labels}

    return int(below("", BASE)[BASE])
