"""vr-host's end: takes requests of root alone, has the drivers do them, and derives what they need besides.

    request ─► who asks? ─► what may be asked? (messages.py) ─► GuestSpec: paths below our own directories ─► driver

What has taken over the controller can so make, change and end guests, and nothing else: no path, user or program of
the host is taken from a request, but a machine's image, which may not lie where the controller writes.
"""

import asyncio
import contextlib
import logging
import os
import shutil
import socket
import struct
import tempfile
from collections.abc import Mapping, Set
from dataclasses import replace
from pathlib import Path

from pydantic import ValidationError

from controller.errors import GuestError, SplitplaneError
from controller.guests.base import GuestDriver, GuestSpec
from controller.guests.fleet import Check as CheckRouter
from controller.guests.guest_files import replace_files
from controller.guests.host.messages import (
    MAX_LINE_BYTES,
    Ask,
    Check,
    Declared,
    Guest,
    Interface,
    Reply,
    Request,
    Start,
    Status,
    Wanted,
    told,
)
from controller.model import GuestConfig, GuestKind, InterfaceConfig, Quota, RouterConfig, RouteSource, Routing
from controller.pki.authority import IDENTITY_FILES

CONNECTIONS = 4
"""At once; a controller has one."""
REQUESTS = 256
"""Of one connection that are not answered; it is not read from until one is."""

_IDENTITY = "identity-"
"""How the names of directories begin that hold a router's certificate and key while its guest is started."""

_CREDENTIALS = struct.Struct("3i")  # struct ucred of unix(7)
_log = logging.getLogger(__name__)


