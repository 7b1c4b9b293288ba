"""A vr-controller whose event loop is watched: how long it took no other turn, at most, is in a file of 24 octets.

watched_controller.py FILE ARGUMENTS…: the arguments are vr-controller's. Zeros in the file: begin anew.
"""

import asyncio
import mmap
import os
import struct
import sys
import threading
import time
from pathlib import Path

from controller.__main__ import main as run

_EVERY_S = 0.002
_LONGEST = struct.Struct("=ddd")


class StallFile:
    """The longest stall since it was last forgotten, and what the loop did in it, shared by two processes."""

    def __init__(self, path: Path) -> None:
        if not path.exists():
            path.write_bytes(bytes(_LONGEST.size))
        with path.open("r+b") as file:
            self._shared = mmap.mmap(file.fileno(), _LONGEST.size)

    def note(self, stall_s: float, ran_s: float, queued_s: float) -> None:
        """Keep a stall where it is longer than all before."""
        if stall_s > self.longest_s()[0]:
            _LONGEST.pack_into(self._shared, 0, stall_s, ran_s, queued_s)

    def longest_s(self) -> tuple[float, float, float]:
        """Return the longest one; for how long the loop's thread ran in it, and for how long it was ready to and had
        no core. The rest it waited for something else, as Python's lock or a disk.
        """
        longest: tuple[float, float, float] = _LONGEST.unpack_from(self._shared)
        return longest

    def forget(self) -> None:
        """Begin anew."""
        _LONGEST.pack_into(self._shared, 0, 0.0, 0.0, 0.0)


class _Watched(asyncio.DefaultEventLoopPolicy):
    """Makes event loops that note how late their turns come."""

    def __init__(self, stalls: StallFile) -> None:
        super().__init__()
        self._stalls = stalls

    def new_event_loop(self) -> asyncio.AbstractEventLoop:
        loop = super().new_event_loop()
        scheduled = os.open(f"/proc/self/task/{threading.get_native_id()}/schedstat", os.O_RDONLY | os.O_CLOEXEC)

        def look(due: float, before_ran_s: float, before_queued_s: float) -> None:
            now, ran_s = time.monotonic(), time.thread_time()
            queued_s = int(os.pread(scheduled, 64, 0).split()[1]) / 1e9
            self._stalls.note(now - due, ran_s - before_ran_s, queued_s - before_queued_s)
            loop.call_later(_EVERY_S, look, now + _EVERY_S, ran_s, queued_s)

        loop.call_soon(look, float("inf"), 0.0, 0.0)
        return loop


def main() -> None:
    """Run a vr-controller."""
    stalls = StallFile(Path(sys.argv.pop(1)))
    asyncio.set_event_loop_policy(_Watched(stalls))
    run()


if __name__ == "__main__":
    main()
