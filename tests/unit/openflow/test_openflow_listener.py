"""The listener: who may be a switch, how long that may take, and what a peer can make it do meanwhile."""

import asyncio
import os
import socket
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import pairwise

import pytest
from switch_end import DATAPATH_ID, SwitchEnd, connected

from controller.planes.openflow import channel as channel_module
from controller.planes.openflow import server as server_module
from controller.planes.openflow.channel import Channel, ChannelClosed
from controller.planes.openflow.claims import SETTLED_S, SILENT_OF_ALL, SILENT_OF_ONE, Claim, SilentPeers
from controller.planes.openflow.codec import Type, message
from controller.planes.openflow.peer_user import PeerGone, peer_uid
from controller.planes.openflow.server import OpenFlowListener

HELLO = message(Type.HELLO, 1)


class Plane:
    """Implements what a listener needs of a plane."""

    name, datapath_id, certificate_name = "edge", DATAPATH_ID, None

    def __init__(self) -> None:
        self.channel: Channel | None = None

    async def serve(self, channel: Channel, ended: "asyncio.Task[str]") -> None:
        self.channel = channel
        await ended


class Bed:
    """A listener with one plane, and whoever connects."""

    def __init__(self, echo_interval_s: float) -> None:
        self.plane, self.listener = Plane(), OpenFlowListener(port=0, echo_interval_s=echo_interval_s)
        self.listener.register(self.plane)
        self._ends: list[asyncio.StreamWriter] = []
        self._serving: list[asyncio.Task[None]] = []

    async def peer(self, host: str = "127.0.0.1") -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect from an address and say nothing."""
        pair = await asyncio.open_connection("127.0.0.1", self.listener.port, local_addr=(host, 0))
        self._ends.append(pair[1])
        return pair

    async def switch(self, host: str = "127.0.0.1") -> SwitchEnd:
        """Connect as the plane's switch."""
        switch = SwitchEnd(*await self.peer(host))
        switch.send(HELLO)
        self._serving.append(asyncio.create_task(switch.run()))
        return switch

    def served_from(self, host: str) -> bool:
        channel = self.plane.channel
        return channel is not None and channel.closed is None and channel.peer.startswith(f"{host}:")

    async def close(self) -> None:
        for writer in self._ends:
            writer.close()
        await self.listener.close()
        await asyncio.gather(*self._serving)


@asynccontextmanager
async def bed(echo_interval_s: float = 5.0) -> AsyncIterator[Bed]:
    made = Bed(echo_interval_s)
    await made.listener.start()
    try:
        yield made
    finally:
        await made.close()


async def until(holds: Callable[[], object]) -> None:
    async with asyncio.timeout(30):
        while not holds():  # noqa: ASYNC110
            await asyncio.sleep(0.001)


async def test_connections_are_accepted_one_by_one_with_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "ACCEPT_EVERY_S", 0.02)
    async with bed() as made:
        at_once = [socket.create_connection(("127.0.0.1", made.listener.port)) for _ in range(6)]
        loop, accepted = asyncio.get_running_loop(), [0.0]
        while len(accepted) <= len(at_once):
            await asyncio.sleep(0)
            accepted += [loop.time()] * (len(made.listener._connections) + 1 - len(accepted))
        assert min(after - before for before, after in pairwise(accepted)) > 0.015
        for one in at_once:
            one.close()


async def test_silent_peers_of_one_address_keep_no_switch_of_it_out() -> None:
    async with bed() as made:
        for _ in range(SILENT_OF_ALL):
            await made.peer()
        await made.switch()
        await until(lambda: made.served_from("127.0.0.1"))
        assert made.listener.refused["silent"] >= SILENT_OF_ALL - SILENT_OF_ONE


async def test_a_peer_that_does_not_say_who_it_is_is_closed_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    assert server_module.GREETING_S == 2.0
    monkeypatch.setattr(server_module, "GREETING_S", 0.05)
    async with bed() as made:
        reader, writer = await made.peer()
        writer.write(HELLO)
        async with asyncio.timeout(30):
            while await reader.read(1000):
                pass
        await until(lambda: made.listener.refused.get("greeting") == 1)


