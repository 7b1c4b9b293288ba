"""What the drivers have to know of a suite, and the suites there are; each is a module of its own."""

from collections.abc import Mapping
from typing import Any, Protocol

from controller.guests.base import GuestSpec
from controller.guests.suites import any_daemon, bird, frr, static
from controller.model import Suite


class GuestSuite(Protocol):
    """What makes the routes of a guest: its text, its programs, its part of guest.json."""

    ETC: str  # where its daemons find their text; empty where it has no folder
    RUN: str  # where they keep their sockets

    def refuse_foreign(self, router: str, text: str) -> None:
        """Raise GuestError, with the line, for what the suite would take and Splitplane does not."""

    def can_check(self) -> bool:
        """Tell whether this host has what `check` needs."""

    async def check(self, router: str, text: str) -> None:
        """Raise GuestError, with the line, where the suite does not take a text; nothing is changed."""

    async def remarks(self) -> list[str]:
        """Return what the operator should know of the programs installed here, a line each."""

    def require_programs(self, router: str, text: str) -> None:
        """Raise GuestError naming the first program missing here that a text asks for."""

    def find_ids(self, router: str, text: str) -> list[int]:
        """Return the user, the group and further groups that the suite runs as on this host."""

    def hostname(self, text: str) -> str:
        """Return the name that a text gives its router; empty where it gives none."""

    def section(self, spec: GuestSpec, name: str) -> dict[str, Any]:
        """Return its part of guest.json without ``ids``; ``name`` is what the router is called."""


SUITES: Mapping[Suite, GuestSuite] = {Suite.FRR: frr, Suite.BIRD: bird, Suite.IP: static, Suite.COMMAND: any_daemon}


def suite_of(config: Mapping[str, Any]) -> Suite:
    """Return the suite that guest.json is for."""
    return next((suite for suite in Suite if suite.value in config), Suite.FRR)
