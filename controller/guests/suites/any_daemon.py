"""The `command` suite: programs of the operator's choice that write routes to the guest's kernel.

Its text is JSON, ``{"user": …, "files": {name: content}, "daemons": [{"name": …, "argv": […], "reload": …}]}``. It is
made of what the operator wrote by controller/spec/document.py, and checked there.
"""

import json
import os
import pwd
from typing import Any

from controller.errors import GuestError
from controller.guests.base import GuestSpec
from controller.guests.suites.config_text import MAX_TEXT_BYTES
from controller.guests.users import IDS_OF_A_GUEST

ETC, RUN = "/run/command/etc", "/run/command/run"


def refuse_foreign(router: str, text: str) -> None:
    """Raise GuestError where the files are too long."""
    if len(text.encode(errors="replace")) > MAX_TEXT_BYTES:
        raise GuestError(f"{router}: command is longer than {MAX_TEXT_BYTES >> 20} MiB")


def can_check() -> bool:
    """It takes no program to check what no parser is known for."""
    return True


async def check(router: str, text: str) -> None:
    """Raise GuestError where the files are too long: what is in them is the programs' own."""
    refuse_foreign(router, text)


async def remarks() -> list[str]:
    """Return nothing: nothing is known of the programs."""
    return []


def require_programs(router: str, text: str) -> None:
    """Raise GuestError naming the user or the first program that is missing here."""
    find_ids(router, text)
    for daemon in json.loads(text)["daemons"]:
        for argv in (daemon["argv"], daemon["reload"]):
            if isinstance(argv, list) and not os.access(argv[0], os.X_OK):
                raise GuestError(f"{router}: command: {argv[0]} not found; install its package, or correct its path")


def find_ids(router: str, text: str) -> list[int]:
    """Return the user and the group that the programs run as on this host."""
    name = json.loads(text)["user"]
    try:
        user = pwd.getpwnam(name)
    except KeyError:
        raise GuestError(f"{router}: command: no user {name!r} here; adduser --system --group {name}") from None
    if max(user.pw_uid, user.pw_gid) >= IDS_OF_A_GUEST:
        why = f"user {name!r} has the ids {user.pw_uid} and {user.pw_gid}, and a guest those below {IDS_OF_A_GUEST}"
        raise GuestError(f"{router}: command: {why}; name another user")
    return [user.pw_uid, user.pw_gid]


def hostname(_text: str) -> str:
    """Return nothing: a text of this suite does not name its router."""
    return ""


def section(spec: GuestSpec, _name: str) -> dict[str, Any]:
    """Return what the guest's supervisor is told (vrc/guest/suites/any_daemon.py)."""
    fields: dict[str, Any] = json.loads(spec.routing.text)
    return fields
