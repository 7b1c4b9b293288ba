"""What every plane owes its callers, whatever it is made of: `controller.planes.base`."""

import asyncio

import pytest
from planes import PlaneUnderTest

from controller.errors import PlaneUnreachable
from controller.model import Share
from controller.planes.base import (
    BLACKHOLE,
    FALLBACK,
    GLEAN,
    LOCAL,
    UNREACHABLE,
    Capability,
    FallbackLink,
    GroupMember,
    Installed,
    Nexthop,
    NexthopGroup,
    NexthopState,
    Op,
    Policer,
    RouteKind,
    RouterInterface,
    RouteUpdates,
    Update,
    WriteBatch,
    route_action,
)
from controller.planes.shares import ShareEntry
from wire.columns import family_of, prefix_key

VRF = 7
PREFIXES = {
    "0.0.0.0/0": UNREACHABLE,
    "10.0.0.0/8": route_action(RouteKind.NEXTHOP, 1),
    "10.0.0.0/31": route_action(RouteKind.GROUP, 3),
    "10.0.0.1/32": LOCAL,
    "10.1.0.0/16": GLEAN,
    "10.2.0.0/16": BLACKHOLE,
    "10.3.0.0/16": FALLBACK,
    "::/0": route_action(RouteKind.GROUP, 3),
    "2001:db8:3::/48": FALLBACK,
    "2001:db8::/127": route_action(RouteKind.NEXTHOP, 2),
    "2001:db8::1/128": LOCAL,
}


def routes(prefixes: dict[str, int], op: Op = Op.INSERT, vrf_id: int = VRF) -> list[RouteUpdates]:
    columns = {4: RouteUpdates(vrf_id, 4), 6: RouteUpdates(vrf_id, 6)}
    for text, action in prefixes.items():
        key = prefix_key(text)
        column = columns[family_of(key)]
        column.ops.append(op)
        column.keys.append(key)
        column.actions.append(action)
    return [column for column in columns.values() if column.keys]


def everything(ports: tuple[int, int], op: Op = Op.INSERT) -> WriteBatch:
    """One router with two interfaces, all kinds of nexthops, a weighted group and all kinds of routes."""
    first, second = ports
    virtual = (bytes((0, 0, 0x5E, 0, 1, 1)),)
    links = [FallbackLink(second, vlan) for vlan in (301, 302, 303)]
    interfaces = [
        RouterInterface(1, VRF, first, 0, bytes((2, 0, 0, 0, 0, 1)), 1500, virtual, fallback=links[0]),
        RouterInterface(2, VRF, second, 100, bytes((2, 0, 0, 0, 0, 2)), 9000, (), False),
        RouterInterface(3, VRF, first, 300, bytes((2, 0, 0, 0, 0, 3)), 1500, (), False, links[1]),
        RouterInterface(4, VRF, second, 400, bytes((2, 0, 0, 0, 0, 4)), 1500, fallback=links[2]),
    ]
    nexthops = [
        Nexthop(1, 1, bytes((2, 0, 0, 0, 1, 1))),
        Nexthop(2, 2, bytes((2, 0, 0, 0, 1, 2))),
        Nexthop(4, 1, bytes(6), NexthopState.GLEAN),
        Nexthop(5, 2, bytes(6), NexthopState.DROP),
    ]
    group = NexthopGroup(3, (GroupMember(1, 1, first), GroupMember(2, 3, second)))
    return WriteBatch(
        policers=[Update(op, Policer(VRF, tuple(range(100, 1200, 100))))],
        router_interfaces=[Update(op, one) for one in interfaces],
        nexthops=[Update(op, one) for one in nexthops],
        groups=[Update(op, group)],
        routes=routes(PREFIXES, op),
    )


def expected(ports: tuple[int, int]) -> Installed:
    batch = everything(ports)
    return Installed(
        policers={VRF: batch.policers[0].entry},
        router_interfaces={one.entry.id: one.entry for one in batch.router_interfaces},
        nexthops={one.entry.id: one.entry for one in batch.nexthops},
        groups={one.entry.id: one.entry for one in batch.groups},
        routes={VRF: {prefix_key(text): action for text, action in PREFIXES.items()}},
    )


async def read(under_test: PlaneUnderTest) -> Installed:
    """Read back; a VRF without routes may be listed or not."""
    found = await under_test.plane.read()
    found.routes = {vrf_id: held for vrf_id, held in found.routes.items() if held}
    return found


