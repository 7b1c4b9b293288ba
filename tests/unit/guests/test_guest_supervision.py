"""The supervisor's parts without processes: back-off, event loop, log."""

import errno
import itertools
import json
import os
import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from vrc.guest import children
from vrc.guest import log as log_module
from vrc.guest.children import Backoff, describe_end
from vrc.guest.log import LINES_AT_ONCE, LINES_PER_S, MAX_LINE_BYTES, GuestLog
from vrc.guest.reactor import Reactor
from vrc.guest.suites import any_daemon
from vrc.guest.suites.base import write_files
from vrc.guest.supervisor import Supervisor


def test_pauses_double_up_to_five_seconds_until_the_child_is_failed() -> None:
    backoff = Backoff()
    pauses = [backoff.delay_s(0.0) for _ in range(4)]
    assert pauses == pytest.approx([0.1, 0.2, 0.4, 0.8])
    assert not backoff.failed
    assert backoff.delay_s(0.0) == children.FAILED_DELAY_S
    assert backoff.failed


def test_a_long_life_is_forgiven() -> None:
    backoff = Backoff()
    for _ in range(6):
        backoff.delay_s(0.0)
    assert backoff.delay_s(children.SETTLED_S) == pytest.approx(0.1)
    assert not backoff.failed


@pytest.mark.parametrize(
    ("status", "said", "text"),
    [
        (-9, "ignored", "killed by SIGKILL"),
        (-64 - 20, "", "killed by signal 84"),
        (3, "no certificate", "exit status 3: no certificate"),
        (0, "", "exit status 0"),
    ],
)
def test_an_end_is_told_in_one_line(status: int, said: str, text: str) -> None:
    assert describe_end(status, said) == text


def test_timers_run_in_order_and_cancelled_ones_not_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    # All four are asked for at one moment, however long a busy machine takes for it.
    moments = itertools.chain([0.0] * 4, itertools.count(0.0, 0.001))
    monkeypatch.setattr("vrc.guest.reactor.time", SimpleNamespace(monotonic=lambda: next(moments)))
    reactor, called = Reactor(), []
    reactor.call_later(0.002, reactor.stop)
    reactor.call_later(0.001, lambda: called.append("second"))
    reactor.call_later(0.0, lambda: called.append("first"))
    reactor.call_later(0.0, lambda: called.append("never")).cancel()
    reactor.run()
    assert called == ["first", "second"]


def test_a_readable_descriptor_calls_back_until_it_is_removed() -> None:
    reactor, (read, write), got = Reactor(), os.pipe(), []

    def receive() -> None:
        got.append(os.read(read, 1))
        if len(got) == 2:
            reactor.remove_reader(read)
            reactor.call_later(0.0, reactor.stop)

    reactor.add_reader(read, receive)
    os.write(write, b"abc")
    reactor.run()
    os.close(read)
    os.close(write)
    assert got == [b"a", b"b"]


def test_a_descriptor_removed_by_an_earlier_callback_of_the_round_is_not_called() -> None:
    reactor, calls = Reactor(), []
    pipes = [os.pipe(), os.pipe()]

    def remove_both(number: int) -> None:
        calls.append(number)
        for read, _ in pipes:
            reactor.remove_reader(read)
        reactor.stop()

    for number, (read, write) in enumerate(pipes):
        reactor.add_reader(read, lambda number=number: remove_both(number))
        os.write(write, b"x")
    reactor.run()
    for read, write in pipes:
        os.close(read)
        os.close(write)
    assert len(calls) == 1


def test_a_child_reads_its_input_and_what_it_says_is_collected(tmp_path: Path) -> None:
    reactor, ends = Reactor(), []
    family = children.Children(reactor, GuestLog(str(tmp_path / "guest.log")))
    child = children.Child("cat", ["/usr/bin/cat"], {}, lambda _, status: ends.append(status) or reactor.stop())
    child.input, child.lines = b"line\n" * 20_000, []
    family.spawn(child)
    reactor.run()
    assert (ends, child.lines[:2], len(child.lines)) == ([0], ["line", "line"], 1000)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.set_wakeup_fd(-1)


