"""Sixty-four routers with the same prefixes, host addresses and MACs: no packet ever crosses."""

import pytest
from case import FAST, arrives, comes_back, falls_back, leaves, leaves_again
from entries import installed
from frames import ARP, ipv4, ipv6, mac
from planes_wired import PLANES, SINGLE
from wired import WiredPlane

from controller.planes.base import (
    FALLBACK,
    LOCAL,
    FallbackLink,
    GroupMember,
    Nexthop,
    NexthopGroup,
    Policer,
    PuntReason,
    RouteKind,
    RouterInterface,
    route_action,
)

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.kinds(*PLANES)]

ROUTERS = range(1, 65)
MAC, NEIGHBOR = mac("0200000000aa"), mac("0200000000bb")
LINK = 3
lans = {vrf: RouterInterface(vrf, vrf, 1, vrf, MAC, 1500, fallback=FallbackLink(LINK, vrf)) for vrf in ROUTERS}
ups = {
    vrf: RouterInterface(100 + vrf, vrf, 2, 100 + vrf, MAC, 1500, fallback=FallbackLink(LINK, 100 + vrf))
    for vrf in ROUTERS
}
ways = {vrf: Nexthop(200 + vrf, ups[vrf].id, NEIGHBOR) for vrf in ROUTERS}
groups = {vrf: NexthopGroup(300 + vrf, (GroupMember(ways[vrf].id, 1, 2),)) for vrf in ROUTERS}
WORLD = installed(
    [*(Policer(vrf, FAST) for vrf in ROUTERS), *lans.values(), *ups.values(), *ways.values(), *groups.values()],
    {
        vrf: {
            "10.0.0.0/8": route_action(RouteKind.NEXTHOP, ways[vrf].id),
            "10.1.0.0/16": route_action(RouteKind.GROUP, groups[vrf].id),
            "10.9.0.1/32": LOCAL,
            "10.66.0.0/16": FALLBACK,
            "2001:db8::/32": route_action(RouteKind.GROUP, groups[vrf].id),
            # A prefix that only every second router has
            **({"203.0.113.0/24": route_action(RouteKind.NEXTHOP, ways[vrf].id)} if vrf % 2 else {}),
        }
        for vrf in ROUTERS
    },
)


async def test_transit_leaves_by_its_own_router(wired: WiredPlane) -> None:
    await wired.program(WORLD)
    packets = [(ipv4, "10.200.0.9"), (ipv4, "10.1.0.9"), (ipv6, "2001:db8::9")]
    sent = [(vrf, build, dst) for build, dst in packets for vrf in ROUTERS]
    frames = [arrives(lans[vrf], build(dst)).frame for vrf, build, dst in sent]
    wanted = sorted((2, leaves(ways[vrf], build(dst, ttl=63), WORLD).frame) for vrf, build, dst in sent)
    async for _place in wired.places():
        seen = await wired.observe(1, *frames)
        assert seen.outputs == wanted
        assert seen.punts == []
        assert seen.received == {vrf: len(packets) for vrf in ROUTERS}
        assert seen.sent == {100 + vrf: len(packets) for vrf in ROUTERS}


async def test_what_one_router_does_not_have_is_unreachable_there(wired: WiredPlane) -> None:
    await wired.program(WORLD)
    arrivals = {vrf: arrives(lans[vrf], ipv4("203.0.113.9")) for vrf in ROUTERS}
    have, lack = [vrf for vrf in ROUTERS if vrf % 2], [vrf for vrf in ROUTERS if not vrf % 2]
    sent = sorted((2, leaves(ways[vrf], ipv4("203.0.113.9", ttl=63), WORLD).frame) for vrf in have)
    async for _place in wired.places():
        seen = await wired.observe(1, *(arrival.frame for arrival in arrivals.values()))
        assert seen.outputs == sent
        assert seen.punts == [(vrf, PuntReason.UNREACHABLE, arrivals[vrf].untagged) for vrf in lack]


async def test_punts_go_to_their_own_guest(wired: WiredPlane) -> None:
    await wired.program(WORLD)
    local = {vrf: arrives(lans[vrf], ipv4("10.9.0.1", identification=vrf)) for vrf in ROUTERS}
    arp = {vrf: arrives(ups[vrf], bytes(27) + bytes((vrf,)), mac("ffffffffffff"), ARP) for vrf in ROUTERS}
    seen = await wired.observe(1, *(each.frame for each in local.values()))
    assert seen.punts == [(vrf, PuntReason.LOCAL, local[vrf].untagged) for vrf in ROUTERS]
    seen = await wired.observe(2, *(each.frame for each in arp.values()))
    assert seen.punts == [(100 + vrf, PuntReason.CONTROL, arp[vrf].untagged) for vrf in ROUTERS]
    assert seen.outputs == []
    assert seen.punted == {(vrf, PuntReason.CONTROL): 1 for vrf in ROUTERS}


@pytest.mark.kinds(*SINGLE)  # the links of a pair are its own
async def test_the_way_to_the_fallback_plane_and_back_is_a_routers_own(wired: WiredPlane) -> None:
    await wired.program(WORLD)
    arrivals = {vrf: arrives(lans[vrf], ipv4("10.66.0.9")) for vrf in ROUTERS}
    seen = await wired.observe(1, *(each.frame for each in arrivals.values()))
    assert seen.outputs == sorted((LINK, falls_back(each).frame) for each in arrivals.values())
    assert (seen.received, seen.sent) == (dict.fromkeys(ROUTERS, 1), {})
    seen = await wired.observe(LINK, *(comes_back(ups[vrf], ipv4("10.66.0.9")).frame for vrf in ROUTERS))
    assert seen.outputs == sorted((2, leaves_again(ups[vrf], ipv4("10.66.0.9")).frame) for vrf in ROUTERS)
    assert (seen.received, seen.sent) == ({}, {100 + vrf: 1 for vrf in ROUTERS})


async def test_the_other_side_of_a_router_is_no_way_into_the_next(wired: WiredPlane) -> None:
    await wired.program(WORLD)
    frames = [arrives(ups[vrf], ipv4("10.200.0.9")).frame for vrf in ROUTERS]
    seen = await wired.observe(2, *frames)
    assert seen.outputs == sorted((2, leaves(ways[vrf], ipv4("10.200.0.9", ttl=63), WORLD).frame) for vrf in ROUTERS)
    seen = await wired.observe(1, *frames)  # the same VLANs are nobody's at the other port
    assert (seen.outputs, seen.punts, sum(seen.dropped.values())) == ([], [], len(ROUTERS))
