"""The end of a guest's first process: asked for, then forced, and awaited."""

import asyncio
import contextlib
import os
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path

from controller.errors import GuestError
from controller.guests import pidfile

KILL_LIMIT_S = 20.0


async def end_guest(directory: Path, router: str, ask: Callable[[int], Awaitable[None]]) -> None:
    """End the guest of a directory and wait until its first process is gone.

    ``ask`` is given a descriptor of that process (pidfd_open(2)) and may let it end by itself; what is left then is
    killed. GuestError where it does not end.
    """
    pid = pidfile.find(directory)
    if not pid:
        return
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        if pidfile.find(directory) != pid:
            return  # the descriptor is of another process
        await ask(pidfd)
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(pidfd, signal.SIGKILL)
        if not await ended(pidfd, KILL_LIMIT_S):
            raise GuestError(f"{router}: the guest's processes do not end")
    finally:
        os.close(pidfd)


async def ended(pidfd: int, limit_s: float) -> bool:
    """Wait for the end of a process; tells whether it came within ``limit_s``."""
    gone = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_reader(pidfd, gone.set)
    try:
        async with asyncio.timeout(limit_s):
            await gone.wait()
    except TimeoutError:
        return False
    finally:
        loop.remove_reader(pidfd)
    return True
