"""Lines both ways over one non-blocking descriptor: a socket, or the virtio port that leads to the host.

A virtio port (Linux drivers/char/virtio_console.c) is never closed: while nobody on the host has it open it reads as
ended and is ready for ever, and the kernel sends SIGIO when that changes. So `LineStream` stops listening at an end
and `resume` looks again.
"""

import os
from collections.abc import Callable

from vrc.guest.reactor import Reactor

MAX_LINE_BYTES = 8 << 20
MAX_UNSENT_BYTES = 16 << 20
"""Answers beyond this much that the other end does not read are lost and counted."""
_READ_BYTES = 65536
_WRITE_BYTES = 32768  # as much as the port's driver takes at once

TOO_LONG = b"\0"
"""Given in place of a line that was longer than the limit and was thrown away."""


class LineStream:
    """Calls ``on_line`` with every line (without its end) and ``on_end`` when the other end is gone."""

    def __init__(
        self,
        reactor: Reactor,
        fd: int,
        on_line: Callable[[bytes], None],
        on_end: Callable[[], None],
        max_line_bytes: int = MAX_LINE_BYTES,
    ) -> None:
        os.set_blocking(fd, False)
        self._reactor, self._fd = reactor, fd
        self._on_line, self._on_end = on_line, on_end
        self._max_line_bytes = max_line_bytes
        self._received = bytearray()
        self._skipping = False  # inside of a line that is too long
        self._unsent = bytearray()
        self._reading = self._writing = self._closed = False
        self.lost = 0
        self._listen()

    def send(self, line: bytes) -> None:
        """Send one line as soon as the other end takes it."""
        if self._closed or not self._reading or len(self._unsent) + len(line) >= MAX_UNSENT_BYTES:
            self.lost += 1
            return
        self._unsent += line + b"\n"
        self._write()

    def resume(self) -> None:
        """Look whether an ended stream has another end again; harmless at any time."""
        if not self._closed and not self._reading:
            self._listen()
            self._read()

    def close(self) -> None:
        """Stop listening and close the descriptor."""
        if not self._closed:
            self._ignore()
            self._closed = True
            os.close(self._fd)

    def _listen(self) -> None:
        self._reading = True
        self._reactor.add_reader(self._fd, self._read)

    def _ignore(self) -> None:
        if self._reading:
            self._reactor.remove_reader(self._fd)
        if self._writing:
            self._reactor.remove_writer(self._fd)
        self._reading = self._writing = self._skipping = False
        self._received.clear()
        self._unsent.clear()

    def _end(self) -> None:
        self._ignore()
        self._on_end()

    def _read(self) -> None:
        try:
            data = os.read(self._fd, _READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._end()
            return
        *ends, rest = data.split(b"\n")
        for end in ends:
            self._received += end
            line = TOO_LONG if self._skipping or len(self._received) > self._max_line_bytes else bytes(self._received)
            self._received.clear()
            self._skipping = False
            self._on_line(line)
            if not self._reading:
                return
        self._received += rest
        if len(self._received) > self._max_line_bytes:
            self._skipping = True
            self._received.clear()

    def _write(self) -> None:
        while self._unsent:
            try:
                sent = os.write(self._fd, self._unsent[:_WRITE_BYTES])
            except BlockingIOError:
                break
            except OSError:
                self._end()
                return
            del self._unsent[:sent]
        if bool(self._unsent) == self._writing:
            return
        self._writing = not self._writing
        if self._writing:
            self._reactor.add_writer(self._fd, self._write)
        else:
            self._reactor.remove_writer(self._fd)
