"""The driver of a controller that has vr-host make its guests: what needs privileges is asked for, the rest is read.

Whether a guest runs, its log, and how a command gets into it are files that this process may read and no more.
"""

import asyncio
import contextlib
import itertools
import time
from collections.abc import Iterator, Mapping
from math import inf
from pathlib import Path

from pydantic import ValidationError

from controller.errors import GuestError
from controller.guests import handshake
from controller.guests.base import GuestDriver, GuestSpec, GuestStatus
from controller.guests.guest_files import short_path
from controller.guests.guest_json import RELOAD_LIMIT_S
from controller.guests.host.messages import (
    MAX_LINE_BYTES,
    Ask,
    Check,
    Declared,
    Guest,
    Identity,
    Interface,
    Reply,
    Request,
    Start,
    Wanted,
    told,
)
from controller.guests.host.options import Drivers
from controller.guests.suites.config_text import CHECK_LIMIT_S
from controller.model import GuestKind, RouterConfig
from controller.pki.authority import IDENTITY_FILES

LIMIT_S = CHECK_LIMIT_S + handshake.LIMIT_S + max(RELOAD_LIMIT_S.values()) + 20.0
"""How long an answer may take: a guest's text is checked, a machine is given its certificate, and then it takes the
text."""

LOOK_OFTEN_S = 60.0
"""So long after its start a guest is looked at as often as anybody asks, afterwards every `LOOK_EVERY_S`."""
LOOK_EVERY_S = 10.0


