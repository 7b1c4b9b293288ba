"""The limits of what a guest's supervisor waits for: vtysh, frr-reload.py and ip, and daemons at their start."""

import errno
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from frr_programs import SECTION, Programs, needs_root
from test_machine_control import run_until

from controller.guests.base import GuestSpec, failing
from controller.guests.control import TRANSIENT_WORDS
from controller.model import RouteSource, Routing, Suite
from vrc.guest import children
from vrc.guest.children import Child, Children, KeptChild
from vrc.guest.reactor import Reactor
from vrc.guest.suites import any_daemon, bird, frr, static
from vrc.guest.suites.base import JOB_LIMIT_S, START_LIMIT_S, start_limit_of, unwritten
from vrc.machine import guest as machine_guest


def logged(family: Children) -> str:
    return Path(family.log.path).read_text()


def test_a_job_that_hangs_is_killed_with_what_it_started(family: Children) -> None:
    ends: list[int] = []
    job = Child("vtysh", ["/bin/sh", "-c", "sleep 600 & echo $!; wait"], {}, lambda _, status: ends.append(status))
    job.lines, job.limit_s = [], 0.3
    family.spawn(job)
    run_until(family.reactor, lambda: bool(ends) and job.output < 0)  # the other one has the pipe no more
    assert (ends, job.overran) == ([-signal.SIGKILL], "vtysh did not end within 0.3 s")
    assert "vr-guest: vtysh did not end within 0.3 s and is killed" in logged(family)


def test_a_job_in_time_is_not_touched(family: Children) -> None:
    ends: list[int] = []
    job = Child("vtysh", ["/bin/true"], {}, lambda _, status: ends.append(status))
    job.limit_s = 600
    family.spawn(job)
    run_until(family.reactor, lambda: bool(ends))
    assert (ends, job.overran, job.timer and job.timer.cancelled) == ([0], "", True)


