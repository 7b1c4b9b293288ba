"""A guest's control socket: one JSON object a line, one reply a line (vrc/guest/supervisor.py, vrc/machine/init.py).

A machine's channel outlives its clients (handshake.py): a request carries an id, replies with another one are for a
client that did not wait for them, and a blank line first ends what was left half sent.
"""

import asyncio
import contextlib
import json
import re
import secrets
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from controller.errors import GuestError
from controller.events.untrusted_text import printable
from controller.guests.guest_files import short_path
from controller.guests.handshake import SETTLE_S, SOCKET, hello
from controller.guests.suites.choice import suite_of

MAX_REPLY_BYTES = 1 << 20
MAX_ERROR = 1000
"""Characters of a guest's refusal that are shown."""

_MAX_DAEMONS, _MAX_NAME = 64, 32

STRAY_AT_ONCE, STRAY_PER_S = 1 << 20, 1 << 18
"""Octets that nobody asked for that are read of a guest at once, and each second from then on."""

STRAY_LINE = 256
"""What a line counts at least, however short: the loop spends microseconds on it."""


@dataclass(slots=True)
class Strays:
    """What one guest says that nobody asked for: replies to clients that did not wait, blank lines.

    It is read, so that the answer behind it is found, but no faster than `STRAY_PER_S`.
    """

    octets: int = 0  # of lines, `STRAY_LINE` each at least
    held: int = 0  # how often it was not read for a while
    _debt: float = 0.0  # of these octets, what the time since has not paid for
    _counted_s: float = 0.0

    async def skip(self, line: bytes) -> None:
        """Count a line; returns when the next one may be read."""
        cost, now = max(len(line), STRAY_LINE), asyncio.get_running_loop().time()
        self.octets += cost
        self._debt = max(0.0, self._debt - (now - self._counted_s) * STRAY_PER_S) + cost
        self._counted_s = now
        over = self._debt - STRAY_AT_ONCE
        if over > 0:
            self.held += 1
        await asyncio.sleep(max(0.0, over / STRAY_PER_S))  # also 0 lets others run: a full buffer never does


class Refusal(GuestError):
    """The guest's supervisor answered, and what it answered is no."""


class Absence(Refusal):
    """A machine answered that its guest does not run now: what was asked may be asked again."""


class Transient(Refusal):
    """The guest is busy, or lacks room or memory, and says nothing of what it was asked: it may be asked again."""


TRANSIENT_WORDS = re.compile(
    r"is being changed already; try again"
    r"|\d+ requests are (unanswered|under way) already"
    r"|the guest's supervisor did not answer within [\d.]+ s; see the console"
    r"|the text cannot be written: [^;]+(; the former text stays; see vrctl logs)?"
    r"|\S+ was killed by (SIG\w+|signal \d+); see vrctl logs"
)
"""By which a guest says so: guests outlive versions of the controller, and there is no other sign of it."""


class Silence(GuestError):
    """The guest did not answer in time."""


@dataclass(slots=True)
class Conversation:
    """A connection to a guest on which one request after the other is answered."""

    _router: str
    _reader: asyncio.StreamReader
    _writer: asyncio.StreamWriter
    _shared: bool
    _strays: Strays
    asked: str = "machine"  # the last operation
    machine: dict[str, Any] = field(default_factory=dict)  # what a machine's first process said of it at first
    asked_at_s: float = 0.0  # our clock when it was asked for that
    answered_at_s: float = 0.0  # and when it had answered

    async def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """Return the reply; Refusal where it is no."""
        self.asked = request["op"]
        wanted = secrets.token_hex(8) if self._shared else None
        text = json.dumps(request | {"id": wanted} if self._shared else request)
        self._writer.write((f"\n{text}\n" if self._shared else f"{text}\n").encode())
        await self._writer.drain()
        reply = await _reply(self._reader, wanted, self._strays)
        if not reply["ok"]:
            said = printable(str(reply["error"]), MAX_ERROR)
            if reply.get("absent"):
                raise Absence(f"{self._router}: {said}")
            prefix = f"{suite_of(request.get('config', {}))} " if request["op"] == "reload" else ""
            kind = Transient if TRANSIENT_WORDS.fullmatch(said) else Refusal
            raise kind(f"{self._router}: {prefix}{said}")
        return reply

    async def settle(self) -> None:
        """Wait until a machine hears us and is heard; what it says of itself is in `machine`."""
        torn = True  # what comes first may be the rest of an answer to somebody who broke off
        while True:
            wanted = secrets.token_hex(8)
            self.asked_at_s = time.time()
            self._writer.write(hello(wanted))
            await self._writer.drain()
            try:
                async with asyncio.timeout(SETTLE_S):
                    self.machine = await _reply(self._reader, wanted, self._strays)
                    self.answered_at_s = time.time()
                    return
            except TimeoutError:
                pass
            except (ValueError, TypeError, RecursionError):
                if not torn or self._reader.at_eof():
                    raise
                torn = False


