"""Commands inside of a machine, as real processes: output, input, limits."""

import os
import signal
import sys
import time
from collections.abc import Iterator

import pytest
from test_machine_control import run_until

from vrc.guest.reactor import Reactor
from vrc.machine import exec as machine_exec
from vrc.machine.exec import MAX_COMMANDS, Commands, Ended, ExecError, decode_base64, words_of

PYTHON = [sys.executable, "-S", "-c"]


class Bed:
    """A loop that reaps the commands' processes alone, by their pids."""

    def __init__(self) -> None:
        self.reactor = Reactor()
        self.commands = Commands(self.reactor)
        self.ended: list[Ended] = []

    def start(self, argv: list[str], stdin: bytes = b"", limit_s: float = 20.0) -> None:
        self.commands.run(argv, {"PATH": "/usr/bin:/bin"}, stdin, limit_s, self.ended.append)

    def time_is_up(self) -> None:
        """Let every command have reached its limit."""
        for command in self.commands._running.values():
            assert command._timer is not None
            command._timer.callback()

    def reap(self) -> None:
        for pid in list(self.commands._running):
            gone, status = os.waitpid(pid, os.WNOHANG)
            if gone:
                assert self.commands.reaped(pid, os.waitstatus_to_exitcode(status))

    def end(self, count: int = 1) -> Ended:
        def look() -> bool:
            self.reap()
            return len(self.ended) >= count

        run_until(self.reactor, look, 20.0)
        return self.ended[-1]


@pytest.fixture
def bed() -> Iterator[Bed]:
    bed = Bed()
    yield bed
    assert not bed.commands._running


def test_a_command_has_its_outputs_and_its_status(bed: Bed) -> None:
    bed.start(["/bin/sh", "-c", "echo out; echo err >&2; exit 3"])
    assert bed.end() == Ended(3, b"out\n", b"err\n", "")


def test_input_comes_back_in_any_amount(bed: Bed) -> None:
    octets = os.urandom(1_000_000)
    bed.start(["/bin/cat"], octets)
    assert bed.end() == Ended(0, octets, b"", "")


def test_input_that_nobody_reads_is_no_error(bed: Bed) -> None:
    bed.start(["/bin/true"], bytes(1_000_000))
    assert bed.end().status == 0


def test_output_is_cut_and_the_command_goes_on(bed: Bed) -> None:
    bed.start([*PYTHON, "import sys; sys.stdout.write('x' * 6_000_000); sys.stderr.write('end'); sys.exit(5)"])
    end = bed.end()
    assert (end.status, len(end.stdout) + len(end.stderr)) == (5, machine_exec.MAX_OUTPUT_BYTES)
    assert end.note == f"output cut at {machine_exec.MAX_OUTPUT_BYTES} octets"


def test_a_command_that_takes_too_long_is_killed_with_its_children(bed: Bed) -> None:
    bed.start(["/bin/sh", "-c", "sleep 1000 & echo $!; wait"])
    (command,) = bed.commands._running.values()
    run_until(bed.reactor, lambda: b"\n" in command._stdout)
    bed.time_is_up()
    end = bed.end()
    assert (end.status, end.note) == (-signal.SIGKILL, "killed after 20 s")
    child = int(end.stdout)
    run_until(bed.reactor, lambda: not alive(child))


def alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def test_a_child_that_keeps_the_output_open_is_not_waited_for(bed: Bed) -> None:
    begun = time.monotonic()
    bed.start(["/bin/sh", "-c", "sleep 30 & echo $!"])
    end = bed.end()
    assert time.monotonic() - begun < 20
    os.kill(int(end.stdout), signal.SIGKILL)


def test_commands_at_once_are_bounded(bed: Bed) -> None:
    for _ in range(MAX_COMMANDS):
        bed.start(["/bin/sleep", "1000"])
    with pytest.raises(ExecError, match=f"{MAX_COMMANDS} commands run already"):
        bed.start(["/bin/true"])
    bed.time_is_up()
    bed.end(MAX_COMMANDS)


@pytest.mark.parametrize(
    ("argv", "limit_s", "said"),
    [
        (["/bin/true"], 0.0, "its limit is not within"),
        (["/bin/true"], float("nan"), "its limit is not within"),
        (["/nowhere"], 1.0, "/nowhere: No such file or directory"),
        (["/bin/echo", "a\0b"], 1.0, "/bin/echo: embedded null byte"),
    ],
)
def test_what_cannot_be_run_is_refused(bed: Bed, argv: list[str], limit_s: float, said: str) -> None:
    descriptors = set(os.listdir("/proc/self/fd"))
    with pytest.raises(ExecError, match=said):
        bed.start(argv, limit_s=limit_s)
    assert set(os.listdir("/proc/self/fd")) <= descriptors


@pytest.mark.parametrize("text", ["===", "ä", 5, None, "YQ"])
def test_input_that_is_no_base64_is_refused(text: object) -> None:
    with pytest.raises(ExecError, match="not base64"):
        decode_base64(text)


@pytest.mark.parametrize("argv", [[], ["x" * 200_000], "true", [1], None])
def test_what_is_no_command_is_refused(argv: object) -> None:
    with pytest.raises(ExecError, match=r"a command has 1 to|argv is not a list of words"):
        words_of(argv)