async def test_who_keeps_talking_without_saying_who_it_is_is_cut_off() -> None:
    async with bed() as made:
        reader, writer = await made.peer()
        writer.write(HELLO + message(Type.ECHO_REQUEST, 7) * 5000)
        async with asyncio.timeout(1.5):  # before the greeting's own end
            try:
                answers = await reader.read(1 << 20)
                while piece := await reader.read(1 << 20):
                    answers += piece
            except ConnectionResetError:
                pass
        await until(lambda: made.listener.refused.get("greeting") == 1)


@asynccontextmanager
async def deaf_peer(listener: OpenFlowListener, *said: bytes) -> AsyncIterator[None]:
    """Someone who says this and reads nothing."""
    with socket.socket() as peer:
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        peer.setblocking(False)
        loop = asyncio.get_running_loop()
        await loop.sock_connect(peer, ("127.0.0.1", listener.port))
        await loop.sock_sendall(peer, b"".join(said))
        yield


@pytest.mark.parametrize(
    ("said", "reason"),
    [(b"", "greeting"), (message(Type.FEATURES_REPLY, 2, struct.pack("!Q16x", 7)), "unknown_datapath")],
    ids=["silent", "a stranger"],
)
async def test_nothing_is_kept_for_who_reads_nothing_and_is_no_plane_s_switch(
    monkeypatch: pytest.MonkeyPatch, said: bytes, reason: str
) -> None:
    writers: list[asyncio.StreamWriter] = []

    class Noted(Channel):
        def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *limits: float) -> None:
            super().__init__(reader, writer, *limits)
            writers.append(writer)

    monkeypatch.setattr(server_module, "GREETING_S", 0.2)
    monkeypatch.setattr(server_module, "Channel", Noted)
    with socket.create_server(("127.0.0.1", 0)) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)  # as of a link: loopback takes megabytes
        listener = OpenFlowListener(sock=sock, echo_interval_s=1000.0)
        await listener.start()
        async with deaf_peer(listener, HELLO, message(Type.ECHO_REQUEST, 7, bytes(65_000)) * 8, said):
            await until(lambda: listener.refused.get(reason))
            await until(lambda: not writers[0].transport.get_write_buffer_size())
        await listener.close()


async def test_what_a_switch_punts_before_it_is_known_is_dropped_unread() -> None:
    async with connected(identified=False) as (channel, switch):
        switch.send(message(Type.PACKET_IN, 0) * 1000 + HELLO)  # no body: it is malformed
        assert (await channel.greet(5)).datapath_id == DATAPATH_ID


@pytest.mark.parametrize(
    "flood",
    [
        message(Type.PACKET_IN, 0) * 20_000,
        message(Type.PACKET_IN, 0, bytes(60_000)) * 80,
        message(Type.ECHO_REQUEST, 0) * 9,
        message(Type.ERROR, 0, struct.pack("!HH", 1, 1)) * 9,
    ],
    ids=["messages", "octets", "echoes", "errors"],
)
async def test_what_is_read_before_that_is_bounded(flood: bytes) -> None:
    async with connected(identified=False) as (channel, switch):
        switch.silent = True
        switch.send(flood)
        with pytest.raises(ChannelClosed, match="it says too much before it says who it is"):
            await channel.greet(30)


async def test_a_full_buffer_of_echo_requests_leaves_others_their_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channel_module, "_SLICE_S", 0.0)
    async with connected() as (channel, switch):
        turns, over = 0, False

        async def count() -> None:
            nonlocal turns
            while not over:
                turns += 1
                await asyncio.sleep(0)

        counting = asyncio.create_task(count())
        switch.send(message(Type.ECHO_REQUEST, 7) * 8192)
        await switch.until(Type.ECHO_REPLY, 1)
        begun = turns
        await switch.until(Type.ECHO_REPLY, 8192)
        over = True
        await counting
        assert turns >= 8192 // 32 // 2, begun
        assert await channel.answers(30)


async def test_a_switch_gets_its_place_back_from_who_took_it_meanwhile() -> None:
    async with bed() as made:
        first = await made.switch("127.0.0.1")
        await until(lambda: made.served_from("127.0.0.1"))
        first.writer.close()
        await until(lambda: made.plane.channel is not None and made.plane.channel.closed)
        await made.switch("127.0.0.2")
        await until(lambda: made.served_from("127.0.0.2"))
        await made.switch("127.0.0.3")
        await until(lambda: made.listener.refused.get("already_connected") == 1)
        await made.switch("127.0.0.1")
        await until(lambda: made.served_from("127.0.0.1"))
        assert made.listener.refused["displaced"] == 1


