"""The control channel of a machine: requests of the host, one JSON object a line, each answered by one line.

    {"op": "status", "id": 7}        {"ok": true, …, "id": 7}     {"ok": false, "error": "…", "id": 7}

Every answer carries the id of its request. A request is begun when it arrives and answered when it is done, so an
answer may overtake that of an earlier, longer request (a command, a reload). Empty lines mean nothing: the host sends
one first, which ends what an earlier connection may have left half said.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any

from vrc.guest.lines import MAX_LINE_BYTES, TOO_LONG, LineStream
from vrc.guest.reactor import Reactor

MAX_UNANSWERED = 16
"""Requests that are under way at once; one more is refused."""

Reply = Callable[[dict[str, Any]], None]
Operation = Callable[[dict[str, Any], Reply], None]


class Refused(Exception):
    """The request cannot be done; the text is its answer."""


def refusal(error: str) -> dict[str, Any]:
    """Return the answer that says no."""
    return {"ok": False, "error": error}


def absence(error: str) -> dict[str, Any]:
    """Return the answer that there is nobody to ask now: the same request may be granted later."""
    return refusal(error) | {"absent": True}


class ControlChannel:
    """Serves ``operations`` by name on the descriptor ``fd``, which it owns; calls ``on_end`` when the host left."""

    def __init__(
        self,
        reactor: Reactor,
        fd: int,
        operations: Mapping[str, Operation],
        on_end: Callable[[], None] = lambda: None,
    ) -> None:
        self._operations = operations
        self._unanswered = 0
        self._stream = LineStream(reactor, fd, self._request, on_end)

    def resume(self) -> None:
        """The host may be there again."""
        self._stream.resume()

    def close(self) -> None:
        """Close the descriptor."""
        self._stream.close()

    def _request(self, line: bytes) -> None:
        if not line.strip():
            return
        if line == TOO_LONG:
            self._send(refusal(f"a request is longer than {MAX_LINE_BYTES} octets"))
            return
        try:
            request = json.loads(line)
            name = request["op"]
            operation = self._operations.get(name)
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            self._send(refusal(f"not a request: {error!r}"))
            return
        reply = self._replier(request.get("id"))
        if operation is None:
            reply(refusal(f"no operation {name!r}"))
        elif self._unanswered > MAX_UNANSWERED:
            reply(refusal(f"{MAX_UNANSWERED} requests are under way already"))
        else:
            try:
                operation(request, reply)
            except Refused as refused:
                reply(refusal(str(refused)))
            except (KeyError, TypeError, ValueError, OverflowError) as error:
                reply(refusal(f"{name}: not a request: {error!r}"))

    def _replier(self, identifier: object) -> Reply:
        self._unanswered += 1
        answered = False

        def reply(answer: dict[str, Any]) -> None:
            nonlocal answered
            if answered:
                return
            answered = True
            self._unanswered -= 1
            self._send(answer if identifier is None else {**answer, "id": identifier})

        return reply

    def _send(self, answer: dict[str, Any]) -> None:
        self._stream.send(json.dumps(answer).encode())