class HostServer:
    """Serves ``users``, one of whom has this ``group``, at a socket; ``state`` and ``run`` are the controller's."""

    def __init__(
        self,
        path: Path,
        drivers: Mapping[GuestKind, GuestDriver],
        checks: Mapping[GuestKind, CheckRouter],
        state: Path,
        run: Path,
        users: Set[int],
        group: int = -1,
    ) -> None:
        self._path, self._drivers, self._checks = path, drivers, checks
        self._state, self._run, self._users, self._group = state, run, users, group
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.done = 0
        """Requests that were answered."""
        self.refused = 0
        """Connections of other users, or beyond `CONNECTIONS`."""

    async def start(self) -> None:
        """Listen; GuestError where another vr-host does."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as tried:
            try:
                tried.connect(str(self._path))
            except OSError:
                self._path.unlink(missing_ok=True)
            else:
                raise GuestError(f"{self._path}: another vr-host serves here; stop it, or give another --own")
        for left in self._path.parent.glob(f"{_IDENTITY}*"):  # by one that was killed
            shutil.rmtree(left)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        before = os.umask(0o177)
        try:
            listener.bind(str(self._path))
        finally:
            os.umask(before)
        os.chown(self._path, -1, self._group)
        self._path.chmod(0o660)
        self._server = await asyncio.start_unix_server(self._serve, sock=listener, limit=MAX_LINE_BYTES)

    async def close(self) -> None:
        """Stop listening and end what is under way; guests run on."""
        if self._server is not None:
            self._server.close()
        for writer in self._connections:
            writer.transport.abort()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for driver in self._drivers.values():
            await driver.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Read one connection's requests; one that cannot be read ends it."""
        if not self._admits(writer):
            writer.transport.abort()
            return
        self._connections.add(writer)
        room = asyncio.Semaphore(REQUESTS)
        try:
            while line := await reader.readline():
                request = Request.model_validate_json(line)
                await room.acquire()
                task = asyncio.create_task(self._answer(request, writer))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
                task.add_done_callback(lambda _: room.release())
        except ValidationError as problem:
            _log.error("a request that nobody may make ends the connection: %s", told(problem))
        except (OSError, ValueError) as problem:
            _log.error("a connection ends: %s", problem)
        finally:
            self._connections.discard(writer)
            writer.transport.abort()

    def _admits(self, writer: asyncio.StreamWriter) -> bool:
        asking: socket.socket = writer.get_extra_info("socket")
        _, uid, _ = _CREDENTIALS.unpack(asking.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
        if uid in self._users and len(self._connections) < CONNECTIONS:
            return True
        self.refused += 1
        _log.error("refused: a connection of user %d, %d are open", uid, len(self._connections))
        return False

    async def _answer(self, request: Request, writer: asyncio.StreamWriter) -> None:
        try:
            reply = await self._done(request)
        except SplitplaneError as problem:
            reply = Reply(id=request.id, error=str(problem))
        except OSError as problem:
            text = f"{request.ask.guest.router}: {problem.filename}: {problem.strerror}"
            reply = Reply(id=request.id, error=text)
        except Exception as problem:  # noqa: BLE001  # of one guest: all others' requests are on this connection
            name, what = request.ask.guest.router, type(problem).__name__
            _log.exception("%s: %s", name, request.ask.op)
            reply = Reply(id=request.id, error=f"{name}: vr-host: {what}; see its log")
        except BaseException:
            writer.transport.abort()  # whoever waits learns of it
            raise
        self.done += 1
        writer.write(reply.model_dump_json(exclude_defaults=True).encode() + b"\n")
        with contextlib.suppress(OSError):
            await writer.drain()

    async def _done(self, request: Request) -> Reply:
        ask, number = request.ask, request.id
        driver = self._drivers[ask.guest.kind]
        if isinstance(ask, Start):
            await self._start(driver, ask.guest)
            return Reply(id=number)
        if isinstance(ask, Check):
            router = _router(ask.guest, self._image(ask.guest))
            return Reply(id=number, lines=await self._checks[ask.guest.kind](router))
        return await self._asked(driver, ask, number)

    async def _asked(self, driver: GuestDriver, ask: Ask, number: int) -> Reply:
        spec = self._spec(ask.guest)
        match ask.op:
            case "stop":
                await driver.stop(spec)
            case "delete":
                await driver.delete(spec)
            case "status":
                status = await driver.status(spec)
                told = Status(
                    running=status.running, pid=status.pid, daemons=status.daemons, restarts=status.restarts
                )
                return Reply(id=number, status=told)
            case "look_after":
                lines = await driver.look_after(spec)
                return Reply(id=number, lines=lines, text=driver.trouble(spec))
            case "last_words":
                return Reply(id=number, text=await driver.last_words(spec))
        return Reply(id=number)

    async def _start(self, driver: GuestDriver, guest: Wanted) -> None:
        with tempfile.TemporaryDirectory(dir=self._path.parent, prefix=_IDENTITY) as identity:
            known = (guest.identity.cert, guest.identity.key, guest.identity.ca)
            contents = {name: text.encode() for name, text in zip(IDENTITY_FILES, known, strict=True)}
            replace_files(Path(identity), contents, os.geteuid(), 0o600)
            spec = replace(
                self._spec(guest),
                identity=Path(identity),
                source=guest.source,
                routing=Routing(guest.suite, guest.text),
                hold_time_s=guest.hold_time_s,
                guest=GuestConfig(guest.kind, guest.memory_mib, guest.vcpus, self._image(guest)),
                interfaces=tuple(map(_interface, guest.interfaces)),
            )
            await driver.start(spec)

    def _spec(self, guest: Guest) -> GuestSpec:
        """What a driver is told of a guest that is not started: where it is, which is ours alone to say."""
        return GuestSpec(
            vrf_id=guest.vrf_id,
            router=guest.router,
            source=RouteSource.FPM,
            routing=Routing(guest.suite),
            hold_time_s=0,
            directory=self._state / "guests" / str(guest.vrf_id),
            identity=Path(os.devnull),
            session=self._run / "sessions" / str(guest.vrf_id),
            guest=GuestConfig(guest.kind, guest.memory_mib),
        )

    def _image(self, guest: Declared) -> str:
        """Where a machine's image really lies. GuestError where the controller writes, as it could have the machine
        read any file of the host as its disk."""
        if not guest.image:
            return ""
        image = Path(guest.image).resolve()
        for place in (self._state, self._run):
            if image.is_relative_to(place.resolve()):
                raise GuestError(f"{guest.router}: image {guest.image} lies in {place}; have it elsewhere")
        return str(image)


def _interface(one: Interface) -> InterfaceConfig:
    """An interface as a guest knows it: on which port of the plane it is, no guest is told."""
    return InterfaceConfig(
        id=0,
        name=one.name,
        port="",
        vlan=0,
        mac=bytes.fromhex(one.mac),
        mtu=one.mtu,
        addresses=tuple(one.addresses),
        admin_up=one.admin_up,
    )


def _router(guest: Declared, image: str) -> RouterConfig:
    """What a check looks at of a router."""
    tenant, _, name = guest.router.partition("/")
    return RouterConfig(
        vrf_id=guest.vrf_id,
        tenant=tenant,
        name=name,
        plane="",
        quota=Quota(),
        interfaces=(),
        guest=GuestConfig(guest.kind, guest.memory_mib, guest.vcpus, image),
        routing=Routing(guest.suite, guest.text),
    )
