"""A terminal filter's output is the same however its input is cut, and never has more than it admits."""

import itertools
import re

from hypothesis import given
from hypothesis import strategies as st

from controller.events.terminal_filter import TerminalFilter

_PIECES = st.sampled_from(
    [b"\x1b", b"[", b"]", b"P", b"\\", b"\x07", b"\x18", b"?25h", b"1;2", b"m", b"n", b"c", b"$", b"(", b"0", b"text"]
)
_STREAM = st.lists(_PIECES | st.binary(max_size=3), max_size=40).map(b"".join)
_ADMITTED = re.compile(r"\x1b(?:\[[0-9;:]*[@-Z`adefgmr]|\[\??[0-9;]+[hl]|[78DEHM=>]|[()][0B])")


@given(_STREAM, st.lists(st.integers(0, 200), max_size=6))
def test_however_it_is_cut(octets: bytes, cuts: list[int]) -> None:
    whole, one = TerminalFilter().feed(octets), TerminalFilter()
    places = sorted({0, len(octets), *(min(cut, len(octets)) for cut in cuts)})
    pieces = [octets[start:end] for start, end in itertools.pairwise(places)]
    assert b"".join(map(one.feed, pieces)) == whole


@given(_STREAM)
def test_nothing_else_is_passed_on(octets: bytes) -> None:
    text = TerminalFilter().feed(octets).decode()
    rest = _ADMITTED.sub("", text)
    assert all(c.isprintable() or c in "\a\b\t\n\v\f\r" for c in rest)
