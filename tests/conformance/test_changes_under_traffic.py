"""Nexthops, groups and routes change under traffic, and not one packet is lost."""

import asyncio
import struct

import pytest
from case import FAST, arrives
from entries import installed, route_columns
from frames import ipv4, udp
from planes_wired import PLANES, SINGLE
from wired import WiredPlane

from controller.planes.base import (
    FALLBACK,
    FallbackLink,
    GroupMember,
    Nexthop,
    NexthopGroup,
    Op,
    Policer,
    RouteKind,
    RouterInterface,
    Update,
    WriteBatch,
    route_action,
)
from wire.columns import prefix_key

pytestmark = pytest.mark.asyncio(loop_scope="session")

MAC = bytes.fromhex("0200000000aa")
INGRESS = RouterInterface(1, 1, 1, 0, MAC, 1500, fallback=FallbackLink(4, 300))
EGRESS = [RouterInterface(number, 1, number, 0, MAC, 1500) for number in (2, 3, 4)]
WAYS = [Nexthop(10 + each.id, each.id, bytes((2, 0, 0, 0, 1, each.id))) for each in EGRESS]
GROUP = 20
PREFIX = "10.1.0.0/16"
CHANGES = 12


def group(*ways: Nexthop) -> NexthopGroup:
    return NexthopGroup(GROUP, tuple(GroupMember(way.id, 1, way.router_interface_id) for way in ways))


WORLD = installed(
    [Policer(1, FAST), INGRESS, *EGRESS, *WAYS, group(*WAYS)],
    {1: {PREFIX: route_action(RouteKind.GROUP, GROUP), "10.0.0.0/8": route_action(RouteKind.NEXTHOP, WAYS[0].id)}},
)


def to_route(action: int, op: Op = Op.MODIFY, prefix: str = PREFIX) -> WriteBatch:
    return WriteBatch(routes=route_columns(1, {prefix_key(prefix): action}, op))


def to_group(*ways: Nexthop) -> WriteBatch:
    return WriteBatch(groups=[Update(Op.MODIFY, group(*ways))])


def to_nexthop(egress: int, last: int) -> WriteBatch:
    return WriteBatch(nexthops=[Update(Op.MODIFY, Nexthop(WAYS[0].id, egress, bytes((2, 0, 0, 0, 1, last))))])


_by_nexthop = route_action(RouteKind.NEXTHOP, WAYS[1].id)
_by_group = route_action(RouteKind.GROUP, GROUP)
OUT_AND_IN = "out of hardware and into it"
KINDS: dict[str, list[WriteBatch]] = {
    "a group's members": [to_group(*WAYS), to_group(WAYS[0]), to_group(*WAYS[1:]), to_group(WAYS[2])],
    "a neighbor's MAC": [to_nexthop(2, 9), to_nexthop(2, 8)],
    "a nexthop's interface": [to_nexthop(3, 9), to_nexthop(2, 9)],
    "a route's nexthop": [to_route(_by_nexthop), to_route(route_action(RouteKind.NEXTHOP, WAYS[2].id))],
    "from nexthop to group and back": [to_route(_by_nexthop), to_route(_by_group)],
    OUT_AND_IN: [to_route(FALLBACK), to_route(_by_nexthop), to_route(FALLBACK), to_route(_by_group)],
    "a longer prefix comes and goes": [
        to_route(_by_nexthop, Op.INSERT, "10.1.2.0/24"),
        to_route(_by_nexthop, Op.DELETE, "10.1.2.0/24"),
    ],
}


def of_a_plane(name: str) -> object:
    """Changes for every kind, except those that a pair makes by itself: test_moving_tables.py."""
    kinds = SINGLE if name == OUT_AND_IN else PLANES
    return pytest.param(KINDS[name], id=name, marks=pytest.mark.kinds(*kinds))


@pytest.mark.parametrize("changes", [of_a_plane(name) for name in KINDS])
async def test_no_packet_is_lost(wired: WiredPlane, changes: list[WriteBatch]) -> None:
    wired.programmed = None
    await wired.program(WORLD)
    wired.programmed = None
    finished = asyncio.create_task(change(wired, changes))
    sent = 0
    while not finished.done() or not sent:
        outputs = await wired.stream(1, [numbered(sent + number) for number in range(64)])
        assert sorted(struct.unpack("!I", frame[-4:])[0] for _, frame in outputs) == list(range(sent, sent + 64))
        sent += 64
    await finished
    seen = await wired.observe(1)
    assert (seen.outputs, seen.punts, dict(seen.dropped)) == ([], [], {})


async def change(wired: WiredPlane, changes: list[WriteBatch]) -> None:
    for number in range(CHANGES):
        assert await wired.plane.write(changes[number % len(changes)]) == []


def numbered(number: int) -> bytes:
    """A frame of one of many flows, with its number."""
    packet = ipv4(f"10.1.2.{number % 200}", payload=udp(1024 + number % 50, payload=struct.pack("!I", number)))
    return arrives(INGRESS, packet).frame
