"""vr-controller and vrctl, forked from a process that has imported them: that is 1 s of CPU at each start.

    this process ─ Unix socket ─ fork server ─ fork ─ keeper, in the namespaces ─ fork ─ vr-controller
          └──────────────── pipe: its pid, its exit status ────┘

A program so begun has what it would have from its command line: arguments, environment, standard streams, namespaces,
the default of each signal; what it prints and how it exits is its own. The fork server has one thread, because a fork
copies no other, and ends with whoever has the other end of its socket. Each worker of pytest has one, once it asks.

Tests that are about a command line (topologies, the tutorial, the manual's installation) start the real one.
"""

import atexit
import contextlib
import ctypes
import functools
import gc
import importlib
import json
import os
import pkgutil
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
PROGRAMS = {"vr-controller": ("controller.__main__", "main"), "vrctl": ("controller.vrctl.cli", "main")}
"""Where the console scripts of setup.cfg enter."""
_LONGEST_REQUEST = 1 << 20
_MOST_DESCRIPTORS = 8
_PR_SET_NAME = 15
_LIBC = ctypes.CDLL(None, use_errno=True)


class Forked:
    """A program begun by the fork server; of `subprocess.Popen` what tests need."""

    def __init__(self, name: str, status: int) -> None:
        self._name, self._status = name, os.fdopen(status, "rb", buffering=0)
        self.returncode: int | None = None
        self.pid = self._number()

    def _number(self) -> int:
        said = self._status.readline()
        assert said, f"{self._name} could not be forked: see the standard error of the tests"
        return int(said)

    def poll(self) -> int | None:
        """Return its exit status, negative for a signal, None while it runs."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self.wait(0)
        return None

    def wait(self, timeout_s: float | None = None) -> int:
        """Wait for its end; subprocess.TimeoutExpired."""
        if self.returncode is None:
            if not select.select([self._status], [], [], timeout_s)[0]:
                raise subprocess.TimeoutExpired(self._name, timeout_s or 0)
            self.returncode = self._number()
            self._status.close()
        return self.returncode

    def kill(self) -> None:
        """Send SIGKILL, unless it has ended."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)


class _Server:
    """The fork server of this process."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._one_at_a_time = threading.Lock()
        with theirs:
            command = (sys.executable, "-P", __file__, str(theirs.fileno()))
            environment = os.environ | {"PYTHONPATH": str(ROOT)}
            streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL}
            # A session of its own: Ctrl-C at the terminal is for us.
            self._process = subprocess.Popen(
                command, pass_fds=(theirs.fileno(),), env=environment, start_new_session=True, **streams
            )

        atexit.register(self._end)

    def _end(self) -> None:
        self._socket.close()
        self._process.wait()

    def fork(self, request: dict[str, Any], descriptors: Sequence[int]) -> Forked:
        ours, theirs = os.pipe()
        try:
            with self._one_at_a_time:
                socket.send_fds(self._socket, [json.dumps(request).encode()], [theirs, *descriptors])
        finally:
            os.close(theirs)
        return Forked(request["argv"][0], ours)


_server = functools.cache(_Server)
_STARTING = threading.Lock()


def start(
    program: str,
    arguments: Sequence[str],
    environment: Mapping[str, str],
    streams: Sequence[int],
    inside: Sequence[Path] = (),
) -> Forked:
    """Start a program on three streams, in namespaces (files of /proc/PID/ns, of PID namespaces as `ns/pid`)."""
    request = {"program": program, "argv": [str(BIN / program), *arguments], "environment": dict(environment)}
    with contextlib.ExitStack() as stack, _STARTING:
        namespaces = [stack.enter_context(path.open("rb")).fileno() for path in inside]
        return _server().fork(request, [*streams, *namespaces])


def run(
    program: str, *arguments: str, environment: Mapping[str, str], text: str | None = None, timeout_s: float
) -> "subprocess.CompletedProcess[str]":
    """Run a program to its end, as `subprocess.run` with all output captured; subprocess.TimeoutExpired."""
    with contextlib.ExitStack() as stack:
        stdin, stdout, stderr = (stack.enter_context(tempfile.TemporaryFile()) for _ in range(3))
        stdin.write((text or "").encode())
        stdin.seek(0)
        process = start(program, arguments, environment, [stdin.fileno(), stdout.fileno(), stderr.fileno()])
        stack.callback(process.kill)
        status = process.wait(timeout_s)
        said = [_content(file) for file in (stdout, stderr)]
    return subprocess.CompletedProcess([program, *arguments], status, *said)


def _content(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode()


# -- in the fork server ----------------------------------------------------------------------------------------------


def _import_all() -> None:
    """Import what the programs may ever import."""
    gc.disable()
    import controller
    from controller.vrctl.cli import commands

    commands()  # built for all forks; before the rest, as they are listed in the order of their modules' import
    for module in pkgutil.walk_packages(controller.__path__, "controller."):
        importlib.import_module(module.name)
    gc.freeze()
    gc.enable()


def _serve(requests: socket.socket) -> Callable[[], object] | None:
    """Fork for each request; returns in a child, what it is to run, and at the end of whoever asks None."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for keepers
    while True:
        message, descriptors, _, _ = socket.recv_fds(requests, _LONGEST_REQUEST, _MOST_DESCRIPTORS)
        if not message:
            return None
        threads = os.listdir("/proc/self/task")
        assert len(threads) == 1, f"{len(threads)} threads: a child would have one of them"
        if not os.fork():
            requests.close()
            return _keep(json.loads(message), *descriptors)
        for descriptor in descriptors:
            os.close(descriptor)


def _keep(request: dict[str, Any], status: int, *descriptors: int) -> Callable[[], object]:
    """Enter the namespaces, fork, and say what becomes of the child; returns in it."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for namespace in descriptors[3:]:
        if _LIBC.setns(namespace, 0):
            raise OSError(ctypes.get_errno(), "setns")
    pid = os.fork()
    if not pid:
        os.close(status)
        return _become(request, descriptors)
    os.closerange(0, status)
    os.closerange(status + 1, max(descriptors) + 1)
    os.write(status, f"{pid}\n".encode())
    _, ended = os.waitpid(pid, 0)
    with contextlib.suppress(BrokenPipeError):
        os.write(status, f"{os.waitstatus_to_exitcode(ended)}\n".encode())
    os._exit(0)


def _become(request: dict[str, Any], descriptors: Sequence[int]) -> Callable[[], object]:
    """Make a fresh fork what its command line would be."""
    os.setsid()
    for number, descriptor in enumerate(descriptors[:3]):
        os.dup2(descriptor, number)
    for descriptor in descriptors:
        os.close(descriptor)
    os.environ.clear()
    os.environ.update(request["environment"])
    sys.argv[:] = request["argv"]
    _LIBC.prctl(_PR_SET_NAME, request["program"].encode(), 0, 0, 0)
    module, function = PROGRAMS[request["program"]]
    return getattr(importlib.import_module(module), function)  # type: ignore[no-any-return]


def _exit_status(program: Callable[[], object]) -> int:
    """Run a program and what Python does at its end, except to take down the modules: that costs 50 ms."""
    try:
        said = program()
    except SystemExit as end:
        said = end.code
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    if not isinstance(said, int | None):
        print(said, file=sys.stderr)
        said = 1
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    return said or 0


def _main() -> None:
    with socket.socket(fileno=int(sys.argv[1])) as requests:
        _import_all()
        program = _serve(requests)
    if program is not None:
        os._exit(_exit_status(program))


if __name__ == "__main__":
    _main()
