"""What the audit log is told of a change: old and new of each object, and why one was refused, without the texts of
tenants, which may hold passwords and keys.
"""

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import Enum
from typing import Any

from controller.audit.log import ObjectChange, digest
from controller.errors import Conflict, NoSuch, SpecError, StoreError
from controller.events.untrusted_text import printable
from controller.model import SHARED_QUOTAS, Routing, SliceConfig
from controller.spec.changes import EQUAL_PART, Change, Verb, show_vlans, slices_of
from controller.spec.state import State

MAX_NAMES = 20
"""Most routers that an outcome names."""


def object_changes(before: State, after: State, changes: Sequence[Change]) -> Iterator[ObjectChange]:
    """Yield old and new of each object: all of one that is created or deleted, what differs of one that changes."""
    known_before, known_after = _Objects(before), _Objects(after)
    for change in changes:
        old = None if change.verb is Verb.CREATE else known_before.find(change)
        new = None if change.verb is Verb.DELETE else known_after.find(change)
        if old is not None and new is not None:
            old, new = _differing(old, new)
        yield ObjectChange(change.verb.value, change.kind, change.name, _tenant(change), old, new)


def why_refused(problem: Exception) -> str:
    """Return the line that the log keeps of an error: only of those that cannot quote a tenant's text their words."""
    if isinstance(problem, Conflict | NoSuch | StoreError):
        return printable(str(problem))
    if isinstance(problem, SpecError):
        return printable(problem.source if problem.line is None else f"{problem.source}:{problem.line}")
    return type(problem).__name__


def what_failed(lines: Sequence[str]) -> str:
    """Return whom an outcome's lines are about, the first few."""
    names = [printable(line.partition(":")[0]) for line in lines]
    more = f" and {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else ""
    return ", ".join(names[:MAX_NAMES]) + more


class _Objects:
    """The objects of one state by kind and name."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._slices = slices_of(state)
        self._find: dict[str, Callable[[str], dict[str, Any] | None]] = {
            "plane": self._plane,
            "slice": lambda name: _plain_of(self._slices.get(name)),
            "router": lambda name: _plain_of(state.routers.get(name)),
        }

    def find(self, change: Change) -> dict[str, Any] | None:
        find = self._find.get(change.kind)
        return {} if find is None else find(change.name)  # the others are no more than their name

    def _plane(self, name: str) -> dict[str, Any] | None:
        found = _plain_of(self._state.planes.get(name))
        return None if found is None else found | {"attached": name not in self._state.detached}


def _tenant(change: Change) -> str:
    if change.kind == "plane":
        return ""
    return change.name.partition("@")[0].partition("/")[0]


def _plain_of(value: object) -> dict[str, Any] | None:
    return None if value is None else dict(_plain(value))


def _plain(value: Any) -> Any:
    if isinstance(value, Routing):
        return {"suite": value.suite.value, "text": digest(value.text)}
    if isinstance(value, SliceConfig):
        return {
            "plane": value.plane,
            "ports": {port: show_vlans(vlans) for port, vlans in value.ports},
            "quota": _plain(value.quota) | dict.fromkeys(set(SHARED_QUOTAS) - value.said, EQUAL_PART),
            "overcommit": value.overcommit,
            "share": _plain(value.share),
        }
    if dataclasses.is_dataclass(value):
        return {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, bytes):
        return value.hex(":")
    if isinstance(value, tuple):
        named = value and all(dataclasses.is_dataclass(one) and hasattr(one, "name") for one in value)
        return {one.name: _plain(one) for one in value} if named else [_plain(one) for one in value]
    return value


def _differing(old: Mapping[str, Any], new: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return what is different in each, to any depth."""
    was: dict[str, Any] = {}
    becomes: dict[str, Any] = {}
    for name in old.keys() | new.keys():
        before, after = old.get(name), new.get(name)
        if before == after and (name in old) == (name in new):
            continue
        if isinstance(before, dict) and isinstance(after, dict):
            was[name], becomes[name] = _differing(before, after)
            continue
        if name in old:
            was[name] = before
        if name in new:
            becomes[name] = after
    return was, becomes
