"""Counts how much runs, where that is to depend on no more than what is done: a timed test would fail by luck."""

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any


class Lines:
    """Counts the lines of a package that run; a comprehension's line counts in each round."""

    def __init__(self, package: str) -> None:
        self._package = package
        self.count = 0

    def __call__(self, frame: Any, event: str, _argument: object) -> Any:
        if Path(frame.f_code.co_filename).parent.name != self._package:
            return None
        self.count += event == "line"
        return self


@contextlib.contextmanager
def counted(package: str) -> Iterator[Lines]:
    """Count the lines of a package, by its last name."""
    lines, before = Lines(package), sys.gettrace()
    sys.settrace(lines)
    try:
        yield lines
    finally:
        sys.settrace(before)
