"""vr-controller as a child process that can be killed and started again, and vrctl as its operator."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from controller.vrctl.client import Client, Refused, Unreachable, path_of
from controller.vrctl.guest import command_for
from lab.commands import NetworkError, ended, last_lines, ran
from lab.enclosure import STATE
from lab.network import CONTROLLER

_BIN = Path(sys.executable).parent
RUN = Path("/run/splitplane")
SOCKET = RUN / "api.sock"
LOG = Path("/run/vr-controller.log")
_VRCTL_LIMIT_S = 60.0
_APPLY_LIMIT_S = 180.0
"""Apply waits until a machine has booted (60 s at most) and its daemons have read their text (75 s)."""
IMAGE = Path(__file__).parents[1] / "build/guest"  # scripts/setup guest


class Controller:
    """One vr-controller for the planes of this enclosure."""

    def __init__(self, program: Sequence[str] = (str(_BIN / "vr-controller"),)) -> None:
        """``program`` begins its command line."""
        self._program = program
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, timeout_s: float = 30) -> None:
        """Start the daemon and wait until it serves its API."""
        RUN.mkdir(exist_ok=True)
        STATE.mkdir(exist_ok=True)
        places = ["--state", str(STATE), "--run", str(RUN), "--openflow", CONTROLLER, "--guest-image", str(IMAGE)]
        places += ["--limits", "best-effort"]  # a lab is for hosts that lack control groups, too
        with LOG.open("ab") as log:
            # In a session of its own: Ctrl-C at the terminal is for us, not for the daemon.
            self._process = subprocess.Popen(
                [*self._program, *places],
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
        deadline = time.monotonic() + timeout_s
        while not _listens() or self._vrctl("get", "planes").returncode:
            if self._process.poll() is not None:
                text = f"vr-controller ended with status {self._process.returncode}: {last_words(LOG)}"
                raise NetworkError(text, LOG)
            if time.monotonic() > deadline:
                text = f"vr-controller does not answer after {timeout_s:.0f} s: {last_words(LOG)}"
                raise NetworkError(text, LOG)
            time.sleep(0.05)

    def kill(self) -> None:
        """End the daemon as a power cut would: SIGKILL."""
        assert self._process is not None
        os.kill(self._process.pid, signal.SIGKILL)
        ended("vr-controller", self._process)

    def declare(self, planes: list[dict[str, Any]]) -> None:
        """Declare the planes, which specifications leave to whoever makes the switches."""
        path = RUN / "planes.yaml"
        path.write_text(json.dumps({"version": 1, "planes": planes}))  # JSON is YAML
        self.vrctl("apply", "-f", str(path))

    def vrctl(self, *arguments: str) -> str:
        """Return what vrctl prints; NetworkError with its own words where it fails."""
        done = self._vrctl(*arguments)
        if done.returncode:
            raise NetworkError(_complaint(done, arguments))
        return done.stdout

    def show(self, *arguments: str) -> Any:
        """Return what a showing command of vrctl says, as values; also where its exit status says that it is bad."""
        done = self._vrctl(*arguments, "-o", "json")
        try:
            return json.loads(done.stdout)
        except json.JSONDecodeError:
            raise NetworkError(_complaint(done, arguments)) from None

    def get(self, *parts: str) -> Any:
        """Return a resource of the API: what vrctl shows, without its start, for whoever asks again and again."""
        with _answered("/".join(parts)) as client:
            return client.get(*parts)

    def routers(self) -> dict[str, dict[str, Any]]:
        """Return what `vrctl get routers` says, by router."""
        return {view["router"]: view for view in self.get("routers")}

    def counters(self, router: str) -> dict[str, Any]:
        """Return what `vrctl counters` says of a router ("tenant/router")."""
        counted: dict[str, Any] = self.get("routers", *router.split("/"), "counters")
        return counted

    def fib(self, router: str) -> list[dict[str, Any]]:
        """Return what `vrctl fib` says of a router, an entry each."""
        with _answered(f"fib of {router}") as client:
            return list(client.lines("GET", path_of("routers", *router.split("/"), "fib")))

    def exec(self, router: str, *argv: str) -> str:
        """Return what a command prints inside a router's guest; it is run as `vrctl exec` runs it."""
        with _answered(f"exec {router}") as client:
            target = path_of("routers", *router.split("/"), "exec")
            inside = client.call("POST", target, {"argv": argv})["argv"]
            command = command_for(client.controller_pid(), inside)
        done = ran(command, _VRCTL_LIMIT_S, logs=[LOG])
        if done.returncode:
            raise NetworkError(_complaint(done, ("exec", router, *argv)))
        return done.stdout

    @staticmethod
    def _vrctl(*arguments: str) -> "subprocess.CompletedProcess[str]":
        command = [str(_BIN / "vrctl"), "--socket", str(SOCKET), *arguments]
        environment = os.environ | {"COLUMNS": "110"}  # its tables, where it sees no terminal
        limit_s = _APPLY_LIMIT_S if arguments[0] == "apply" else _VRCTL_LIMIT_S
        return ran(command, limit_s, logs=[LOG], environment=environment)


@contextmanager
def _answered(what: str) -> Iterator[Client]:
    try:
        yield Client(SOCKET)
    except (Unreachable, Refused) as problem:
        raise NetworkError(f"{what}: {problem}", LOG) from None


def _listens() -> bool:
    """Tell whether somebody listens at the API's socket: to ask by vrctl again and again would delay its start."""
    with socket.socket(socket.AF_UNIX) as asking:
        return not asking.connect_ex(str(SOCKET))


def guest_logs(routers: Collection[str], state: Path = STATE) -> list[Path]:
    """Return the logs of the guests of routers ("tenant/router"); that of a machine is its console."""
    found = []
    for config in sorted(state.glob("guests/*/guest.json")):
        if json.loads(config.read_text())["router"] in routers:
            found += [config.parent / name for name in ("guest.log", "console.log")]
    return [log for log in found if log.exists()]


def _complaint(done: "subprocess.CompletedProcess[str]", arguments: Sequence[str]) -> str:
    said = (done.stderr.strip() or done.stdout.strip()).splitlines()
    return f"vrctl {' '.join(arguments)}: {said[-1] if said else f'exit status {done.returncode}'}"


def last_words(log: Path) -> str:
    """Return the last line of a log, for an error message of one line."""
    return "".join(last_lines(log, 1)) or "it logged nothing"
