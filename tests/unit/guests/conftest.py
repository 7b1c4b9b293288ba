"""A supervisor's children, and FRR's daemons among them."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from frr_programs import Programs

from vrc.guest.children import Children
from vrc.guest.log import GuestLog
from vrc.guest.reactor import Reactor


@pytest.fixture
def family(tmp_path: Path) -> Iterator[Children]:
    yield Children(Reactor(), GuestLog(str(tmp_path / "guest.log")))
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.set_wakeup_fd(-1)


@pytest.fixture
def programs(tmp_path: Path, family: Children, monkeypatch: pytest.MonkeyPatch) -> Iterator[Programs]:
    made = Programs(tmp_path, family, monkeypatch)
    yield made
    made.suite.stop(signal.SIGKILL)
    os.close(made.suite._inotify)
