"""FRR's daemons in one guest: which of them start and stop, and when."""

import signal
import socket
from collections.abc import Iterator

import pytest
from frr_programs import SECTION, Programs, needs_root

from vrc.guest.children import Child
from vrc.guest.suites.frr import Daemon

FORMER = {**SECTION, "job_limit_s": 600}
"""What the daemons of `Programs` run with."""


@pytest.fixture
def killed(programs: Programs) -> Iterator[Daemon]:
    """A zebra that is about to be killed, and then not reaped yet: its vty socket takes connections until it is."""
    suite = programs.suite
    zebra = suite._daemons["zebra"]
    suite._daemons["staticd"] = Daemon("staticd")
    zebra.child = Child("zebra", ["/bin/sleep", "600"], {}, lambda _, status: suite._died(zebra, status))
    programs.family.spawn(zebra.child)
    with socket.socket(socket.AF_UNIX) as vty:
        vty.bind(str(programs.sockets / "zebra.vty"))
        vty.listen()
        yield zebra


@pytest.fixture
def started(programs: Programs) -> list[str]:
    """The daemons that are started from now on."""
    names: list[str] = []
    programs.suite._spawn = lambda daemon: names.append(daemon.name)  # type: ignore[method-assign]
    return names


def test_while_all_fall_nothing_is_ready_and_nothing_starts(
    programs: Programs, killed: Daemon, started: list[str]
) -> None:
    suite = programs.suite
    suite.change({**SECTION, "daemons": ["zebra", "staticd"], "hold_time_s": 60}, programs.replies.append)
    assert (programs.replies, killed.running) == ([""], True)
    suite._directory_changed()
    assert (killed.ready, started) == (False, [])
    programs.until(lambda: bool(started))
    assert (killed.running, suite._falling, started) == (False, False, ["zebra"])


def test_once_stopped_nothing_is_ready_and_nothing_starts(
    programs: Programs, killed: Daemon, started: list[str]
) -> None:
    killed.ready = False
    programs.suite.stop(signal.SIGKILL)
    programs.suite._directory_changed()
    assert (killed.ready, killed.running, started) == (False, True, [])
    programs.until(lambda: not programs.suite.running)


@needs_root
def test_what_the_next_text_needs_stays_when_a_refused_one_was_taken_back(programs: Programs) -> None:
    def spawn(daemon: Daemon) -> None:
        daemon.ready = True

    def correct(said: str) -> None:
        programs.replies.append(said)
        suite.change({**SECTION, "text": "good\n", "daemons": ["zebra", "bfdd"]}, programs.replies.append)

    suite = programs.suite
    suite._spawn = spawn  # type: ignore[method-assign]
    programs.write("vtysh", "exit 0")
    said = "line 1: Failure to communicate[1] to zebra, line: bad"
    programs.write("frr-reload", f"grep -q bad {programs.folder}/etc/frr.conf || exit 0; echo '{said}'; exit 1")
    programs.folder.chmod(0o777)
    suite._advance()
    programs.until(lambda: suite.tell_states() == {"zebra": "up"})
    suite.change({**SECTION, "text": "bad\n", "daemons": ["zebra", "ripd"]}, correct)
    programs.until(lambda: len(programs.replies) == 2)
    assert programs.replies == ["line 1: refused (zebra): bad", ""]
    assert suite.tell_states() == {"zebra": "up", "bfdd": "up"}


@needs_root
def test_a_text_that_cannot_be_written_leaves_the_former_one(programs: Programs) -> None:
    suite, folder = programs.suite, programs.folder
    programs.write("vtysh", "exit 0")
    programs.write("frr-reload", f"mv {folder}/etc {folder}/away; echo % no; exit 1")
    folder.chmod(0o777)
    suite._advance()
    programs.until(lambda: suite.tell_states() == {"zebra": "up"})
    changed, former = {**SECTION, "text": "new\n"}, suite.settings
    suite.change(changed, programs.replies.append)
    programs.until(lambda: bool(programs.replies))
    missing = "the text cannot be written: No such file or directory"
    assert programs.replies == ["no"]  # and the former text could not be put back
    assert suite.tell_states()["config"] == f"failed: the former text is not back: {missing}"
    suite.change(changed, programs.replies.append)
    assert programs.replies[1] == f"{missing}; the former text stays; see vrctl logs"
    with pytest.raises(FileNotFoundError):
        suite.change({**changed, "hold_time_s": 60}, programs.replies.append)
    assert (suite.settings, suite._change, suite._falling) == (former, None, False)
    (folder / "away").rename(folder / "etc")
    programs.write("frr-reload", f"cp {folder}/etc/frr.conf {folder}/given")
    suite.change(FORMER, programs.replies.append)  # the former one, declared again
    programs.until(lambda: len(programs.replies) == 3)
    assert (programs.replies[2], suite.tell_states()) == ("", {"zebra": "up"})
    assert (folder / "given").read_text() == (folder / "etc/frr.conf").read_text() == SECTION["text"]


@needs_root
@pytest.mark.parametrize("failing", [True, False])
def test_a_former_text_is_given_again_where_it_was_not_taken_back(programs: Programs, failing: bool) -> None:
    suite, folder = programs.suite, programs.folder
    programs.write("vtysh", "exit 0")
    wanted = "exit 1" if failing else f"grep -v new {folder}/etc/frr.conf"
    programs.write("frr-reload", f"echo >>{folder}/runs; {wanted}")
    folder.chmod(0o777)
    suite._advance()
    programs.until(lambda: suite.tell_states() == {"zebra": "up"})
    suite.change({**SECTION, "text": "new\n"}, programs.replies.append)
    programs.until(lambda: bool(programs.replies) and not suite._jobs.busy)
    programs.write("frr-reload", f"echo >>{folder}/runs")
    suite.change(FORMER, programs.replies.append)
    programs.until(lambda: len(programs.replies) == 2)
    assert programs.replies[1] == ""
    assert (folder / "runs").read_text() == "\n" * (3 if failing else 2)