async def test_what_is_written_is_read_back(under_test: PlaneUnderTest) -> None:
    assert await under_test.plane.write(everything(under_test.ports)) == []
    assert await read(under_test) == expected(under_test.ports)


async def test_of_the_routes_those_of_one_router_are_read_where_one_is_named(under_test: PlaneUnderTest) -> None:
    await under_test.plane.write(everything(under_test.ports))
    assert await under_test.plane.read(VRF) == await read(under_test) == expected(under_test.ports)
    of_another = await under_test.plane.read(VRF + 1)
    assert not any(of_another.routes.values())
    of_another.routes = expected(under_test.ports).routes
    assert of_another == expected(under_test.ports)


SHARES = {
    ("router_share", VRF): ShareEntry(Share(2, 100_000, 400_000), 9),
    ("router_share", VRF + 1): ShareEntry(Share(), 9),
    ("slice_share", 9): ShareEntry(Share(1_000, 0, 1_000_000)),
}


async def test_shares_are_kept_apart_from_the_tables_where_there_are_any(under_test: PlaneUnderTest) -> None:
    plane = under_test.plane
    if Capability.SHARES not in plane.capabilities:
        assert await plane.read_shares() is None
        assert await plane.share_use() == {}
        return
    assert await plane.write_shares(SHARES, ()) == {}
    assert await plane.read_shares() == SHARES
    assert await read(under_test) == Installed(), "and of routers that have nothing else"
    await under_test.reconnect()
    assert await plane.read_shares() == SHARES
    changed = {("router_share", VRF): ShareEntry(Share(3), 0)}
    assert await plane.write_shares(changed, [("slice_share", 9), ("slice_share", 10)]) == {}
    left = changed | {("router_share", VRF + 1): SHARES["router_share", VRF + 1]}
    assert await plane.read_shares() == left
    await under_test.restart_empty()
    assert await plane.read_shares() == {}


async def test_what_is_deleted_is_gone(under_test: PlaneUnderTest) -> None:
    """And to delete what is not there is no refusal: one that is told leaves the entry, in part at least."""
    await under_test.plane.write(everything(under_test.ports))
    for _ in range(2):
        assert await under_test.plane.write(everything(under_test.ports, Op.DELETE)) == []
        assert await read(under_test) == Installed()


async def test_a_reconnect_wipes_nothing(under_test: PlaneUnderTest) -> None:
    await under_test.plane.write(everything(under_test.ports))
    await under_test.reconnect()
    assert await read(under_test) == expected(under_test.ports)
    assert under_test.heard.disconnects


async def test_an_empty_restart_is_read_as_empty_and_takes_everything_again(under_test: PlaneUnderTest) -> None:
    await under_test.plane.write(everything(under_test.ports))
    await under_test.restart_empty()
    assert await read(under_test) == Installed()
    assert await under_test.plane.write(everything(under_test.ports)) == []
    assert await read(under_test) == expected(under_test.ports)


async def test_every_kind_is_modified_in_place(under_test: PlaneUnderTest) -> None:
    await under_test.plane.write(everything(under_test.ports))
    first, second = under_test.ports
    interface = RouterInterface(1, VRF, first, 200, bytes((2, 0, 0, 0, 0, 9)), 1400)
    linked = RouterInterface(2, VRF, second, 100, bytes((2, 0, 0, 0, 0, 2)), 9000, fallback=FallbackLink(first, 301))
    moved = RouterInterface(4, VRF, second, 400, bytes((2, 0, 0, 0, 0, 4)), 1500, fallback=FallbackLink(second, 301))
    interfaces = (interface, linked, moved)
    nexthop = Nexthop(1, 2, bytes((2, 0, 0, 0, 2, 2)))
    group = NexthopGroup(3, (GroupMember(2, 1, second),))
    policer = Policer(VRF, tuple(range(1, 12)))
    changed = {"10.0.0.0/8": route_action(RouteKind.GROUP, 3), "10.2.0.0/16": GLEAN, "::/0": FALLBACK}
    changed |= {"10.3.0.0/16": BLACKHOLE}
    batch = WriteBatch(
        [Update(Op.MODIFY, policer)],
        [Update(Op.MODIFY, each) for each in interfaces],
        [Update(Op.MODIFY, nexthop)],
        [Update(Op.MODIFY, group)],
        routes(changed, Op.MODIFY),
    )
    assert await under_test.plane.write(batch) == []
    want = expected(under_test.ports)
    want.policers[VRF], want.nexthops[1], want.groups[3] = policer, nexthop, group
    want.router_interfaces.update({each.id: each for each in interfaces})
    want.routes[VRF].update({prefix_key(text): action for text, action in changed.items()})
    assert await read(under_test) == want


