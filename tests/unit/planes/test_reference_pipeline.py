"""The reference pipeline does what the conformance suite expects of every plane, and with less where one can less.

The suite says by hand what may become of each frame; here all that the pipeline says is compared with all of that.
"""

from dataclasses import replace
from types import ModuleType

import pytest
from case import (
    RED,
    ROUTERS,
    Arrival,
    Case,
    Leaves,
    arrives,
    lan,
    nexthop,
    to_up,
    to_wan,
    two_ways,
    up,
    wan,
)
from cases import CASES, admit, classifier, egress, fallback, forwarding, malformed, nexthops, punts, routes, ttl
from frames import ROUTER_ALERT, extension, ipv4, ipv6, udp

from controller.planes.base import (
    FALLBACK,
    Capability,
    DropReason,
    FallbackLink,
    GroupMember,
    Installed,
    NexthopGroup,
    PuntReason,
    RouteKind,
    RouterInterface,
    route_action,
)
from controller.planes.reference_pipeline import (
    Dropped,
    Forwarded,
    Outcome,
    Punted,
    Verdict,
    forward,
    longest_prefix,
)
from wire.columns import prefix_key

PARTS = (classifier, admit, malformed, punts, routes, ttl, nexthops, egress, fallback, forwarding)
ALL = frozenset(Capability)
PORTS = {1, 2, 3, 4}
TO_GROUP = arrives(lan, ipv4("10.8.0.1"))


def outcome(became: Leaves | PuntReason | DropReason, arrival: Arrival) -> Outcome:
    if isinstance(became, Leaves):
        router_interface = became.egress.id if isinstance(became.egress, RouterInterface) else None
        return Forwarded(router_interface, became.egress.port, became.frame)
    return Punted(became, arrival.untagged) if isinstance(became, PuntReason) else Dropped(became)


def verdict(
    arrival: Arrival, entries: Installed = ROUTERS, capabilities: frozenset[Capability] = ALL, live: set[int] = PORTS
) -> Verdict:
    return forward(entries, capabilities, live, arrival.port, arrival.frame)


def agrees(case: Case) -> bool:
    seen = verdict(case.arrival, case.entries)
    expected = {outcome(one, case.arrival) for one in case.possible}
    return {way.outcome for way in seen.ways} == expected and seen.ingress == case.arrival.ingress


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.__name__)
def test_every_case_of_the_conformance_suite(part: ModuleType) -> None:
    assert [case.name for case in part.CASES if not agrees(case)] == []


def test_no_case_is_left_out() -> None:
    assert sum(len(part.CASES) for part in PARTS) == len(CASES)


def ways(seen: Verdict) -> dict[tuple[int, int], int]:
    return {(way.outcome.router_interface_id, way.outcome.port): way.weight for way in seen.ways}


def test_a_group_divides_by_weight() -> None:
    assert ways(verdict(TO_GROUP)) == {(up.id, 2): 1, (wan.id, 3): 3}


@pytest.mark.parametrize(
    ("ether_type", "became"),
    [(0x05FF, PuntReason.CONTROL), (0x0600, None), (0x8870, PuntReason.CONTROL), (0x886F, None)],
)
def test_isis_is_what_has_a_length_or_the_type_for_long_ones(ether_type: int, became: PuntReason | None) -> None:
    isis = bytes.fromhex("0180c2000014") + bytes(6) + ether_type.to_bytes(2, "big") + bytes(60)
    seen = forward(ROUTERS, ALL, PORTS, lan.port, isis).ways[0].outcome
    assert getattr(seen, "reason", None) == (became or DropReason.ETHERTYPE)


@pytest.mark.parametrize("vlan", [0, 1])
def test_the_first_vlan_is_not_the_untagged_one(vlan: int) -> None:
    one, other = replace(lan, vlan=vlan), replace(lan, id=lan.id + 50, vlan=1 - vlan)
    entries = replace(ROUTERS, router_interfaces={one.id: one})
    assert verdict(arrives(one, ipv4("10.8.0.1")), entries).ingress == one
    assert verdict(arrives(other, ipv4("10.8.0.1")), entries).ingress is None


def watched(*members: tuple[int, int, int]) -> Installed:
    group = NexthopGroup(two_ways.id, tuple(GroupMember(*member) for member in members))
    return replace(ROUTERS, groups={group.id: group})


def test_a_member_whose_port_is_down_is_left_out_where_the_plane_fails_over() -> None:
    entries = watched((to_up.id, 1, 2), (to_wan.id, 3, 3))
    assert ways(verdict(TO_GROUP, entries, live={1, 2})) == {(up.id, 2): 1}
    assert ways(verdict(TO_GROUP, entries, live={1})) == {(up.id, 2): 1, (wan.id, 3): 3}  # no way is better
    without = ALL - {Capability.LOCAL_FAILOVER}
    assert ways(verdict(TO_GROUP, entries, without, live={1, 2})) == {(up.id, 2): 1, (wan.id, 3): 3}


def test_members_of_one_nexthop_share_its_weight() -> None:
    assert ways(verdict(TO_GROUP, watched((to_up.id, 1, 2), (to_up.id, 4, 3)))) == {(up.id, 2): 5}