class VrHost:
    """The connection to vr-host: made when it is needed, and again when it was lost."""

    def __init__(self, socket: Path) -> None:
        self._socket = socket
        self._numbers = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[Reply]] = {}
        self._writer: asyncio.StreamWriter | None = None
        self._reading: asyncio.Task[None] | None = None
        self._connecting = asyncio.Lock()

    async def ask(self, ask: Start | Check | Ask) -> Reply:
        """Return the reply; GuestError where it is an error, or where there is none in `LIMIT_S`."""
        number, router = next(self._numbers), ask.guest.router
        answer: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._waiting[number] = answer
        try:
            async with asyncio.timeout(LIMIT_S):
                writer = await self._connected()
                writer.write(Request(id=number, ask=ask).model_dump_json().encode() + b"\n")
                await writer.drain()
                reply = await answer
        except TimeoutError:
            raise GuestError(f"{router}: vr-host did not answer {ask.op} in {LIMIT_S:g} s; see its log") from None
        except OSError as problem:
            remedy = "systemctl status vr-host"
            raise GuestError(f"{router}: vr-host: {self._socket}: {problem.strerror or problem}; {remedy}") from None
        finally:
            del self._waiting[number]
            if answer.done() and not answer.cancelled():
                answer.exception()  # it may have been told while the request was written
        if reply.error:
            raise GuestError(reply.error)
        return reply

    async def close(self) -> None:
        """Let go of it; guests run on."""
        if self._reading is not None:
            self._reading.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._reading

    async def _connected(self) -> asyncio.StreamWriter:
        async with self._connecting:
            if self._writer is None:
                with short_path(self._socket.parent, self._socket.name) as path:
                    reader, self._writer = await asyncio.open_unix_connection(path, limit=MAX_LINE_BYTES)
                self._reading = asyncio.create_task(self._read(reader, self._writer))
            return self._writer

    async def _read(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        why = "it broke off"
        try:
            while line := await reader.readline():
                reply = Reply.model_validate_json(line)
                if (answer := self._waiting.get(reply.id)) is not None and not answer.done():
                    answer.set_result(reply)
        except (OSError, ValueError) as problem:
            why = str(problem)
        finally:
            self._writer = None
            writer.transport.abort()
            for answer in self._waiting.values():
                if not answer.done():
                    answer.set_exception(ConnectionError(why))


class HostDriver:
    """Implements `GuestDriver` for guests that vr-host runs; ``local`` is its own driver of their kind."""

    def __init__(self, host: VrHost, local: GuestDriver) -> None:
        self._host, self._local = host, local
        self._trouble: dict[Path, str] = {}
        self._looked_s: dict[Path, float] = {}
        self._started_s: dict[Path, float] = {}

    async def check(self, router: RouterConfig) -> list[str]:
        """Tell before anything is stored whether a guest could start; GuestError says why not. Returns remarks."""
        guest, routing = router.guest, router.routing
        with _taken(router.full_name):
            declared = Declared(
                vrf_id=router.vrf_id,
                router=router.full_name,
                suite=routing.suite,
                kind=guest.kind,
                memory_mib=guest.memory_mib,
                text=routing.text,
                vcpus=guest.vcpus,
                image=guest.image,
            )
        return (await self._host.ask(Check(guest=declared))).lines

    async def start(self, spec: GuestSpec) -> None:
        """Start the guest, or adopt it and apply what changed; see GuestDriver.start."""
        try:
            cert, key, ca = ((spec.identity / name).read_text() for name in IDENTITY_FILES)
        except OSError as error:
            raise GuestError(f"{spec.router}: {error.filename}: {error.strerror}") from error
        before = self.running(spec)
        await self._host.ask(Start(guest=_wanted(spec, Identity(cert=cert, key=key, ca=ca))))
        if self.running(spec) != before:
            self._forget(spec)
            self._started_s[spec.directory] = time.monotonic()

    async def stop(self, spec: GuestSpec) -> None:
        """Stop every process of the guest and wait until they are gone; its directory stays."""
        await self._host.ask(Ask(op="stop", guest=_named(spec)))

    async def delete(self, spec: GuestSpec) -> None:
        """Stop, and remove everything it left."""
        await self._host.ask(Ask(op="delete", guest=_named(spec)))
        self._forget(spec)

    async def status(self, spec: GuestSpec) -> GuestStatus:
        """Tell what runs."""
        status = (await self._host.ask(Ask(op="status", guest=_named(spec)))).status
        if status is None:
            raise GuestError(f"{spec.router}: vr-host has no status of it; is it of this version?")
        return GuestStatus(status.running, status.pid, status.daemons, status.restarts)

    async def close(self) -> None:
        """Let go of all guests; they run on."""
        await self._host.close()

    def running(self, spec: GuestSpec) -> int:
        """Return the guest's first process, 0 when it does not run."""
        return self._local.running(spec)

    async def last_words(self, spec: GuestSpec) -> str:
        """Why a guest that runs no more ended; empty where vr-host does not know or is away."""
        try:
            return (await self._host.ask(Ask(op="last_words", guest=_named(spec)))).text
        except GuestError:
            return ""

    async def look_after(self, spec: GuestSpec) -> list[str]:
        """Have done what a running guest needs from time to time; returns lines that the operator may read."""
        at, now = spec.directory, time.monotonic()
        young = now - self._started_s.get(at, -inf) < LOOK_OFTEN_S
        often = young or bool(self._trouble.get(at))
        if now - self._looked_s.get(at, -inf) < (0.0 if often else LOOK_EVERY_S):
            return []
        self._looked_s[at] = now
        try:
            reply = await self._host.ask(Ask(op="look_after", guest=_named(spec)))
        except GuestError as problem:
            before, self._trouble[at] = self._trouble.get(at), str(problem).removeprefix(f"{spec.router}: ")
            return [] if before == self._trouble[at] else [self._trouble[at]]
        self._trouble[at] = reply.text
        return reply.lines

    def trouble(self, spec: GuestSpec) -> str:
        """What ails a running guest, as last seen by `look_after`."""
        return self._trouble.get(spec.directory, "")

    def session_uid(self, vrf_id: int) -> int:
        """The user of the host that connects to a router's session socket."""
        return self._local.session_uid(vrf_id)

    def label(self, spec: GuestSpec) -> str:
        """What the operator is shown as the guest's kind."""
        return self._local.label(spec)

    def exec_argv(self, spec: GuestSpec, pid: int, argv: list[str]) -> list[str]:
        """Return the command that runs ``argv`` inside the guest whose first process is ``pid``."""
        return self._local.exec_argv(spec, pid, argv)

    def console_argv(self, spec: GuestSpec) -> list[str]:
        """Return the command that connects a terminal with the guest's console; GuestError where it has none."""
        return self._local.console_argv(spec)

    def log_path(self, spec: GuestSpec) -> Path:
        """The file with what the guest says."""
        return self._local.log_path(spec)

    def _forget(self, spec: GuestSpec) -> None:
        for known in (self._trouble, self._looked_s, self._started_s):
            known.pop(spec.directory, None)


def _named(spec: GuestSpec) -> Guest:
    return Guest(
        vrf_id=spec.vrf_id,
        router=spec.router,
        suite=spec.routing.suite,
        kind=spec.guest.kind,
        memory_mib=spec.guest.memory_mib,
    )


def _wanted(spec: GuestSpec, identity: Identity) -> Wanted:
    """What vr-host is told of a guest to start; GuestError where that is more than it takes."""
    with _taken(spec.router):
        return Wanted(
            **_named(spec).model_dump(),
            text=spec.routing.text,
            vcpus=spec.guest.vcpus,
            image=spec.guest.image,
            source=spec.source,
            hold_time_s=spec.hold_time_s,
            interfaces=[
                Interface(
                    name=one.name,
                    mac=one.mac.hex(),
                    mtu=one.mtu,
                    addresses=list(one.addresses),
                    admin_up=one.admin_up,
                )
                for one in spec.interfaces
            ],
            identity=identity,
        )


@contextlib.contextmanager
def _taken(router: str) -> Iterator[None]:
    """Turn what vr-host would not take of a guest into a GuestError."""
    try:
        yield
    except ValidationError as problem:
        raise GuestError(f"{router}: vr-host takes no such guest: {told(problem)}") from None


def asked_of(host: VrHost, local: Mapping[GuestKind, GuestDriver]) -> Drivers:
    """Return drivers that have vr-host do what those of this process cannot."""
    made = {kind: HostDriver(host, driver) for kind, driver in local.items()}
    return Drivers(made, {kind: driver.check for kind, driver in made.items()})
