"""The parts of a machine's init that need no machine."""

import grp
import json
import os
import pwd
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from test_machine_control import run_until

from controller.guests import handshake
from controller.guests.guest_json import JOB_LIMIT_S, RELOAD_LIMIT_S
from controller.guests.host import client
from controller.guests.suites.config_text import CHECK_LIMIT_S
from controller.model import GuestKind
from controller.vrctl import client as vrctl
from vrc.guest import children
from vrc.guest.reactor import Reactor
from vrc.guest.suites import base
from vrc.machine import init as machine
from vrc.machine.guest import KeptGuest
from vrc.machine.system import CLOCK_AHEAD_S, clock_is_wrong, find_port, is_scarce, largest_process, memory

# Stands for vr-guest: its launcher leaves a first process behind that answers on control.sock.
LAUNCHER = """
import os, signal, socket, sys
directory = os.path.dirname(sys.argv[2])
if os.path.exists(directory + "/broken"):
    sys.exit("frr: no such thing")
if os.path.exists(directory + "/taken"):
    sys.exit(75)
listener = socket.socket(socket.AF_UNIX)
path = directory + "/control.sock"
if os.path.exists(path):
    os.unlink(path)
listener.bind(path)
listener.listen()
pid = os.fork()
if pid:
    with open(directory + "/guest.pid", "w") as file:
        file.write(f"{pid} 0 boot")
    if os.path.exists(directory + "/slow"):
        os.rename(directory + "/slow", directory + "/taken")
        signal.pause()
    os._exit(0)
os.dup2(os.open("/dev/null", os.O_WRONLY), 2)
while True:
    client, _ = listener.accept()
    line = client.makefile("rb").readline()
    if b"silent" not in line:
        client.sendall(b"nonsense\\n" if b"nonsense" in line else b'{"ok": true, "echo": ' + line.strip() + b"}\\n")
    client.close()
    if b"stop" in line:
        os._exit(0)
"""


class Bed:
    """A kept guest in a directory."""

    def __init__(self, directory: Path) -> None:
        self.directory, self.said, self.answers = directory, list[str](), list[dict[str, Any]]()
        self.reactor = Reactor()
        self.reactor.on_signal(signal.SIGCHLD, self.reap)
        (directory / "launcher.py").write_text(LAUNCHER)
        launcher = [sys.executable, "-S", str(directory / "launcher.py")]
        self.guest = KeptGuest(self.reactor, launcher, self.said.append, str(directory))

    def reap(self) -> None:
        if self.guest._launching:
            pid, status = os.waitpid(self.guest._launching, os.WNOHANG)
            if pid:
                assert self.guest.reaped(pid, os.waitstatus_to_exitcode(status))

    def up(self) -> None:
        run_until(self.reactor, lambda: self.guest.state == "up")

    def end(self) -> None:
        stopped = threading.Event()
        self.guest.stop(stopped.set, 5.0)
        run_until(self.reactor, lambda: stopped.is_set() and not self.guest.pid)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.set_wakeup_fd(-1)

    def ask(self, *, patient: bool = False, **request: Any) -> dict[str, Any]:
        self.guest.ask(json.dumps(request).encode(), self.answers.append, patient=patient)
        run_until(self.reactor, lambda: bool(self.answers))
        return self.answers.pop()


@pytest.fixture
def bed(tmp_path: Path) -> Iterator[Bed]:
    bed = Bed(tmp_path)
    bed.guest.start()
    yield bed
    bed.end()


def test_requests_are_passed_on_to_the_supervisor(bed: Bed) -> None:
    starts = {"ok": False, "absent": True, "error": "the guest does not run (starting)"}
    assert bed.ask(op="status") == starts
    assert bed.ask(patient=True, op="reload") == {"ok": True, "echo": {"op": "reload"}}
    assert bed.guest.state == "up"
    assert bed.ask(op="status") == {"ok": True, "echo": {"op": "status"}}
    silent = bed.ask(op="silent")
    assert silent["absent"]
    assert "ended before it answered" in silent["error"]
    assert "cannot be used" in bed.ask(op="nonsense")["error"]


def test_a_guest_whose_first_process_dies_is_started_again(bed: Bed) -> None:
    bed.up()
    first = bed.guest.pid
    os.kill(first, signal.SIGKILL)
    run_until(bed.reactor, lambda: bed.guest.pid not in (0, first))
    assert (bed.guest.state, bed.guest.restarts) == ("up", 1)
    assert bed.said == ["the guest does not run: its first process ended; started again in 0.1 s"]


