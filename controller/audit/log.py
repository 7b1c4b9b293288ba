"""The audit log: each operator's change as lines of JSON, written and synced before anything is done.

    apply ──► checked ──► recorded: who, from where, what, old and new ──► stored, carried out ──► outcome recorded
                 │                         │
                 └─► refused, recorded     └─► no room on the disk: refused

What cannot be recorded is not done. A change whose outcome cannot be recorded any more was done: that is counted and
told as an event. No tenant's text is recorded, which may hold passwords and keys: only its length and digest.
"""

import asyncio
import contextlib
import json
import secrets
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, BinaryIO, Literal

from controller.audit.caller import Caller, user_name
from controller.audit.files import AuditFiles
from controller.errors import StoreError
from controller.events.log import EventLog
from controller.events.untrusted_text import printable
from controller.views import AuditView

MAX_OBJECT_BYTES, MAX_REQUEST_BYTES = 64 << 10, 4 << 20
"""Most octets of old and new of one object, and of all objects of one change; beyond, their digest is recorded."""

MAX_ROWS = 10_000
"""Most rows that are read at once."""

DONE, FAILED, REFUSED, UNCHANGED, UNFINISHED = "done", "failed", "refused", "unchanged", "unfinished"
"""Outcomes; the last is one that was never recorded: it is being carried out, or the controller ended meanwhile."""

BROKEN_OFF = "it was broken off"
"""Why something failed that nobody waited for any more."""

OUTCOMES = (DONE, FAILED, REFUSED, UNCHANGED, UNFINISHED)

Values = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ObjectChange:
    """What a change does to one object: what differs, before and after."""

    verb: str  # "create", "change", "delete"
    kind: str  # "plane", "tenant", "slice", "router", "link"
    name: str
    tenant: str  # empty where it is nobody's
    old: Values | None
    new: Values | None


Action = Literal[
    "apply",
    "delete",
    "move",
    "abort-move",
    "attach",
    "detach",
    "repair",
    "certificate",
    "revoke",
    "rotate",
    "retire",
    "exec",
    "console",
    "backup",
    "restore",
]
"""What is recorded of what an operator asks for."""


@dataclass(frozen=True, slots=True)
class Request:
    """Who asks for what."""

    caller: Caller
    action: Action
    subject: str  # the document's name, or that of the object


@dataclass(frozen=True, slots=True)
class Filter:
    """Which rows to read; what is None says nothing."""

    since: float | None = None  # seconds since the epoch
    user: str | None = None  # name or number, of the process or of who logged in
    tenant: str | None = None
    kind: str | None = None
    name: str | None = None
    action: str | None = None
    outcome: str | None = None

    def admits(self, view: AuditView) -> bool:
        """Tell whether a row is asked for."""
        if self.since is not None and view.time < self.since:
            return False
        if self.user is not None and self.user not in (view.user, view.login, str(view.uid)):
            return False
        names = ("tenant", "kind", "name", "action", "outcome")
        return all(getattr(self, name) in (None, getattr(view, name)) for name in names)


