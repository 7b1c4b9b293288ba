"""The port of a guest driver: start, stop and watch the place where one router's daemons run."""

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from controller.model import NAMESPACE, GuestConfig, InterfaceConfig, RouteSource, Routing, Suite


@dataclass(frozen=True, slots=True)
class GuestSpec:
    """What a driver needs to run one guest."""

    vrf_id: int
    router: str  # "tenant/router"
    source: RouteSource
    routing: Routing
    hold_time_s: int
    directory: Path  # this guest's own, on the host; made by the driver, removed by `delete`
    identity: Path  # cert.pem, key.pem, ca.pem of this router
    session: Path  # directory with session.sock, the only thing of the host that the guest can talk to
    guest: GuestConfig = NAMESPACE
    interfaces: tuple[InterfaceConfig, ...] = ()


@dataclass(frozen=True, slots=True)
class GuestStatus:
    """What a guest is doing."""

    running: bool
    pid: int  # of the guest's first process, as the host sees it; 0 when not running
    daemons: dict[str, str]  # name → "up", "starting", "failed: …"
    restarts: int


STARTING, BOOTING = "starting", "booting"
"""States of a daemon, or of a machine, that nothing is wrong with and that is not up yet."""

BUSY = "up, busy"
"""The state of a machine that has answered before and does not now: its daemons' states are not known."""

REFUSED = "config"
"""Stands among the daemons of a guest where its suite did not take a line of its text."""


def failing(spec: GuestSpec, daemons: dict[str, str]) -> str:
    """Say in one line which daemon of a guest does not run, why, and where more is said; empty where all do or will.

    The routes that the kernel does not take from `ip` are left out: they wait for a link, and their state says so.
    """
    waits = Suite.IP if spec.routing.suite is Suite.IP else None
    failed = {name: state for name, state in daemons.items() if state.startswith("failed: ") and name != waits}
    if not failed:
        return ""
    name, state = next(iter(failed.items()))
    more = f" (and {len(failed) - 1} more)" if len(failed) > 1 else ""
    reason = state.removeprefix("failed: ").removeprefix(f"{spec.router}: ")
    # What was refused of a text begins with its line.
    where = f"{spec.routing.suite.value} " if name == REFUSED else f"{name}: "
    return f"{where}{reason}{more}; see vrctl logs {spec.router}"


class GuestDriver(Protocol):
    """Runs guests of one kind. Guests outlive the controller: a restarted one finds and adopts them."""

    async def start(self, spec: GuestSpec) -> None:
        """Start the guest, or adopt it and apply what changed in its configuration; returns once its supervisor runs.

        GuestError names what is missing (a program, a kernel feature) or wrong.
        """

    async def stop(self, spec: GuestSpec) -> None:
        """Stop every process of the guest and wait until they are gone; its directory stays."""

    async def delete(self, spec: GuestSpec) -> None:
        """Stop, and remove everything it left: directory, namespaces, mounts."""

    async def status(self, spec: GuestSpec) -> GuestStatus:
        """Tell what runs."""

    async def close(self) -> None:
        """Let go of all guests; they run on."""

    def running(self, spec: GuestSpec) -> int:
        """Return the guest's first process, 0 when it does not run; asks nobody and returns at once."""

    async def last_words(self, spec: GuestSpec) -> str:
        """Why a guest that runs no more ended, in a few words; empty where that is not known."""

    async def look_after(self, spec: GuestSpec) -> list[str]:
        """Do what a running guest needs from time to time; returns lines that the operator may want to read."""

    def trouble(self, spec: GuestSpec) -> str:
        """What ails a running guest or one of its daemons, as last seen by `look_after`; empty where nothing does."""

    def session_uid(self, vrf_id: int) -> int:
        """The user of the host that connects to a router's session socket."""

    def label(self, spec: GuestSpec) -> str:
        """What the operator is shown as the guest's kind: "netns", "kvm", "kvm (emulated)"."""

    def exec_argv(self, spec: GuestSpec, pid: int, argv: list[str]) -> list[str]:
        """Return the command that runs ``argv`` inside the guest whose first process is ``pid``."""

    def console_argv(self, spec: GuestSpec) -> list[str]:
        """Return the command that connects a terminal with the guest's console; GuestError where it has none."""

    def log_path(self, spec: GuestSpec) -> Path:
        """The file with what the guest says: its daemons, supervisor and VRC, or a machine's console."""
