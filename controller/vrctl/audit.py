"""Command audit: who changed what."""

import re
import time
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any

import typer

from controller.vrctl import output
from controller.vrctl.client import path_of
from controller.vrctl.output import Format
from controller.vrctl.shell import Output, app, client

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_COLUMNS = ("time", "user", "action", "subject", "verb", "kind", "name", "changed", "outcome", "reason")


class Kind(StrEnum):
    """What an operator changes."""

    PLANE = "plane"
    TENANT = "tenant"
    SLICE = "slice"
    ROUTER = "router"
    LINK = "link"


class Action(StrEnum):
    """What an operator asks for."""

    APPLY = "apply"
    DELETE = "delete"
    MOVE = "move"
    ABORT_MOVE = "abort-move"
    ATTACH = "attach"
    DETACH = "detach"
    REPAIR = "repair"
    CERTIFICATE = "certificate"
    REVOKE = "revoke"
    ROTATE = "rotate"
    RETIRE = "retire"
    EXEC = "exec"
    CONSOLE = "console"
    BACKUP = "backup"
    RESTORE = "restore"


class Outcome(StrEnum):
    """What became of a change."""

    DONE = "done"
    FAILED = "failed"
    REFUSED = "refused"
    UNCHANGED = "unchanged"
    UNFINISHED = "unfinished"


def parse_since(text: str, now: float) -> float:
    """Return a time in seconds since the epoch: "90s", "15m", "2h", "7d" ago, or an ISO 8601 time, local where it
    has no zone. BadParameter where it is none of these."""
    if found := re.fullmatch(r"([0-9]{1,9})([smhd])", text):
        return now - int(found[1]) * _UNITS[found[2]]
    try:
        return datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError, OSError):
        raise typer.BadParameter(f"{text!r} is no time; write 15m, 2h, 7d or 2026-01-31T12:00") from None


def audit_row(view: dict[str, Any]) -> dict[str, Any]:
    """Write a row as people read it: local time, the user with the login behind it, the names of what differs."""
    stamp = datetime.fromtimestamp(view["time"]).strftime("%Y-%m-%d %H:%M:%S")
    user = view["user"] if view["login"] in ("", view["user"]) else f"{view['user']} ({view['login']})"
    changed = sorted({*(view["old"] or {}), *(view["new"] or {})}) if view["verb"] == "change" else []
    return view | {"time": stamp, "user": user, "changed": changed}


@app.command()
def audit(
    since: Annotated[str | None, typer.Option(help="15m, 2h or 7d ago, or a time such as 2026-01-31T12:00")] = None,
    user: Annotated[str | None, typer.Option(help="name or number, of the process or of who logged in")] = None,
    tenant: Annotated[str | None, typer.Option(help="what is this tenant's")] = None,
    kind: Annotated[Kind | None, typer.Option(help="what was changed")] = None,
    name: Annotated[str | None, typer.Option(help="the object's name, such as red/r1")] = None,
    action: Annotated[Action | None, typer.Option(help="what was asked for")] = None,
    outcome: Annotated[Outcome | None, typer.Option(help="what became of it")] = None,
    limit: Annotated[int, typer.Option("-n", "--limit", min=1, max=10_000, help="the last so many")] = 1000,
    form: Output = Format.TABLE,
) -> None:
    """Show who changed what, and what became of it; -o json has old and new."""
    begin = None if since is None else parse_since(since, time.time())
    query = {"since": begin, "user": user, "tenant": tenant, "kind": kind, "name": name, "action": action}
    rows = client().lines("GET", path_of("audit", **query, outcome=outcome, limit=limit))
    if form is Format.TABLE:
        rows = map(audit_row, rows)
    output.write_rows(rows, _COLUMNS, form, "no changes")
