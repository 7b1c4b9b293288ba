"""An operator's terminal inside of a machine: a command on a pseudo terminal, for the one client of a virtio port.

    {"op": "terminal", "argv": […], "rows": 24, "columns": 80, "term": "xterm"}     {"ok": true}
    {"op": "screen"}                                {"ok": true, "text": base64}    as soon as there is something
                                                    {"ok": true, "status": 0}       once the command has ended
    {"op": "keys", "text": base64}                  {"ok": true} when the terminal has taken them
    {"op": "size", "rows": 50, "columns": 132}      {"ok": true}

Nothing piles up here: the screen is read when it is asked for, so a slow client slows the command down, and keys are
refused while earlier ones wait. Ctrl-C is a key: the kernel's line discipline makes the signal of it. A client that
goes away, or is followed by the next, has hung up: the kernel sends the command SIGHUP.
"""

import binascii
import fcntl
import os
import re
import signal
import struct
import termios
from collections.abc import Callable, Mapping
from typing import Any

from vrc.guest.reactor import Reactor, Timer
from vrc.machine.control import Operation, Refused, Reply, refusal
from vrc.machine.exec import ExecError, decode_base64, words_of

MAX_KEYS_BYTES = 4096
"""As much as a terminal takes at once."""
MAX_SCREEN_BYTES = 16 << 10
"""Of one answer."""
MAX_SIDE = 4096
"""Most rows, and most columns."""
AFTERGLOW_S = 0.5
"""How long what a command left running may still print when the command has ended."""
_SETSID = "/usr/bin/setsid"
_TERM = re.compile(r"[A-Za-z0-9._+-]{1,32}")
_PLAIN_TERM = "vt100"


