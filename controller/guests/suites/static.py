"""The `ip` suite: static routes without any daemon, kept in the guest's kernel by its supervisor."""

from pathlib import Path
from typing import Any

from controller.errors import GuestError
from controller.guests.base import GuestSpec
from controller.guests.suites.config_text import NOBODY, refuse_unfit
from controller.spec.static_routes import LineError, StaticRoute, parse_routes

ETC = RUN = ""
IP = "/usr/sbin/ip"


def refuse_foreign(router: str, text: str) -> None:
    """Raise GuestError, with the line, for anything but routes."""
    refuse_unfit(router, "ip", text)
    _routes(router, text)


def _routes(router: str, text: str) -> list[StaticRoute]:
    try:
        return parse_routes(text)
    except LineError as problem:
        raise GuestError(f"{router}: {problem}") from None


def can_check() -> bool:
    """It takes no program."""
    return True


async def check(router: str, text: str) -> None:
    """Raise GuestError, with the line, for anything but routes; the kernel has its say when they are written."""
    refuse_foreign(router, text)


async def remarks() -> list[str]:
    """Return nothing: its version does not matter."""
    return []


def require_programs(_router: str, _text: str) -> None:
    """Raise GuestError where `ip` is missing."""
    if not Path(IP).exists():
        raise GuestError(f"{IP} not found; apt-get install iproute2")


def find_ids(_router: str, _text: str) -> list[int]:
    """Return the user and group that `ip` runs as, with CAP_NET_ADMIN alone."""
    return [NOBODY, NOBODY]


def hostname(_text: str) -> str:
    """Return nothing: a text of this suite does not name its router."""
    return ""


def section(spec: GuestSpec, _name: str) -> dict[str, Any]:
    """Return what the guest's supervisor is told (vrc/guest/suites/static.py)."""
    routes = _routes(spec.router, spec.routing.text)
    return {"routes": [[route.line, route.key, route.text] for route in routes]}
