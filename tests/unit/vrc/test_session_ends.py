"""Sessions that end again and again: the connection of one that has ended is gone when the next one begins."""

import asyncio
import contextlib
import errno
import gc
import itertools
import os
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest
from netlink_bytes import by_gateway, route
from route_tables import UP, changes
from vrc_guest import GuestFrames, make_identities

from controller.sessions import sockets as session_sockets
from controller.sessions.sockets import SessionSockets
from vrc import session
from vrc.errors import KernelRefused
from vrc.interfaces import Interfaces
from vrc.neighbors import Neighbors
from vrc.packets import PacketRelay
from vrc.routes.nexthops import NexthopSets
from vrc.routes.table import RouteTable
from vrc.session import Identity, Session
from vrc.stream import Known, SessionOwner
from wire import splitplane_pb2 as pb
from wire import splitplane_pb2_grpc as pb_grpc
from wire.frames import TICKET_BYTES

SESSIONS = 12


class Controller(pb_grpc.VrcSessionServicer):
    """Ends every session soon after it has begun, each one a message later than the one before."""

    def __init__(self, abort: bool) -> None:
        self.abort = abort
        self.begun = 0
        self.enough = asyncio.Event()

    async def Control(self, requests: AsyncIterator[pb.VrcMessage], context: grpc.aio.ServicerContext) -> None:
        self.begun += 1
        if self.begun == SESSIONS:
            self.enough.set()
        await context.write(pb.ControllerMessage(declaration=pb.Declaration(frame_ticket=bytes(TICKET_BYTES))))
        numbers = itertools.count()
        async for _ in requests:
            if next(numbers) >= self.begun:
                break
        if self.abort:
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, "no")


class Owner(SessionOwner):
    async def declared(self, declaration: pb.Declaration) -> None:
        pass


def connections(path: Path) -> int:
    """How many ends of connections with a socket there are, except the one that listens."""
    return Path("/proc/net/unix").read_text().count(str(path)) - 1


async def chatter(known: Known, one: Session) -> None:
    """Have something to say all the time, so that a write may be under way whenever a session ends."""
    while True:
        known.notices.append(("kind", "text" * 1000))
        known.relay._outbound(1, bytes(1400))
        known.relay.flush()
        one.wake()
        await asyncio.sleep(0.001)


class TwiceDeclared(pb_grpc.VrcSessionServicer):
    """Declares once more as soon as the first resync is over, and remembers what each session says."""

    def __init__(self) -> None:
        self.said: list[list[str]] = []
        self.enough = asyncio.Event()

    async def Control(self, requests: AsyncIterator[pb.VrcMessage], context: grpc.aio.ServicerContext) -> None:
        self.said.append([])
        declaration = pb.ControllerMessage(declaration=pb.Declaration(frame_ticket=bytes(TICKET_BYTES)))
        await context.write(declaration)
        async for message in requests:
            self.said[-1].append(message.WhichOneof("body") or "")
            if message.HasField("resync_end"):
                if len(self.said) > 1:
                    self.enough.set()
                await context.write(declaration)


class FailingOwner(SessionOwner):
    """Cannot do what is declared the second time."""

    def __init__(self, error: Exception) -> None:
        self.error = error
        self.declarations = 0

    async def declared(self, declaration: pb.Declaration) -> None:
        self.declarations += 1
        if self.declarations == 2:
            raise self.error


@contextlib.asynccontextmanager
async def served(
    directory: Path, monkeypatch: pytest.MonkeyPatch, servicer: pb_grpc.VrcSessionServicer, owner: SessionOwner
) -> AsyncIterator[tuple[Path, Session, Known]]:
    """Serve sessions; gives the socket, and a session that is not run yet with what it tells of."""
    for name in ("_FIRST_BACKOFF_S", "_LAST_BACKOFF_S"):
        monkeypatch.setattr(session, name, 0.01)
    monkeypatch.setattr(session_sockets, "LOOK_EVERY_S", 0.0)
    make_identities(directory)
    names = ("server-key.pem", "server-cert.pem", "ca.pem")
    key, cert, ca = (directory.joinpath(name).read_bytes() for name in names)
    server = grpc.aio.server()
    pb_grpc.add_VrcSessionServicer_to_server(servicer, server)
    path = directory / "1/session.sock"
    service = directory / "s"
    credentials = grpc.ssl_server_credentials([(key, cert)], ca, require_client_auth=True)
    server.add_secure_port(f"unix:{service}", credentials)
    await server.start()
    path.parent.mkdir()
    sockets = SessionSockets(directory, service, lambda _, gone: GuestFrames(lambda _: None, gone), lambda _: None)
    sockets.open(1, os.geteuid())
    interfaces, sets = Interfaces({}, declared={}), NexthopSets()
    table = RouteTable(sets, lambda ifindex: UP.get(ifindex, 0))
    known = Known(interfaces, Neighbors(interfaces), sets, table, PacketRelay())
    one = Session(f"unix:{path}", lambda: Identity.read(str(directory)), "red/r1", "fpm", known, owner)
    try:
        yield path, one, known
    finally:
        sockets.close_all()
        await server.stop(None)


@pytest.mark.parametrize("abort", [True, False])
async def test_an_ended_session_keeps_no_connection(tmp_path: Path, monkeypatch, abort: bool) -> None:
    controller = Controller(abort)
    async with served(tmp_path, monkeypatch, controller, Owner()) as (path, one, known):
        gc.disable()  # it would find what was left, sooner or later
        tasks = [asyncio.create_task(work) for work in (one.run(), chatter(known, one))]
        try:
            async with asyncio.timeout(30):
                await controller.enough.wait()
            assert connections(path) <= 2
        finally:
            gc.enable()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


@pytest.mark.parametrize("error", [KernelRefused("dump of links", errno.ENOBUFS), RuntimeError("a bug")])
async def test_a_session_after_one_that_any_error_ended_tells_all_routes(tmp_path, monkeypatch, error) -> None:
    controller = TwiceDeclared()
    async with served(tmp_path, monkeypatch, controller, FailingOwner(error)) as (_, one, known):
        known.table.apply(changes(route("10.0.0.0/8", by_gateway("10.1.0.2", 2))), known.table.open_scope())

        async def supervised() -> None:
            while True:
                with contextlib.suppress(type(error)):
                    await one.run()

        task = asyncio.create_task(supervised())
        try:
            async with asyncio.timeout(30):
                await controller.enough.wait()
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
    first, second = controller.said[:2]
    assert second == first == ["hello", "nexthop_sets", "routes", "resync_end"]