def test_a_guest_that_does_not_start_says_why_and_is_tried_again(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(children, "FIRST_DELAY_S", 0.01)
    bed.up()
    (bed.directory / "broken").touch()
    os.kill(bed.guest.pid, signal.SIGKILL)
    run_until(bed.reactor, lambda: bed.guest.state == "failed: frr: no such thing")
    refused = bed.ask(op="status")
    assert refused == {"ok": False, "absent": True, "error": "the guest does not run (failed: frr: no such thing)"}
    (bed.directory / "broken").unlink()
    bed.up()


def test_a_guest_that_runs_when_its_launcher_was_too_slow_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(children, "FIRST_DELAY_S", 0.01)
    (tmp_path / "slow").touch()
    bed = Bed(tmp_path)
    bed.guest.start()
    try:
        run_until(bed.reactor, (tmp_path / "taken").exists)
        bed.guest.ask(b'{"op": "reload"}', bed.answers.append, patient=True)
        assert bed.guest._limit
        bed.guest._limit.callback()  # as when its time is up
        run_until(bed.reactor, lambda: bool(bed.answers))
        said = bed.answers.pop()
        assert said["absent"]
        assert "did not close the guest in within 100 s" in said["error"]
        bed.up()
        assert bed.guest.pid == int((tmp_path / "guest.pid").read_text().split()[0])
        assert bed.ask(op="status")["ok"]
        assert bed.guest.restarts == 1
    finally:
        (tmp_path / "taken").unlink(missing_ok=True)
        bed.end()


def test_a_stopped_guest_stays_stopped(bed: Bed) -> None:
    bed.up()
    done: list[bool] = []
    bed.guest.stop(lambda: done.append(True), 5.0)
    run_until(bed.reactor, lambda: bed.guest.state == "stopped")
    assert done == [True]
    bed.guest.stop(lambda: done.append(True), 5.0)  # once more is no error
    assert done == [True, True]


def test_a_guest_that_is_stopped_while_it_starts_does_not_stay(bed: Bed) -> None:
    done: list[bool] = []
    bed.guest.stop(lambda: done.append(True), 5.0)
    assert done == [True]
    run_until(bed.reactor, lambda: bed.guest.state == "stopped")
    assert not bed.guest.pid


def test_the_clock_is_set_only_where_it_cannot_be_right() -> None:
    seed = 1_800_000_000
    assert not clock_is_wrong(seed, seed)
    assert not clock_is_wrong(seed + CLOCK_AHEAD_S, seed)
    assert clock_is_wrong(seed - 1, seed)
    assert clock_is_wrong(seed + CLOCK_AHEAD_S + 1, seed)


def test_the_port_is_found_by_its_name(tmp_path: Path) -> None:
    for port, name in (("vport1p1", "org.qemu.guest_agent.0"), ("vport1p2", "splitplane.control")):
        (tmp_path / port).mkdir()
        (tmp_path / port / "name").write_text(name + "\n")
    assert find_port("splitplane.control", str(tmp_path)) == "/dev/vport1p2"
    assert find_port("other", str(tmp_path)) is None
    assert find_port("other", str(tmp_path / "nowhere")) is None


def test_memory_is_told_in_mib() -> None:
    total, free, kills = memory()
    assert 0 < free <= total
    assert kills >= 0


def test_memory_is_scarce_below_four_percent_or_four_mib() -> None:
    assert is_scarce(91, 3)
    assert not is_scarce(91, 4)
    assert is_scarce(1000, 39)
    assert not is_scarce(1000, 40)


def test_the_largest_process_is_named_and_some_are_spared() -> None:
    pid, name = largest_process(set())
    assert pid > 0
    assert name
    others = largest_process({pid})
    assert others[0] != pid
    assert largest_process(range(1 << 22)) == (0, "")  # PID_MAX_LIMIT: processes come meanwhile


def test_the_kernel_says_which_disk_is_the_seed() -> None:
    assert machine.seed_device("quiet splitplane.seed=/dev/vdc panic=-1") == "/dev/vdc"
    assert machine.seed_device("quiet") == "/dev/vdb"


def test_ids_are_those_of_the_image() -> None:
    section = {"text": "", "daemons": ["zebra"], "hold_time_s": 120, "fpm": True}
    config = {"router": "red/r1", "frr": {"ids": [1, 2, 3]} | section}
    user = pwd.getpwnam("frr")
    ids = [user.pw_uid, user.pw_gid, grp.getgrnam("frrvty").gr_gid]
    assert machine.own_ids(config) == {"router": "red/r1", "frr": {"ids": ids} | section}
    assert config["frr"]["ids"] == [1, 2, 3]


@pytest.mark.parametrize("config", [{}, {"frr": {}}, {"bird": {}}, {"ip": {"routes": [1]}}, {"other": {"text": ""}}])
def test_a_suite_that_the_image_does_not_know_is_no_request(config: dict[str, Any]) -> None:
    with pytest.raises((KeyError, TypeError)):
        machine.own_ids(config)


def test_a_console_that_nobody_reads_loses_lines_and_counts_them(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "console")
    console = machine.Console(str(tmp_path / "console"))
    for _ in range(2000):
        console.say("x" * 100)
    assert 0 < console.lost < 2000
    os.close(console.fd)
    nowhere = machine.Console(str(tmp_path / "nowhere"))
    nowhere.say("lost")
    assert nowhere.lost == 1


@pytest.fixture
def own_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[machine.Machine]:
    """A machine whose guest says yes to everything, with a console in a file."""
    (tmp_path / "console").touch()
    made = machine.Machine(Reactor(), machine.Console(str(tmp_path / "console")))
    monkeypatch.setattr(made._guest, "ask", lambda _request, reply, **_: reply({"ok": True}))
    yield made
    os.close(made._console.fd)
    for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGIO):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.set_wakeup_fd(-1)


