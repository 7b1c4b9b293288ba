"""No command and no wait of a topology is without an end, nor ends without a word."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

from lab import commands
from lab.commands import NetworkError, checked, ended, output, titled, wait_for, within

SOON_S = 0.1


def test_a_command_that_hangs_is_named_with_its_last_words_and_its_log(tmp_path: Path) -> None:
    log = tmp_path / "zebra.log"
    log.write_text("".join(f"line {number}\n\n" for number in range(9)))
    with pytest.raises(NetworkError) as caught:
        checked(["sh", "-c", "echo first; echo waits >&2; sleep 600"], 0.5, "n1", [log])
    text = "n1: sh -c echo first; echo waits >&2; sleep 600 did not end within 0.5 s; waits"
    assert str(caught.value) == f"{text}; log: {log}"
    assert caught.value.last_lines() == [f"{log}:", *(f"  line {number}" for number in range(4, 9))]


def test_what_a_command_started_ends_with_it(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    with pytest.raises(NetworkError):
        checked(["sh", "-c", f"sleep 600 & echo $! > {pid}; wait"], 0.5)
    wait_for("its end", lambda: not Path(f"/proc/{int(pid.read_text())}").exists() or _ended(pid), 10, 0.01)


def _ended(pid: Path) -> bool:
    return Path(f"/proc/{int(pid.read_text())}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"


def test_a_daemon_that_keeps_the_output_open_is_not_waited_for(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    assert output(["sh", "-c", f"setsid sleep 600 & echo $! > {pid}; echo up"], 30) == "up\n"
    subprocess.run(["kill", pid.read_text().strip()], check=True)


def test_a_command_that_fails_has_the_last_word() -> None:
    with pytest.raises(NetworkError, match=r"^sh -c echo no >&2; exit 3: no$"):
        checked(["sh", "-c", "echo no >&2; exit 3"])
    with pytest.raises(NetworkError, match=r"^false: exit status 1$"):
        checked(["false"])
    checked(["true"])


def test_a_question_that_is_not_answered_is_no_traceback() -> None:
    with pytest.raises(NetworkError, match=r"^sleep 600 did not end within 0.1 s; it said nothing$"):
        output(["sleep", "600"], SOON_S)


def test_a_host_s_command_is_shown_without_what_brings_it_there() -> None:
    assert titled(["mnexec", "-a", "123", "vtysh", "-b"], "n1") == "n1: vtysh -b"
    assert titled(["mnexec", "-a", "123", "sh", "-c", "# zebra -d\nexec zebra -d >out"], "n1") == "n1: zebra -d"


def test_a_process_that_does_not_end_is_named() -> None:
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        with pytest.raises(NetworkError) as caught:
            ended("vr-controller", process, SOON_S)
        assert str(caught.value) == f"vr-controller (process {process.pid}) did not end within 0.1 s"
    finally:
        process.kill()
        process.communicate()


def test_a_condition_that_never_holds_is_named_with_the_log(tmp_path: Path) -> None:
    with pytest.raises(NetworkError) as caught:
        wait_for("vr-forwarder s1 serving", lambda: False, 0.0, 0.001, [tmp_path / "none.log"])
    assert str(caught.value) == f"vr-forwarder s1 serving: not within 0 s; log: {tmp_path}/none.log"
    assert caught.value.last_lines() == [f"{tmp_path}/none.log:", "  (nothing)"]


def test_what_others_wait_for_is_bounded(tmp_path: Path) -> None:
    with (
        pytest.raises(NetworkError, match=r"^two_tenants's switches: not within 0 s; log: "),
        within(SOON_S, "two_tenants's switches", lambda: [tmp_path / "ovs.log"]),
    ):
        time.sleep(600)
    with within(SOON_S, "nothing", list):
        pass
    assert commands.signal.getitimer(commands.signal.ITIMER_REAL) == (0.0, 0.0)
