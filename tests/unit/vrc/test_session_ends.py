"""Sessions that end again and again: the connection of one that has ended is gone when the next one begins."""

import asyncio
import gc
import itertools
import os
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest
from vrc_guest import GuestFrames, make_identities

from controller.sessions import sockets as session_sockets
from controller.sessions.sockets import SessionSockets
from vrc import session
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


@pytest.mark.parametrize("abort", [True, False])
async def test_an_ended_session_keeps_no_connection(tmp_path: Path, monkeypatch, abort: bool) -> None:
    for name in ("_FIRST_BACKOFF_S", "_LAST_BACKOFF_S"):
        monkeypatch.setattr(session, name, 0.01)
    monkeypatch.setattr(session_sockets, "LOOK_EVERY_S", 0.0)
    make_identities(tmp_path)
    key, cert, ca = (tmp_path.joinpath(name).read_bytes() for name in ("server-key.pem", "server-cert.pem", "ca.pem"))
    server, controller = grpc.aio.server(), Controller(abort)
    pb_grpc.add_VrcSessionServicer_to_server(controller, server)
    path = tmp_path / "1/session.sock"
    service = tmp_path / "s"
    credentials = grpc.ssl_server_credentials([(key, cert)], ca, require_client_auth=True)
    server.add_secure_port(f"unix:{service}", credentials)
    await server.start()
    path.parent.mkdir()
    sockets = SessionSockets(tmp_path, service, lambda _, gone: GuestFrames(lambda _: None, gone), lambda _: None)
    sockets.open(1, os.geteuid())
    interfaces, sets = Interfaces({}, declared={}), NexthopSets()
    known = Known(interfaces, Neighbors(interfaces), sets, RouteTable(sets, interfaces.usable), PacketRelay())
    one = Session(f"unix:{path}", lambda: Identity.read(str(tmp_path)), "red/r1", "fpm", known, Owner())
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
        sockets.close_all()
        await server.stop(None)
