"""One command to BIRD over its control socket, as birdc sends it.

    BIRD: 0001 BIRD 2.0.12 ready.
    we:   configure
    BIRD: 0002-Reading configuration from /etc/bird/bird.conf
          0003 Reconfigured

A reply is lines that begin with four digits; "-" after them says that more follow, a blank that this is the last.
"""

import os
import re
import socket
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from vrc.guest.lines import TOO_LONG, LineStream
from vrc.guest.reactor import Reactor

MAX_LINE_BYTES = 4096
MAX_LINES = 10_000
"""A reply of more lines than this is no reply."""

_LAST_LINE = re.compile(r"(\d{4}) (.*)")
_CODE = re.compile(r"^(\d{4}[- ]| )")


@dataclass(frozen=True, slots=True)
class Answer:
    """The last line of a reply."""

    code: int
    text: str


class Silence(StrEnum):
    """Why there is no answer."""

    GONE = "BIRD went away"
    LATE = "BIRD did not answer in time"
    NONSENSE = "BIRD's answer makes no sense"


Done = Callable[[Answer | Silence], None]
"""Told BIRD's answer, or why there is none."""
Each = Callable[[str], None]


class BirdCommand:
    """Waits for BIRD's greeting, sends a command, where there is one, and tells the answer once.

    ``each`` is told the text of every line of the answer. OSError where nobody listens at ``path``.
    """

    def __init__(
        self, reactor: Reactor, path: str, command: str, limit_s: float, done: Done, each: Each = lambda _: None
    ) -> None:
        self._command, self._done, self._each = command, done, each
        self._greeted = False
        self._lines = 0
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK) as client:
            client.connect(path)
            fd = os.dup(client.fileno())
        self._stream = LineStream(reactor, fd, self._heard, lambda: self._end(Silence.GONE), MAX_LINE_BYTES)
        self._limit = reactor.call_later(limit_s, lambda: self._end(Silence.LATE))

    def _heard(self, line: bytes) -> None:
        self._lines += 1
        if line == TOO_LONG or self._lines > MAX_LINES:
            self._end(Silence.NONSENSE)
            return
        text = line.decode(errors="replace").rstrip("\r")
        if self._greeted:
            self._each(_CODE.sub("", text))
        if match := _LAST_LINE.fullmatch(text):
            self._greeted = True
            if self._command:
                self._stream.send(self._command.encode())
                self._command = ""
            else:
                self._end(Answer(int(match[1]), match[2]))

    def _end(self, answer: Answer | Silence) -> None:
        self._limit.cancel()
        self._stream.close()
        done, self._done = self._done, lambda _: None
        done(answer)