class Terminal:
    """One terminal; `enter` gives what to put before a command so that it runs in the guest."""

    def __init__(self, reactor: Reactor, enter: Callable[[], list[str]], environment: Mapping[str, str]) -> None:
        self._reactor, self._enter, self._environment = reactor, enter, environment
        self._master = -1  # our end of the pseudo terminal; -1 where there is none
        self._pid = 0
        self._status: int | None = None
        self._dark = False  # nobody has the other end any more, and everything is read
        self._late = False  # what the command left running is not waited for any more
        self._afterglow: Timer | None = None
        self._unwritten = b""
        self._on_screen: Reply | None = None
        self._on_keys: Reply | None = None
        self.operations: Mapping[str, Operation] = {
            "terminal": self._begin,
            "screen": self._show,
            "keys": self._type,
            "size": self._resize,
        }

    def reaped(self, pid: int, exit_status: int) -> bool:
        """Tell whether ``pid`` was this terminal's command."""
        if not self._pid or pid != self._pid:
            return False
        self._pid, self._status = 0, exit_status
        self._read()
        if self._master >= 0:
            self._afterglow = self._reactor.call_later(AFTERGLOW_S, self._end_afterglow)
        return True

    def hang_up(self) -> None:
        """Close the terminal; what is unanswered is refused."""
        if self._master < 0:
            return
        self._stop_looking()
        if self._unwritten:
            self._reactor.remove_writer(self._master)
        os.close(self._master)
        if self._afterglow:
            self._afterglow.cancel()
        unanswered = [reply for reply in (self._on_screen, self._on_keys) if reply]
        self._master, self._pid, self._status, self._unwritten = -1, 0, None, b""
        self._dark = self._late = False
        self._on_screen = self._on_keys = self._afterglow = None
        for reply in unanswered:  # last: one that finds the client gone hangs up as well
            reply(refusal("the terminal is closed"))

    # ── operations ──

    def _begin(self, request: dict[str, Any], reply: Reply) -> None:
        size = _size(request)
        term = request.get("term")
        term = term if isinstance(term, str) and _TERM.fullmatch(term) else _PLAIN_TERM
        self.hang_up()  # of a client that went and was followed before we saw it
        try:
            # What enters the guest stays outside of the session, or Ctrl-C would end it.
            argv = [*self._enter(), _SETSID, "--ctty", "--wait", *words_of(request["argv"])]
            self._master, slave = os.openpty()
            try:
                fcntl.ioctl(self._master, termios.TIOCSWINSZ, size)
                self._pid = _spawn(argv, {**self._environment, "TERM": term}, os.ttyname(slave))
            finally:
                os.close(slave)
        except ExecError as error:
            self.hang_up()
            raise Refused(f"terminal: {error}") from error
        except OSError as error:
            self.hang_up()
            raise Refused(f"terminal: {error.strerror}") from error
        os.set_blocking(self._master, False)
        reply({"ok": True})

    def _show(self, _request: dict[str, Any], reply: Reply) -> None:
        self._require()
        if self._on_screen:
            raise Refused("screen: it is asked for already")
        self._on_screen = reply
        if not self._dark:
            self._reactor.add_reader(self._master, self._read)
        self._read()

    def _type(self, request: dict[str, Any], reply: Reply) -> None:
        self._require()
        if self._on_keys:
            raise Refused("keys: earlier ones wait")
        try:
            keys = decode_base64(request["text"])
        except ExecError as error:
            raise Refused(f"keys: the text is {error}") from error
        if len(keys) > MAX_KEYS_BYTES:
            raise Refused(f"keys: more than {MAX_KEYS_BYTES} octets")
        self._on_keys, self._unwritten = reply, keys
        self._reactor.add_writer(self._master, self._write)
        self._write()

    def _resize(self, request: dict[str, Any], reply: Reply) -> None:
        self._require()
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, _size(request))
        reply({"ok": True})

    def _require(self) -> None:
        if self._master < 0:
            raise Refused("no terminal is open")

    # ── the pseudo terminal ──

    def _read(self) -> None:
        reply = self._on_screen
        if not reply:
            return
        text = b"" if self._dark else self._take()
        if text:
            answer: dict[str, Any] = {"text": binascii.b2a_base64(text, newline=False).decode()}
        elif self._status is not None and (self._dark or self._late):
            answer = {"status": self._status}
        else:
            return
        self._stop_looking()
        self._on_screen = None
        reply({"ok": True, **answer})
        if "status" in answer:
            self.hang_up()

    def _take(self) -> bytes:
        text = bytearray()
        try:
            while len(text) < MAX_SCREEN_BYTES:
                text += os.read(self._master, MAX_SCREEN_BYTES - len(text))
        except BlockingIOError:
            pass
        except OSError:  # EIO: the other end is closed everywhere, and everything is read
            if not text:
                self._stop_looking()
                self._dark = True
        return bytes(text)

    def _end_afterglow(self) -> None:
        self._late = True
        self._read()

    def _stop_looking(self) -> None:
        if self._on_screen and not self._dark:
            self._reactor.remove_reader(self._master)

    def _write(self) -> None:
        try:
            while self._unwritten:
                self._unwritten = self._unwritten[os.write(self._master, self._unwritten) :]
        except BlockingIOError:
            return
        except OSError:
            self._unwritten = b""  # nobody is there to read it
        self._reactor.remove_writer(self._master)
        reply, self._on_keys = self._on_keys, None
        if reply:
            reply({"ok": True})


def _size(request: Mapping[str, Any]) -> bytes:
    """Return struct winsize (tty_ioctl(4)); ValueError where rows or columns are no such numbers."""
    rows, columns = int(request["rows"]), int(request["columns"])
    if not (0 <= rows <= MAX_SIDE and 0 <= columns <= MAX_SIDE):
        raise ValueError(f"{rows} rows of {columns} columns")
    return struct.pack("HHHH", rows, columns, 0, 0)


def _spawn(argv: list[str], environment: Mapping[str, str], terminal: str) -> int:
    """Start a command on a terminal that is nobody's controlling terminal yet; ExecError where it cannot."""
    actions: list[tuple[Any, ...]] = [(os.POSIX_SPAWN_OPEN, 0, terminal, os.O_RDWR | os.O_NOCTTY, 0)]
    actions += [(os.POSIX_SPAWN_DUP2, 0, number) for number in (1, 2)]
    # What hangs up and interrupts has to, whoever started us with it ignored.
    defaults = [signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGPIPE, signal.SIGXFSZ]
    try:
        return os.posix_spawn(argv[0], argv, dict(environment), file_actions=actions, setsigdef=defaults)
    except (OSError, ValueError) as error:
        raise ExecError(f"{argv[0]}: {getattr(error, 'strerror', None) or error}") from None
