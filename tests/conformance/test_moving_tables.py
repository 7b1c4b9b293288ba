"""Random tables whose routes move between hardware and software: every packet does what the plain model does.

Packets come between any two writes of either plane, and the writes of one stage come one by one in any order, as
P4Runtime allows. While routes only move there is one right result; while they change, the old one is right as well.
"""

import asyncio
import struct
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from copy import copy
from dataclasses import dataclass, replace
from ipaddress import ip_address, ip_network
from random import Random

import pytest
from case import FAST, arrives
from differences import compare
from entries import installed, route_columns
from frames import ipv4, udp
from paired import PairedPlane
from planes_wired import PAIRS
from random_tables import Trial, random_arrival, random_prefix, random_table

from controller.diagnostics.verify import together
from controller.model import Placement, Quota
from controller.planes.base import (
    FALLBACK,
    LOCAL,
    Installed,
    Nexthop,
    Op,
    Policer,
    Refused,
    RouteKind,
    RouterInterface,
    RouteUpdates,
    Update,
    WriteBatch,
    route_action,
)
from controller.routing.ranges import flatten
from wire.columns import prefix_key

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.kinds(*PAIRS)]

TABLES, STEPS, PACKETS = 10, 12, 4
PREFIXES = 16
MOVES = 40
MAC = bytes.fromhex("0200000000aa")
AT_ONCE = 3
"""A stage comes in so many writes at most."""


@dataclass
class Moving:
    """A pair with a random table, and the random packets that it is held to."""

    wired: PairedPlane
    draw: Random
    entries: Installed
    before: Installed | None = None  # what is right as well, while the entries change
    packets: int = 0

    async def see(self) -> None:
        """Let a packet come in."""
        port, frame = random_arrival(self.draw, self.entries)
        found = await compare(self.wired, Trial(self.entries, port, frame), self.before)
        assert found is None, f"packet {self.packets}: {found}"
        self.packets += 1

    @asynccontextmanager
    async def between_writes(self) -> AsyncIterator[None]:
        """Have a packet come after each write of either plane."""
        pair = self.wired.pair
        writes = [(plane, plane.write) for plane in (pair.hardware, pair.software)]
        for plane, write in writes:
            plane.write = self._slowly(write)  # type: ignore[method-assign]
        try:
            yield
        finally:
            for plane, write in writes:
                plane.write = write  # type: ignore[method-assign]

    def _slowly(self, write: Callable[[WriteBatch], Awaitable[list[Refused]]]) -> object:
        async def slowly(batch: WriteBatch) -> list[Refused]:
            rest = replace(batch, routes=[])
            refused = list(await write(rest)) if rest else []
            for columns in batch.routes:
                for part in parts(self.draw, columns):
                    refused += await write(WriteBatch(routes=[part]))
                    await self.see()
            return refused

        return slowly

    async def move(self) -> None:
        """Move routers to any place, or give them room for any number of entries."""
        routes = self.wired.pair.routes
        if self.draw.random() < 0.5:
            room = self.draw.choice((None, 2, 3, 5, 8, 12))
            for vrf_id in self.entries.routes:
                routes.tables.share(vrf_id, "slice", Quota(hardware_ipv4_routes=room, hardware_ipv6_routes=room))
        for vrf_id in self.entries.routes:
            if self.draw.random() < 0.7:
                routes.place(vrf_id, self.draw.choice(list(Placement)))
        async with self.between_writes():
            await self.wired.move()

    async def change(self) -> None:
        """Change some routes, a nexthop and a group."""
        batch, self.before = WriteBatch(), self.entries
        self.entries = copy(self.entries)
        self.entries.routes = {vrf_id: dict(held) for vrf_id, held in self.entries.routes.items()}
        for vrf_id, held in self.entries.routes.items():
            batch.routes += self._change_routes(vrf_id, held)
        if self.draw.random() < 0.5:
            self._change_nexthop(batch)
        async with self.between_writes():
            assert await self.wired.pair.write(batch) == []
            await self.wired.move()
        self.before = None

    def _change_routes(self, vrf_id: int, held: dict[bytes, int]) -> list[RouteUpdates]:
        actions = [action for action in held.values() if action != FALLBACK] or [LOCAL]
        updates: list[RouteUpdates] = []
        for _ in range(self.draw.randint(0, 3)):
            family = self.draw.choice((4, 6))
            same = [key for key in held if len(key) == (5 if family == 4 else 17)]
            key = self.draw.choice(same) if same and self.draw.random() < 0.6 else None
            if key is not None and self.draw.random() < 0.5:
                del held[key]
                updates += route_columns(vrf_id, {key: 0}, Op.DELETE)
                continue
            key = prefix_key(random_prefix(self.draw, family)) if key is None else key
            updates += route_columns(
                vrf_id, {key: self.draw.choice(actions)}, Op.MODIFY if key in held else Op.INSERT
            )
            held[key] = updates[-1].actions[0]
        return updates

    def _change_nexthop(self, batch: WriteBatch) -> None:
        chosen = self.draw.choice(list(self.entries.nexthops.values()))
        if any(chosen.mac):
            changed = replace(chosen, mac=bytes((2, 0, 0, 2, 0, self.draw.randrange(256))))
            self.entries.nexthops = self.entries.nexthops | {chosen.id: changed}
            batch.nexthops.append(Update(Op.MODIFY, changed))

    async def equal(self) -> None:
        """What is read back of both forwards as the entries say, over the whole address space."""
        read = await self.wired.pair.read()
        assert read.hardware is not None
        assert not read.damaged
        for vrf_id, held in self.entries.routes.items():
            routes: dict[bytes, int] = {}
            deque(together(read.hardware.routes.get(vrf_id, {}), read.routes.get(vrf_id, {}), routes), 0)
            for family in (4, 6):
                assert flatten(routes, family) == flatten(held, family)


