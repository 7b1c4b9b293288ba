"""What a guest may write to an operator's terminal, and what not."""

import pytest

from controller.events.terminal_filter import MAX_STRING, TerminalFilter


def shown(octets: bytes) -> bytes:
    return TerminalFilter().feed(octets)


@pytest.mark.parametrize(
    "octets",
    [
        b"plain \t\r\n\b\a text",
        "réseau 網 ✓".encode(),
        b"\x1b[2J\x1b[1;1H\x1b[K\x1b[0;1;38;5;11m\x1b[m\x1b[3;10r\x1b[4A",
        b"\x1b[?1049h\x1b[?25l\x1b[?1;2004h\x1b[4l",
        b"\x1b7\x1b8\x1bM\x1b=\x1b>\x1b(0lqk\x1b(B",
    ],
)
def test_what_draws_is_passed_on(octets: bytes) -> None:
    assert shown(octets) == octets


@pytest.mark.parametrize(
    "octets",
    [
        b"\x1b]0;title\x07",
        b"\x1b]52;c;Y3VybA==\x1b\\",  # the clipboard
        b"\x1bP$qm\x1b\\",  # DECRQSS: answered as if typed
        b"\x1b_x\x1b\\",
        b"\x1b^x\x18",
        b"\x1bXx\xc2\x9c",
        b"\x1b[c",
        b"\x1b[>c",
        b"\x1b[6n",
        b"\x1b[21t",
        b"\x1b[5i",  # prints
        b"\x1b[?1000h",  # the mouse
        b"\x1b[?25;1003h",
        b"\x1b[>4;1m",
        b"\x1b[1$w",
        b"\x1b[999999999b",
        b"\x1b[" + b"1;" * 100,
        b"\x1bc",
        b"\x1b#8",
        b"\x1b%G",
        b"\x05",
        b"\x0e\x0f\x00\x7f",
        b"\xc2\x9b6n"[:2],
        "\u202e\u2066".encode(),
    ],
)
def test_what_does_more_is_not(octets: bytes) -> None:
    passed = shown(b"a" + octets + b"\x1b[mb")
    assert b"\x1b[mb" in passed
    assert passed.startswith(b"a")
    left = passed.removeprefix(b"a").replace(b"\x1b[m", b"")
    assert not any(octet < 32 for octet in left)
    assert len(left) <= len(octets)


def test_an_8_bit_sequence_is_left_without_its_introducer() -> None:
    assert shown(b"\xc2\x9b6n") == b"6n"
    assert shown(b"\x9b6n") == "\ufffd6n".encode()


def test_a_sequence_inside_another_is_looked_at() -> None:
    assert shown(b"\x1b[12\x1b[6nx") == b"x"
    assert shown(b"\x1b]0;t\x1b[6nx") == b"x"
    assert shown(b"\x1b\x1b[6nx") == b"x"


def test_a_string_without_end_hides_no_more_than_so_much() -> None:
    passed = shown(b"\x1b]0;" + b"x" * (MAX_STRING + 100) + b"\nend")
    assert passed.endswith(b"xx\nend")
    assert len(passed) < 200


def test_what_was_not_passed_on_is_counted() -> None:
    one = TerminalFilter()
    one.feed(b"text\x1b[1m")
    assert one.dropped == 0
    one.feed(b"\x1b]0;t\x1b\\\x1b[6n\x05")
    assert one.dropped == 3


def test_what_outlasts_its_program_is_put_back() -> None:
    one = TerminalFilter()
    one.feed(b"text\x1b[2J\x1b[4C")
    assert one.restoring == b""
    one.feed(b"\x1b[?1049;2004h\x1b[?25;7l\x1b[4h\x1b[31m\x1b[2;5r\x1b(0")
    assert one.restoring == b"".join(
        (b"\x1b[?1049l\x1b[?2004l\x1b[?25h\x1b[?7h\x1b[4l", b"\x1b[m", b"\x1b7\x1b[r\x1b8", b"\x1b(B")
    )
    one.feed(b"\x1b[?1049l\x1b[?25h")
    assert b"1049" not in one.restoring
    assert b"?25" not in one.restoring
