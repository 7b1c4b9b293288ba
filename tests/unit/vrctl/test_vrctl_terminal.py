"""A guest's command never has the operator's terminal: shown at a real one."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager

from terminals import Operator

RUN = "import sys; from controller.vrctl.live.terminal import run_apart; s = run_apart(sys.argv[1:]); "
THEN_TYPED = """
import fcntl, os, struct, termios, tty
tty.setcbreak(0, termios.TCSANOW)
waiting = struct.unpack("i", fcntl.ioctl(0, termios.FIONREAD, bytes(4)))[0]
print("own", os.ttyname(0), "status", s, "typed", os.read(0, waiting) if waiting else b"")
"""
INJECT = """
import fcntl, os, sys, termios
for number in (0, 1, 2):
    try:
        for key in b"evil\\n":
            fcntl.ioctl(number, termios.TIOCSTI, bytes((key,)))
    except OSError as problem:
        print("no TIOCSTI on", number, problem)
try:
    own = os.open("/dev/tty", os.O_RDWR)
    print("controlling", os.ttyname(own))
except OSError as problem:
    print("no controlling terminal", problem.errno)
print("done", flush=True)
"""


@contextmanager
def operator(command: list[str], then: str = THEN_TYPED) -> Iterator[Operator]:
    with closing(Operator([sys.executable, "-c", RUN + then, *command], os.environ)) as one:
        yield one


def test_a_command_cannot_type_at_the_operators_terminal() -> None:
    with operator([sys.executable, "-c", INJECT]) as one:
        one.sees(b"controlling ")
        one.sees(b"done")
        one.sees(b"typed b''")
        assert one.ends() == 0


def test_nor_where_all_it_has_are_files() -> None:
    script = RUN.replace("run_apart(sys.argv[1:])", "[os.dup2(os.open('/dev/null', 2), n) for n in (0, 1, 2)], ")
    script = "import os, sys; from controller.vrctl.live.terminal import run_apart; saved = os.dup(1); "
    script += "null = os.open('/dev/null', os.O_RDWR); [os.dup2(null, n) for n in (0, 1, 2)]; "
    script += "s = run_apart(sys.argv[1:]); os.write(saved, b'status %d' % s)"
    opens = "import os; os.open('/dev/tty', os.O_RDWR)"
    with closing(Operator([sys.executable, "-c", script, sys.executable, "-c", opens], os.environ)) as one:
        one.sees(b"status 1")


def test_keys_size_signals_and_status_pass() -> None:
    shell = "trap 'echo caught' INT; stty size; read word; echo got:$word; read word; stty size; exit 7"
    with operator(["/bin/sh", "-c", shell]) as one:
        one.sees(b"24 80")
        one.type(b"hello\r")
        one.sees(b"got:hello")
        one.resize(30, 100)
        one.type(b"\x03")
        one.sees(b"caught")
        one.type(b"\r")
        one.sees(b"30 100")
        one.sees(b"status 7")
        assert one.ends() == 0


def test_what_it_shows_is_filtered() -> None:
    text = r"printf 'a\033]52;c;eA==\007b\033[6nc\033[1md\n'"
    with operator(["/bin/sh", "-c", text]) as one:
        one.sees(b"abc\x1b[1md\r\n")
        one.sees(b"2 control sequences were not passed on")
        one.sees(b"status 0")


def test_the_end_is_not_waited_for_where_others_keep_its_terminal() -> None:
    with operator(["/bin/sh", "-c", "trap '' HUP; sleep 1000 & echo $!; exit 3"]) as one:
        left = int(one.sees(b"\n"))
        try:
            one.sees(b"status 3")
            assert one.ends() == 0
        finally:
            os.kill(left, signal.SIGKILL)


def test_files_and_pipes_are_passed_as_they_are() -> None:
    script = RUN + "raise SystemExit(s)"
    copy = [sys.executable, "-c", script, "/bin/cat"]
    done = subprocess.run(copy, input=b"\x1b[6n\x00\xff", capture_output=True, check=False)
    assert (done.returncode, done.stdout) == (0, b"\x1b[6n\x00\xff")


def test_a_signal_that_is_meant_to_end_us_ends_the_command() -> None:
    script = RUN + "raise SystemExit(s)"
    command = [sys.executable, "-c", script, "/bin/sh", "-c", "echo $$; exec sleep 1000"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        assert int(process.stdout.readline()) > 0
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 128 + signal.SIGTERM
