"""What a guest answers on its control channel: lines of JSON, and what is read from them.

input: one octet, odd for a machine's channel that others may have spoken on before, then what the guest says.
"""

import asyncio
from contextlib import suppress

from controller.errors import GuestError
from controller.guests import control
from controller.guests.machine import readings

INSTRUMENTED = ("controller.guests.control", "controller.guests.machine.readings", "controller.events")
_LIMIT_S = 10
_WANTED = "0123456789abcdef"


class _Writer:
    def write(self, octets: bytes) -> None:
        pass

    async def drain(self) -> None:
        pass


class _Unpaced(control.Strays):
    async def skip(self, line: bytes) -> None:
        self.octets += len(line)


def try_one(octets: bytes) -> None:
    """Hear an answer; what `conversation` makes a GuestError of may be raised, and of an answer nothing."""
    if octets:
        _loop.run_until_complete(_asked(octets))


async def _asked(octets: bytes) -> None:
    reader = asyncio.StreamReader(limit=control.MAX_REPLY_BYTES)
    reader.feed_data(octets[1:])
    reader.feed_eof()
    if octets[0] & 1:
        asking = control._reply(reader, _WANTED, _Unpaced())
    else:
        told = control.Conversation("t/r", reader, _Writer(), False, _Unpaced())  # type: ignore[arg-type]
        asking = told.ask({"op": "status"})
    reply = None
    with suppress(GuestError, OSError, ValueError, KeyError, TypeError, RecursionError):
        async with asyncio.timeout(_LIMIT_S):
            reply = await asking
    if reply is not None:
        readings.machine_state(reply, 512)
        readings.clock_step_s(reply, 1.0, 2.0)
        control.states_inside(reply)


_loop = asyncio.new_event_loop()


def seeds() -> list[bytes]:
    """Answers of namespaces and of machines."""
    status = b'{"ok": true, "daemons": {"zebra": "up", "bgpd": "restarting"}, "restarts": 3}\n'
    machine = b'\n\n{"id": "' + _WANTED.encode() + b'", "supervisor": "up", "oom_kills": 0, "time_s": 1.5}\n'
    return [
        b"\0" + status,
        b"\1" + machine,
        b"\1{}\n" + machine,
        b'\0{"error": "\\u001b[2J", "kind": "text"}\n',
        b"\0[]\n",
    ]
