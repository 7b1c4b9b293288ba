"""Static routes alone in one guest: no daemon, only `ip` whenever routes or links change.

    start, a link or an address changes:   every route is written again (`route replace`), in the order of the text
    new text:                              routes that are new or changed are written, those that are gone deleted

The kernel removes an IPv4 route without a message when its link goes down, so links are watched (rtnetlink(7)). What
it refuses is tried again with the next change of a link, and every RETRY_S. So is what an `ip` was given that did not
do its work: it was killed, or there is none.
"""

import contextlib
import re
import signal
import socket
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from vrc.guest.children import Child, Children, describe_end
from vrc.guest.reactor import Timer
from vrc.guest.suites.base import ENVIRONMENT, Reply, Section, as_user

BINARY = "/usr/sbin/ip"
JOB_LIMIT_S = 60.0
"""An `ip` that has not ended by then is killed, and tried again like what the kernel refuses."""
RETRY_S = 30.0
SETTLED_S = 20.0
"""So long after the start a route that is refused makes the state `failed`: its link may not be there sooner."""

_DEBOUNCE_S = 0.05
_MAX_READS = 64  # at one wake-up
_GROUPS = 0x1 | 0x10 | 0x100  # RTMGRP_LINK, RTMGRP_IPV4_IFADDR, RTMGRP_IPV6_IFADDR


@dataclass(frozen=True, slots=True)
class StaticRoute:
    """One line of the text."""

    line: int
    key: str  # prefix and metric: what the kernel tells routes apart by
    text: str  # what follows `ip route replace`

    @property
    def prefix(self) -> str:
        """Where it leads."""
        return self.key.partition(" ")[0]

    @classmethod
    def parse(cls, section: Section) -> list["StaticRoute"]:
        """Take the section of guest.json; KeyError, TypeError or ValueError where it is none."""
        return [cls(line, key, text) for line, key, text in section["routes"]]


class StaticRoutes:
    """Keeps the routes of the text in the kernel."""

    def __init__(self, children: Children, section: Section, _etc: str = "") -> None:
        self.restarts = 0
        self._routes = StaticRoute.parse(section)
        self._children, self._reactor = children, children.reactor
        uid, gid = section["ids"]
        self._command = [*as_user(uid, gid, "net_admin"), BINARY, "-force", "-batch", "-"]
        self._gone: list[StaticRoute] = []  # to be deleted
        self._refused: list[str] = []  # "line 3: nexthop has invalid gateway"
        self._replies: list[Reply] = []  # of changes that the next batch has
        self._job: Child | None = None
        self._timer: Timer | None = None
        self._again = self._stopping = self._wrote = False
        self._started = time.monotonic()
        self._links = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_NONBLOCK, socket.NETLINK_ROUTE)

    def tell_states(self) -> dict[str, str]:
        """Return the state of the routes: the first that the kernel does not take."""
        if not self._refused:
            return {"ip": "up" if self._wrote else "starting"}
        if time.monotonic() - self._started < SETTLED_S:
            return {"ip": "starting"}
        more = f" (and {len(self._refused) - 1} more)" if len(self._refused) > 1 else ""
        return {"ip": f"failed: {self._refused[0]}{more}"}

    @property
    def running(self) -> bool:
        """Tell whether an `ip` runs."""
        return self._job is not None

    def start(self) -> None:
        """Watch links and write the routes."""
        self._links.bind((0, _GROUPS))
        self._reactor.add_reader(self._links.fileno(), self._links_changed)
        self._write()

    def stop(self, number: int = signal.SIGTERM) -> None:
        """Leave the routes as they are."""
        self._stopping = True
        self._wait_for(None)
        if self._job:
            self._job.kill(number)

    def change(self, section: Section, reply: Reply) -> None:
        """Write the routes of another section; ``reply`` is told "" then, also where the kernel refuses some."""
        routes = StaticRoute.parse(section)
        former, self._routes = self._routes, routes
        self._delete([*self._gone, *former])
        self._replies.append(reply)
        self._write()

    def _delete(self, routes: Sequence[StaticRoute]) -> None:
        """Have the next batch delete these routes, but not what the text has."""
        keys = {route.key for route in self._routes}
        self._gone = [route for route in routes if route.key not in keys]

    def _links_changed(self) -> None:
        with contextlib.suppress(OSError):  # nothing left, or more than the socket holds, which says as much
            for _ in range(_MAX_READS):
                self._links.recv(1)
        if self._timer is None or self._timer.due > time.monotonic() + _DEBOUNCE_S:
            self._wait_for(_DEBOUNCE_S)

    def _wait_for(self, pause_s: float | None) -> None:
        if self._timer:
            self._timer.cancel()
        self._timer = None if pause_s is None else self._reactor.call_later(pause_s, self._write)

    def _write(self) -> None:
        self._wait_for(None)
        if self._job or self._stopping:
            self._again = True
            return
        self._again = False
        routes, gone, self._gone = self._routes, self._gone, []
        replies, self._replies = self._replies, []

        def failed(why: str) -> None:
            self._delete([*gone, *self._gone])
            self._written([why], replies)

        def done(job: Child, exit_status: int) -> None:
            said = job.lines or []
            if job.overran:
                failed(job.overran)
            elif exit_status and (exit_status < 0 or not any(map(_FAILED.fullmatch, said))):
                failed(describe_end(exit_status, job.last_line))
            else:
                self._written(refusals(said, routes), replies)

        job = Child("ip", self._command, ENVIRONMENT, done)
        job.lines, job.input, job.limit_s = [], batch(routes, gone).encode(), JOB_LIMIT_S
        self._job = job
        try:
            self._children.spawn(job)
        except OSError as error:
            failed(f"{self._command[0]}: {error.strerror}")

    def _written(self, refused: list[str], replies: Iterable[Reply]) -> None:
        self._job = None
        self._wrote = True
        self._refused = refused
        for reply in replies:
            reply("")
        if self._again and not self._stopping:
            self._write()
        elif self._refused and self._timer is None and not self._stopping:
            self._wait_for(RETRY_S)


def batch(routes: Sequence[StaticRoute], gone: Sequence[StaticRoute]) -> str:
    """Return the input of `ip -batch` that writes routes, one a line, and then deletes those that are gone.

    These are deleted whatever ways they have: where the kernel refused a route it has the one of a former text. As no
    metric of IPv4 is any, what is left of their prefixes is written once more.
    """
    lines = [f"route replace {route.text}" for route in routes]
    lines += [f"route del {route.key} proto static" for route in reversed(gone)]
    prefixes = {route.prefix for route in gone}
    lines += [f"route replace {route.text}" for route in routes if route.prefix in prefixes]
    return "".join(f"{line}\n" for line in lines) or "\n"


_FAILED = re.compile(r"Command failed -:(\d+)")
_PREFIX = re.compile(r"^(Error: |RTNETLINK answers: )")


def refusals(said: Iterable[str], routes: Sequence[StaticRoute]) -> list[str]:
    """Return the routes that `ip -force -batch` complained about, each in a line with the reason.

    Lines beyond the routes are deletions, and what is written again: what is not there any more needs none.
    """
    found, reason = [], "no reason given"
    for line in said:
        if (match := _FAILED.fullmatch(line)) is None:
            words = _PREFIX.sub("", line).rstrip(".")
            reason = words[:1].lower() + words[1:]
        elif 0 < (number := int(match[1])) <= len(routes):
            found.append(f"line {routes[number - 1].line}: {reason}")
    return found
