"""The guest's log on a machine's console: line by line, also after the file was begun again, within a rate."""

import os
from pathlib import Path

import pytest

from vrc.guest.log import GuestLog
from vrc.machine import log as machine_log
from vrc.machine.log import BURST_LINES, LINES_PER_LOOK, MAX_LOOK_BYTES, LogTail


class Timers:
    """A reactor whose time is passed by hand."""

    def __init__(self) -> None:
        self.due: list = []

    def call_later(self, _delay_s: float, callback) -> None:
        self.due.append(callback)

    def look(self) -> None:
        due, self.due = self.due, []
        for callback in due:
            callback()


@pytest.fixture
def timers() -> Timers:
    return Timers()


def follow(timers: Timers, path: Path) -> list[str]:
    shown: list[str] = []
    LogTail(timers, str(path), shown.append)
    return shown


def test_lines_are_shown_once_they_are_whole(timers: Timers, tmp_path: Path) -> None:
    path = tmp_path / "guest.log"
    shown = follow(timers, path)  # before there is a log
    timers.look()
    with path.open("ab", buffering=0) as file:
        file.write(b"one\ntw")
        timers.look()
        assert shown == ["one"]
        file.write(b"o\nthree\n")
        timers.look()
    assert shown == ["one", "two", "three"]


def test_a_log_that_is_begun_again_is_followed(timers: Timers, tmp_path: Path) -> None:
    path = tmp_path / "guest.log"
    log = GuestLog(str(path), limit=2000)
    shown = follow(timers, path)
    for number in range(100):
        log.write("bgpd", f"line {number}")
        if number % 7 == 0:
            timers.look()
    timers.look()
    timers.look()
    assert (tmp_path / "guest.log.1").exists()
    assert [line.rpartition(" ")[2] for line in shown] == [str(number) for number in range(100)]


def test_a_log_is_followed_also_where_it_is_looked_at_while_it_is_begun_again(
    timers: Timers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, sendfile = tmp_path / "guest.log", os.sendfile
    log = GuestLog(str(path), limit=2000)
    shown = follow(timers, path)

    def look_and_send(out_fd: int, in_fd: int, offset: int, count: int) -> int:
        timers.look()
        return sendfile(out_fd, in_fd, offset, count)

    monkeypatch.setattr(os, "sendfile", look_and_send)
    for number in range(150):
        log.write("bgpd", f"line {number}")
        timers.look()
    assert [line.rpartition(" ")[2] for line in shown] == [str(number) for number in range(150)]


@pytest.mark.parametrize(("lines", "begun_again"), [(2500, 1), (5000, 2)])
def test_what_a_flood_had_written_when_the_log_is_begun_again_is_counted(
    timers: Timers, tmp_path: Path, lines: int, begun_again: int
) -> None:
    path = tmp_path / "guest.log"
    log = GuestLog(str(path), limit=4 * MAX_LOOK_BYTES)
    shown = follow(timers, path)
    log.write("bgpd", "first")
    timers.look()
    for number in range(lines):
        log.write("bgpd", f"{number} {'x' * 480}")
    os.utime(path, ns=(0, (tmp_path / "guest.log.1").stat().st_mtime_ns + 1))  # a moment later
    for _ in range(10):
        timers.look()
    notices = [line for line in shown if "lines were not shown" in line]
    lost = f"{path} was begun again before it was read: what was before {path}.1 may be lost"
    left = path.read_text().count("\n") + (tmp_path / "guest.log.1").read_text().count("\n")
    assert shown.count(lost) == begun_again - 1
    read = len(shown) - len(notices) - shown.count(lost) + sum(int(line.split()[0]) for line in notices)
    assert read == left + begun_again - 1  # the first line was read before


def test_what_a_daemon_writes_is_no_command_of_a_terminal(timers: Timers, tmp_path: Path) -> None:
    path = tmp_path / "guest.log"
    path.write_bytes(b"\x1b[2J\xff" + b"x" * 10_000 + b"\n")
    (line,) = follow(timers, path)
    assert line.startswith("?[2J\N{REPLACEMENT CHARACTER}xxx")
    assert len(line) <= machine_log.MAX_LINE


def test_a_flood_is_cut_and_counted(timers: Timers, tmp_path: Path) -> None:
    path = tmp_path / "guest.log"
    path.write_text("".join(f"{number}\n" for number in range(10_000)))
    shown = follow(timers, path)
    assert shown == [str(number) for number in range(BURST_LINES)]
    timers.look()
    assert shown[BURST_LINES:] == [f"{10_000 - BURST_LINES} lines were not shown; they are in {path}"]
    with path.open("a") as file:
        file.write("more\n" * 1000)
    timers.look()
    assert len(shown) == BURST_LINES + 1 + 2 * LINES_PER_LOOK - 1


def test_a_link_in_the_log_s_place_is_not_followed(timers: Timers, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret\n")
    os.symlink(tmp_path / "secret", tmp_path / "guest.log")
    assert follow(timers, tmp_path / "guest.log") == []
