"""The port of a suite: what makes the routes of a guest, run by its supervisor."""

import contextlib
import os
import signal
from collections.abc import Callable, Mapping
from typing import Any, Protocol

Section = Mapping[str, Any]
"""A suite's part of guest.json: ``ids`` (its user, group and further groups) and what it is to run with."""

Reply = Callable[[str], None]
"""Told "" when a change is in force, else in one line why it is not."""

ENVIRONMENT = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/tmp", "LANG": "C.UTF-8"}


START_LIMIT_S = 20.0
"""A daemon that does not answer for so long after its start is killed and started again."""


JOB_LIMIT_S = 100.0
"""A program that gives daemons their text and has not ended by then is killed."""


def job_limit_of(section: Section) -> float:
    """Return the limit of such a program, in seconds; ``job_limit_s`` of the section where it has one."""
    return float(section.get("job_limit_s", JOB_LIMIT_S))


def start_limit_of(section: Section) -> float:
    """Return the limit of a suite's daemons, in seconds; ``start_limit_s`` of the section where it has one."""
    return float(section.get("start_limit_s", START_LIMIT_S))


class Suite(Protocol):
    """Runs what makes the routes: FRR's daemons, BIRD, ``ip`` for static routes alone, or other programs."""

    def tell_states(self) -> dict[str, str]:
        """Return the state by daemon, for the controller, which has asked: ``up``, ``starting`` or ``failed: …``."""

    @property
    def restarts(self) -> int:
        """How often a daemon was started again."""

    @property
    def running(self) -> bool:
        """Tell whether any process of it is left."""

    def start(self) -> None:
        """Start everything from nothing."""

    def stop(self, number: int = signal.SIGTERM) -> None:
        """Signal every process and start none again."""

    def change(self, section: Section, reply: Reply) -> None:
        """Run with another section; ``reply`` is told when that is done. KeyError, TypeError or ValueError where the
        section is none, OSError where its texts cannot be written: all is as it was then."""


def write_files(directory: str, texts: Mapping[str, str], group: int) -> None:
    """Make files hold texts, readable by root and a group: all of them or, where an OSError is raised, none.

    No name of a file begins with ".", as those do that are on their way.
    """
    new = {name: f"{directory}/.{name}.new" for name in texts}
    try:
        for name, path in new.items():
            fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o640)
            with open(fd, "w") as file:
                os.fchown(fd, 0, group)
                file.write(texts[name])
    except OSError:
        for path in new.values():
            with contextlib.suppress(OSError):
                os.unlink(path)
        raise
    for name, path in new.items():
        os.replace(path, f"{directory}/{name}")


def unwritten(error: OSError) -> str:
    """Say in one line that texts could not be written: what a guest may write to is in memory, and may be full."""
    return f"the text cannot be written: {error.strerror}"


def as_user(uid: int, gid: int, *capabilities: str) -> list[str]:
    """Return what to put before a command so that it runs as a user with these capabilities and no way to others."""
    allowed = ",".join(("-all", *(f"+{name}" for name in capabilities)))
    ids = ["--reuid", str(uid), "--regid", str(gid), "--clear-groups"]
    sets = ("--bounding-set", "--inh-caps", "--ambient-caps")
    return ["/usr/bin/setpriv", *ids, *(word for name in sets for word in (name, allowed))]


def empty_directory(path: str) -> None:
    """Remove the files of a directory."""
    for name in os.listdir(path):
        with contextlib.suppress(OSError):
            os.unlink(f"{path}/{name}")
