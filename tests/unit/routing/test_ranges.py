"""Tables as functions over all addresses, and where they differ."""

from random import Random

import pytest

from controller.diagnostics.verify import longest_match
from controller.routing import ranges
from controller.routing.ranges import Differences, Ranges, differences, flatten, in_order
from wire.columns import prefix_key

END = 1 << 32


def at(text: str) -> int:
    return int.from_bytes(prefix_key(f"{text}/32")[:-1], "big")


def table(**prefixes: str) -> dict[bytes, str]:
    return {prefix_key(prefix): value for value, prefix in prefixes.items()}


def test_a_table_is_flat_where_its_values_change() -> None:
    nested = table(a="10.0.0.0/8", b="10.0.0.0/16", c="10.255.0.0/16", d="255.0.0.0/8")
    assert flatten(nested | {prefix_key("2001:db8::/32"): "e"}, 4) == [
        (0, None),
        (at("10.0.0.0"), "b"),
        (at("10.1.0.0"), "a"),
        (at("10.255.0.0"), "c"),
        (at("11.0.0.0"), None),
        (at("255.0.0.0"), "d"),
    ]
    assert flatten({prefix_key("::/0"): "e", prefix_key("8000::/1"): "e"}, 6) == [(0, "e")]
    assert flatten({}, 4) == [(0, None)]


def test_a_row_has_a_value_for_each_table() -> None:
    with pytest.raises(ValueError, match="longer than argument 1"):
        list(Ranges[int](2, 4).take([(prefix_key("10.0.0.0/8"), (1,))]))


def test_differences_go_from_first_to_last_address_up_to_the_end_of_all() -> None:
    first = table(a="10.0.0.0/8", d="255.0.0.0/8")
    second = table(a="10.0.0.0/9")
    assert differences([first, second], 4) == [
        (at("10.128.0.0"), at("10.255.255.255"), ("a", None)),
        (at("255.0.0.0"), END - 1, ("d", None)),
    ]
    assert differences([second, first, second], 4) == [
        (at("10.128.0.0"), at("10.255.255.255"), (None, "a", None)),
        (at("255.0.0.0"), END - 1, (None, "d", None)),
    ]
    assert differences([first, first | {prefix_key("10.0.0.0/9"): "a"}], 4) == []
    assert differences([table(a="10.0.0.0/8"), {}], 4) == [(at("10.0.0.0"), at("10.255.255.255"), ("a", None))]
    assert differences([{prefix_key("::/0"): "e"}, {}], 6) == [(0, (1 << 128) - 1, ("e", None))]


def test_of_many_differences_the_first_are_kept_and_all_are_counted() -> None:
    rows = [(prefix_key(f"20.{number}.0.0/16"), ("a", "b" if number % 2 else "a")) for number in range(10)]
    different = Differences[str](2, 4, 3)
    for row in rows:
        different.take([row])
    different.finish()
    assert different.total == 5
    assert [start for start, _, _ in different.found] == [at(f"20.{number}.0.0") for number in (1, 3, 5)]


@pytest.mark.parametrize("family", [4, 6])
def test_each_address_has_what_its_longest_match_says(family: int) -> None:
    draw = Random(family)
    size, bits = (4, 32) if family == 4 else (16, 128)
    for _ in range(300):
        held: list[dict[bytes, str]] = [{}, {}]
        for of_one in held:
            for _ in range(draw.randrange(12)):
                length = draw.choice([0, 1, 2, 3, 4, bits - 1, bits])
                network = draw.getrandbits(bits) & (7 << bits - 3 | 3) & ((1 << bits) - (1 << bits - length))
                of_one[network.to_bytes(size, "big") + bytes((length,))] = draw.choice("abc")
        found, last = differences(held, family), (1 << bits) - 1
        for start, end, values in found:
            for address in {start, end, (start + end) // 2}:
                assert values == tuple(of(one, family, address) for one in held)
        edges = {edge for start, end, _ in found for edge in (start - 1, end + 1)} | {0, last}
        inside = {address for start, end, _ in found for address in edges if start <= address <= end}
        for address in edges - inside:
            if 0 <= address <= last:
                assert len({of(one, family, address) for one in held}) == 1


def of(held: dict[bytes, str], family: int, address: int) -> str | None:
    key = longest_match(held, family, address)
    return None if key is None else held[key]


def test_rows_are_sorted_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranges, "SORTED_AT_ONCE", 3)
    texts = "20.3.0.0/16", "2001:db8::/32", "20.1.0.0/24", "20.1.0.0/16", "20.2.0.0/16"
    keys = [prefix_key(text) for text in texts]
    steps = in_order([(key, (number,))] for number, key in enumerate(keys))
    for _ in keys:
        next(steps)  # as many steps as parts
    with pytest.raises(StopIteration) as ended:
        next(steps)
    families = {family: list(rows) for family, rows in ended.value.value.items()}
    assert families == {4: [(keys[n], (n,)) for n in (3, 2, 4, 0)], 6: [(keys[1], (1,))]}
