"""Runs a command inside a machine; started by `vrctl exec`.

    python -m controller.guests.machine.exec_client DIRECTORY -- COMMAND...

The exit status is the command's, and 128 and the signal's number where a signal ended it, as in a shell. From a
terminal the command has a terminal (terminal.py). Else it is run over the control channel: standard input is sent as
a whole where it is a file or a pipe, and what the command prints comes when it has ended, at most 4 MiB of it.
"""

import base64
import contextlib
import json
import os
import socket
import stat
import sys
import time
from pathlib import Path
from typing import Any

from controller.guests.guest_files import short_path
from controller.guests.handshake import SETTLE_S, SOCKET, hello
from controller.guests.machine import terminal

LIMIT_S = 60
_PATIENCE_S = 2 * LIMIT_S + 5  # another command may be under way
MAX_INPUT_BYTES = 4 << 20
MAX_REPLY_BYTES = 16 << 20
FAILED = 125
"""The exit status where the command could not be run, as of env(1)."""


def read_input() -> bytes:
    """Return standard input where it has an end; ValueError where it is too long."""
    kind = os.fstat(0).st_mode
    if not (stat.S_ISREG(kind) or stat.S_ISFIFO(kind)):
        return b""
    content = sys.stdin.buffer.read(MAX_INPUT_BYTES + 1)
    if len(content) > MAX_INPUT_BYTES:
        raise ValueError(f"standard input is longer than {MAX_INPUT_BYTES >> 20} MiB; send it in pieces")
    return content


def run(directory: Path, argv: list[str], stdin: bytes) -> dict[str, Any]:
    """Return the machine's reply; OSError or ValueError where there is none."""
    request: dict[str, Any] = {"op": "exec", "id": os.urandom(8).hex(), "argv": argv, "limit_s": LIMIT_S}
    if stdin:
        request["stdin"] = base64.b64encode(stdin).decode()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as channel:
        with short_path(directory, SOCKET) as path:
            channel.connect(path)
        replies = settle(channel)
        channel.settimeout(_PATIENCE_S)
        channel.sendall(b"\n" + json.dumps(request).encode() + b"\n")
        return replies.to(request["id"])


def settle(channel: socket.socket) -> "Replies":
    """Wait until the guest hears us and is heard (handshake.py); TimeoutError where it does not."""
    replies, wanted, deadline = Replies(channel), os.urandom(8).hex(), time.monotonic() + _PATIENCE_S
    channel.settimeout(SETTLE_S)
    torn = True  # what comes first may be the rest of an answer to somebody who broke off
    while True:
        channel.sendall(hello(wanted))
        try:
            replies.to(wanted)
        except TimeoutError:
            if time.monotonic() > deadline:
                raise
        except json.JSONDecodeError:
            if not torn:
                raise
            torn = False
        else:
            return replies


class Replies:
    """What a machine says on its channel."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel, self._held = channel, b""

    def to(self, wanted: str) -> dict[str, Any]:
        """Return the reply with this id."""
        while piece := self._channel.recv(1 << 16):
            *lines, self._held = (self._held + piece).split(b"\n")
            for line in lines:
                try:
                    reply = json.loads(line) if line.strip() else {}
                except RecursionError:
                    raise ValueError("its reply is nested too deeply") from None
                if isinstance(reply, dict) and reply.get("id") == wanted:
                    return reply
            if len(self._held) > MAX_REPLY_BYTES:
                raise ValueError(f"its reply is longer than {MAX_REPLY_BYTES >> 20} MiB")
        raise ValueError("the machine ended")


def main() -> None:
    """Entry point."""
    directory, dashes, *argv = sys.argv[1:]
    assert dashes == "--"
    if terminal.wanted():
        try:
            raise SystemExit(terminal.run(Path(directory), argv))
        except (terminal.TerminalError, OSError) as problem:
            print(f"vrctl: {argv[0]}: {problem}", file=sys.stderr)
            raise SystemExit(FAILED) from None
    try:
        reply = run(Path(directory), argv, read_input())
        if not reply["ok"]:
            raise ValueError(reply["error"])
        if note := reply.get("note"):
            print(f"vrctl: {argv[0]}: {note}", file=sys.stderr)
        with contextlib.suppress(BrokenPipeError):
            for stream, name in ((sys.stdout, "stdout"), (sys.stderr, "stderr")):
                stream.buffer.write(base64.b64decode(reply[name]))
                stream.buffer.flush()
        status = terminal.exit_status(reply["status"])
    except TimeoutError:
        print(f"vrctl: {argv[0]}: the machine did not answer in {_PATIENCE_S} s; it may still boot", file=sys.stderr)
        raise SystemExit(FAILED) from None
    except (OSError, ValueError, KeyError, TypeError, OverflowError) as problem:
        print(f"vrctl: {argv[0]}: {problem}", file=sys.stderr)
        raise SystemExit(FAILED) from None
    raise SystemExit(status)


if __name__ == "__main__":
    main()
