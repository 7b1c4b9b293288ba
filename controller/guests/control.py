"""A guest's control socket: one JSON object a line, one reply a line (vrc/supervisor.py, vrc/machine.py).

A machine's socket is QEMU's, and its channel outlives whoever spoke on it last: a request carries an id, replies with
another one are of somebody who did not wait for them, and a blank line first ends what was left half sent. The guest
learns late that one client has gone and the next one is there, and what it says in between is lost; so a harmless
request is repeated until it is answered, and what matters is sent then.
"""

import asyncio
import contextlib
import json
import secrets
from pathlib import Path
from typing import Any

from controller.errors import GuestError
from controller.guests.files import short_path
from controller.guests.suites import suite_of
from controller.text import printable

SOCKET = "control.sock"
LIMIT_S = 10.0
RELOAD_LIMIT_S = 120.0
MAX_REPLY_BYTES = 1 << 20
MAX_ERROR = 1000
"""Characters of a guest's refusal that are shown."""
SETTLE_S = 0.5


class Refusal(GuestError):
    """The guest's supervisor answered, and what it answered is no."""


class Silence(GuestError):
    """The guest did not answer in time."""


async def ask(
    directory: Path, router: str, request: dict[str, Any], limit_s: float, *, shared: bool = False
) -> dict[str, Any]:
    """Ask a guest; GuestError where it refuses or does not answer within ``limit_s``.

    ``shared``: the socket is a machine's channel, on which others may have spoken before.
    """
    try:
        async with asyncio.timeout(limit_s):
            with short_path(directory, SOCKET) as path:
                reader, writer = await asyncio.open_unix_connection(path, limit=MAX_REPLY_BYTES)
            try:
                reply = await _exchange(reader, writer, request, shared)
            finally:
                writer.close()
                with contextlib.suppress(OSError):
                    await writer.wait_closed()  # a machine's channel has room for one
        if not reply["ok"]:
            prefix = f"{suite_of(request.get('config', {}))} " if request["op"] == "reload" else ""
            raise Refusal(f"{router}: {prefix}{printable(str(reply['error']), MAX_ERROR)}")
    except TimeoutError as error:
        raise Silence(f"{router}: the guest did not answer {request['op']} in {limit_s:.0f} s") from error
    except (ConnectionResetError, BrokenPipeError) as error:  # a machine's channel may be another's just now
        raise Silence(f"{router}: the guest did not answer {request['op']}: {error}") from error
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        text = printable(str(error))
        raise GuestError(f"{router}: the guest's supervisor cannot be asked: {text}") from error
    return reply


async def _exchange(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: dict[str, Any], shared: bool
) -> dict[str, Any]:
    if shared:
        machine = await _settle(reader, writer)
        if request == {"op": "machine"}:
            return machine
    wanted = secrets.token_hex(8) if shared else None
    text = json.dumps(request | {"id": wanted} if shared else request)
    writer.write((f"\n{text}\n" if shared else f"{text}\n").encode())
    await writer.drain()
    return await _reply(reader, wanted)


async def _reply(reader: asyncio.StreamReader, wanted: str | None) -> dict[str, Any]:
    while True:
        line = await reader.readline()
        if wanted and line == b"\n":
            continue
        reply: dict[str, Any] = dict(json.loads(line))
        if reply.get("id") == wanted:
            return reply


async def _settle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> dict[str, Any]:
    """Wait until the guest hears this client and is heard by it; returns what it says of its machine."""
    while True:
        wanted = secrets.token_hex(8)
        writer.write(hello(wanted))
        await writer.drain()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(SETTLE_S):
                return await _reply(reader, wanted)


def hello(wanted: str) -> bytes:
    """Return the request that changes nothing."""
    return f'\n{{"op": "machine", "id": "{wanted}"}}\n'.encode()


class Reloads:
    """Hands changed configurations to guests, and remembers what their suites refused of each.

    Trying that again would apply a part of it and take it back, each time.
    """

    def __init__(self, *, shared: bool = False) -> None:
        self._shared = shared
        self._refused: dict[Path, tuple[dict[str, Any], str]] = {}

    async def reload(self, directory: Path, router: str, config: dict[str, Any]) -> None:
        """Bring a running guest to ``config``; GuestError as its suite put it."""
        refused, why = self._refused.get(directory, (None, ""))
        if refused == config:
            raise GuestError(why)
        self.forget(directory)
        try:
            request = {"op": "reload", "config": config}
            await ask(directory, router, request, RELOAD_LIMIT_S, shared=self._shared)
        except Refusal as refusal:
            self._refused[directory] = (config, str(refusal))
            raise

    def forget(self, directory: Path) -> None:
        """Forget what was refused."""
        self._refused.pop(directory, None)
