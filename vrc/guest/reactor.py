"""The event loop of the guest's supervisor: ready descriptors, timers, signals; nothing else wakes it.

Not asyncio on purpose: importing that costs 8 MB per guest, and the supervisor is there once for every router.
"""

import heapq
import itertools
import os
import selectors
import signal
import time
from collections.abc import Callable

Callback = Callable[[], None]


class Timer:
    """A callback due at one moment of the monotonic clock."""

    __slots__ = ("callback", "cancelled", "due")

    def __init__(self, due: float, callback: Callback) -> None:
        self.due, self.callback, self.cancelled = due, callback, False

    def cancel(self) -> None:
        """Never call the callback; harmless when it was called already."""
        self.cancelled = True


class Reactor:
    """Calls back on ready descriptors, timers and signals, one at a time, until `stop`."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._timers: list[tuple[float, int, Timer]] = []
        self._order = itertools.count()
        self._signals: dict[int, Callback] = {}
        self._running = False
        self._wake_read, self._wake_write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self.add_reader(self._wake_read, self._dispatch_signals)

    def add_reader(self, fd: int, callback: Callback) -> None:
        """Call back whenever ``fd`` can be read (or its peer is gone)."""
        self._add(fd, selectors.EVENT_READ, callback)

    def remove_reader(self, fd: int) -> None:
        """Do not call back for reading any more; do it before closing ``fd``."""
        self._remove(fd, selectors.EVENT_READ)

    def add_writer(self, fd: int, callback: Callback) -> None:
        """Call back whenever ``fd`` can be written (or its peer is gone)."""
        self._add(fd, selectors.EVENT_WRITE, callback)

    def remove_writer(self, fd: int) -> None:
        """Do not call back for writing any more; do it before closing ``fd``."""
        self._remove(fd, selectors.EVENT_WRITE)

    def _add(self, fd: int, event: int, callback: Callback) -> None:
        key = self._selector.get_map().get(fd)
        if key is None:
            self._selector.register(fd, event, {event: callback})
            return
        if event in key.data:
            raise ValueError(f"descriptor {fd} has a callback already")
        self._selector.modify(fd, key.events | event, key.data | {event: callback})

    def _remove(self, fd: int, event: int) -> None:
        key = self._selector.get_key(fd)
        left = {other: callback for other, callback in key.data.items() if other != event}
        if left:
            self._selector.modify(fd, key.events & ~event, left)
        else:
            self._selector.unregister(fd)

    def call_later(self, delay_s: float, callback: Callback) -> Timer:
        """Call back once after ``delay_s`` seconds."""
        timer = Timer(time.monotonic() + delay_s, callback)
        heapq.heappush(self._timers, (timer.due, next(self._order), timer))
        return timer

    def on_signal(self, number: int, callback: Callback) -> None:
        """Call back, from the loop, after the process received this signal."""
        self._signals[number] = callback
        signal.signal(number, lambda _number, _frame: None)
        signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)

    def stop(self) -> None:
        """Let `run` return after the callback that is running."""
        self._running = False

    def run(self) -> None:
        """Serve callbacks until `stop`."""
        self._running = True
        while self._running:
            for key, events in self._selector.select(self._wait_s()):
                for event in (selectors.EVENT_READ, selectors.EVENT_WRITE):
                    # A callback earlier in this round may have closed this descriptor.
                    now = self._selector.get_map().get(key.fd) if events & event else None
                    if now is not None and (callback := now.data.get(event)):
                        callback()
            self._run_timers()

    def _wait_s(self) -> float | None:
        while self._timers and self._timers[0][2].cancelled:
            heapq.heappop(self._timers)
        return max(0.0, self._timers[0][0] - time.monotonic()) if self._timers else None

    def _run_timers(self) -> None:
        now = time.monotonic()
        while self._timers and self._timers[0][0] <= now:
            timer = heapq.heappop(self._timers)[2]
            if not timer.cancelled:
                timer.callback()

    def _dispatch_signals(self) -> None:
        received = set(os.read(self._wake_read, 4096))
        for number in received:
            if callback := self._signals.get(number):
                callback()
