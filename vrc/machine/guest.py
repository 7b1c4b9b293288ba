"""Keeps vr-guest running inside the machine, and asks it what the host asks."""

import contextlib
import json
import os
import signal
import socket
import time
from collections.abc import Callable, Sequence
from typing import Any

from vrc.guest.children import Backoff
from vrc.guest.launch import EXIT_RUNS_ALREADY
from vrc.guest.lines import TOO_LONG, LineStream
from vrc.guest.reactor import Reactor, Timer
from vrc.guest.suites.base import Section, job_limit_of
from vrc.machine.control import Reply, absence, refusal

DIRECTORY = "/run/guest"
CLOSE_IN_LIMIT_S = 90.0
"""How long closing the guest in may take: a few seconds of an emulated processor, which others may hold up."""
LAUNCH_LIMIT_S = CLOSE_IN_LIMIT_S + 10.0
"""How long vr-guest may take to say so."""
ANSWER_LIMIT_S = 130.0
"""How long vr-guest may take for an answer to anything but a reload (`reload_limit_s`)."""
MAX_ASKED = 8
"""Requests to vr-guest that are unanswered at once."""
_RELOAD_MARGIN_S = 10.0
_ENVIRONMENT = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8"}
_MAX_SAID_BYTES = 4096


def reload_limit_s(section: Section) -> float:
    """Return how long vr-guest may take for a reload to a suite's section: longer than the suite's own job, so that
    the suite says how that ended, and less long than the host waits, which gives the job its limit."""
    return job_limit_of(section) + _RELOAD_MARGIN_S


