"""The order of all tests, which of them share a worker, how all are imported, and how a run ends."""

import contextlib
import gc
import os
import signal
from collections.abc import Iterator
from pathlib import Path, PurePath

import pytest
from machine_time import prefer, release
from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import NodeManager

FOLDERS = ("integration", "daemons", "native", "conformance", "fuzz", "property", "contract", "unit")
"""The longest files first; the short ones keep all workers busy to the end."""

EMULATED = ("test_kvm_", "test_machine_", "test_topology_machines")
"""How files begin that emulate virtual machines, for minutes and with a core each."""

LONGEST = (
    *("test_topology_run", "test_e2e_kill", "test_isis", "test_bfd", "test_e2e_route_source"),
    *("test_forwarder_sanitized", "test_forwarder_kernel", "test_forwarder_native", "test_moving_tables"),
    *("test_cases", "test_guest_hangs", "test_hostile_guest", "test_fuzz"),
)
"""How files begin that take a minute and more: begun late, one of them alone would be waited for at the end."""

KINDS = ("fake", "ovs", "openflow", "bmv2", "forwarder", "forwarder_generic", "openflow+forwarder", "bmv2+forwarder")
"""What tests that are for several kinds of planes call them in their parameters."""

END_LIMIT_S = 60
"""How long workers that are interrupted have for what their tests put away."""


def emulates(file: str) -> bool:
    """Tell whether a file of tests, relative to the project's folder, emulates virtual machines."""
    path = PurePath(file)
    return path.parts[1] in ("integration", "daemons") and path.name.startswith(EMULATED)


def pytest_configure() -> None:
    """Have a run that is terminated end as by Ctrl-C: without a word its daemons and namespaces would stay."""
    signal.signal(signal.SIGTERM, _interrupt)
    NodeManager.EXIT_TIMEOUT = END_LIMIT_S


def _interrupt(*_: object) -> None:
    for worker in _workers():
        with contextlib.suppress(ProcessLookupError):
            os.kill(worker, signal.SIGTERM)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as in the background of a script
        raise KeyboardInterrupt
    try:
        signal.raise_signal(signal.SIGINT)
    finally:
        if "PYTEST_XDIST_WORKER" in os.environ:  # execnet interrupts once more, after 5 s in what puts things away
            signal.signal(signal.SIGINT, signal.SIG_IGN)


def _workers() -> Iterator[int]:
    """Find xdist's workers, which are interrupted here alone: whoever terminates a run knows its first process."""
    for children in Path("/proc/self/task").glob("*/children"):
        for pid in map(int, children.read_text().split()):
            with contextlib.suppress(OSError):
                if b"exec(eval(sys.stdin.readline()))" in Path(f"/proc/{pid}/cmdline").read_bytes():
                    yield pid


def pytest_collection() -> None:
    """Import without garbage collection: it would look again and again at what stays."""
    gc.disable()


def pytest_collection_finish() -> None:
    """Leave what was imported out of all that follow, and have fewer of them: a test makes little garbage."""
    gc.freeze()
    gc.set_threshold(10_000)
    gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with machines, then go by folder; one that FOLDERS does not name comes first."""

    def place(item: pytest.Item) -> tuple[bool, bool, int]:
        file = item.nodeid.split("::")[0]
        folder, name = PurePath(file).parts[1], PurePath(file).name
        at = FOLDERS.index(folder) if folder in FOLDERS else -1
        return not emulates(file), not name.startswith(LONGEST), at

    items.sort(key=place)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
    """Prefer a worker as long as it emulates machines: what the others do is done before."""
    emulated, goes_on = (one is not None and emulates(one.nodeid.split("::")[0]) for one in (item, nextitem))
    if emulated:
        prefer()
    try:
        return (yield)
    finally:
        if emulated and not goes_on:
            release()


def unit(test: str) -> str:
    """Return what a test, by its node id, goes to a worker with: what it shares something with that is brought up.

    That is its file, but of tests for several kinds of planes only those for the same kind, as each kind has its own;
    in conformance all files share the plane of a kind. Machines go to one worker: two at once are so slow on
    two cores that their tests miss deadlines.
    """
    file, _, name = test.partition("::")
    if emulates(file):
        return "machines"
    parameters = name.partition("[")[2].rstrip("]").split("-")
    kind = next((one for one in parameters if one in KINDS), "")
    return f"{PurePath(file).parent if kind and PurePath(file).parts[1] == 'conformance' else file} {kind}"


class Units(LoadFileScheduling):
    """Gives units of tests to workers."""

    def _split_scope(self, nodeid: str) -> str:
        return unit(nodeid)


@pytest.hookimpl(optionalhook=True)  # nobody has this hook where xdist is turned off
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> LoadFileScheduling | None:
    """Schedule so where files are what is given to workers."""
    return Units(config, log) if config.getvalue("dist") == "loadfile" else None
