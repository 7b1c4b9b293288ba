"""Guests in Linux namespaces: one process tree per router, closed in by the supervisor (vrc/guest/supervisor.py).

    DIRECTORY/                 0700, root
        guest.json             what the guest was started with
        guest.pid              its first process: pid, start time, boot id
        guest.lock             locked by that process as long as it lives, and by who changes guest.json for a start
        control.sock           its supervisor
        guest.log, guest.log.1
        identity/              this router's certificate, readable by its VRC alone

Of this a guest sees its identity and its log, and can write nothing: what it writes elsewhere is memory of its own.

A guest is no child of the controller: it is found again by guest.pid, and never by the pid alone.
"""

import asyncio
import contextlib
import importlib.util
import shutil
import sys
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

from controller.errors import GuestError
from controller.guests import control, handshake, limits, pidfile, startup
from controller.guests.base import GuestSpec, GuestStatus, failing
from controller.guests.guest_files import (
    CONFIG,
    make_directory,
    note_change,
    note_start,
    read_config,
    replace_files,
    take_over,
    write_config,
)
from controller.guests.guest_json import (
    RELOAD_LIMIT_S,
    Bind,
    Command,
    Place,
    enclosure_of,
    guest_config,
    section_changed,
    vrc_command,
)
from controller.guests.nsenter import entering
from controller.guests.shutdown import end_guest
from controller.guests.suites.choice import SUITES
from controller.guests.users import SETPRIV, vrc_uid
from controller.model import GuestKind, RouterConfig
from controller.pki.authority import IDENTITY_FILES

DEFAULT_MEMORY_MIB = 2048
"""What a guest may take where `memory:` is left out: FRR with a million routes of BGP has room."""
MAX_TASKS = 1024
"""Processes and threads of one guest."""
STOP_LIMIT_S = 8.0
LOOK_LIMIT_S = 5.0
LOOK_EVERY_S = 10.0
"""How often daemons are looked at that are all up; else it is done as often as anybody asks."""
_PROGRAMS = (SETPRIV, "/usr/bin/nsenter", "/usr/bin/python3")

_APP_IN_GUEST = "/run/splitplane/app"
_PREFIX_IN_GUEST = "/run/splitplane/python"
IDENTITY = "identity"
"""The only folder in a guest's directory."""


async def check_guest(router: RouterConfig) -> list[str]:
    """Tell before anything is stored whether a guest could start: its suite is there and takes the text.

    Returns what the operator should know, a line each.
    """
    suite = SUITES[router.routing.suite]
    suite.require_programs(router.full_name, router.routing.text)
    await suite.check(router.full_name, router.routing.text)
    return await suite.remarks()


@dataclass(slots=True)
class _Seen:
    """What was last seen of one guest's daemons."""

    at_s: float = -inf
    all_up: bool = False
    trouble: str = ""
    killed: int | None = None  # how many processes were, for want of memory; None: not looked yet
    lacking: list[str] | None = None  # the control groups that it is in none of; None: not looked yet


