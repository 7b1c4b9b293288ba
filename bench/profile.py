"""Samples the Python processes of a measurement with py-spy, where it is installed."""

import shutil
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

from lab.network import NetworkError

_SAMPLED = ("vrc", "controller")


class Profile:
    """While it is open, collapsed stacks of vrc and controller are collected; they are in DIR afterwards."""

    def __init__(self, directory: Path | None, processes: Mapping[str, int]) -> None:
        self._directory, self._processes = directory, processes
        self._samplers: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> None:
        if self._directory is None:
            return
        sampler = shutil.which("py-spy")
        if sampler is None:
            raise NetworkError("--profile needs py-spy on PATH; pip install it into a venv of its own")
        self._directory.mkdir(parents=True, exist_ok=True)
        for name in _SAMPLED:
            output = self._directory / f"{name}.txt"
            what = ("--pid", str(self._processes[name]), "--format", "raw", "--output", str(output))
            argv = [sampler, "record", *what, "--rate", "200", "--duration", "600", "--nonblocking"]
            self._samplers.append(subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for sampler in self._samplers:
            sampler.send_signal(signal.SIGINT)
        for sampler in self._samplers:
            sampler.wait(timeout=30)