class AuditLog:
    """Records changes and reads them; files are written and read by other threads, one at a time."""

    def __init__(self, directory: Path, events: EventLog, clock: Callable[[], float] = time.time) -> None:
        self.files = AuditFiles(directory)
        self.unrecorded = 0  # outcomes that there was no room for
        self._events, self._clock = events, clock
        self._lock = threading.Lock()

    async def begin(self, request: Request, objects: Callable[[], Iterable[ObjectChange]] = tuple) -> str:
        """Record a change that is about to be made; returns its id. StoreError where it cannot be recorded, and then
        it must not be made."""
        change_id, now = secrets.token_hex(8), self._clock()
        try:
            await asyncio.to_thread(self._append, lambda: _change_lines(change_id, now, request, objects()))
        except OSError as problem:
            raise StoreError(
                f"{self.files.path}: {problem.strerror}; a change that cannot be recorded is not made: make room"
            ) from None
        except asyncio.CancelledError:  # the thread goes on, and records what is not begun any more
            await self.end(change_id, FAILED, BROKEN_OFF)
            raise
        return change_id

    async def end(self, change_id: str, outcome: str, reason: str = "") -> None:
        """Record what became of a change."""
        line = _line({"id": change_id, "time": self._clock(), "outcome": outcome, "reason": reason})
        await self._append_or_tell(lambda: [line])

    async def refused(self, request: Request, reason: str) -> None:
        """Record a change that was refused, as nothing was done also where there is no room for that."""
        change_id, now = secrets.token_hex(8), self._clock()

        def lines() -> Iterator[bytes]:
            yield _line(_head(change_id, now, request) | {"outcome": REFUSED, "reason": reason})

        await self._append_or_tell(lines)

    async def _append_or_tell(self, lines: Callable[[], Iterable[bytes]]) -> None:
        try:
            await asyncio.to_thread(self._append, lines)
        except OSError as problem:
            self.unrecorded += 1
            text = f"{self.files.path}: {problem.strerror}; {self.unrecorded} outcomes of changes are not recorded"
            self._events.report("error", "audit-incomplete", "vr-controller", text)

    def _append(self, lines: Callable[[], Iterable[bytes]]) -> None:
        with self._lock:
            self.files.append(lines())

    async def read(self, wanted: Filter, limit: int) -> list[AuditView]:
        """Return the last ``limit`` rows of those that are wanted, the oldest first; StoreError where it cannot be
        read."""
        try:
            return await asyncio.to_thread(self._read, wanted, min(limit, MAX_ROWS))
        except OSError as problem:
            raise StoreError(f"{problem.filename}: {problem.strerror}; the audit log cannot be read") from None

    def _read(self, wanted: Filter, limit: int) -> list[AuditView]:
        with self._lock:
            files = self.files.open_all(wanted.since or 0.0)
        with contextlib.ExitStack() as opened:
            for file in files:
                opened.enter_context(file)
            ended = {one["id"]: (one["outcome"], one["reason"]) for one in _records(files) if "outcome" in one}
            views = (
                _view(one, *ended.get(one["id"], (UNFINISHED, ""))) for one in _records(files) if "action" in one
            )
            return list(deque(filter(wanted.admits, views), maxlen=limit))


def _change_lines(change_id: str, now: float, request: Request, objects: Iterable[ObjectChange]) -> Iterator[bytes]:
    """Yield a line for each object, one where there is none."""
    head = _head(change_id, now, request)
    room, empty = MAX_REQUEST_BYTES, True
    for one in objects:
        empty = False
        values = {"old": one.old, "new": one.new}
        size = len(json.dumps(values))
        if size > min(MAX_OBJECT_BYTES, room):
            values = {name: None if value is None else digest(json.dumps(value)) for name, value in values.items()}
        else:
            room -= size
        named = {"verb": one.verb, "kind": one.kind, "name": one.name, "tenant": one.tenant}
        yield _line(head | named | values)
    if empty:
        yield _line(head)


def _head(change_id: str, now: float, request: Request) -> dict[str, Any]:
    caller = request.caller
    return {
        "id": change_id,
        "time": now,
        "uid": caller.uid,
        "user": user_name(caller.uid),
        "login": "" if caller.login_uid is None else user_name(caller.login_uid),
        "gid": caller.gid,
        "pid": caller.pid,
        "from": caller.origin,
        "action": request.action,
        "subject": printable(request.subject),
    }


def digest(text: str) -> dict[str, object]:
    """Return what is recorded of a text that may hold secrets, or that is too long: its octets and SHA-256."""
    octets = text.encode()
    return {"octets": len(octets), "sha256": sha256(octets).hexdigest()}


def _line(record: Mapping[str, Any]) -> bytes:
    return json.dumps(record, separators=(",", ":")).encode() + b"\n"


def _records(files: Iterable[BinaryIO]) -> Iterator[dict[str, Any]]:
    """Walk over what is in the files, from the beginning."""
    for file in files:
        file.seek(0)
        for line in file:
            try:
                record = json.loads(line)
            except ValueError:  # cut off when the host went down, or still being written
                continue
            if isinstance(record, dict) and "id" in record:
                yield record


def _view(record: Mapping[str, Any], outcome: str, reason: str) -> AuditView:
    texts = {name: record.get(name, "") for name in ("verb", "kind", "name", "tenant")}
    who = {name: record[name] for name in ("uid", "user", "login", "pid")}
    return AuditView(
        id=record["id"],
        time=record["time"],
        **who,
        origin=record["from"],
        action=record["action"],
        subject=record["subject"],
        **texts,
        old=record.get("old"),
        new=record.get("new"),
        outcome=outcome,
        reason=reason,
    )