def parts(draw: Random, columns: RouteUpdates) -> list[RouteUpdates]:
    """Cut the updates of a stage into a few, in any order."""
    rows = list(zip(columns.ops, columns.keys, columns.actions, strict=True))
    draw.shuffle(rows)
    size = max(1, -(-len(rows) // draw.randint(1, AT_ONCE)))
    return [
        RouteUpdates(columns.vrf_id, columns.family, *map(list, zip(*rows[at : at + size], strict=True)))
        for at in range(0, len(rows), size)
    ]


@pytest.mark.parametrize("seed", range(TABLES))
async def test_every_packet_goes_as_the_routes_say(wired: PairedPlane, seed: int) -> None:
    draw = Random(seed)
    entries = wired.given(random_table(draw, PREFIXES))
    await wired.program(entries)
    moving = Moving(wired, draw, entries)
    wired.crowded = True
    try:
        for _ in range(STEPS):
            await draw.choice((moving.move, moving.move, moving.change))()
            for _ in range(PACKETS):
                await moving.see()
        await moving.equal()
    finally:
        wired.programmed, wired.crowded = None, False
        for vrf_id in entries.routes:
            wired.pair.routes.tables.share(vrf_id, "slice", Quota())
    assert moving.packets > STEPS * PACKETS


EGRESS = [RouterInterface(number, 1, number, 0, MAC, 1500) for number in (2, 3, 4)]
INGRESS = RouterInterface(1, 1, 1, 0, MAC, 1500)
WAYS = [Nexthop(10 + each.id, each.id, bytes((2, 0, 0, 0, 1, each.id))) for each in EGRESS]
NESTED = {
    f"10.{number}.0.0/{length}": WAYS[(number + length) % 3] for number in (0, 64) for length in (8, 10, 16, 24)
}
NESTED |= {f"10.64.{number}.0/24": WAYS[number % 3] for number in range(1, 40)}


async def test_no_packet_is_lost_or_goes_another_way_while_routes_move(wired: PairedPlane) -> None:
    """They move while packets are under way, not only between them."""
    prefixes = {ip_network(text, strict=False): way for text, way in NESTED.items()}
    routes = {str(prefix): route_action(RouteKind.NEXTHOP, way.id) for prefix, way in prefixes.items()}
    wired.programmed = None
    await wired.program(installed([Policer(1, FAST), INGRESS, *EGRESS, *WAYS], {1: routes}))
    wired.programmed = None
    draw = Random(1)
    moved = asyncio.create_task(_move_about(wired, draw))
    sent = 0
    while not moved.done() or not sent:
        frames, wanted = [], []
        for number in range(sent, sent + 64):
            target = f"10.{draw.choice((0, 64, 200))}.{draw.randrange(45)}.{draw.randrange(256)}"
            longest = max((each for each in prefixes if ip_address(target) in each), key=lambda each: each.prefixlen)
            packet = ipv4(target, ttl=64, payload=udp(payload=struct.pack("!I", number)))
            frames.append(arrives(INGRESS, packet).frame)
            wanted.append((prefixes[longest].router_interface_id, prefixes[longest].mac, number, 63))
        outputs = await wired.stream(1, frames)
        assert sorted(_way(*each) for each in outputs) == sorted(wanted)
        sent += len(frames)
    await moved
    seen = await wired.observe(1)
    assert (seen.outputs, seen.punts, dict(seen.dropped)) == ([], [], {})


def _way(port: int, frame: bytes) -> tuple[int, bytes, int, int]:
    """Return where a frame came out, for whom, its number and its TTL."""
    return port, frame[:6], struct.unpack("!I", frame[-4:])[0], frame[22]


async def _move_about(wired: PairedPlane, draw: Random) -> None:
    routes = wired.pair.routes
    for _ in range(MOVES):
        routes.tables.share(1, "slice", Quota(hardware_ipv4_routes=draw.choice((None, 2, 5, 12, 30))))
        routes.place(1, draw.choice(list(Placement)))
        await wired.move()
    routes.tables.share(1, "slice", Quota())
