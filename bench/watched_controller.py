"""A vr-controller whose event loop is watched: how long it took no other turn, at most, is in a file of 8 octets.

watched_controller.py FILE ARGUMENTS…: the arguments are vr-controller's. Whoever writes 0.0 to the file begins anew.
"""

import asyncio
import mmap
import struct
import sys
import time
from pathlib import Path

from controller.__main__ import main as run

_EVERY_S = 0.002
_LONGEST = struct.Struct("=d")


class StallFile:
    """The longest stall in seconds since it was last forgotten, shared by two processes."""

    def __init__(self, path: Path) -> None:
        if not path.exists():
            path.write_bytes(bytes(_LONGEST.size))
        with path.open("r+b") as file:
            self._shared = mmap.mmap(file.fileno(), _LONGEST.size)

    def note(self, stall_s: float) -> None:
        """Keep a stall where it is longer than all before."""
        if stall_s > self.longest_s():
            _LONGEST.pack_into(self._shared, 0, stall_s)

    def longest_s(self) -> float:
        """Return the longest one."""
        longest: float = _LONGEST.unpack_from(self._shared)[0]
        return longest

    def forget(self) -> None:
        """Begin anew."""
        _LONGEST.pack_into(self._shared, 0, 0.0)


class _Watched(asyncio.DefaultEventLoopPolicy):
    """Makes event loops that note how late their turns come."""

    def __init__(self, stalls: StallFile) -> None:
        super().__init__()
        self._stalls = stalls

    def new_event_loop(self) -> asyncio.AbstractEventLoop:
        loop = super().new_event_loop()

        def look(due: float) -> None:
            now = time.monotonic()
            self._stalls.note(now - due)
            loop.call_later(_EVERY_S, look, now + _EVERY_S)

        loop.call_soon(look, float("inf"))
        return loop


def main() -> None:
    """Run a vr-controller."""
    stalls = StallFile(Path(sys.argv.pop(1)))
    asyncio.set_event_loop_policy(_Watched(stalls))
    run()


if __name__ == "__main__":
    main()
