"""Random changes under a pair of planes: after every single write packets go as the routes say, or just said."""

import ipaddress
import random

import pytest
from pairs import LINK, PairWorld, back, learned, made, packet, quiet, verified

from controller.fallback import staged_writes
from controller.planes.base import UNREACHABLE, Refused, RouteUpdates, WriteBatch

NESTED = sorted(
    {
        str(ipaddress.ip_network(f"20.{second}.0.0/{length}", strict=False))
        for second in (0, 16, 32, 128)
        for length in (8, 9, 10, 12, 16)
    }
)
ADDRESSES = [f"20.{second}.9.9" for second in (0, 1, 17, 33, 64, 129, 200)]


def ports_by(table: dict[str, int]) -> dict[str, int | None]:
    """By which port a packet to each address leaves: that of the longest match, None without one."""
    networks = [(ipaddress.ip_network(text), port) for text, port in table.items()]

    def port_of(address: ipaddress.IPv4Address) -> int | None:
        return max(((one.prefixlen, port) for one, port in networks if address in one), default=(0, None))[1]

    return {text: port_of(ipaddress.IPv4Address(text)) for text in ADDRESSES}


class Watched:
    """Sends packets between all writes to the hardware, and tells whether each went as it may.

    What the hardware routes itself goes as routes say or said before the latest change; what takes the link may go as
    they said since the latest moment at which both planes were `certain`.
    """

    def __init__(self, world: PairWorld, rng: random.Random, table: dict[str, int]) -> None:
        self.world, self.rng, self.table = world, rng, table
        self.truths = [ports_by(table)]
        self._write, self._transmit, self._linked = world.hardware.write, world.hardware.cables, False
        world.hardware.write, world.hardware.cables = self.write, self.transmit

    def transmit(self, port: int, frame: bytes) -> None:
        self._linked = self._linked or port == LINK
        self._transmit(port, frame)

    def change(self, name: str, wanted: int) -> None:
        """Have the router learn a route by another nexthop set, or by none."""
        self.table = {one: port for one, port in self.table.items() if one != name} | (
            {name: wanted} if wanted else {}
        )
        self.truths.append(ports_by(self.table))
        self.world.learn({name: wanted})

    def certain(self) -> None:
        """Let packets go no way any more but what routes say now."""
        del self.truths[:-1]

    def check(self) -> None:
        for address in ADDRESSES:
            self.world.sent.clear()
            self._linked = False
            self.world.hardware.inject(1, packet(address))
            (found,) = [port for port, _ in self.world.sent] or [None]
            may = self.truths if self._linked else self.truths[-2:]
            assert found in {ports[address] for ports in may}, (address, self._linked, may)

    async def write(self, batch: WriteBatch) -> list[Refused]:
        """Write the routes of a batch one by one, in any order, as P4Runtime allows."""
        routes, batch.routes = batch.routes, []
        refused = await self._write(batch)
        self.check()
        for columns in routes:
            one_by_one = list(zip(columns.ops, columns.keys, columns.actions, strict=True))
            self.rng.shuffle(one_by_one)
            for op, key, action in one_by_one:
                one = RouteUpdates(columns.vrf_id, columns.family, [op], [key], [action])
                refused += await self._write(WriteBatch(routes=[one]))
                self.check()
        return refused


async def watched(room: int, rng: random.Random) -> Watched:
    world = await made(room=room)
    await learned(world, {"20.0.0.0/8": 1})
    return Watched(world, rng, {"20.0.0.0/8": 1})


@pytest.mark.parametrize("seed", range(4))
async def test_packets_go_as_the_routes_say(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staged_writes, "PLANNED_AT_ONCE", seed % 2 * 998 + 2)
    rng = random.Random(seed)
    packets = await watched(12, rng)
    world = packets.world
    for _ in range(60):
        packets.change(rng.choice(NESTED), rng.choice([0, 1, 2]))
        await world.settle()
        if rng.random() < 0.5:
            world.clock.now += 1
            await world.pair.work()
        packets.certain()
        packets.check()
    assert world.router().state == ("up", "")
    assert (await verified(world)).equal


@pytest.mark.parametrize(("seed", "room"), [(0, 0), (1, 12)])
async def test_while_the_software_is_away_the_hardware_is_right_or_falls_back(seed: int, room: int) -> None:
    rng = random.Random(seed)
    packets = await watched(room, rng)
    world = packets.world
    away = 0
    for _ in range(50):
        if rng.random() < 0.1:
            if world.software.connected:
                world.software.disconnect()
            else:
                await back(world)
                packets.certain()
        away += not world.software.connected
        packets.change(rng.choice(NESTED), rng.choice([0, 0, 0, 1, 2]))
        await quiet(world)
        if rng.random() < 0.5:
            world.clock.now += 1
            await world.pair.work()
        if world.software.connected:
            packets.certain()
        packets.check()
    assert away
    if not world.software.connected:
        await back(world)
    assert world.router().state == ("up", "")
    assert UNREACHABLE not in world.in_hardware().values()
    assert (await verified(world)).equal
