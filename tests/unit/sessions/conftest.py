import os
from collections.abc import AsyncIterator

import pytest
from peers import Frames, Peer
from stores import store_in
from worlds import World, router_config

from controller.pki.authority import PKI
from controller.planes.fake import FakePlane
from controller.sessions import server as sessions
from controller.sessions.server import SessionServer


@pytest.fixture
async def service(make_world, tmp_path, monkeypatch) -> AsyncIterator[tuple[World, SessionServer, PKI]]:
    monkeypatch.setattr(sessions, "REFUSAL_PAUSE_S", 0.01)
    red, blue = router_config(1, (1, 2)), router_config(2, (3,), tenant="blue")
    world = await make_world(red, blue, plane=FakePlane("s1"))
    store = store_in(tmp_path / "state")
    pki = PKI(tmp_path / "state", store)
    server = SessionServer(world.shards, pki, tmp_path / "sessions", world.events)
    await pki.issue([red, blue])
    for config in (red, blue):
        server.admit(config.vrf_id, os.geteuid())
    await server.start()
    yield world, server, pki
    await Frames.close_all()
    await server.close()
    store.close()


@pytest.fixture
async def red(service) -> AsyncIterator[Peer]:
    _, server, pki = service
    peer = Peer(server, pki.identity(1), 1)
    yield peer
    await peer.channel.close()