async def test_a_bad_entry_is_named_and_the_rest_is_in_force(under_test: PlaneUnderTest) -> None:
    await under_test.plane.write(everything(under_test.ports))
    good, bad = "30.0.0.0/8", "31.0.0.0/8"
    batch = WriteBatch(routes=routes({good: LOCAL, bad: route_action(RouteKind.GROUP, 999)}))
    refused = await under_test.plane.write(batch)
    assert [(one.table, one.vrf_id, one.key, one.op, one.full) for one in refused] == [
        ("ipv4_route", VRF, prefix_key(bad), Op.INSERT, False)
    ]
    assert refused[0].reason
    found = (await read(under_test)).routes[VRF]
    assert prefix_key(good) in found
    assert prefix_key(bad) not in found


async def test_writes_take_effect_in_the_order_of_calls(under_test: PlaneUnderTest) -> None:
    actions = [LOCAL, GLEAN, BLACKHOLE, UNREACHABLE] * 5
    ops = [Op.INSERT] + [Op.MODIFY] * (len(actions) - 1)
    writes = [
        under_test.plane.write(WriteBatch(routes=routes({"10.0.0.0/8": action}, op)))
        for action, op in zip(actions, ops, strict=True)
    ]
    assert await asyncio.gather(*writes) == [[]] * len(actions)
    assert (await read(under_test)).routes == {VRF: {prefix_key("10.0.0.0/8"): actions[-1]}}


async def test_vrfs_do_not_touch_each_other(under_test: PlaneUnderTest) -> None:
    batch = WriteBatch(routes=[*routes({"10.0.0.0/8": LOCAL}, vrf_id=1), *routes({"10.0.0.0/8": GLEAN}, vrf_id=2)])
    assert await under_test.plane.write(batch) == []
    assert await under_test.plane.write(WriteBatch(routes=routes({"10.0.0.0/8": 0}, Op.DELETE, vrf_id=1))) == []
    assert (await read(under_test)).routes == {2: {prefix_key("10.0.0.0/8"): GLEAN}}


async def test_routes_are_counted_where_the_plane_can_and_covers_apart(under_test: PlaneUnderTest) -> None:
    await under_test.plane.write(everything(under_test.ports))
    counts = await under_test.plane.route_counts()
    if Capability.ROUTE_COUNTERS not in under_test.plane.capabilities:
        assert (counts.routes, counts.covers) == ({}, {})
        return
    keys = {prefix_key(text) for text, action in PREFIXES.items() if action == FALLBACK}
    assert counts.covers == {VRF: dict.fromkeys(keys, 0)}
    assert counts.routes == {VRF: dict.fromkeys({prefix_key(text) for text in PREFIXES} - keys, 0)}


async def test_what_one_router_s_routes_have_met_is_of_no_other(under_test: PlaneUnderTest) -> None:
    other = routes({"10.0.0.0/8": LOCAL}, vrf_id=VRF + 1)
    await under_test.plane.write(everything(under_test.ports))
    await under_test.plane.write(WriteBatch(routes=other))
    traffic = await under_test.plane.route_traffic(VRF)
    if Capability.ROUTE_COUNTERS not in under_test.plane.capabilities:
        assert traffic == {}
        return
    keys = {prefix_key(text) for text, action in PREFIXES.items() if action != FALLBACK}
    assert traffic == dict.fromkeys(keys, (0, 0))
    assert await under_test.plane.route_traffic(VRF + 1) == {prefix_key("10.0.0.0/8"): (0, 0)}


async def test_what_router_interfaces_have_sent_is_counted(under_test: PlaneUnderTest) -> None:
    assert await under_test.plane.sent() == {}
    await under_test.plane.write(everything(under_test.ports))
    sent = await under_test.plane.sent()
    assert not any(sent.values())
    assert sent.keys() <= expected(under_test.ports).router_interfaces.keys()


async def test_a_closed_plane_is_unreachable_by_name(under_test: PlaneUnderTest) -> None:
    await under_test.plane.close()
    for ask in (
        under_test.plane.read(),
        under_test.plane.write(everything(under_test.ports)),
        under_test.plane.counters(),
    ):
        with pytest.raises(PlaneUnreachable, match=under_test.plane.name):
            await ask