class NetnsDriver:
    """Runs guests in namespaces of this host; `hidden` are directories of the controller no guest may see."""

    def __init__(
        self, hidden: Sequence[Path] = (), command: Command = vrc_command, policy: limits.Policy = limits.STRICT
    ) -> None:
        self._hidden, self._command, self._policy = tuple(hidden), command, policy
        # By directory; each is there for as long as somebody has it or waits for it.
        self._locks: WeakValueDictionary[Path, asyncio.Lock] = WeakValueDictionary()
        self._reloads = control.Reloads(RELOAD_LIMIT_S[GuestKind.NETNS])
        self._seen: defaultdict[Path, _Seen] = defaultdict(_Seen)  # by directory

    async def start(self, spec: GuestSpec) -> None:
        """Start the guest, or adopt it and apply what changed; see GuestDriver.start."""
        config = self._config(spec)
        async with self._lock(spec):
            running = pidfile.find(spec.directory) != 0
            former = read_config(spec.directory) if running else None
            if section_changed(former, config):
                await SUITES[spec.routing.suite].check(spec.router, spec.routing.text)
            if not running:
                self._take_over(spec)
            self._prepare(spec, config)
            if former is not None and enclosure_of(former) == enclosure_of(config):
                # They may have changed.
                refused = self._limit(spec).missing if not self._lacking(spec) else ()
                if former != config:
                    await self._reload(spec, former, config)
                if "memory" in refused:  # version 1: the kernel found too little to take away
                    raise GuestError(f"{spec.router}: it takes more than memory: of {_memory_mib(spec)}M; restart it")
                return
            if running:
                await self._stop(spec)
                self._take_over(spec)
                self._prepare(spec, config)
            await self._launch(spec, config)

    async def stop(self, spec: GuestSpec) -> None:
        """Stop every process of the guest and wait until they are gone; its directory stays."""
        async with self._lock(spec):
            await self._stop(spec)

    async def delete(self, spec: GuestSpec) -> None:
        """Stop the guest and remove its directory; its namespaces and mounts end with its last process."""
        async with self._lock(spec):
            await self._stop(spec)
            await limits.empty(spec.directory)  # who entered it from outside, as vrctl exec does, may still be there
            limits.remove(spec.directory)
            with contextlib.suppress(FileNotFoundError):
                shutil.rmtree(spec.directory)
        self._seen.pop(spec.directory, None)
        self._reloads.forget(spec.directory)

    async def status(self, spec: GuestSpec) -> GuestStatus:
        """Tell what runs; a guest whose supervisor does not answer shows that as the state of ``supervisor``."""
        return await self._status(spec, handshake.LIMIT_S)

    async def _status(self, spec: GuestSpec, limit_s: float) -> GuestStatus:
        pid = pidfile.find(spec.directory)
        if not pid:
            return GuestStatus(False, 0, {}, 0)
        try:
            reply = await control.ask(spec.directory, spec.router, {"op": "status"}, limit_s)
        except GuestError as error:
            return GuestStatus(bool(pidfile.find(spec.directory)), pid, {"supervisor": f"failed: {error}"}, 0)
        daemons, restarts = control.states_inside(reply)
        if lacking := self._lacking(spec):
            daemons["limits"] = f"without {', '.join(lacking)}"
        return GuestStatus(True, pid, daemons, restarts)

    async def close(self) -> None:
        """Nothing is held of a guest in a namespace."""

    def running(self, spec: GuestSpec) -> int:
        """Return the guest's first process, 0 when it does not run."""
        return pidfile.find(spec.directory)

    async def last_words(self, spec: GuestSpec) -> str:
        """Why a guest ended, where that was for want of memory; else nobody knows but its log."""
        return self._want_of_memory(spec) if spec.directory in self._seen else ""

    async def look_after(self, spec: GuestSpec) -> list[str]:
        """See now and then whether all daemons are up, and whether one was killed for want of memory."""
        if not self.running(spec):
            return []
        seen, now = self._seen[spec.directory], time.monotonic()
        if self._lock(spec).locked() or now - seen.at_s < (LOOK_EVERY_S if seen.all_up else 0.0):
            return []
        daemons = (await self._status(spec, LOOK_LIMIT_S)).daemons
        before, trouble = seen.trouble, failing(spec, daemons)
        daemons.pop("limits", None)
        seen.at_s, seen.all_up, seen.trouble = now, set(daemons.values()) == {"up"}, trouble
        found = [trouble] if trouble and trouble != before else []
        if want := self._want_of_memory(spec):
            found.append(want)
        return found

    def _want_of_memory(self, spec: GuestSpec) -> str:
        """Say how many of its processes were killed for want of memory since this was asked last."""
        seen, killed = self._seen[spec.directory], limits.memory_kills(spec.directory)
        before, seen.killed = seen.killed, killed
        if before is None or killed <= before:
            return ""
        remedy = f"raise memory: under guest: (now {_memory_mib(spec)}M)"
        return f"out of memory, {killed - before} of its processes were killed; {remedy}"

    def trouble(self, spec: GuestSpec) -> str:
        """The daemon that does not run, as last seen."""
        return self._seen.get(spec.directory, _Seen()).trouble

    def session_uid(self, vrf_id: int) -> int:
        """The VRC's, which is the same user in the guest and on the host."""
        return vrc_uid(vrf_id)

    def label(self, spec: GuestSpec) -> str:
        """What the operator is shown as its kind."""
        return "netns"

    def exec_argv(self, spec: GuestSpec, pid: int, argv: list[str]) -> list[str]:
        """Return the command that runs ``argv`` as root inside the guest whose first process is ``pid``, within its
        limits."""
        flags = ["--mount", "--net", "--pid", "--ipc", "--uts"]
        with contextlib.suppress(OSError):  # what nobody needs a privilege to read
            if Path(f"/proc/{pid}/uid_map").read_text() != Path("/proc/self/uid_map").read_text():
                flags.insert(0, "--user")
        inside = entering(pid, flags, _confined(argv) if _has_own_ids(pid) else argv)
        return limits.entering(spec.directory, inside)

    def console_argv(self, spec: GuestSpec) -> list[str]:
        """Refuse: there is no console."""
        remedy = f"try vrctl exec {spec.router} -- bash"
        raise GuestError(f"{spec.router}: a guest in a namespace has no console; {remedy}")

    def log_path(self, spec: GuestSpec) -> Path:
        """The file that the guest's daemons, supervisor and VRC log to."""
        return spec.directory / "guest.log"

    # ── what the guest is started with ──

    def _config(self, spec: GuestSpec) -> dict[str, Any]:
        for program in _PROGRAMS:
            if not Path(program).exists():
                raise GuestError(f"{spec.router}: {program} not found; apt-get install util-linux python3")
        suite = SUITES[spec.routing.suite]
        suite.require_programs(spec.router, spec.routing.text)
        code, python = _python_binds()
        own = spec.directory.absolute()
        place = Place(
            directory=str(own),
            session=str(spec.session.absolute()),
            identity=str(own / IDENTITY),
            code=code,
            hidden=(*map(str, self._hidden), *_homes()),
            app=_APP_IN_GUEST,
            ids=suite.find_ids(spec.router, spec.routing.text),
        )
        return guest_config(spec, place, self._command(spec, python))

    def _take_over(self, spec: GuestSpec) -> None:
        try:
            take_over(spec.directory, (IDENTITY,))
        except OSError as error:
            raise GuestError(f"{spec.router}: {error.filename}: {error.strerror}") from error

    def _prepare(self, spec: GuestSpec, config: dict[str, Any]) -> None:
        vrc, own = config["vrc"]["uid"], spec.directory
        try:
            make_directory(own, 0, 0, 0o700)
            make_directory(own / IDENTITY, vrc, vrc, 0o500)
            identity = {name: (spec.identity / name).read_bytes() for name in IDENTITY_FILES}
            replace_files(own / IDENTITY, identity, vrc, 0o400)
        except OSError as error:
            raise GuestError(f"{spec.router}: {error.filename}: {error.strerror}") from error
        if not spec.session.is_dir():
            raise GuestError(f"{spec.router}: {spec.session} is not a directory")

    def _lock(self, spec: GuestSpec) -> asyncio.Lock:
        return self._locks.setdefault(spec.directory, asyncio.Lock())

    # ── start and stop ──

    def _limit(self, spec: GuestSpec) -> limits.Group:
        wanted = limits.Limits(_memory_mib(spec) << 20, 0, MAX_TASKS, self._policy.disk_bytes_per_s)
        return limits.make(spec.directory, wanted, cpus=self._policy.cpus)

    def _lacking(self, spec: GuestSpec) -> list[str]:
        seen = self._seen[spec.directory]
        if seen.lacking is None:  # it enters them at its start or never
            seen.lacking = limits.lacking(spec.directory, cpus=self._policy.cpus)
        return seen.lacking

    async def _launch(self, spec: GuestSpec, config: dict[str, Any]) -> None:
        group = self._limit(spec)
        limits.require(group, self._policy, spec.router)
        self._seen.pop(spec.directory, None)
        self._want_of_memory(spec)  # what was before is not this one's
        if not note_start(spec.directory, config):
            raise GuestError(f"{spec.router}: another controller is starting the guest; try again")
        root = Path(_package("vrc")).parent
        groups = (word for path in group.procs for word in ("--group", path))
        command = ["vrc.guest.supervisor", "--config", CONFIG, *groups]
        await startup.launch(spec.directory, spec.router, "the guest", root, command)

    async def _reload(self, spec: GuestSpec, former: dict[str, Any], config: dict[str, Any]) -> None:
        note_change(spec.directory, former)
        await self._reloads.reload(spec.directory, spec.router, config)
        write_config(spec.directory, config)

    async def _stop(self, spec: GuestSpec) -> None:
        async def ask(_: int) -> None:  # the kernel kills whatever is left in the guest with its first process
            with contextlib.suppress(GuestError):
                await control.ask(spec.directory, spec.router, {"op": "stop"}, STOP_LIMIT_S)

        await end_guest(spec.directory, spec.router, ask)
        self._seen.pop(spec.directory, None)
        for name in (pidfile.FILE, handshake.SOCKET):
            with contextlib.suppress(FileNotFoundError):
                (spec.directory / name).unlink()


