"""Keeps the garbage collector's pauses short in a process that holds millions of objects.

CPython looks through every object that it knows whenever a quarter more than the last time have grown old: a second
with ten thousand routers. What has survived a full collection is therefore set aside (`gc.freeze`) and never looked
at again, so that each pass sees only what is new since the last one. The cost: a cycle among objects that old is
never found, hence routers and sessions have none; a test removes them with the collector off.
"""

import gc
from typing import Any

_OLDEST = 2
_THRESHOLDS = (700, 5, 1)
"""A full pass after 8,400 new objects, which takes 2 ms most times (bench/scale). By those of Python 3.11 it comes
after 84,700 and takes 50; those of 3.13 are three times as many."""


def bound_pauses() -> None:
    """Set aside what survives a full collection, and collect fully while there is little to look through."""
    gc.set_threshold(*_THRESHOLDS)
    if _set_aside not in gc.callbacks:
        gc.callbacks.append(_set_aside)


def _set_aside(phase: str, info: dict[str, Any]) -> None:
    if phase == "stop" and info["generation"] == _OLDEST:
        gc.freeze()