@pytest.mark.parametrize("kind", [RouteKind.NEXTHOP, RouteKind.GROUP])
def test_a_route_to_what_is_not_there_is_unreachable(kind: RouteKind) -> None:
    entries = replace(ROUTERS, routes={RED: {prefix_key("10.8.0.0/16"): route_action(kind, 9999)}})
    assert verdict(TO_GROUP, entries).ways[0].outcome == Punted(PuntReason.UNREACHABLE, TO_GROUP.untagged)


def test_a_nexthop_without_its_interface_is_unreachable_but_one_that_fails_drops() -> None:
    way = nexthop(199, up)
    entries = replace(ROUTERS, routes={RED: {prefix_key("10.8.0.0/16"): route_action(RouteKind.NEXTHOP, 199)}})
    gone = replace(way, router_interface_id=999)
    assert verdict(TO_GROUP, replace(entries, nexthops={199: gone})).ways[0].outcome == Punted(
        PuntReason.UNREACHABLE, TO_GROUP.untagged
    )
    for state, expected in (
        (1, Punted(PuntReason.GLEAN, TO_GROUP.untagged)),
        (2, Dropped(DropReason.NEIGHBOR_FAILED)),
    ):
        seen = verdict(TO_GROUP, replace(entries, nexthops={199: replace(gone, state=type(way.state)(state))}))
        assert seen.ways[0].outcome == expected


@pytest.mark.parametrize(
    ("packet", "lacks"),
    [
        (ipv4("10.2.0.9", options=ROUTER_ALERT), Capability.IP_OPTIONS),
        (ipv6("2001:db8:2::9", next_header=0, payload=extension(17) + udp()), Capability.HOP_BY_HOP),
        (ipv4("10.3.0.9", payload=bytes(1400)), Capability.MTU),
        (ipv4("10.2.0.9", header_checksum=1), Capability.IPV4_CHECKSUM),
    ],
)
def test_a_plane_that_cannot_tell_forwards(packet: bytes, lacks: Capability) -> None:
    arrival = arrives(lan, packet)
    assert not isinstance(verdict(arrival).ways[0].outcome, Forwarded)
    assert isinstance(verdict(arrival, capabilities=ALL - {lacks}).ways[0].outcome, Forwarded)


def test_a_way_back_is_counted_for_no_ingress_and_takes_the_tag_of_its_egress() -> None:
    back = replace(wan, fallback=FallbackLink(4, 412))
    entries = replace(ROUTERS, router_interfaces={**ROUTERS.router_interfaces, wan.id: back})
    frame = bytes(12) + b"\x81\0" + (412).to_bytes(2, "big") + b"\x08\0" + ipv4("10.3.0.9")
    seen = forward(entries, ALL, PORTS, 4, frame)
    assert (seen.ingress, seen.route) == (None, None)
    assert seen.ways[0].outcome.router_interface_id == wan.id


def test_the_route_that_decided_is_named() -> None:
    assert verdict(arrives(lan, ipv4("10.2.3.4"))).route == prefix_key("10.2.3.4/32")
    assert verdict(arrives(lan, ipv4("10.2.3.5"))).route == prefix_key("10.2.3.0/24")
    assert verdict(arrives(lan, ipv4("192.0.2.1"))).route is None


def test_a_hash_chooses_among_what_a_group_has_left() -> None:
    asked = []

    def choose(group_id: int, weights: dict[int, int], flow: bytes) -> int:
        asked.append((group_id, weights, flow))
        return to_wan.id

    chosen = forward(ROUTERS, ALL, PORTS, TO_GROUP.port, TO_GROUP.frame, choose)
    assert ways(chosen) == {(wan.id, 3): 1}
    assert asked[0][2][:4] == lan.vrf_id.to_bytes(4, "big"), "by router, where the plane does so"
    forward(ROUTERS, ALL - {Capability.HASH_BY_ROUTER}, PORTS, TO_GROUP.port, TO_GROUP.frame, choose)
    assert asked.pop()[2] == asked[0][2][4:]
    assert [(one, weights) for one, weights, _ in asked] == [(two_ways.id, {to_up.id: 1, to_wan.id: 3})]
    empty = replace(ROUTERS, groups={})
    unreachable = forward(empty, ALL, PORTS, TO_GROUP.port, TO_GROUP.frame, choose).ways[0].outcome
    assert unreachable == Punted(PuntReason.UNREACHABLE, TO_GROUP.untagged)
    assert len(asked) == 1


def test_the_longest_prefix_wins_down_to_the_default() -> None:
    table = {prefix_key(text): 0 for text in ("0.0.0.0/0", "10.0.0.0/8", "10.0.0.1/32", "::/0")}
    found = [longest_prefix(table, bytes(address)) for address in ((10, 0, 0, 1), (10, 0, 0, 2), (11, 0, 0, 1))]
    assert found == [prefix_key(text) for text in ("10.0.0.1/32", "10.0.0.0/8", "0.0.0.0/0")]
    assert longest_prefix({prefix_key("10.0.0.0/8"): 0}, bytes((11, 0, 0, 1))) is None


def test_a_fallback_route_of_an_interface_without_a_link_is_unreachable() -> None:
    entries = replace(ROUTERS, routes={RED: {prefix_key("10.8.0.0/16"): FALLBACK}})
    arrival = arrives(up, ipv4("10.8.0.1"))
    assert verdict(arrival, entries).ways[0].outcome == Punted(PuntReason.UNREACHABLE, arrival.untagged)
