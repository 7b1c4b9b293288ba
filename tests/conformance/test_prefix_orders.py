"""The longest prefix decides in whatever order prefixes were inserted, and deleted again."""

import itertools

import pytest
from case import FAST, arrives, leaves
from entries import installed, route_columns
from frames import ipv4, ipv6
from wired import WiredPlane

from controller.planes.base import Nexthop, Op, Policer, RouteKind, RouterInterface, WriteBatch, route_action
from wire.columns import prefix_key

pytestmark = pytest.mark.asyncio(loop_scope="session")

NESTED = {
    4: {"0.0.0.0/0": "192.0.2.1", "10.0.0.0/8": "10.9.9.9", "10.1.2.0/24": "10.1.2.9", "10.1.2.3/32": "10.1.2.3"},
    6: {
        "::/0": "2001:db9::1",
        "2001:db8::/32": "2001:db8:ffff::1",
        "2001:db8:1::/64": "2001:db8:1::9",
        "2001:db8:1::3/128": "2001:db8:1::3",
    },
}
ORDERS = list(itertools.permutations(range(4)))
MAC = bytes.fromhex("0200000000aa")


def packet(dst: str, ttl: int) -> bytes:
    return ipv6(dst, ttl=ttl) if ":" in dst else ipv4(dst, ttl=ttl)


async def step(wired: WiredPlane, family: int, position: int, op: Op) -> None:
    """Write the prefix that is at a position of each router's own order."""
    write = WriteBatch()
    for vrf_id, order in enumerate(ORDERS, 1):
        prefix = list(NESTED[family])[order[position]]
        action = route_action(RouteKind.NEXTHOP, 1000 + order[position])
        write.routes += route_columns(vrf_id, {prefix_key(prefix): action}, op)
    await wired.write(write)


@pytest.mark.parametrize("family", [4, 6])
async def test_the_order_of_writes_does_not_matter(wired: WiredPlane, family: int) -> None:
    egress = RouterInterface(900, 1, 2, 0, MAC, 1500)
    ways = [Nexthop(1000 + number, 900, bytes((2, 0, 0, 0, 1, number))) for number in range(4)]
    ingress = [RouterInterface(number, number, 1, number, MAC, 1500) for number in range(1, len(ORDERS) + 1)]
    policers = [Policer(number, FAST) for number in range(1, len(ORDERS) + 1)]
    world = installed([egress, *ways, *ingress, *policers], {})
    await wired.program(world)
    targets = list(NESTED[family].values())
    held: dict[int, set[int]] = {vrf_id: set() for vrf_id in range(1, len(ORDERS) + 1)}

    async def check() -> None:
        """Every router forwards every target by the longest of the prefixes that it has by now."""
        frames, wanted = [], []
        for vrf_id, prefixes in held.items():
            for longest, target in enumerate(targets):
                covering = [each for each in prefixes if each <= longest]
                arrival = arrives(ingress[vrf_id - 1], packet(target, 64))
                if covering:
                    frames.append(arrival.frame)
                    wanted.append((2, leaves(ways[max(covering)], packet(target, 63), world).frame))
        assert (await wired.observe(1, *frames)).outputs == sorted(wanted)

    for position in range(4):
        await step(wired, family, position, Op.INSERT)
        for vrf_id, order in enumerate(ORDERS, 1):
            held[vrf_id].add(order[position])
        await check()
    for position in range(4):
        await step(wired, family, position, Op.DELETE)
        for vrf_id, order in enumerate(ORDERS, 1):
            held[vrf_id].discard(order[position])
        await check()
