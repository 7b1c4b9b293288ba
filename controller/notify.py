"""What systemd is told of this process: that it is ready, what it does, that its event loop turns (sd_notify(3)).

Nobody is told where NOTIFY_SOCKET is not set, as in a terminal.
"""

import asyncio
import contextlib
import os
import socket
from collections.abc import Callable, Mapping

STATUS_EVERY_S = 10.0
"""How often what it does is told where there is no watchdog."""
_TOLD_OF_LIMIT = 3
"""How often the watchdog is told within its limit: one message or two may be late."""


def notify_service(state: str) -> None:
    """Send "READY=1", "STOPPING=1", "WATCHDOG=1" or "STATUS=…", a line each; what has no room is not sent."""
    path = os.environ.get("NOTIFY_SOCKET", "")
    if not path.startswith(("/", "@")):
        return
    address = "\0" + path[1:] if path.startswith("@") else path  # an abstract one
    with (
        contextlib.suppress(OSError),
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as ours,
    ):
        ours.sendto(state.encode(), address)


def watchdog_s(environment: Mapping[str, str] = os.environ) -> float | None:
    """Return after how long a silence this process is killed, None where nobody looks (sd_watchdog_enabled(3))."""
    limit, whose = environment.get("WATCHDOG_USEC", ""), environment.get("WATCHDOG_PID", str(os.getpid()))
    return int(limit) / 1e6 if limit.isdecimal() and int(limit) and whose == str(os.getpid()) else None


async def keep_notifying(status: Callable[[], str]) -> None:
    """Tell again and again what this process does and, in that, that the event loop turns; never returns.

    One that is stuck says nothing. The watchdog then ends the process, and the service is started again.
    """
    limit_s = watchdog_s()
    every_s = STATUS_EVERY_S if limit_s is None else limit_s / _TOLD_OF_LIMIT
    while True:
        notify_service(f"WATCHDOG=1\nSTATUS={status()}")
        await asyncio.sleep(every_s)
