"""How a process shares its cores, in processes of their own: what they ask for is theirs until they end."""

import json
import os
import subprocess
import sys

import pytest

from wire import scheduling
from wire.scheduling import SHORT_TURN_NS

SAID = "import json, os; print(json.dumps([os.sched_getscheduler(0), scheduling.turn_ns()]))"


def after(lines: str) -> list[int]:
    """Return policy and turns of a thread that has run those lines."""
    program = f"from wire import scheduling\n{lines}\n{SAID}"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    found: list[int] = json.loads(done.stdout)
    return found


@pytest.fixture(scope="module")
def usual_ns() -> int:
    """The turns of who asks for nothing; 0 where the kernel does not say (before Linux 6.12)."""
    return after("")[1]


def test_cores_are_shared_in_short_turns_where_there_are_any(usual_ns: int) -> None:
    expected = [os.SCHED_OTHER, SHORT_TURN_NS] if usual_ns else [os.SCHED_BATCH, 0]
    assert after("scheduling.share_cores()") == expected


def test_batch_work_has_the_usual_turns_again(usual_ns: int) -> None:
    assert after("scheduling.take_short_turns(); scheduling.work_in_batches()") == [os.SCHED_BATCH, usual_ns]


def test_only_what_is_started_inside_takes_short_turns(usual_ns: int) -> None:
    inside = f"""
import subprocess, sys
program = "from wire import scheduling\\n{SAID}"
scheduling.work_in_batches()
with scheduling.short_turns():
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
assert json.loads(found) == [{os.SCHED_OTHER}, {SHORT_TURN_NS if usual_ns else 0}], found
"""
    assert after(f"import json\n{inside}") == [os.SCHED_BATCH, usual_ns]


def test_a_kernel_that_refuses_leaves_batch_work(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, int]] = []
    monkeypatch.setattr(scheduling, "_set", lambda *wanted: asked.append(wanted) or False)
    scheduling.share_cores()
    assert asked == [(os.SCHED_OTHER, SHORT_TURN_NS), (os.SCHED_BATCH, 0)]