def test_a_certificate_that_is_no_text_is_no_request(own_machine: machine.Machine) -> None:
    with pytest.raises(TypeError):  # which the control channel answers
        own_machine._identity({"op": "identity", "cert": 5, "key": "", "ca": ""}, lambda _answer: None)


def test_a_change_in_force_that_cannot_be_kept_is_said_and_the_machine_goes_on(
    own_machine: machine.Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "DIRECTORY", str(tmp_path / "full"))
    answers: list[dict[str, Any]] = []
    own_machine._reload({"op": "reload", "config": {"ip": {"routes": []}}}, answers.append)
    assert answers == [{"ok": True}]
    assert "will not have this change: No such file or directory" in (tmp_path / "console").read_text()


def test_a_change_is_waited_for_at_each_place_longer_than_where_it_is_made(
    own_machine: machine.Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits: list[float] = []
    monkeypatch.setattr(machine, "DIRECTORY", str(tmp_path))
    monkeypatch.setattr(own_machine._guest, "ask", lambda *_, limit_s, patient: limits.append(limit_s))
    in_guest, on_host = JOB_LIMIT_S[GuestKind.KVM], RELOAD_LIMIT_S[GuestKind.KVM]
    for section in ({"job_limit_s": in_guest}, {}):
        own_machine._reload({"op": "reload", "config": {"ip": {"routes": []} | section}}, lambda _: None)
    in_machine, by_default = limits
    assert in_guest < in_machine < on_host
    assert by_default > base.JOB_LIMIT_S
    for kind in GuestKind:
        assert CHECK_LIMIT_S + handshake.LIMIT_S + RELOAD_LIMIT_S[kind] < client.LIMIT_S < vrctl.ANSWER_LIMIT_S


def test_what_an_operator_runs_in_the_guest_is_as_confined_as_its_daemons(own_machine: machine.Machine) -> None:
    own_machine._guest.pid = os.getpid()
    enter = own_machine._enter_guest()
    confining = enter[enter.index("--") + 1 :]
    done = subprocess.run([*confining, "cat", "/proc/self/status"], capture_output=True, text=True, check=True)
    assert "\nSeccomp:\t2\n" in done.stdout
    assert "\nNoNewPrivs:\t1\n" in done.stdout


def test_it_runs_nowhere_but_as_the_first_process(capsys: pytest.CaptureFixture[str]) -> None:
    assert machine.main() == 2
    assert "the first process of a virtual machine" in capsys.readouterr().err


def test_a_clock_that_is_set_is_said_and_what_leads_nowhere_is_refused(
    own_machine: machine.Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[float] = []
    answers: list[dict[str, Any]] = []
    monkeypatch.setattr(machine.system, "step_clock", steps.append)
    own_machine._step_clock({"op": "clock", "step_s": -3.5}, answers.append)
    assert (steps, answers) == ([-3.5], [{"ok": True}])
    assert "vr-machine: the clock was set back by 3.5 s" in (tmp_path / "console").read_text()
    monkeypatch.undo()
    for nonsense in (float("nan"), float("inf"), 1e300, "x", None):
        with pytest.raises((ValueError, OverflowError, TypeError)):  # which the control channel answers
            own_machine._step_clock({"op": "clock", "step_s": nonsense}, answers.append)


def test_processes_are_found_by_their_user() -> None:
    assert os.getpid() in machine.processes_of(os.getuid())
    assert socket.gethostname()
    assert machine.processes_of(0x7FFFFFF0) == []
