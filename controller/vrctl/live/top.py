"""The command top: what passes now through planes and routers, on a screen that is kept true or round after round."""

import contextlib
import json
import os
import select
import shutil
import signal
import sys
import termios
import time
import tty
from collections.abc import Iterator
from types import TracebackType
from typing import Annotated, Any

import typer

from controller.vrctl import output
from controller.vrctl.client import Unreachable
from controller.vrctl.live.rates import Load, lines, rates
from controller.vrctl.output import Format
from controller.vrctl.shell import INTERRUPTED, Output, app, client

_ENTER, _LEAVE = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"  # another screen without a cursor, and back
_HOME, _CLEAR_LINE, _CLEAR_BELOW = "\x1b[H", "\x1b[K", "\x1b[J"
_TERMINATED = 128 + signal.SIGTERM


@app.command()
def top(
    interval: Annotated[
        float, typer.Option("-i", "--interval", metavar="S", min=0.5, max=3600, help="seconds of a round")
    ] = 2.0,
    once: Annotated[bool, typer.Option("--once", help="one round, for scripts")] = False,
    form: Output = Format.TABLE,
) -> None:
    """Show packets, the share of them in hardware, tables and their changes, by plane and router; q ends it."""
    try:
        if form is Format.TABLE and sys.stdout.isatty() and not once:
            _keep_true(interval)
        else:
            _print_rounds(interval, once, form)
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None


def _print_rounds(interval: float, once: bool, form: Format) -> None:
    before: Load = client().get("load")
    complained = ""
    while True:
        time.sleep(interval)
        try:
            after = client().get("load")
        except Unreachable as problem:
            if once:
                raise
            if str(problem) != complained:
                output.complain(f"{problem}; waiting for it")
            complained = str(problem)
            continue
        complained = ""
        _print_round(rates(before, after), form)
        sys.stdout.flush()
        if once:
            return
        before = after


def _print_round(found: dict[str, Any], form: Format) -> None:
    stamp = time.strftime("%Y-%m-%d %H:%M:%S")
    if form is Format.TABLE:
        print(stamp, *lines(found), "", sep="\n")
    elif form is Format.JSON:
        print(json.dumps({"time": stamp} | found, ensure_ascii=False))
    else:
        output.write_yaml([{"time": stamp} | found])


def _keep_true(interval: float) -> None:
    before: Load = client().get("load")
    found, complaint = rates(before, before), ""
    with _Screen() as screen:
        while True:
            screen.show(found, complaint or f"{time.strftime('%H:%M:%S')}, every {interval:g} s; q ends")
            if screen.ended_within(interval):
                return
            try:
                after = client().get("load")
            except Unreachable as problem:
                complaint = str(problem)
            else:
                found, complaint, before = rates(before, after), "", after


class _Screen:
    """The whole terminal, given back as it was however this ends."""

    def __init__(self) -> None:
        self._keys = sys.stdin.fileno() if sys.stdin.isatty() else None
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> "_Screen":
        with contextlib.ExitStack() as stack:
            old = signal.signal(signal.SIGTERM, lambda *_: sys.exit(_TERMINATED))
            stack.callback(signal.signal, signal.SIGTERM, old)
            if self._keys is not None:
                stack.callback(termios.tcsetattr, self._keys, termios.TCSADRAIN, termios.tcgetattr(self._keys))
                tty.setcbreak(self._keys)
                mode = termios.tcgetattr(self._keys)
                mode[6][termios.VSUSP] = b"\0"  # who stopped it would be left on this screen
                termios.tcsetattr(self._keys, termios.TCSADRAIN, mode)
            stack.callback(self._write, _LEAVE)
            self._write(_ENTER)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def _write(self, text: str) -> None:
        sys.stdout.write(text)
        sys.stdout.flush()

    def show(self, found: dict[str, Any], foot: str) -> None:
        """Fill the screen; the last line is ``foot``."""
        size = shutil.get_terminal_size()
        shown = [*lines(found, size.columns, size.lines - 2), "", foot[: size.columns]]
        self._write(_HOME + (_CLEAR_LINE + "\n").join(shown) + _CLEAR_LINE + _CLEAR_BELOW)

    def ended_within(self, seconds: float) -> bool:
        """Wait so long, or until q is pressed; tell whether it was."""
        if self._keys is None:
            time.sleep(seconds)
            return False
        return any(key in b"qQ" for key in self._pressed(time.monotonic() + seconds))

    def _pressed(self, until: float) -> Iterator[int]:
        assert self._keys is not None
        while (left := until - time.monotonic()) > 0:
            if not select.select([self._keys], [], [], left)[0]:
                return
            keys = os.read(self._keys, 64)
            if not keys:  # nobody can press one any more
                time.sleep(left)
                return
            yield from keys
