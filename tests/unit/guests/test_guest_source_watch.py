"""Whether zebra is connected to the VRC is seen in the guest's table of TCP sockets."""

from pathlib import Path

import pytest

from vrc.guest.reactor import Reactor
from vrc.guest.suites.source_watch import AGAIN_S, SILENT_S, UNTOLD_S, SourceWatch, fpm_is_missing

HEAD = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
LISTENS = "   0: 0100007F:0A3C 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 21 1\n"
ZEBRA = "   1: 0100007F:B2A4 0100007F:0A3C 01 00000000:00000000 00:00000000 00000000   102        0 23 1\n"
VRC = "   2: 0100007F:0A3C 0100007F:B2A4 01 00000000:00000000 00:00000000 00000000     0        0 24 1\n"
CLOSED = ZEBRA.replace(" 01 ", " 06 ")
BGP = "   3: 0100000A:00B3 0200000A:9C40 01 00000000:00000000 00:00000000 00000000   102        0 25 1\n"


@pytest.mark.parametrize(
    ("sockets", "expected"),
    [
        (LISTENS, True),
        (LISTENS + BGP + CLOSED, True),
        (LISTENS + ZEBRA + VRC, False),
        ("", False),  # without a VRC nothing can be connected; its own state says so
        (BGP, False),
    ],
)
def test_a_connection_is_awaited_where_somebody_listens_alone(tmp_path: Path, sockets: str, expected: bool) -> None:
    (tmp_path / "tcp").write_text(HEAD + sockets)
    assert fpm_is_missing(str(tmp_path / "tcp")) is expected


def test_zebra_is_told_to_connect_after_ten_seconds_and_then_every_thirty() -> None:
    told: list[float] = []
    watch = SourceWatch(Reactor(), lambda _: None, lambda: told.append(now))
    for now in (100.0, 100.0 + SILENT_S - 1):
        watch.see(True, now)
        assert not watch.tell()
    for now in (100.0 + SILENT_S, 105.0 + SILENT_S, 100.0 + SILENT_S + AGAIN_S):
        watch.see(True, now)
        assert watch.tell()
    assert told == [100.0 + SILENT_S, 100.0 + SILENT_S + AGAIN_S]
    watch.see(False, now)
    assert not watch.tell()
    watch.see(True, now + 1)
    assert not watch.tell()  # counted from nothing again


def silence() -> SourceWatch:
    watch = SourceWatch(Reactor(), lambda _: None, lambda: None)
    for now in (100.0, 100.0 + SILENT_S):
        watch.see(True, now)
    return watch


def test_a_short_silence_is_kept_until_somebody_has_asked() -> None:
    watch = silence()
    watch.see(False, 99.0 + SILENT_S + UNTOLD_S)
    assert watch.tell()
    watch.see(False, 99.0 + SILENT_S + UNTOLD_S)
    assert not watch.tell()


def test_a_silence_that_nobody_has_asked_about_is_forgotten_in_the_end() -> None:
    watch = silence()
    watch.see(False, 100.0 + SILENT_S + UNTOLD_S)
    assert not watch.tell()
