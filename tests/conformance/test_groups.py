"""Groups: every member gets its share of the flows, and a flow stays where it is."""

import itertools
from collections import Counter

import pytest
from case import arrives
from deviations import IN_GROUPS
from ecmp import (
    EGRESS,
    GROUP,
    INGRESS,
    SECOND,
    WAYS,
    WEIGHTS,
    flows,
    group,
    member_of,
    shares_off,
    two_tiers,
    world,
)
from frames import FRAGMENT, ICMPV6, MORE_FRAGMENTS, TCP, UDP, fragment_header, ipv4, ipv6, tagged, udp
from wired import WiredPlane

from controller.planes.base import Capability, GroupMember, NexthopGroup, Op, Update, WriteBatch

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def member_of_each(wired: WiredPlane, frames: list[bytes]) -> dict[bytes, int]:
    """Send each flow's frame and return its member, by what is behind the MACs and the TTL."""
    outputs = await wired.stream(INGRESS.port, frames)
    assert len(outputs) == len(frames)
    return {frame[-20:]: member_of(frame) for _, frame in outputs}


@pytest.mark.kinds("openflow", "bmv2", "forwarder")  # generic, its program spreads them as it does otherwise
@pytest.mark.parametrize("weights", WEIGHTS, ids=str)
async def test_each_member_gets_its_share(wired: WiredPlane, weights: tuple[int, ...]) -> None:
    assert await shares_off(wired, weights) == []


@pytest.mark.parametrize("family", [4, 6])
async def test_a_flow_stays_while_its_group_is_unchanged(wired: WiredPlane, family: int) -> None:
    await wired.program(world(1, 2, 3))
    frames = flows(500, 2, family)
    first = await member_of_each(wired, frames)
    assert set(first.values()) == {0, 1, 2}
    other = NexthopGroup(GROUP + 1, (GroupMember(WAYS[5].id, 1, EGRESS[5].port),))
    await wired.write(WriteBatch(groups=[Update(Op.INSERT, other)]))
    assert await member_of_each(wired, frames) == first


async def test_a_second_router_spreads_what_the_first_sends_one_way(wired: WiredPlane) -> None:
    if Capability.HASH_BY_ROUTER not in wired.plane.capabilities:
        pytest.skip(f"needs {Capability.HASH_BY_ROUTER}, which {wired.kind} lacks: docs/planes.md, Capabilities")
    await wired.program(two_tiers(1, 1, 1, 1))
    frames = flows(4000, 4)
    outputs = await wired.stream(INGRESS.port, frames)
    first = {frame[30:] for _, frame in outputs if member_of(frame) == 0}  # addresses and on; they leave tagged
    one_way = [frame for frame in frames if frame[26:] in first]
    outputs = await wired.stream(SECOND.port, [tagged(frame, SECOND.vlan) for frame in one_way])
    shares = Counter(member_of(frame) for _, frame in outputs)
    assert sum(shares.values()) == len(one_way)
    assert all(150 < shares[member] < 350 for member in range(4)), shares


async def test_all_packets_of_a_flow_go_the_same_way(wired: WiredPlane) -> None:
    await wired.program(world(1, 1, 1, 1))
    packets = [
        arrives(INGRESS, ipv4("10.1.0.1", payload=udp(7, 8, bytes(size)), tos=size % 4, ttl=64 - size % 9))
        for size in range(0, 600, 6)
    ]
    seen = await wired.observe(1, *(packet.frame for packet in packets))
    assert len(seen.outputs) == len(packets)
    assert len({member_of(frame) for _, frame in seen.outputs}) == 1


async def test_later_fragments_go_one_way(wired: WiredPlane) -> None:
    await wired.program(world(1, 1, 1, 1))
    later = [
        arrives(INGRESS, ipv4("10.1.0.1", fragment=offset, payload=bytes(8 + offset))) for offset in range(1, 50)
    ]
    seen = await wired.observe(1, *(packet.frame for packet in later))
    assert len(seen.outputs) == len(later)
    assert len({member_of(frame) for _, frame in seen.outputs}) == 1


async def test_all_fragments_go_one_way(wired: WiredPlane) -> None:
    await wired.program(world(1, 1, 1, 1))
    first = [ipv4("10.1.0.1", fragment=MORE_FRAGMENTS, payload=udp(port)) for port in range(1024, 1064)]
    later = [ipv4("10.1.0.1", fragment=2, identification=number) for number in range(10)]
    seen = await wired.observe(1, *(arrives(INGRESS, packet).frame for packet in (*first, *later)))
    assert len(seen.outputs) == len(first) + len(later)
    assert len({member_of(frame) for _, frame in seen.outputs}) == 1


async def test_all_fragments_of_an_ipv6_packet_go_one_way(wired: WiredPlane, request: pytest.FixtureRequest) -> None:
    if wired.kind in IN_GROUPS:
        # It is the hash of the switch itself: a group of OpenFlow 1.3 does not say by what to choose.
        reason = (
            f"{IN_GROUPS[wired.kind]}: Open vSwitch hashes the first by the protocol behind the fragment header and"
            " the later ones by that header's own: docs/planes.md, Where Open vSwitch differs"
        )
        request.applymarker(pytest.mark.xfail(strict=True, raises=AssertionError, reason=reason))
    await wired.program(world(1, 1, 1, 1))
    for protocol, number in itertools.product((TCP, UDP, ICMPV6), range(8)):
        fragments = [
            ipv6("2001:db8::1", f"2001:db8:1::{number}", next_header=FRAGMENT, payload=header + bytes(24))
            for header in (fragment_header(0, True, protocol), fragment_header(3, False, protocol))
        ]
        seen = await wired.observe(1, *(arrives(INGRESS, packet).frame for packet in fragments))
        assert len(seen.outputs) == len(fragments)
        assert len({member_of(frame) for _, frame in seen.outputs}) == 1


async def test_a_member_that_leaves_takes_only_its_own_flows(wired: WiredPlane) -> None:
    if Capability.RESILIENT_HASH not in wired.plane.capabilities:
        pytest.skip(f"needs {Capability.RESILIENT_HASH}, which {wired.kind} lacks: docs/planes.md, Capabilities")
    await wired.program(world(1, 2, 1, 1))
    frames = flows(1000, 3)
    before = await member_of_each(wired, frames)
    await wired.write(WriteBatch(groups=[Update(Op.MODIFY, group(1, 0, 1, 1))]))
    after = await member_of_each(wired, frames)
    assert {flow for flow, member in before.items() if after[flow] != member} == {
        flow for flow, member in before.items() if member == 1
    }


async def test_groups_of_the_largest_weights_are_taken(wired: WiredPlane) -> None:
    await wired.program(world(*[32] * 8))
    assert (await wired.plane.read()).groups[GROUP] == group(*[32] * 8)