@pytest.mark.parametrize("refused", ["memfd_create", "lseek", "posix_spawn"])
def test_a_child_that_cannot_be_started_costs_no_descriptor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: str
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.ENFILE, os.strerror(errno.ENFILE))

    family = children.Children(Reactor(), GuestLog(str(tmp_path / "guest.log")))
    child = children.Child("cat", ["/usr/bin/cat"], {}, lambda *_: None)
    child.input = b"line\n"
    monkeypatch.setattr(os, refused, refuse)
    before = os.listdir("/proc/self/fd")
    with pytest.raises(OSError, match="Too many open files in system"):
        family.spawn(child)
    assert os.listdir("/proc/self/fd") == before
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.set_wakeup_fd(-1)


def test_a_child_hears_the_signals_that_its_parent_ignores(tmp_path: Path) -> None:
    before = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGHUP, signal.SIGQUIT)}
    reactor = Reactor()
    family = children.Children(reactor, GuestLog(str(tmp_path / "guest.log")))
    child = children.Child("grep", ["/usr/bin/grep", "SigIgn", "/proc/self/status"], {}, lambda *_: reactor.stop())
    child.lines = []
    try:
        family.spawn(child)
        reactor.run()
    finally:
        signal.set_wakeup_fd(-1)
        for number, handler in {**before, signal.SIGCHLD: signal.SIG_DFL}.items():
            signal.signal(number, handler)
    [line] = child.lines
    ignored = int(line.split()[1], 16)  # bit n - 1 is signal n (proc(5))
    assert not [number for number in before if ignored >> (number - 1) & 1], line


def test_a_program_that_floods_its_output_wakes_nobody_for_each_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reactor, log = Reactor(), GuestLog(str(tmp_path / "guest.log"))
    family = children.Children(reactor, log)
    pace = "j=0; while [ $j -lt 100 ]; do j=$((j+1)); done"  # a line in some 40 µs, as zebra: it is read meanwhile
    script = f"i=0; while [ $i -lt 4000 ]; do echo $i; i=$((i+1)); {pace}; done; echo last; exit 3"
    flooding = children.KeptChild(family, "flood", ["/bin/sh", "-c", script], {})
    heard: list[int] = []
    said = children.Child.said
    monkeypatch.setattr(children.Child, "said", lambda child, data, log: heard.append(1) or said(child, data, log))
    monkeypatch.setattr(children.KeptChild, "_again", lambda child, end: (log.write("vr-guest", end), reactor.stop()))
    begun = time.monotonic()
    try:
        flooding.start()
        reactor.run()
    finally:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    wakings = (time.monotonic() - begun) / children.PAUSE_S + 2
    assert len(heard) <= wakings * 5  # a pipe's 64 KiB are four reads, and one ends in the middle
    lines = [line.split(": ", 1)[1] for line in (tmp_path / "guest.log").read_text().splitlines()]
    assert lines == [*map(str, range(4000)), "last", "exit status 3: last"]


def test_no_file_of_a_guest_is_in_the_way_of_another_one_s_change(tmp_path: Path) -> None:
    files = {"a": "1\n", "a.new": "2\n"}
    write_files(str(tmp_path), files, os.getgid())
    write_files(str(tmp_path), {"a": "3\n"}, os.getgid())
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == files | {"a": "3\n"}


def test_a_text_that_cannot_be_written_is_refused_and_the_guest_runs_on(tmp_path: Path) -> None:
    ids = [os.getuid(), os.getgid()]
    section = {"user": "nobody", "ids": ids, "daemons": [], "files": {"a": "1\n", "b": "1\n"}}
    family = children.Children(Reactor(), GuestLog(str(tmp_path / "guest.log")))
    suite = any_daemon.AnyDaemon(family, section, str(tmp_path))
    suite.start()
    (tmp_path / ".b.new").mkdir()
    guest = object.__new__(Supervisor)
    guest._suite, guest._interfaces = suite, SimpleNamespace(change=lambda _: None)
    guest._config = SimpleNamespace(suite="command")
    controller, client = socket.socketpair()
    guest._clients, waiting = {client: b""}, list[Callable[[], None]]()
    with controller, client:
        for guest._changes in (None, waiting):  # at once, and for when the suite starts
            changed = section | {"files": {"a": "2\n", "b": "2\n"}}
            guest._reload(client, SimpleNamespace(suite="command", interfaces=(), section=changed))
        waiting[0]()
        error = {"ok": False, "error": "the text cannot be written: Is a directory"}
        assert [json.loads(line) for line in controller.recv(4096).splitlines()] == [error, error]
    assert {name: (tmp_path / name).read_text() for name in "ab"} == section["files"] == suite.settings.files
    assert not (tmp_path / ".a.new").exists()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.set_wakeup_fd(-1)


