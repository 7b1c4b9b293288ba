"""The order of all tests, which of them share a worker, and how a run ends."""

import signal
from pathlib import PurePath

import pytest
from xdist.scheduler import LoadFileScheduling

FOLDERS = ("integration", "daemons", "native", "conformance", "fuzz", "property", "contract", "unit")
"""The longest files first; the short ones keep all workers busy to the end."""

EMULATED = ("test_kvm_", "test_machine_", "test_topology_machines")
"""How files begin that emulate virtual machines, for minutes and with a core each."""


def emulates(file: str) -> bool:
    """Tell whether a file of tests, relative to the project's folder, emulates virtual machines."""
    path = PurePath(file)
    return path.parts[1] in ("integration", "daemons") and path.name.startswith(EMULATED)


def pytest_configure() -> None:
    """Have a run that is terminated end as by Ctrl-C: without a word its daemons and namespaces would stay."""
    signal.signal(signal.SIGTERM, _interrupt)


def _interrupt(*_: object) -> None:
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as in the background of a script
        raise KeyboardInterrupt
    signal.raise_signal(signal.SIGINT)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with machines, then go by folder; one that FOLDERS does not name comes first."""

    def place(item: pytest.Item) -> tuple[bool, int]:
        file = item.nodeid.split("::")[0]
        folder = PurePath(file).parts[1]
        return not emulates(file), FOLDERS.index(folder) if folder in FOLDERS else -1

    items.sort(key=place)


class OneMachineAtATime(LoadFileScheduling):
    """Gives files to workers; those that emulate machines all to one, or there would be no core for anything else."""

    def _split_scope(self, nodeid: str) -> str:
        file = super()._split_scope(nodeid)
        return "machines" if emulates(file) else file


@pytest.hookimpl(optionalhook=True)  # nobody has this hook where xdist is turned off
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> LoadFileScheduling | None:
    """Schedule so where files are what is given to workers."""
    return OneMachineAtATime(config, log) if config.getvalue("dist") == "loadfile" else None