def _memory_mib(spec: GuestSpec) -> int:
    return spec.guest.memory_mib or DEFAULT_MEMORY_MIB


def _package(name: str) -> str:
    found = importlib.util.find_spec(name)
    if not found or not found.submodule_search_locations:
        raise GuestError(f"the Python package {name} is not installed")
    return str(Path(found.submodule_search_locations[0]).absolute())


def _has_own_ids(pid: int) -> bool:
    """Whether a guest's users are not the host's; those of one that an older version started are."""
    try:
        inside, outside, _ = Path(f"/proc/{pid}/uid_map").read_text().split(maxsplit=2)
    except (OSError, ValueError):
        return False
    return inside != outside


def _confined(argv: list[str]) -> list[str]:
    """Return the command that runs another one without what nobody in a guest may do (vrc/guest/privileges.py).

    The program comes with it: the guest may have started long before, with another version's files or none by now.
    """
    program = Path(_package("vrc")) / "guest/privileges.py"
    return ["/usr/bin/python3", "-I", "-S", "-c", program.read_text(), *argv]


def _python_binds() -> tuple[tuple[Bind, ...], str]:
    """Return what the VRC needs to run whatever the permissions above the checkout, and its interpreter's path."""
    binds: list[Bind] = [(_package(name), f"{_APP_IN_GUEST}/{name}") for name in ("vrc", "wire")]
    if sys.prefix == sys.base_prefix:
        return tuple(binds), sys.executable
    return (*binds, (sys.prefix, _PREFIX_IN_GUEST)), f"{_PREFIX_IN_GUEST}/bin/python"


def _homes() -> list[str]:
    """Home directories, except where the interpreter itself lives below one."""
    return [home for home in ("/root", "/home") if not Path(sys.base_prefix).is_relative_to(home)]