def test_a_program_that_does_not_run_is_started_with_changed_files_and_not_told_of_them(tmp_path: Path) -> None:
    """What its own command says of it would refuse the files that cure it."""
    program = {"name": "ill", "argv": ["/bin/sh", "-c", "exit 3"], "reload": ["/bin/false"]}
    section = {"user": "nobody", "ids": [os.getuid(), os.getgid()], "daemons": [program], "files": {"a": "ill\n"}}
    reactor, replies, ends = Reactor(), list[str](), list[str]()
    suite = any_daemon.AnyDaemon(
        children.Children(reactor, GuestLog(str(tmp_path / "guest.log")), lambda: ends.append("") or reactor.stop()),
        section,
        str(tmp_path),
    )
    try:
        suite.start()
        reactor.run()
        assert not suite.running
        suite.change(section | {"files": {"a": "well\n"}}, replies.append)
        assert suite.running
        reactor.run()
    finally:
        suite.stop(signal.SIGKILL)
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    assert (replies, len(ends)) == ([""], 2)
    assert (tmp_path / "a").read_text() == "well\n"


def test_the_log_is_bounded_and_keeps_one_old_file(tmp_path: Path) -> None:
    log = GuestLog(str(tmp_path / "guest.log"), limit=1000)
    for number in range(100):
        log.write("zebra", f"line {number}")
    new, old = (tmp_path / "guest.log").read_text(), (tmp_path / "guest.log.1").read_text()
    assert new.endswith("zebra: line 99\n")
    assert len(new) <= 1000
    assert len(old) <= 1000
    assert {path.name for path in tmp_path.iterdir()} == {"guest.log", "guest.log.1"}
    assert log.lost == 0


def test_a_source_that_floods_the_log_is_bounded_and_told_and_takes_no_room_of_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = 1e6
    monkeypatch.setattr(log_module.time, "monotonic", lambda: now_s)
    log = GuestLog(str(tmp_path / "guest.log"))
    for _ in range(LINES_AT_ONCE + 7):
        log.write("zebra", "again")
    log.write("bgpd", "once")
    assert log.lost == 7
    now_s += 0.01
    log.write("zebra", "so soon")  # not a line about what is lost for each that is written
    assert log.lost == 8
    now_s += 1.0
    for _ in range(LINES_PER_S + 1):
        log.write("zebra", "later")
    said = [line.split("Z ", 1)[1] for line in (tmp_path / "guest.log").read_text().splitlines()]
    assert said[LINES_AT_ONCE : LINES_AT_ONCE + 2] == [
        "bgpd: once",
        f"vr-guest: 8 lines of zebra are lost: more than {LINES_PER_S} a second",
    ]
    assert said.count("zebra: later") == LINES_PER_S + 1
    assert log.lost == 8


def test_the_log_needs_no_right_to_its_directory_once_it_is_open(tmp_path: Path) -> None:
    (tmp_path / "7").mkdir()
    log = GuestLog(str(tmp_path / "7/guest.log"), limit=100)
    (tmp_path / "7").rename(moved := tmp_path / "moved")
    for number in range(10):
        log.write("zebra", f"line {number}")
    assert (moved / "guest.log").read_text().endswith("zebra: line 9\n")
    assert "zebra: line 7\n" in (moved / "guest.log.1").read_text()
    assert log.lost == 0


def test_a_link_is_not_taken_for_the_log(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("precious\n")
    (tmp_path / "guest.log").symlink_to(tmp_path / "precious")
    with pytest.raises(OSError, match="symbolic links"):
        GuestLog(str(tmp_path / "guest.log"))


def test_a_long_line_is_cut(tmp_path: Path) -> None:
    GuestLog(str(tmp_path / "guest.log")).write("bgpd", "x" * 10000)
    assert len((tmp_path / "guest.log").read_bytes()) == MAX_LINE_BYTES + 1
