"""The Control stream of a VRC: messages that a router says after Hello, as `ControlSession` reads them.

input: (two octets of length, VrcMessage)…; a message gets the sequence number that it should have.
"""

import asyncio
import logging
import struct
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

from google.protobuf.message import DecodeError

from bench.null_plane import NullPlane
from controller.errors import SessionRefused
from controller.events.log import EventLog
from controller.model import InterfaceConfig, Quota, RouterConfig
from controller.sessions.control_stream import ControlSession
from controller.shard.shards import Shards
from wire import PROTOCOL_VERSION
from wire import splitplane_pb2 as pb

INSTRUMENTED = ("controller.sessions", "controller.shard", "controller.routing", "wire.columns")

_LENGTH = struct.Struct("!H")
_LIMIT_S = 10
INTERFACES = (1, 2)


class _Context:
    async def write(self, message: Any) -> None:
        pass


class World:
    """A router on a plane that confirms everything, and the loop that it lives in."""

    def __init__(self) -> None:
        logging.disable()
        self.loop = asyncio.new_event_loop()
        self.loop.run_until_complete(self._start())

    async def _start(self) -> None:
        self.events = EventLog()
        self.shards = Shards(self.events)
        self._running = asyncio.create_task(self.shards.run())
        await self.shards.add_plane(NullPlane("s", ["p1", "p2"]))
        quota = Quota(ipv4_routes=64, ipv6_routes=64, neighbors=16, nexthops=16, groups=8)
        interfaces = tuple(
            InterfaceConfig(id=n, name=f"eth{n}", port=f"p{n}", vlan=0, mac=bytes((2, 0, 0, 0, 0, n)))
            for n in INTERFACES
        )
        await self.shards.put_router(RouterConfig(1, "t", "r", "s", quota, interfaces))
        self.router = self.shards.routers[1]

    async def session(self, messages: list[bytes]) -> None:
        """Live through one session."""
        session = ControlSession(self.router, _Context(), self.events, self.shards.loop_share)
        try:
            async with asyncio.timeout(_LIMIT_S):
                with suppress(SessionRefused):
                    await session.read(_requests(messages))
        finally:
            self.router.lost(session)


async def _requests(messages: list[bytes]) -> AsyncIterator[bytes]:
    hello = pb.Hello(protocol=PROTOCOL_VERSION, router="t/r", instance="x", source="fpm")
    yield pb.VrcMessage(sequence=1, hello=hello).SerializeToString()
    for sequence, octets in enumerate(messages, 2):
        try:
            message = pb.VrcMessage.FromString(octets)
            message.sequence = sequence
            yield message.SerializeToString()
        except DecodeError:
            yield octets


def _split(octets: bytes) -> list[bytes]:
    found, at = [], 0
    while at + _LENGTH.size <= len(octets):
        (size,) = _LENGTH.unpack_from(octets, at)
        at += _LENGTH.size
        found.append(octets[at : at + size])
        at += size
    return found


_world: list[World] = []


def try_one(octets: bytes) -> None:
    """Live through one session; what is refused is refused by `SessionRefused`, and nothing else is raised."""
    if not _world:
        _world.append(World())
    world = _world[0]
    world.loop.run_until_complete(world.session(_split(octets)))


def _joined(*bodies: dict[str, Any]) -> bytes:
    encoded = [pb.VrcMessage(**body).SerializeToString() for body in bodies]
    return b"".join(_LENGTH.pack(len(one)) + one for one in encoded)


def seeds() -> list[bytes]:
    """What an honest VRC says, and one of each kind of message."""
    gateway = bytes((192, 0, 2, 2))
    states = pb.InterfaceStates(
        states=[pb.InterfaceState(id=1, up=True, addresses=[bytes((192, 0, 2, 1)), b"\xfd" + bytes(15)])]
    )
    neighbors = pb.Neighbors(neighbors=[pb.Neighbor(interface_id=1, address=gateway, mac=b"\2" * 6)])
    one, two = (pb.Member(interface_id=n, gateway=gateway, weight=n) for n in (1, 2))
    sets = pb.NexthopSets(
        sets=[
            pb.NexthopSet(id=1, members=[one]),
            pb.NexthopSet(id=2, members=[one, two]),
            pb.NexthopSet(id=3, kind=pb.NexthopSet.CONNECTED, members=[pb.Member(interface_id=2, weight=1)]),
            pb.NexthopSet(id=4, kind=pb.NexthopSet.BLACKHOLE),
        ]
    )
    four = pb.Routes(family=4, prefixes=b"\x14\0\0\0\x08\x14\1\0\0\x10", sets=struct.pack("<2I", 1, 2))
    six = pb.Routes(family=6, prefixes=b"\xfd" + bytes(15) + b"\x40", sets=struct.pack("<I", 3))
    gone = pb.Routes(family=4, prefixes=b"\x14\1\0\0\x10", sets=bytes(4))
    end = pb.ResyncEnd(daemons_settled=True)
    told = (
        {"interfaces": states},
        {"neighbors": neighbors},
        {"nexthop_sets": sets},
        {"routes": four},
        {"routes": six},
    )
    return [
        _joined(*told, {"resync_end": end}),
        _joined(*told, {"routes": gone}, {"nexthop_sets": pb.NexthopSets(released=[2])}, {"resync_end": end}),
        _joined({"snapshot": pb.Snapshot(id=1, routes=four)}, {"snapshot": pb.Snapshot(id=1, end=True, error="x")}),
        _joined({"notice": pb.Notice(kind="overrun", text="\x1b[2J")}),
    ]
