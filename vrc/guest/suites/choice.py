"""The suites that a guest may have; the one place that picks one."""

import grp
import pwd
from collections.abc import Callable, Mapping
from typing import Any

from vrc.guest.children import Children
from vrc.guest.suites.any_daemon import AnyDaemon, AnyDaemonSettings
from vrc.guest.suites.base import Section, Suite
from vrc.guest.suites.bird import BirdDaemon, BirdSettings
from vrc.guest.suites.frr import FrrDaemons, FrrSettings
from vrc.guest.suites.static import StaticRoute, StaticRoutes

_MAKERS: dict[str, Callable[[Children, Section, str], Suite]] = {
    "frr": FrrDaemons,
    "bird": BirdDaemon,
    "ip": StaticRoutes,
    "command": AnyDaemon,
}
_PARSERS: dict[str, Callable[[Section], object]] = {
    "frr": FrrSettings.parse,
    "bird": BirdSettings.parse,
    "ip": StaticRoute.parse,
    "command": AnyDaemonSettings.parse,
}
_USERS = {"frr": ("frr", "frrvty"), "bird": ("bird",), "ip": ("nobody",)}  # a user, and further groups


def section_of(config: Mapping[str, Any]) -> tuple[str, Section]:
    """Return the name and the section of the suite that guest.json is for.

    KeyError, TypeError or ValueError where it has none that this file knows.
    """
    name = next((name for name in _MAKERS if name in config), None)
    if name is None:
        raise KeyError(f"none of {', '.join(_MAKERS)}")
    _PARSERS[name](config[name])
    return name, config[name]


def make(name: str, children: Children, section: Section, etc: str) -> Suite:
    """Return a suite; ``etc`` is where this process may write what is the suite's folder of /etc to its daemons."""
    return _MAKERS[name](children, section, etc)


def ids_of(name: str, section: Section) -> list[int] | None:
    """Return the user, group and further groups that a suite has here; None where it is not installed."""
    user, *groups = _USERS.get(name) or (section["user"],)
    try:
        found = pwd.getpwnam(user)
        return [found.pw_uid, found.pw_gid, *(grp.getgrnam(group).gr_gid for group in groups)]
    except KeyError:
        return None
