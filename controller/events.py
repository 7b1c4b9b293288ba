"""The event log: what the operator may want to know, in a bounded ring that can be followed."""

import asyncio
import logging
import time
from collections import deque
from collections.abc import AsyncIterator

from controller.views import Event

RING_SIZE = 4096
"""Events kept; older ones are forgotten."""

_LEVELS = {"info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}
_log = logging.getLogger("controller")


class EventLog:
    """Numbers events, logs them, keeps the last `RING_SIZE` and wakes those who follow."""

    def __init__(self) -> None:
        self._ring: deque[Event] = deque(maxlen=RING_SIZE)
        self._sequence = 0
        self._grown = asyncio.Event()

    def emit(self, level: str, kind: str, subject: str, text: str) -> Event:
        """Record an event; level is "info", "warning" or "error"."""
        self._sequence += 1
        event = Event(self._sequence, time.time(), level, kind, subject, text)
        self._ring.append(event)
        _log.log(_LEVELS[level], "%s %s: %s", kind, subject, text)
        self._grown.set()
        self._grown = asyncio.Event()
        return event

    def recent(self, since: int = 0) -> list[Event]:
        """Return the kept events after a sequence number."""
        return [event for event in self._ring if event.sequence > since]

    async def follow(self, since: int = 0) -> AsyncIterator[Event]:
        """Iterate over events after a sequence number, for ever; what a slow reader misses is skipped."""
        while True:
            grown = self._grown
            for event in self.recent(since):
                since = event.sequence
                yield event
            if self._sequence == since or not self._ring:
                await grown.wait()