async def test_a_plane_that_is_detached_while_its_switch_is_probed_takes_no_newcomer() -> None:
    async with bed() as made:
        first = await made.switch("127.0.0.1")
        await until(lambda: made.served_from("127.0.0.1"))
        first.silent = True
        await made.switch("127.0.0.2")
        await first.until(Type.ECHO_REQUEST)
        made.listener.unregister(made.plane)
        assert made.plane.channel is not None
        made.plane.channel.close("closed by the controller")
        await until(lambda: made.listener.refused or made.served_from("127.0.0.2"))
        assert made.listener.refused == {"unknown_datapath": 1}


async def test_of_two_newcomers_the_second_finds_the_first_in_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "_PROBE_S", 0.1)
    async with bed() as made:
        first = await made.switch("127.0.0.1")
        await until(lambda: made.served_from("127.0.0.1"))
        first.silent = True
        for number, host in enumerate(("127.0.0.2", "127.0.0.3"), 1):
            await made.switch(host)
            await first.until(Type.ECHO_REQUEST, number)
        await until(lambda: made.listener.refused or made.served_from("127.0.0.3"))
        assert made.listener.refused == {"already_connected": 1}
        assert made.served_from("127.0.0.2")


async def test_nothing_is_kept_of_a_connection_whose_end_is_dead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "_PROBE_S", 0.05)
    async with bed(echo_interval_s=0.01) as made:
        first = await made.switch("127.0.0.1")
        await until(lambda: made.served_from("127.0.0.1"))
        first.writer.transport.pause_reading()  # type: ignore[attr-defined]
        assert made.plane.channel is not None
        made.plane.channel.send(bytes(15 << 20))
        await made.switch("127.0.0.2")
        await until(lambda: made.served_from("127.0.0.2"))
        await until(lambda: len(made.listener._connections) == 1)


def test_a_switch_that_moved_is_known_by_its_new_address_after_a_while() -> None:
    claim = Claim("a")
    claim.serve("b", 100.0)
    assert claim.comes_back("a", 100.0 + SETTLED_S - 1)
    assert not claim.comes_back("c", 100.0 + SETTLED_S - 1)
    assert not claim.comes_back("a", 100.0 + SETTLED_S)
    assert claim.known_at == "b"
    assert not claim.comes_back("b", 100.0 + SETTLED_S)


def test_the_address_with_most_makes_way_for_others() -> None:
    peers, ended = SilentPeers(), list[str]()
    early = peers.enter("early", lambda: ended.append("early"))
    for number in range(SILENT_OF_ALL - 1):
        address = f"crowd-{number // SILENT_OF_ONE}"
        peers.enter(address, lambda address=address: ended.append(address))
    assert (len(peers), ended) == (SILENT_OF_ALL, [])
    for _ in range(3):
        peers.enter("late", lambda: ended.append("late"))
    assert len(peers) == SILENT_OF_ALL
    assert sorted(ended) == ["crowd-0", "crowd-1", "crowd-2"]
    peers.leave("early", early)
    peers.leave("early", early)
    assert len(peers) == SILENT_OF_ALL - 1


def test_the_user_of_a_peer_of_this_host_is_told() -> None:
    for host, family in (("127.0.0.1", socket.AF_INET), ("::1", socket.AF_INET6)):
        with socket.create_server((host, 0), family=family) as listener:
            theirs = socket.create_connection(listener.getsockname()[:2])
            ours, _ = listener.accept()
            with ours:
                assert peer_uid(ours) == peer_uid(theirs) == os.geteuid()
                theirs.close()
                assert ours.recv(1) == b""
                with pytest.raises(PeerGone):
                    peer_uid(ours)


class Elsewhere:
    """A connection with another host."""

    def getsockname(self) -> tuple[str, int]:
        return "192.0.2.1", 6653

    def getpeername(self) -> tuple[str, int]:
        return "192.0.2.2", 40000

    def getsockopt(self, level: int, name: int, size: int) -> bytes:
        with socket.socket() as any_one:
            return any_one.getsockopt(level, name, size)


def test_of_another_host_no_user_is_told() -> None:
    assert peer_uid(Elsewhere()) is None
