"""The event log: what the operator may want to know, in a bounded ring that can be followed.

What a tenant or its guest can cause as often as it likes is `report`ed: of each kind and subject a few at once, then
one in half a minute, which says how many there were in between. So no tenant pushes another's events out of the ring
within hours, and none is left out of the count.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from heapq import heappop, heappush

from controller.events.token_bucket import TokenBucket
from controller.events.untrusted_text import printable
from controller.views import Event

RING_SIZE = 4096
"""Events kept; older ones are forgotten."""

MAX_TEXT = 1000
"""Most characters of an event's text."""

REPORTS_AT_ONCE, REPORT_EVERY_S = 10, 30.0
"""Reports of one kind and subject that become events at once, and how often one does from then on."""

_LOOK_S = 1.0
"""How long reports are left alone at least: no rounding of times has them looked at again and again."""

_LEVELS = {"info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}
_log = logging.getLogger("controller")


@dataclass(slots=True)
class _Reports:
    """What is held back of one share."""

    bucket: TokenBucket
    held: int = 0
    last: tuple[str, str, str] = ("", "", "")  # level, kind and text
    due: float = 0.0  # when to tell of them, or to forget that there were any


class EventLog:
    """Numbers events, logs them, keeps the last `RING_SIZE` and wakes those who follow."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._ring: deque[Event] = deque(maxlen=RING_SIZE)
        self._sequence = 0
        self._grown = asyncio.Event()
        self._clock = clock
        self._reports: dict[tuple[str, str], _Reports] = {}  # by share and subject
        self._due: list[tuple[float, tuple[str, str]]] = []  # a heap of theirs; what is so no more is passed over

    def emit(self, level: str, kind: str, subject: str, text: str) -> Event:
        """Record an event; level is "info", "warning" or "error". What of the text is not printable becomes "?"."""
        self._sequence += 1
        event = Event(self._sequence, time.time(), level, kind, subject, printable(text, MAX_TEXT))
        self._ring.append(event)
        _log.log(_LEVELS[level], "%s %s: %s", kind, subject, event.text)
        self._grown.set()
        self._grown = asyncio.Event()
        return event

    def report(self, level: str, kind: str, subject: str, text: str, share: str = "") -> bool:
        """Record an event that an outsider can cause at will, or hold it back and count it (see `telling_held`);
        tells whether it was recorded.

        Events of one ``share`` (where it is left out, of one kind) and subject are counted together; neither may be
        an outsider's words.
        """
        key = (share or kind, subject)
        known = self._reports.get(key)
        if known is None:
            bucket = TokenBucket(1 / REPORT_EVERY_S, REPORTS_AT_ONCE, self._clock)
            known = self._reports[key] = _Reports(bucket)
        told = not known.held and known.bucket.take()
        if told:
            self.emit(level, kind, subject, text)
        else:
            known.held += 1
            known.last = level, kind, text[:MAX_TEXT]
        if known.held == 1 or not known.due:
            self._look_at(key, known)
        return told

    def telling_held(self) -> Iterator[None]:
        """Tell how many reports were held back, where it is time to, in steps; take them about once a second."""
        now = self._clock()
        while self._due and self._due[0][0] <= now:
            due, key = heappop(self._due)
            known = self._reports.get(key)
            if known is None or known.due != due:
                continue
            if known.held and known.bucket.take():
                level, kind, text = known.last
                more = f"{known.held} more, the last one: " if known.held > 1 else ""
                known.held = 0
                self.emit(level, kind, key[1], more + text)
            if known.held or known.bucket.full_s:
                self._look_at(key, known)
            else:
                del self._reports[key]
            yield

    def _look_at(self, key: tuple[str, str], known: _Reports) -> None:
        """Come back to reports once there is something to tell of them, or nothing to be known any more."""
        pause_s = known.bucket.ready_s if known.held else known.bucket.full_s
        known.due = self._clock() + max(pause_s, _LOOK_S)
        heappush(self._due, (known.due, key))

    def recent(self, since: int = 0) -> list[Event]:
        """Return the kept events after a sequence number."""
        return [event for event in self._ring if event.sequence > since]

    async def follow(self, since: int = 0) -> AsyncIterator[Event]:
        """Iterate over events after a sequence number, for ever; what a slow reader misses is skipped.

        Numbers begin again with each start of the controller: after one that there is not yet come those from now on.
        """
        since = min(since, self._sequence)
        while True:
            grown = self._grown
            for event in self.recent(since):
                since = event.sequence
                yield event
            if self._sequence <= since or not self._ring:
                await grown.wait()
