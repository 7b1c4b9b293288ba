"""Tables as functions over all addresses, and where they differ."""

from controller.routing.ranges import differences, flatten
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


def test_differences_go_from_first_to_last_address_up_to_the_end_of_all() -> None:
    first = flatten(table(a="10.0.0.0/8", d="255.0.0.0/8"), 4)
    second = flatten(table(a="10.0.0.0/9"), 4)
    assert list(differences([first, second], 4)) == [
        (at("10.128.0.0"), at("10.255.255.255"), ("a", None)),
        (at("255.0.0.0"), END - 1, ("d", None)),
    ]
    assert list(differences([second, first, second], 4)) == [
        (at("10.128.0.0"), at("10.255.255.255"), (None, "a", None)),
        (at("255.0.0.0"), END - 1, (None, "d", None)),
    ]
    assert list(differences([first, first], 4)) == []
    short = flatten(table(a="10.0.0.0/8"), 4)
    assert list(differences([short, [(0, None)]], 4)) == [(at("10.0.0.0"), at("10.255.255.255"), ("a", None))]
    default = flatten({prefix_key("::/0"): "e"}, 6)
    assert list(differences([default, [(0, None)]], 6)) == [(0, (1 << 128) - 1, ("e", None))]