class KeptGuest:
    """The guest of a machine: ``launcher`` starts it, and it is started again whenever it ends."""

    def __init__(
        self, reactor: Reactor, launcher: Sequence[str], log: Callable[[str], None], directory: str = DIRECTORY
    ) -> None:
        self._reactor, self._launcher, self._log, self._directory = reactor, list(launcher), log, directory
        self._backoff = Backoff()
        self._started_s = 0.0
        self._launching = 0  # the launcher's pid
        self._said = -1  # the pipe of its stderr
        self._limit: Timer | None = None
        self._late = False  # the launcher was killed for its limit
        self._next_start: Timer | None = None
        self._pidfd = -1
        self._wanted = False
        self._asked = 0
        self._held: list[tuple[bytes, Reply, float]] = []  # questions to a guest that is being started
        self.pid = 0
        self.state = "starting"
        self.restarts = 0

    def start(self) -> None:
        """Start the guest; `state` becomes ``up``, or ``failed: …`` while it is tried again."""
        self._wanted, self._late, self._started_s = True, False, time.monotonic()
        read, write = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(read, False)
        argv = [*self._launcher, "--config", f"{self._directory}/guest.json", "--limit", f"{CLOSE_IN_LIMIT_S:g}"]
        try:
            self._launching = os.posix_spawn(
                argv[0],
                argv,
                {**_ENVIRONMENT, "PYTHONPATH": os.environ.get("PYTHONPATH", "")},
                file_actions=[
                    (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0),
                    (os.POSIX_SPAWN_OPEN, 1, "/dev/null", os.O_WRONLY, 0),
                    (os.POSIX_SPAWN_DUP2, write, 2),
                ],
                setsid=True,
                setsigdef=[signal.SIGPIPE, signal.SIGXFSZ],
            )
        except OSError as error:
            os.close(read)
            self._failed(f"{argv[0]}: {error.strerror}")
            return
        finally:
            os.close(write)
        self._said = read
        self._limit = self._reactor.call_later(LAUNCH_LIMIT_S, self._too_slow)

    def reaped(self, pid: int, exit_status: int) -> bool:
        """Tell whether ``pid`` was the launcher."""
        if pid != self._launching:
            return False
        self._launching = 0
        if self._limit:
            self._limit.cancel()
        said = b""
        with contextlib.suppress(BlockingIOError):
            said = os.read(self._said, _MAX_SAID_BYTES)
        os.close(self._said)
        if exit_status in (0, EXIT_RUNS_ALREADY):  # the latter where an earlier launcher was too slow to say so
            self._launched()
        elif self._late:
            self._failed(f"vr-guest did not close the guest in within {LAUNCH_LIMIT_S:g} s; see the console")
        else:
            lines = said.decode(errors="replace").strip().splitlines()
            self._failed(lines[-1] if lines else f"vr-guest ended with status {exit_status}")
        return True

    def _too_slow(self) -> None:
        if self._launching:
            self._late = True
            os.kill(self._launching, signal.SIGKILL)

    def _launched(self) -> None:
        try:
            with open(f"{self._directory}/guest.pid") as file:
                self.pid = int(file.read().split()[0])
            self._pidfd = os.pidfd_open(self.pid)
        except (OSError, ValueError, IndexError) as error:
            self._failed(f"its first process is not there: {error}")
            return
        self.state = "up"
        self._reactor.add_reader(self._pidfd, self._ended)
        for question in self._waited():
            self._put(*question)
        if not self._wanted:  # stopped while it was started
            os.kill(self.pid, signal.SIGKILL)

    def _ended(self) -> None:
        self._reactor.remove_reader(self._pidfd)
        os.close(self._pidfd)
        self._pidfd, self.pid = -1, 0
        self._failed("its first process ended")

    def _failed(self, why: str) -> None:
        self.state = f"failed: {why}" if self._wanted else "stopped"
        for _, reply, _ in self._waited():
            reply(self._absent())
        if not self._wanted:
            return
        self.restarts += 1
        pause_s = self._backoff.delay_s(time.monotonic() - self._started_s)
        self._log(f"the guest does not run: {why}; started again in {pause_s:g} s")
        self._next_start = self._reactor.call_later(pause_s, self.start)

    def ask(self, request: bytes, reply: Reply, *, limit_s: float = ANSWER_LIMIT_S, patient: bool = False) -> None:
        """Pass one request on to vr-guest; ``reply`` gets its answer, or a refusal, within ``limit_s`` from then on.

        ``patient``: a guest that is being started is waited for.
        """
        if self._asked + len(self._held) >= MAX_ASKED:
            reply(refusal(f"{MAX_ASKED} requests are unanswered already"))
        elif self._launching and patient:
            self._held.append((request, reply, limit_s))
        elif self._launching:
            reply(self._absent())
        else:
            self._put(request, reply, limit_s)

    def _put(self, request: bytes, reply: Reply, limit_s: float) -> None:
        client = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            client.setblocking(False)
            client.connect(f"{self._directory}/control.sock")
        except OSError:
            client.close()
            reply(self._absent())
            return
        self._asked += 1
        _Question(self._reactor, client, request, limit_s, lambda answer: self._answered(answer, reply))

    def _waited(self) -> list[tuple[bytes, Reply, float]]:
        held, self._held = self._held, []
        return held

    def _absent(self) -> dict[str, Any]:
        return absence(f"the guest does not run ({self.state})")

    def _answered(self, answer: dict[str, Any], reply: Reply) -> None:
        self._asked -= 1
        reply(answer)

    def stop(self, stopped: Callable[[], None], limit_s: float) -> None:
        """Ask the guest to end, and call back when it has, or after ``limit_s``."""
        self._wanted = False
        if self._next_start:
            self._next_start.cancel()
        called = False

        def once(_answer: dict[str, Any] | None = None) -> None:
            nonlocal called
            if not called:
                called = True
                stopped()

        if not self.pid:
            once()
            return
        self._reactor.call_later(limit_s, once)
        self.ask(b'{"op": "stop"}', once)


class _Question:
    """One connection to vr-guest for one request."""

    def __init__(
        self, reactor: Reactor, client: socket.socket, request: bytes, limit_s: float, answered: Reply
    ) -> None:
        self._answered, self._limit_s = answered, limit_s
        self._stream = LineStream(reactor, client.detach(), self._line, self._end)
        self._limit = reactor.call_later(limit_s, self._too_slow)
        self._stream.send(request)

    def _too_slow(self) -> None:
        self._stream.close()
        self._answered(refusal(f"the guest's supervisor did not answer within {self._limit_s:g} s; see the console"))

    def _line(self, line: bytes) -> None:
        self._limit.cancel()
        self._stream.close()
        try:
            answer = json.loads(line) if line != TOO_LONG else {}
            if not isinstance(answer, dict) or "ok" not in answer:
                raise ValueError("it has no meaning")
        except (ValueError, RecursionError) as error:
            answer = refusal(f"the guest's supervisor gave an answer that cannot be used: {error}")
        self._answered(answer)

    def _end(self) -> None:
        self._limit.cancel()
        self._stream.close()
        self._answered(absence("the guest's supervisor ended before it answered"))
