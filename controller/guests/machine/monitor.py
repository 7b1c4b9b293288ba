"""QEMU's monitor (QMP): one connection to each machine, as long as it and the controller run.

It tells why a machine ended, which its pid does not, and ends one in an orderly way.
"""

import asyncio
import contextlib
import logging
from pathlib import Path

from qemu.qmp import EventListener, Message, QMPClient, QMPError

from controller.guests.guest_files import short_path

SOCKET = "qmp.sock"
LIMIT_S = 5.0

REBOOTED, POWERED_OFF = "it rebooted", "it powered itself off"
BY_ITSELF = (REBOOTED, POWERED_OFF)
"""Ends that the guest made; its console may say why."""

_REASONS = {
    "guest-reset": REBOOTED,
    "guest-shutdown": POWERED_OFF,
    "guest-panic": "its kernel panicked",
    "host-qmp-quit": "stopped by the controller",
    "host-signal": "QEMU was ended by a signal",
}
logging.getLogger("qemu.qmp").setLevel(logging.CRITICAL)  # it logs every lost connection as an error


class Monitor:
    """The monitor of one machine."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._client = QMPClient(directory.name)
        self._listener = EventListener(("SHUTDOWN", "GUEST_PANICKED"), self._note)
        self._client.register_listener(self._listener)
        self.ended = ""
        """Why the machine ended, as QEMU said; empty while it has not."""

    def _note(self, message: Message) -> bool:
        data = message.get("data")
        if message.get("event") == "GUEST_PANICKED":
            self.ended = _REASONS["guest-panic"]
        elif isinstance(data, dict) and not self.ended:
            reason = str(data.get("reason"))
            self.ended = _REASONS.get(reason, reason)
        return False  # nothing is kept: the queue has no bound

    async def connect(self) -> bool:
        """Connect where nobody else is; tells whether the monitor answered."""
        try:
            async with asyncio.timeout(LIMIT_S):
                with short_path(self._directory, SOCKET) as path:
                    await self._client.connect(path)
        except (TimeoutError, OSError, QMPError):
            return False
        return True

    async def quit(self) -> None:
        """Ask QEMU to end; it may have done so before it answers."""
        with contextlib.suppress(TimeoutError, OSError, QMPError, EOFError):
            async with asyncio.timeout(LIMIT_S):
                await self._client.execute("quit")

    async def close(self) -> None:
        """Drop the connection; the machine goes on."""
        with contextlib.suppress(TimeoutError, OSError, QMPError, EOFError):
            async with asyncio.timeout(LIMIT_S):
                await self._client.disconnect()
