"""Any lines of the `ip` suite."""

from hypothesis import given
from hypothesis import strategies as st

from controller.spec.static_routes import LineError, parse_routes

WORDS = (
    *(
        "-4",
        "-6",
        "route",
        "add",
        "replace",
        "del",
        "blackhole",
        "default",
        "10.0.0.0/8",
        "10.0.0.1",
        "::/0",
        "fe80::1",
    ),
    *("via", "inet6", "dev", "eth0", "metric", "src", "onlink", "nexthop", "weight", "7", "2001:db8::1", "#", "\n"),
)


@given(st.lists(st.one_of(st.sampled_from(WORDS), st.text(max_size=8)), max_size=24))
def test_any_words_are_routes_or_one_line_of_refusal(words: list[str]) -> None:
    said: list[str] = []
    try:
        said = [route.text for route in parse_routes(" ".join(words))]
    except LineError as refusal:
        said = [str(refusal)]
    assert not any("\n" in text for text in said)