def test_a_reload_command_that_hangs_puts_the_former_files_back(
    family: Children, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(any_daemon, "RELOAD_LIMIT_S", 0.2)
    monkeypatch.setattr(any_daemon, "as_user", lambda *_: [])
    program = {"name": "keeper", "argv": ["/bin/sleep", "600"], "reload": ["/bin/sleep", "600"]}
    ids = [os.getuid(), os.getgid()]
    section = {"user": "nobody", "ids": ids, "daemons": [program], "files": {"route": "former\n"}}
    suite, replies = any_daemon.AnyDaemon(family, section, str(tmp_path)), list[str]()
    suite.start()
    suite.change(section | {"files": {"route": "new\n"}}, replies.append)
    run_until(family.reactor, lambda: bool(replies))
    assert replies == ["keeper reload did not end within 0.2 s; the former files are back"]
    assert (tmp_path / "route").read_text() == "former\n"
    suite.stop(signal.SIGKILL)
    run_until(family.reactor, lambda: not suite.running)


def test_a_daemon_without_an_answer_is_failed_from_then_until_it_answers(family: Children) -> None:
    kept = KeptChild(family, "bird", ["/bin/sleep", "600"], {}, start_limit_s=0.05)
    kept.start()
    assert kept.state == "starting"
    run_until(family.reactor, lambda: kept.restarts == 2)
    assert kept.state == "failed: did not answer within 0.05 s of its start"
    assert "vr-guest: bird ended: did not answer within 0.05 s of its start" in logged(family)
    run_until(family.reactor, lambda: kept.pid != 0)
    kept.answered()
    assert kept.state == "up"
    kept.stop(signal.SIGKILL)
    run_until(family.reactor, lambda: not kept.pid)


def test_one_that_was_stopped_while_it_waited_for_its_start_stays_so(family: Children) -> None:
    kept = KeptChild(family, "keeper", ["/bin/false"], {})
    kept.start()
    run_until(family.reactor, lambda: kept.restarts == 1)
    kept.stop()
    kept.restart()
    assert kept.pid == 0


@needs_root
def test_a_vtysh_that_hangs_is_shown_and_the_text_is_loaded_again(programs: Programs) -> None:
    programs.write("vtysh", "exec sleep 600")
    programs.limit(0.2)
    suite = programs.suite
    suite._advance()
    programs.until(lambda: bool(suite.config_error))
    assert suite.tell_states() == {"zebra": "starting", "config": "failed: vtysh did not end within 0.2 s"}
    programs.write("vtysh", "exit 0")
    programs.limit(600)
    programs.until(lambda: not suite.config_error)
    assert suite.tell_states() == {"zebra": "up"}


@needs_root
def test_a_reload_that_hangs_is_refused_and_leaves_the_former_text(programs: Programs) -> None:
    programs.write("vtysh", "exit 0")
    programs.write("frr-reload", "sleep 600")
    programs.folder.chmod(0o777)
    suite = programs.suite
    suite._advance()
    programs.until(lambda: suite.tell_states() == {"zebra": "up"})
    programs.limit(0.2)
    suite.change({**SECTION, "text": "new\n"}, programs.replies.append)
    programs.until(lambda: bool(programs.replies))
    assert programs.replies == ["frr-reload did not end within 0.2 s; see vrctl logs"]
    assert (programs.folder / "etc/frr.conf").read_text() == suite.settings.text == "!\n"
    programs.until(lambda: not suite._jobs.running)
    programs.write("frr-reload", "exit 0")
    programs.limit(600)
    suite.change({**SECTION, "text": "new\n"}, programs.replies.append)  # and nothing of it is in the way
    programs.until(lambda: len(programs.replies) == 2)
    assert (programs.replies[1], suite.settings.text) == ("", "new\n")


AGAIN = ("-b", "1", "--test")
"""… and mgmtd is let alone for a second, before its commit is looked at that the look before may have ended."""


@needs_root
@pytest.mark.parametrize(
    ("left", "runs"),
    [
        ([], ["-b", "--test"]),
        (["ip route 10.0.0.0/8 Null0"], ["-b", "--test", *AGAIN]),
        (["FRR shows it otherwise", "FRR shows it otherwise"], ["-b", "--test", *AGAIN]),
        (["some", "others", "once more"], ["-b", "--test", *AGAIN, *AGAIN]),
    ],
)
def test_what_mgmtd_has_forgotten_is_given_again(programs: Programs, left: list[str], runs: list[str]) -> None:
    """``left`` is what frr-reload.py says is left, each time that it is asked."""
    suite, log = programs.suite, programs.folder / "log"
    suite._daemons["mgmtd"] = mgmtd = frr.Daemon("mgmtd")
    mgmtd.ready = True
    log.touch()
    log.chmod(0o666)
    programs.folder.chmod(0o777)
    for number, line in enumerate(left, 1):
        (programs.folder / f"left.{number}").write_text(f"{line}\n")
    programs.write("vtysh", f"echo $2 >>{log}")
    programs.write("sleep", f"echo $2 >>{log}")
    tell = f"cat {programs.folder}/left.$(grep -c test {log}) 2>/dev/null"
    programs.write("frr-reload", f"echo $3 >>{log}; {tell}; exit 0")
    suite._advance()
    programs.until(lambda: suite.tell_states() == {"zebra": "up", "mgmtd": "up"})
    assert log.read_text().split() == runs
    assert logged(programs.family).count("not in the daemons as in the text") == len(left)


def test_a_change_does_not_wait_for_a_daemon_that_never_comes(programs: Programs) -> None:
    suite = programs.suite
    suite._loaded = True
    suite._daemons["mgmtd"] = mgmtd = frr.Daemon("mgmtd")
    suite.change({**SECTION, "text": "new\n"}, programs.replies.append)
    assert programs.replies == []
    mgmtd.child = Child("mgmtd", [], {}, lambda *_: None)
    suite._too_slow(mgmtd)
    suite._died(mgmtd, -signal.SIGKILL)
    assert programs.replies == [
        "mgmtd: did not answer within 0.05 s of its start; the former text stays; see vrctl logs"
    ]
    assert suite._change is None


def test_an_ip_that_hangs_is_killed_and_told(
    family: Children, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(static, "JOB_LIMIT_S", 0.1)
    monkeypatch.setattr(static, "SETTLED_S", 0.0)
    section = {"ids": [os.getuid(), os.getgid()], "routes": [[1, "10.0.0.0/8", "10.0.0.0/8 via 192.0.2.1"]]}
    routes, replies = static.StaticRoutes(family, section), list[str]()
    routes._command = ["/bin/sleep", "600"]
    routes.change(section, replies.append)
    run_until(family.reactor, lambda: bool(replies))
    assert routes.tell_states() == {"ip": "failed: ip did not end within 0.1 s"}
    routes.stop()
    routes._links.close()


@needs_root
def test_a_job_that_is_killed_is_told_and_its_text_is_loaded_again(
    programs: Programs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by a kernel that is out of memory."""
    suite = programs.suite
    programs.write("vtysh", "kill -9 $$")
    programs.folder.chmod(0o777)
    suite._advance()
    programs.until(lambda: bool(suite.config_error))
    assert suite.tell_states() == {"zebra": "starting", "config": "failed: vtysh was killed by SIGKILL"}
    programs.write("vtysh", "exit 0")
    programs.until(lambda: suite.tell_states() == {"zebra": "up"})
    monkeypatch.setattr(frr, "LOAD_AGAIN_S", 600.0)
    programs.write("frr-reload", "kill -9 $$")
    suite.change({**SECTION, "text": "new\n"}, programs.replies.append)
    programs.until(lambda: bool(suite.config_error))
    assert programs.replies == ["frr-reload was killed by SIGKILL; see vrctl logs"]
    assert TRANSIENT_WORDS.fullmatch(programs.replies[0])
    assert suite.config_error == "frr-reload was killed by SIGKILL"  # nor is the former text what the daemons have
    assert suite._load_again


def test_limits_are_those_of_guest_json() -> None:
    assert (start_limit_of({}), start_limit_of({"start_limit_s": 3})) == (START_LIMIT_S, 3.0)
    assert frr.FrrSettings.parse({**SECTION, "job_limit_s": 250}).job_limit_s == 250.0
    assert frr.FrrSettings.parse(SECTION).job_limit_s == JOB_LIMIT_S
    assert bird.BirdSettings.parse({"text": "", "start_limit_s": 3}).start_limit_s == 3.0


HANGING = """
import os, signal, sys
from vrc.guest import launch
from vrc.guest.enclosure import Folders
from vrc.guest.namespaces import GuestIds

def hang(plan, _ready):
    print(os.getpid(), flush=True)
    if noted:
        launch._write_pid(plan.directory, os.getpid())
    os.write(hung, b"!")
    signal.pause()

def said_of_what_hangs(limit_s, pipe):
    os.read(hangs, 1)  # a busy machine takes its time to come so far
    return said_within(limit_s, pipe)

folder, noted = sys.argv[1], sys.argv[2] == "True"
hangs, hung = os.pipe()
said_within, launch._said_within = launch._said_within, said_of_what_hangs
launch._stage = hang
directory, folders, ids = os.open(folder, os.O_RDONLY), Folders("", "", (0, 0)), GuestIds(1 << 30, 1 << 31)
print(launch.launch(launch.Plan(directory, "r1", (), (), folders, ids, lambda: None), 0.05))
"""
"""In a process of its own: this one may have threads of gRPC, which a fork of it does not survive."""


@pytest.mark.parametrize("noted", [False, True])
def test_a_first_process_that_hangs_is_killed(noted: bool, tmp_path: Path) -> None:
    """Before the stage has noted a pid 1, and after that."""
    command = [sys.executable, "-c", HANGING, str(tmp_path), str(noted)]
    pid, problem = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    assert problem == "its first process was not ready within 0.05 s; see guest.log"
    assert not Path(f"/proc/{pid}").exists()


def test_a_supervisor_that_does_not_answer_a_machine_is_refused(tmp_path: Path) -> None:
    reactor, answers = Reactor(), []
    with machine_guest.socket.socket(machine_guest.socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "control.sock"))
        listener.listen()
        guest = machine_guest.KeptGuest(reactor, ["/bin/false"], print, str(tmp_path))
        guest.ask(b'{"op": "status"}', answers.append, limit_s=0.05)
        run_until(reactor, lambda: bool(answers))
    (answer,) = answers
    assert answer["error"] == "the guest's supervisor did not answer within 0.05 s; see the console"
    assert TRANSIENT_WORDS.fullmatch(answer["error"])
    assert not guest._asked


def test_the_controller_knows_what_a_guest_says_that_is_busy_or_has_no_room(
    family: Children, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (frr, bird):
        monkeypatch.setattr(module, "watch_directory", lambda _: os.eventfd(0, os.EFD_NONBLOCK))
    ids = [os.getuid(), os.getgid()]
    routing, text = SECTION | {"ids": [*ids, 0]}, {"text": "", "ids": ids}
    command = {"user": "", "daemons": [], "files": {}, "ids": ids}
    zebra, one = frr.FrrDaemons(family, routing, ""), bird.BirdDaemon(family, text, "")
    other, said = any_daemon.AnyDaemon(family, command, ""), list[str]()
    zebra._change, one._changing, other._changing = (zebra.settings, said.append), True, True
    zebra.change(routing, said.append)
    one.change(text, said.append)
    other.change(command, said.append)
    guest = machine_guest.KeptGuest(family.reactor, ["/bin/false"], print, str(tmp_path))
    guest._asked = machine_guest.MAX_ASKED
    guest.ask(b'{"op": "status"}', lambda answer: said.append(answer["error"]))
    full = unwritten(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))
    zebra._refuse_change(full)
    said.append(full)
    assert len(said) == 6
    assert all(map(TRANSIENT_WORDS.fullmatch, said))
    assert not TRANSIENT_WORDS.fullmatch("line 3: no; try again")


def test_a_router_s_trouble_names_the_daemon_and_the_log(tmp_path: Path) -> None:
    spec = GuestSpec(7, "red/r1", RouteSource.FPM, Routing(text="!\n"), 30, tmp_path, tmp_path, tmp_path)
    late = children.late(20)
    assert failing(spec, {"vrc": "up", "zebra": f"failed: {late}", "bgpd": "starting"}) == (
        "zebra: did not answer within 20 s of its start; see vrctl logs red/r1"
    )
    assert failing(spec, {"a": "failed: x", "b": "failed: red/r1: y"}) == "a: x (and 1 more); see vrctl logs red/r1"
    assert failing(spec, {"vrc": "up", "ip": "failed: ended with status 1"}).startswith("ip: ended")
    static = replace(spec, routing=Routing(Suite.IP, "#"))
    assert failing(static, {"vrc": "up", "ip": "failed: line 1: no"}) == ""
