"""Commands, daemons and waits of a lab: each has a limit, and then says what was waited for and shows the log."""

import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

COMMAND_LIMIT_S = 60.0
"""Many times what a command of the set-up takes on a busy machine."""
END_LIMIT_S = 30.0
SHOWN_LINES, SHOWN_LOGS = 5, 6
_SHOWN_COMMAND = 120
_LAST_OCTETS = 8192


Seen = Callable[[], tuple[str, Sequence[Path]]]
"""Asked at the end of a wait: what there is instead, in a line, and the logs that may say why."""


class NetworkError(Exception):
    """The network cannot be built or used; one line that says why, and the logs that may say more."""

    def __init__(self, text: str, *logs: Path) -> None:
        super().__init__(text + (f"; log: {', '.join(map(str, logs))}" if logs else ""))
        self.logs = logs

    def last_lines(self) -> list[str]:
        """Return the ends of the logs, which are gone with the enclosure."""
        found = []
        for log in self.logs[:SHOWN_LOGS]:
            found.append(f"{log}:")
            found += [f"  {line}" for line in last_lines(log, SHOWN_LINES) or ["(nothing)"]]
        return found


def last_lines(log: Path, count: int) -> list[str]:
    """Return the last lines of a log that are not blank; none where there is no log."""
    with suppress(OSError), log.open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - _LAST_OCTETS))
        lines = [line.strip() for line in file.read().decode(errors="replace").split("\n")]
        return [line for line in lines if line][-count:]
    return []


def ran(
    argv: Sequence[str],
    timeout_s: float,
    where: str = "",
    logs: Sequence[Path] = (),
    environment: dict[str, str] | None = None,
) -> "subprocess.CompletedProcess[str]":
    """Run a command and return its end; NetworkError where it does not come, with what it said and the logs.

    What it prints goes to files: a daemon that it leaves behind with a pipe open would never let that end.
    """
    with tempfile.TemporaryFile("w+", errors="replace") as out, tempfile.TemporaryFile("w+", errors="replace") as err:
        process = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=out, stderr=err, env=environment, start_new_session=True
        )
        try:
            process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            said = _last(_content(err)) or _last(_content(out))
            text = f"{titled(argv, where)} did not end within {timeout_s:g} s; {said or 'it said nothing'}"
            raise NetworkError(text, *logs) from None
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait(END_LIMIT_S)
        return subprocess.CompletedProcess(argv, process.returncode, _content(out), _content(err))


def _content(file: IO[str]) -> str:
    file.seek(0)
    return file.read()


def _last(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1] if lines else ""


def titled(argv: Sequence[str], where: str) -> str:
    """Return a command as an error names it: where it runs, without what brings it there.

    Of a script for sh, only its comment is shown where it begins with one.
    """
    own = argv[3:] if argv[:2] == ["mnexec", "-a"] else argv
    if own[0] == "sh" and own[-1].startswith("# "):
        own = [own[-1].splitlines()[0].removeprefix("# ")]
    shown = " ".join(own)[:_SHOWN_COMMAND]
    return f"{where}: {shown}" if where else shown


def checked(
    argv: Sequence[str], timeout_s: float = COMMAND_LIMIT_S, where: str = "", logs: Sequence[Path] = ()
) -> None:
    """Run a command of the set-up; NetworkError with its last words where it fails or does not end."""
    done = ran(argv, timeout_s, where, logs)
    if done.returncode:
        said = _last(done.stderr) or _last(done.stdout) or f"exit status {done.returncode}"
        raise NetworkError(f"{titled(argv, where)}: {said}", *logs)


def output(argv: Sequence[str], timeout_s: float = 30, where: str = "", logs: Sequence[Path] = ()) -> str:
    """Return what a command prints, whatever its exit status; NetworkError where it does not end."""
    return ran(argv, timeout_s, where, logs).stdout


def spawned(
    command: Sequence[str], log: Path, environment: dict[str, str] | None = None
) -> "subprocess.Popen[bytes]":
    """Start a daemon that writes to the end of a log, out of reach of the terminal's interrupts."""
    with log.open("ab") as out:
        return subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=environment, start_new_session=True
        )


def still_runs(what: str, process: "subprocess.Popen[bytes]", log: Path) -> None:
    """Raise NetworkError with a daemon's last words where it has ended."""
    if process.poll() is not None:
        said = last_lines(log, 1)
        raise NetworkError(f"{what} ended: {said[0] if said else process.returncode}")


def ended(what: str, process: "subprocess.Popen[bytes]", timeout_s: float = END_LIMIT_S, *logs: Path) -> None:
    """Wait for a process that was told to end; NetworkError where it does not."""
    try:
        process.wait(timeout_s)
    except subprocess.TimeoutExpired:
        raise NetworkError(f"{what} (process {process.pid}) did not end within {timeout_s:g} s", *logs) from None


def wait_for(
    what: str,
    condition: Callable[[], bool],
    timeout_s: float,
    every_s: float = 0.25,
    logs: Sequence[Path] = (),
    seen: Seen | None = None,
) -> None:
    """Poll until a condition holds; NetworkError that names ``what``, and what is ``seen`` instead, after the
    deadline."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            instead, more = _told(seen) if seen is not None else ("", ())
            text = f"{what}: not within {timeout_s:.0f} s"
            raise NetworkError(f"{text}; {instead}" if instead else text, *logs, *more)
        time.sleep(every_s)


def _told(seen: Seen) -> tuple[str, Sequence[Path]]:
    """Return what is seen, also where that cannot be told."""
    try:
        return seen()
    except NetworkError as problem:
        return str(problem), ()


@contextmanager
def within(timeout_s: float, what: str, logs: Callable[[], Sequence[Path]]) -> Iterator[None]:
    """Bound what others wait for without a limit, such as Mininet; NetworkError that names ``what``. Main thread."""

    def late(_number: int, _frame: object) -> None:
        raise NetworkError(f"{what}: not within {timeout_s:.0f} s", *logs())

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, timeout_s)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
