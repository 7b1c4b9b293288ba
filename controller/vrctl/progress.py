"""Changes that report progress: a bar on a terminal once they take longer than a second."""

import sys
import time
from collections.abc import Iterator
from typing import Any

from controller.vrctl.client import CutOff, Refused

SHOW_AFTER_S = 1.0


def follow(lines: Iterator[Any]) -> dict[str, Any]:
    """Read the lines of a change until its outcome, which is returned; Refused where it ends with an error."""
    bar = _Bar()
    try:
        for line in lines:
            if "progress" in line:
                bar.show(line["progress"])
            elif "error" in line:
                raise Refused(line["kind"], line["error"])
            else:
                outcome: dict[str, Any] = line
                return outcome
    except CutOff:
        pass
    finally:
        bar.close()
    raise Refused("Incomplete", "the controller went away before it was done; run vrctl again to see how far it came")


class _Bar:
    def __init__(self) -> None:
        self._start = time.monotonic()
        self._progress: Any = None
        self._task: Any = None

    def show(self, step: dict[str, Any]) -> None:
        if not sys.stderr.isatty() or time.monotonic() - self._start < SHOW_AFTER_S:
            return
        if self._progress is None:
            self._open()
        self._progress.update(self._task, completed=step["done"], total=step["total"], description=step["text"])

    def _open(self) -> None:
        from rich.console import Console
        from rich.progress import Progress

        self._progress = Progress(console=Console(stderr=True), transient=True)
        self._progress.start()
        self._task = self._progress.add_task("", total=None)

    def close(self) -> None:
        if self._progress is not None:
            self._progress.stop()
