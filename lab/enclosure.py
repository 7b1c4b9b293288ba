"""Runs a program inside network, mount and PID namespaces of its own, so that nothing of it can stay behind.

    caller ── outer (waits; passes SIGTERM on) ── unshare ── PID 1 (reaps; at SIGTERM ends all) ── the program

What they write to /run and /var/tmp goes to a tmpfs of the mount namespace. PID 1 dies with the outer process, even
by kill -9, and the kernel then ends everything else; only empty control groups of guests stay after that.
"""

import argparse
import contextlib
import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from controller.guests import limits

_INSIDE, _OUTER = "SPLITPLANE_OUTER_PROC", "SPLITPLANE_OUTER"
STATE = Path(f"/run/splitplane-state-{os.environ.get(_OUTER, os.getpid())}")
"""Where the controller of an enclosure keeps its state. Control groups of guests are of no namespace and named after
it, so no two enclosures have the same."""
_PRIVATE = ("/run", "/var/tmp", "/var/lib/frr")
"""Where a tmpfs of the enclosure takes the place of the machine's directory; the last is there from FRR 10 on."""
_SET_UP_LIMIT_S = 60
_END_LIMIT_S = 30
"""How long a PID 1 that is terminated has, before it is killed."""
_PROGRAMS = {
    "/usr/lib/frr/zebra": "frr",
    "/usr/lib/frr/bgpd": "frr",
    "ovs-vswitchd": "openvswitch-switch",
    "ovsdb-server": "openvswitch-switch",
    "mnexec": "mininet",
    "ping": "iputils-ping",
    "traceroute": "traceroute",
    "iperf3": "iperf3",
    "ethtool": "ethtool",
    "tcpdump": "tcpdump",
    "bird": "bird2",
    "unshare": "util-linux",
}


def missing() -> str:
    """Return one line that says what this machine lacks and the remedy; empty when nothing."""
    if os.geteuid() != 0:
        return "needs root, for network namespaces and Open vSwitch; run it with sudo"
    packages = {package for program, package in _PROGRAMS.items() if shutil.which(program) is None}
    if importlib.util.find_spec("mininet") is None:
        packages.add("mininet")
    if not packages:
        return ""
    names = " ".join(sorted(packages))
    return f"these packages are missing: {names}; run: apt-get install {names} (or: make setup)"


def kept_directory(text: str) -> Path:
    """Return a directory of the command line for files that outlive the enclosure; it is made where it is missing.

    argparse.ArgumentTypeError where it cannot be made, or would end with the enclosure.
    """
    directory = Path(text)
    if any(directory.resolve().is_relative_to(place) for place in _PRIVATE):
        raise argparse.ArgumentTypeError(f"what is in {text} would end with the network; give another directory")
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise argparse.ArgumentTypeError(f"{text}: {problem.strerror}; give another directory") from None
    return directory


def run_enclosed(name: str, module: str, program: Callable[[], int], also_missing: Callable[[], str] = str) -> int:
    """Run ``program``, of the importable ``module``, in namespaces of its own and return its exit status.

    Where this machine lacks what every network needs, or what ``also_missing`` says, one line says so, as from the
    command ``name``.

    The process re-executes ``python -m module`` with its own arguments, so the caller does nothing before it that
    it would not do twice.
    """
    if _INSIDE in os.environ:
        return _as_first_process(program)
    problem = missing() or also_missing()
    if problem:
        print(f"{name}: {problem}", file=sys.stderr)
        return 1
    proc = os.open("/proc", os.O_RDONLY | os.O_DIRECTORY)
    wrapped = [
        *("setpriv", "--pdeathsig", "KILL", "--"),
        *("unshare", "--net", "--mount", "--pid", "--ipc", "--fork", "--kill-child", "--mount-proc", "--"),
        *(sys.executable, "-m", module, *sys.argv[1:]),
    ]
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal tells the program as well, which ends in order
    child = subprocess.Popen(
        wrapped,
        env=os.environ | {_INSIDE: str(proc), _OUTER: str(os.getpid())},
        pass_fds=[proc],
        preexec_fn=_restore_interrupt,
    )
    killed_at = 0.0

    def end(*_: object) -> None:
        nonlocal killed_at
        if not killed_at:
            killed_at = time.monotonic() + _END_LIMIT_S
            signal.setitimer(signal.ITIMER_REAL, 1.0, 1.0)  # a PID 1 that has only begun hears nothing
        if time.monotonic() > killed_at or not _terminate_children(child.pid):
            child.kill()

    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGALRM):
        signal.signal(number, end)
    status = child.wait()
    return status if status >= 0 else 128 - status


def outer_pid() -> int:
    """Return the PID of this enclosure's first process as the machine's other terminals see it."""
    return int(os.environ["SPLITPLANE_FIRST"])


def _terminate_children(pid: int) -> bool:
    """Terminate what a process has started; False where that is nothing."""
    with contextlib.suppress(OSError):
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        for one in children:
            os.kill(int(one), signal.SIGTERM)
        return bool(children)
    return False


def _restore_interrupt() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def _as_first_process(program: Callable[[], int]) -> int:
    """Prepare the namespaces, run ``program`` as a child and reap every orphan until it ends."""
    signal.signal(signal.SIGTERM, lambda *_: _finish(-signal.SIGTERM))
    proc = int(os.environ.pop(_INSIDE))
    # "self" resolves in the PID namespace of the /proc it is looked up in: the machine's.
    os.environ["SPLITPLANE_FIRST"] = os.readlink("self", dir_fd=proc)
    os.close(proc)
    _private_mounts()
    _set_up("ip", "link", "set", "lo", "up")
    # The kernel's own multicast on the switch's side of each veth would reach the neighbors as noise.
    Path("/proc/sys/net/ipv6/conf/default/disable_ipv6").write_text("1")
    # Held back until each of the two has said what an interrupt is to it.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    child = os.fork()
    if child != 0:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    if child == 0:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        return program()
    while True:
        pid, status = os.wait()
        if pid == child:
            _finish(os.waitstatus_to_exitcode(status))


def _finish(code: int) -> NoReturn:
    """End everything and exit; with what the program ended by, a signal as a shell says it."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.stdout.flush()
    _end_all()
    _remove_groups()
    os._exit(code if code >= 0 else 128 - code)


def _end_all() -> None:
    """End whatever else is in this PID namespace, and wait for it."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(-1, signal.SIGKILL)
    with contextlib.suppress(ChildProcessError):
        while True:
            os.wait()


def _remove_groups() -> None:
    """Remove the control groups of guests that have ended with their controller: groups are of no namespace."""
    for directory in STATE.glob("guests/*"):
        limits.remove(directory)


def _set_up(*argv: str) -> None:
    try:
        subprocess.run(argv, check=True, timeout=_SET_UP_LIMIT_S)
    except subprocess.TimeoutExpired:
        sys.exit(f"{' '.join(argv)} did not end within {_SET_UP_LIMIT_S} s")


def _private_mounts() -> None:
    # -n: mount(8) would note these in the machine's /run/mount.
    for place in _PRIVATE:
        if Path(place).is_dir():
            _set_up("mount", "-n", "-t", "tmpfs", "-o", "mode=755", "tmpfs", place)
    for place in ("/run/netns", "/run/lock", "/run/frr"):
        Path(place).mkdir()
