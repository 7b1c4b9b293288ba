"""A router with one nexthop group, and flows to spread over it."""

import functools
import random
from collections import Counter
from dataclasses import replace

from case import FAST, arrives
from entries import installed
from frames import TCP, UDP, ipv4, ipv6, udp
from wired import WiredPlane

from controller.planes.base import (
    GroupMember,
    Installed,
    Nexthop,
    NexthopGroup,
    Policer,
    RouteKind,
    RouterInterface,
    route_action,
)

FLOWS = 50_000
TOLERANCE = 0.01
WEIGHTS = [(1, 10), (1, 1, 1), (4, 3, 2, 1), (1,) * 5, (10, 1, 1, 1, 1, 1), (1,) * 7, (1, 2, 3, 4, 5, 6, 7, 10)]

_MAC = bytes.fromhex("0200000000aa")
INGRESS = RouterInterface(1, 1, 1, 0, _MAC, 1500)
EGRESS = [RouterInterface(10 + number, 1, 2 + number % 3, 100 + number, _MAC, 1500) for number in range(8)]
WAYS = [Nexthop(20 + number, EGRESS[number].id, bytes((2, 0, 0, 0, 1, number))) for number in range(8)]
GROUP = 30


def group(*weights: int) -> NexthopGroup:
    """A group of as many members; a member of weight 0 is left out."""
    members = [
        GroupMember(way.id, weight, egress.port)
        for way, egress, weight in zip(WAYS, EGRESS, weights, strict=False)
        if weight
    ]
    return NexthopGroup(GROUP, tuple(members))


def world(*weights: int) -> Installed:
    action = route_action(RouteKind.GROUP, GROUP)
    entries = [Policer(1, FAST), INGRESS, *EGRESS, *WAYS, group(*weights)]
    return installed(entries, {1: {"10.0.0.0/8": action, "2001:db8::/32": action}})


SECOND = replace(INGRESS, id=2, vrf_id=2, vlan=50)
"""Where the second router of `two_tiers` takes what the first has sent."""


def two_tiers(*weights: int) -> Installed:
    """`world`, and a second router with as many ways of its own."""
    first = world(*weights)
    ways = [replace(way, id=way.id + 30, router_interface_id=way.router_interface_id + 30) for way in WAYS]
    egress = [replace(each, id=each.id + 30, vrf_id=2, vlan=each.vlan + 100) for each in EGRESS]
    members = [replace(each, nexthop_id=each.nexthop_id + 30) for each in group(*weights).members]
    action = route_action(RouteKind.GROUP, GROUP + 30)
    entries = [Policer(2, FAST), SECOND, *egress, *ways, NexthopGroup(GROUP + 30, tuple(members))]
    second = installed(entries, {2: {"10.0.0.0/8": action}})
    return Installed(
        first.policers | second.policers,
        first.router_interfaces | second.router_interfaces,
        first.nexthops | second.nexthops,
        first.groups | second.groups,
        first.routes | second.routes,
    )


@functools.cache
def flows(count: int, seed: int = 1, family: int = 4) -> list[bytes]:
    """Frames of different flows: addresses, ports and protocol are drawn."""
    draw = random.Random(seed)
    return [arrives(INGRESS, _packet(draw, family)).frame for _ in range(count)]


def _packet(draw: random.Random, family: int) -> bytes:
    ports = udp(draw.randrange(1024, 65536), draw.randrange(1, 65536), b"")
    dst, src = draw.getrandbits(16), draw.getrandbits(16)
    if family == 6:
        return ipv6(f"2001:db8::{dst:x}", f"2001:db8:1::{src:x}", payload=ports)
    protocol = draw.choice((TCP, UDP))
    payload = ports if protocol == UDP else ports.ljust(20, b"\0")
    addresses = f"10.1.{dst >> 8}.{dst & 255}", f"10.2.{src >> 8}.{src & 255}"
    return ipv4(*addresses, protocol=protocol, payload=payload)


def member_of(frame: bytes) -> int:
    """Return which member sent a frame: its neighbor's MAC says."""
    return frame[5]


async def shares_off(wired: WiredPlane, weights: tuple[int, ...]) -> list[str]:
    """Send all flows through a group of these weights; return the members whose share is not theirs."""
    await wired.program(world(*weights))
    outputs = await wired.stream(INGRESS.port, flows(FLOWS))
    counts = Counter(member_of(frame) for _, frame in outputs)
    wanted = wired.shares(weights)
    return [
        f"weights {weights}: member {number} got {counts[number] / FLOWS:.3f} and not {share:.3f}"
        for number, share in enumerate(wanted)
        if abs(counts[number] / FLOWS - share) > TOLERANCE
    ]
