"""A message that takes long is applied in parts, and acknowledged after the last."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from worlds import World, gateway, mac, router_config

from controller.errors import SessionRefused
from controller.model import Quota
from controller.routing.rib import SetKind
from controller.sessions import control_stream
from controller.sessions.control_stream import ControlSession
from controller.shard import router as routers
from controller.shard.loop_share import LoopAccount, LoopShare
from wire import PROTOCOL_VERSION
from wire import splitplane_pb2 as pb

COUNT = 100


class Context:
    """Takes what the controller says."""

    async def write(self, message: Any) -> None: ...


def sets() -> pb.VrcMessage:
    members = [pb.Member(interface_id=1, gateway=gateway(n), weight=1) for n in range(10)]
    told = [pb.NexthopSet(id=n, kind=SetKind.CONNECTED, members=members[n % 9 :]) for n in range(1, COUNT + 1)]
    return pb.VrcMessage(sequence=2, nexthop_sets=pb.NexthopSets(sets=told))


def neighbors(last: int = 2) -> pb.VrcMessage:
    told = [pb.Neighbor(interface_id=1, address=bytes((10, 0, 1, n)), mac=mac(n)) for n in range(2, COUNT + 2)]
    told.append(pb.Neighbor(interface_id=1, address=bytes((10, 0, 1, last)), mac=mac(7), failed=False))
    return pb.VrcMessage(sequence=2, neighbors=pb.Neighbors(neighbors=told))


@pytest.mark.parametrize(("message", "parts"), [(sets(), 10), (neighbors(), 10)])
async def test_a_long_message_is_applied_in_parts(
    make_world: Callable[..., Awaitable[World]],
    monkeypatch: pytest.MonkeyPatch,
    message: pb.VrcMessage,
    parts: int,
) -> None:
    monkeypatch.setattr(control_stream, "SETS_COST", COUNT, raising=False)
    monkeypatch.setattr(routers, "NEIGHBORS_AT_ONCE", COUNT // 10, raising=False)
    slices, marks = [], []
    monkeypatch.setattr(LoopShare, "charge", lambda _share, _account, _took_s, what: slices.append(what))
    world = await make_world(router_config(1, quota=Quota()))
    processed = world.router().processed
    monkeypatch.setattr(
        world.router(), "processed", lambda sequence: (marks.append((sequence, len(slices))), processed(sequence))
    )
    await say(world, message)
    assert slices.count(f"a message of {len(message.SerializeToString())} octets") >= parts
    assert [sequence for sequence, _ in marks] == [1, 2]
    assert marks[1][1] - marks[0][1] >= parts - 1  # it is acknowledged after the last part


async def test_of_neighbors_told_in_parts_the_last_counts_and_a_malformed_one_undoes_all(
    make_world: Callable[..., Awaitable[World]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(routers, "NEIGHBORS_AT_ONCE", COUNT // 10)
    world = await make_world(router_config(1, quota=Quota()))
    await say(world, neighbors())
    known = world.router().fib.neighbors
    assert len(known) == COUNT
    assert known[1, bytes((10, 0, 1, 2))].mac == mac(7)
    malformed = neighbors()
    malformed.neighbors.neighbors[-1].mac = b"\x01"
    malformed.neighbors.neighbors[0].mac = mac(9)
    with pytest.raises(SessionRefused, match="malformed"):
        await say(world, malformed)
    assert known[1, bytes((10, 0, 1, 2))].mac == mac(7)


@pytest.mark.parametrize(
    ("message", "closed_at"), [(sets(), 1), (sets(), 4), (neighbors(), 1), (neighbors(), 4), (neighbors(), 14)]
)
async def test_nothing_more_of_a_message_is_applied_once_its_session_was_closed(
    make_world: Callable[..., Awaitable[World]],
    monkeypatch: pytest.MonkeyPatch,
    message: pb.VrcMessage,
    closed_at: int,
) -> None:
    monkeypatch.setattr(control_stream, "SETS_COST", COUNT)
    monkeypatch.setattr(routers, "NEIGHBORS_AT_ONCE", COUNT // 10)
    world = await make_world(router_config(1, quota=Quota()))
    router, real = world.router(), LoopShare.turn
    heard: list[int] = []  # of the message, at each of its turns
    processed: list[int] = []

    def count() -> int:
        return len(router.fib.named_sets) + len(router.fib.neighbors)

    async def turn(share: LoopShare, account: LoopAccount) -> None:
        if router.vrc is not None and account is share.account(router.config):
            heard.append(count())
            if len(heard) == closed_at:
                router.vrc.close("the router was deleted")
        await real(share, account)

    monkeypatch.setattr(LoopShare, "turn", turn)
    monkeypatch.setattr(router, "processed", processed.append)
    await say(world, message)
    assert len(heard) == closed_at
    assert count() == heard[-1]
    assert processed == [1]


@pytest.mark.parametrize("parts", [5, 15])  # while they are read, and while they are taken in
async def test_neighbors_on_an_interface_that_goes_between_two_parts_take_no_room(
    make_world: Callable[..., Awaitable[World]], monkeypatch: pytest.MonkeyPatch, parts: int
) -> None:
    monkeypatch.setattr(routers, "NEIGHBORS_AT_ONCE", COUNT // 10)
    world = await make_world(router_config(1, quota=Quota()))
    router = world.router()
    told = ((1, bytes((10, 0, 1, n)), mac(n), False) for n in range(2, COUNT + 2))
    applied = router.neighbors(told)
    for _ in range(parts):
        next(applied)
    router.configure(router_config(1, interfaces=(2, 3), quota=Quota()))
    list(applied)
    assert not router.fib.neighbors


async def say(world: World, message: pb.VrcMessage) -> None:
    router = world.router()
    hello = pb.Hello(protocol=PROTOCOL_VERSION, router=router.config.full_name, instance="x", source="fpm")

    async def requests() -> AsyncIterator[bytes]:
        for one in (pb.VrcMessage(sequence=1, hello=hello), message):
            await asyncio.sleep(0)
            yield one.SerializeToString()

    await ControlSession(router, Context(), world.events, world.shards.loop_share).read(requests())
