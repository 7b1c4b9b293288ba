"""How a process shares its cores: in short turns where the kernel gives them, else as batch work.

What passes frames and routes on has little to do at a time, and others wait for it: BFD's packets take six turns of
the controller, a VRC and two bfdds there and back. From Linux 6.12 on a task may ask for short turns
(sched_setattr(2) with ``sched_runtime``): it gets a core sooner then, and no more of it than others. Without them, to
interrupt at each message costs more than it gives (docs/bench.md), and batch work (sched(7)) does not.
"""

import contextlib
import ctypes
import os
import struct
from collections.abc import Iterator

SHORT_TURN_NS = 100_000
"""The shortest turn that Linux gives."""

_ATTRIBUTES = "=IIQiIQQQ"  # struct sched_attr: size, policy, flags, nice, priority, runtime, deadline, period
_SIZE = struct.calcsize(_ATTRIBUTES)
_SCHED_SETATTR, _SCHED_GETATTR = 314, 315  # x86-64
_libc = ctypes.CDLL(None, use_errno=True)


def share_cores() -> None:
    """Have the calling thread, and what it starts from now on, take short turns, or else be batch work."""
    if not take_short_turns():
        work_in_batches()


def take_short_turns() -> bool:
    """Ask for short turns for the calling thread; tells whether the kernel gives them."""
    return _set(os.SCHED_OTHER, SHORT_TURN_NS) and turn_ns() == SHORT_TURN_NS


def work_in_batches() -> None:
    """Make the calling thread batch work, with turns of the usual length."""
    _set(os.SCHED_BATCH, 0)


def _set(policy: int, runtime_ns: int) -> bool:
    """Set policy and turns, 0: the usual ones (sched_setscheduler(2) would keep those that were asked for)."""
    nice = os.getpriority(os.PRIO_PROCESS, 0)
    wanted = struct.pack(_ATTRIBUTES, _SIZE, policy, 0, nice, 0, runtime_ns, 0, 0)
    return int(_libc.syscall(_SCHED_SETATTR, 0, wanted, 0)) == 0


def turn_ns(thread: int = 0) -> int:
    """Return how long the turns of a thread are (0: the calling one), 0 where the kernel does not say."""
    found = ctypes.create_string_buffer(_SIZE)
    if _libc.syscall(_SCHED_GETATTR, thread, found, _SIZE, 0) != 0:
        return 0
    runtime: int = struct.unpack(_ATTRIBUTES, found.raw)[5]
    return runtime


@contextlib.contextmanager
def short_turns() -> Iterator[None]:
    """What is started inside ``with`` takes short turns; the calling thread is batch work before and afterwards."""
    take_short_turns()
    try:
        yield
    finally:
        work_in_batches()