@contextlib.asynccontextmanager
async def conversation(
    directory: Path, router: str, limit_s: float, *, shared: bool = False, strays: Strays | None = None
) -> AsyncIterator[Conversation]:
    """Speak with a guest; GuestError where it does not answer, everything together, within ``limit_s``.

    ``shared``: the socket is a machine's channel, on which others may have spoken before. ``strays`` counts what it
    says besides.
    """
    told: Conversation | None = None
    try:
        async with asyncio.timeout(limit_s):
            with short_path(directory, SOCKET) as path:
                reader, writer = await asyncio.open_unix_connection(path, limit=MAX_REPLY_BYTES)
            told = Conversation(router, reader, writer, shared, strays or Strays())
            try:
                if shared:
                    await told.settle()
                yield told
            except BaseException:
                writer.transport.abort()  # what the guest does not read would keep the connection from closing
                raise
            finally:
                writer.close()
                with contextlib.suppress(OSError):
                    await writer.wait_closed()  # a machine's channel has room for one
    except TimeoutError as error:
        what = told.asked if told is not None else "anything"
        raise Silence(f"{router}: the guest did not answer {what} in {limit_s:g} s") from error
    except (ConnectionResetError, BrokenPipeError) as error:  # a machine's channel may be another's just now
        raise Silence(f"{router}: the guest broke off: {error}") from error
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        text = printable(str(error))
        raise GuestError(f"{router}: the guest's supervisor cannot be asked: {text}") from error


async def ask(
    directory: Path, router: str, request: dict[str, Any], limit_s: float, *, shared: bool = False
) -> dict[str, Any]:
    """Ask a guest one thing; GuestError where it refuses or does not answer within ``limit_s`` (`conversation`)."""
    async with conversation(directory, router, limit_s, shared=shared) as told:
        return await told.ask(request)


async def _reply(reader: asyncio.StreamReader, wanted: str | None, strays: Strays) -> dict[str, Any]:
    while True:
        line = await reader.readline()
        if not wanted or line != b"\n":
            reply: dict[str, Any] = dict(json.loads(line))
            if reply.get("id") == wanted:
                return reply
        await strays.skip(line)


def states_inside(reply: dict[str, Any]) -> tuple[dict[str, str], int]:
    """Return the states of a guest's daemons and the number of restarts from its answer.

    A state may be a daemon's last words; what a machine answers may be anything.
    """
    daemons = reply.get("daemons")
    told = list(daemons.items())[:_MAX_DAEMONS] if isinstance(daemons, dict) else []
    states = {printable(name, _MAX_NAME): printable(str(state)) for name, state in told}
    return states, count_of(reply, "restarts")


def count_of(reply: dict[str, Any], name: str) -> int:
    """Return a count from a guest's answer; 0 where it is none."""
    value = reply.get(name)
    return value if isinstance(value, int) and 0 <= value < 1 << 32 else 0


class Reloads:
    """Hands changed configurations to guests, and remembers what their suites refused of each.

    Trying that again would apply a part of it and take it back, each time.
    """

    def __init__(self, limit_s: float, *, shared: bool = False) -> None:
        self._limit_s, self._shared = limit_s, shared
        self._refused: dict[Path, tuple[dict[str, Any], str]] = {}

    async def reload(self, directory: Path, router: str, config: dict[str, Any]) -> None:
        """Bring a running guest to ``config``; GuestError as its suite put it.

        Absence or Transient say nothing of the configuration, and are not remembered.
        """
        refused, why = self._refused.get(directory, (None, ""))
        if refused == config:
            raise GuestError(why)
        self.forget(directory)
        try:
            request = {"op": "reload", "config": config}
            await ask(directory, router, request, self._limit_s, shared=self._shared)
        except (Absence, Transient):
            raise
        except Refusal as refusal:
            self._refused[directory] = (config, str(refusal))
            raise

    def forget(self, directory: Path) -> None:
        """Forget what was refused."""
        self._refused.pop(directory, None)
