"""What is written in which order, and what becomes of updates that the device refuses."""

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest
from finsy.proto import p4r, rpc_code
from openflow_net import columns, via, via_group

from controller.planes.base import (
    BLACKHOLE,
    FALLBACK,
    GLEAN,
    LOCAL,
    FallbackLink,
    GroupMember,
    Nexthop,
    NexthopGroup,
    Op,
    Policer,
    PuntReason,
    RouterInterface,
    RouteUpdates,
    Update,
    WriteBatch,
    same_rate,
)
from controller.planes.encoding_time import SHARED
from controller.planes.p4runtime.p4info import golden_pipeline
from controller.planes.p4runtime.sender import UPDATES_PER_REQUEST
from tests.unit.p4runtime.edge import Edge, attached
from tests.unit.p4runtime.server import Device, Refusal
from wire.columns import prefix_key

SCHEMA = golden_pipeline().schema
NAMES = {
    SCHEMA.table(name).id: name
    for name in (
        *("policer", "reason", "router_interface", "router_interface_egress", "l3_admit", "interface_classifier"),
        *("fallback_link", "nexthop", "nexthop_group", "ipv4_route", "ipv6_route"),
    )
}
RED = RouterInterface(1, 7, 1, 100, bytes((2, 0, 0, 0, 0, 1)), 1500)
BLUE = RouterInterface(2, 8, 1, 100, bytes((2, 0, 0, 0, 0, 2)), 1500)
LINKED = replace(RED, fallback=FallbackLink(4, 300))
NEXTHOP = Nexthop(1, 1, bytes((2, 0, 0, 0, 1, 1)))
NOT_OFFERED = "this plane does not offer such a route action"
GROUP = NexthopGroup(3, (GroupMember(1, 1, 1),))


def everything(op: Op) -> WriteBatch:
    return WriteBatch(
        policers=[Update(op, Policer(7, same_rate(1)))],
        router_interfaces=[Update(op, RED)],
        nexthops=[Update(op, NEXTHOP)],
        groups=[Update(op, GROUP)],
        routes=columns({"10.0.0.0/8": via_group(3), "2001:db8::/32": via(1)}, op),
    )


def tables(requests: list[p4r.WriteRequest]) -> list[set[str]]:
    """The tables of each request, in the order of requests."""
    return [{NAMES[update.entity.table_entry.table_id] for update in request.updates} for request in requests]


def refusing(table: str, code: int, text: str, first: int = 0) -> Callable[[p4r.Update], Refusal | None]:
    """Refuse the updates of a table, from the one of this position on."""
    seen = iter(range(1 << 30))

    def refuse(update: p4r.Update) -> Refusal | None:
        if NAMES[update.entity.table_entry.table_id] == table and next(seen) >= first:
            return code, text
        return None

    return refuse


async def written(edge: Edge, batch: WriteBatch) -> list[p4r.WriteRequest]:
    """Write a batch that is not refused and return its requests."""
    edge.device.writes.clear()
    assert await edge.plane.write(batch) == []
    return edge.device.writes


async def test_inserts_go_from_the_inside_out(edge: Edge) -> None:
    assert tables(await written(edge, everything(Op.INSERT))) == [
        {"policer", "reason"},
        {"router_interface", "router_interface_egress"},
        {"nexthop"},
        {"nexthop_group"},
        {"ipv4_route"},
        {"ipv6_route"},
        {"l3_admit"},
        {"interface_classifier"},
    ]


async def test_deletes_go_from_the_outside_in(edge: Edge) -> None:
    await edge.plane.write(everything(Op.INSERT))
    assert tables(await written(edge, everything(Op.DELETE))) == [
        {"interface_classifier"},
        {"l3_admit"},
        {"ipv4_route"},
        {"ipv6_route"},
        {"nexthop_group"},
        {"nexthop"},
        {"router_interface", "router_interface_egress"},
        {"policer", "reason"},
    ]


async def test_what_the_device_holds_already_is_not_written(edge: Edge) -> None:
    batch = everything(Op.INSERT)
    batch.routes = []
    await edge.plane.write(batch)
    assert await written(edge, batch) == []


async def test_only_changed_rows_are_modified(edge: Edge) -> None:
    await edge.plane.write(everything(Op.INSERT))
    longer = RouterInterface(RED.id, RED.vrf_id, RED.port, RED.vlan, RED.mac, 9000)
    (request,) = await written(edge, WriteBatch(router_interfaces=[Update(Op.MODIFY, longer)]))
    assert tables([request]) == [{"router_interface"}]
    assert [update.type for update in request.updates] == [p4r.Update.MODIFY]


async def test_a_fallback_link_comes_before_the_routes(edge: Edge) -> None:
    await edge.plane.write(everything(Op.INSERT))
    batch = WriteBatch(router_interfaces=[Update(Op.MODIFY, LINKED)], routes=columns({"0.0.0.0/0": FALLBACK}))
    assert tables(await written(edge, batch)) == [{"fallback_link"}, {"interface_classifier"}, {"ipv4_route"}]
    assert (await edge.plane.read()).router_interfaces == {1: LINKED}


async def test_a_fallback_link_is_shut_before_the_routes_and_gone_after_them(edge: Edge) -> None:
    batch = WriteBatch(router_interfaces=[Update(Op.INSERT, LINKED)], routes=columns({"0.0.0.0/0": FALLBACK}))
    await edge.plane.write(batch)
    leaves = WriteBatch(router_interfaces=[Update(Op.MODIFY, RED)], routes=columns({"0.0.0.0/0": LOCAL}, Op.MODIFY))
    assert tables(await written(edge, leaves)) == [{"interface_classifier"}, {"ipv4_route"}, {"fallback_link"}]
    assert (await edge.plane.read()).router_interfaces == {1: RED}


async def test_a_damaged_fallback_link_is_named_and_mended(edge: Edge) -> None:
    await edge.plane.write(WriteBatch(router_interfaces=[Update(Op.INSERT, LINKED)]))
    (row,) = edge.device.rows("fallback_link")
    row.action.action.params[0].value = b"\2"
    assert (await edge.plane.read()).damaged == {("router_interface", 1)}
    assert await edge.plane.write(WriteBatch(router_interfaces=[Update(Op.MODIFY, LINKED)])) == []
    assert (await edge.plane.read()).router_interfaces == {1: LINKED}


async def test_a_vlan_is_closed_for_the_old_before_it_is_opened_for_the_new(edge: Edge) -> None:
    await edge.plane.write(WriteBatch(router_interfaces=[Update(Op.INSERT, RED)]))
    moved = RouterInterface(RED.id, RED.vrf_id, 1, 200, RED.mac, 1500)
    handover = WriteBatch(router_interfaces=[Update(Op.INSERT, BLUE), Update(Op.MODIFY, moved)])
    requests = await written(edge, handover)
    order = [
        (names.pop(), [update.type for update in request.updates])
        for names, request in zip(tables(requests), requests, strict=True)
        if "interface_classifier" in names
    ]
    assert order == [
        ("interface_classifier", [p4r.Update.DELETE]),
        ("interface_classifier", [p4r.Update.INSERT, p4r.Update.INSERT]),
    ]
    assert tables(requests)[0] == {"interface_classifier"}
    assert {one.id: one for one in (await edge.plane.read()).router_interfaces.values()} == {1: moved, 2: BLUE}


async def test_two_interfaces_change_places(edge: Edge) -> None:
    there = RouterInterface(2, 8, 1, 200, BLUE.mac, 1500)
    await edge.plane.write(WriteBatch(router_interfaces=[Update(Op.INSERT, RED), Update(Op.INSERT, there)]))
    swapped = [RouterInterface(1, 7, 1, 200, RED.mac, 1500), RouterInterface(2, 8, 1, 100, BLUE.mac, 1500)]
    assert await edge.plane.write(WriteBatch(router_interfaces=[Update(Op.MODIFY, one) for one in swapped])) == []
    assert list((await edge.plane.read()).router_interfaces.values()) == swapped


async def test_a_mac_that_changes_leaves_no_old_one_admitted(edge: Edge) -> None:
    await edge.plane.write(WriteBatch(router_interfaces=[Update(Op.INSERT, RED)]))
    other = RouterInterface(RED.id, RED.vrf_id, RED.port, RED.vlan, bytes((2, 0, 0, 0, 0, 9)), 1500)
    await edge.plane.write(WriteBatch(router_interfaces=[Update(Op.MODIFY, other)]))
    assert len(edge.device.rows("l3_admit")) == 1
    assert (await edge.plane.read()).router_interfaces == {1: other}


async def test_a_disabled_interface_is_closed(edge: Edge) -> None:
    await edge.plane.write(WriteBatch(router_interfaces=[Update(Op.INSERT, RED)]))
    off = RouterInterface(RED.id, RED.vrf_id, RED.port, RED.vlan, RED.mac, RED.mtu, (), enabled=False)
    assert tables(await written(edge, WriteBatch(router_interfaces=[Update(Op.MODIFY, off)]))) == [
        {"interface_classifier"}
    ]
    assert not edge.device.rows("interface_classifier")


async def test_a_route_that_is_there_is_modified_and_one_that_is_not_inserted(edge: Edge) -> None:
    await edge.plane.write(WriteBatch(routes=columns({"10.0.0.0/8": LOCAL})))
    both = {"10.0.0.0/8": GLEAN, "11.0.0.0/8": GLEAN}
    assert await edge.plane.write(WriteBatch(routes=columns(both))) == []
    assert await edge.plane.write(WriteBatch(routes=columns({"12.0.0.0/8": GLEAN}, Op.MODIFY))) == []
    assert await edge.plane.write(WriteBatch(routes=columns({"13.0.0.0/8": GLEAN}, Op.DELETE))) == []
    held = (await edge.plane.read()).routes[7]
    assert held == dict.fromkeys(map(prefix_key, ("10.0.0.0/8", "11.0.0.0/8", "12.0.0.0/8")), GLEAN)


async def test_a_row_that_appeared_behind_our_back_is_modified(edge: Edge) -> None:
    await edge.plane.write(WriteBatch(nexthops=[Update(Op.INSERT, NEXTHOP)]))
    (row,) = edge.device.rows("nexthop")
    await edge.plane.write(WriteBatch(nexthops=[Update(Op.DELETE, NEXTHOP)]))
    edge.device.entries[p4r.TableEntry(table_id=row.table_id, match=row.match).SerializeToString()] = row
    other = Nexthop(1, 2, bytes((2, 0, 0, 0, 1, 9)))
    assert await edge.plane.write(WriteBatch(nexthops=[Update(Op.INSERT, other)])) == []
    assert (await edge.plane.read()).nexthops == {1: other}


async def test_refused_updates_are_named_and_the_rest_is_in_force(edge: Edge) -> None:
    edge.device.refuse = refusing("ipv4_route", rpc_code.INVALID_ARGUMENT, "not\nthis one", first=2)
    prefixes = {f"10.{n}.0.0/16": LOCAL for n in range(3)}
    (refused,) = await edge.plane.write(WriteBatch(routes=columns(prefixes)))
    assert (refused.table, refused.vrf_id, refused.op, refused.full) == ("ipv4_route", 7, Op.INSERT, False)
    assert refused.key == prefix_key("10.2.0.0/16")
    assert refused.reason == "not this one"
    assert len(edge.device.rows("ipv4_route")) == 2


async def test_a_request_of_which_everything_is_refused_at_length_is_told_update_by_update(edge: Edge) -> None:
    edge.device.refuse = refusing("ipv4_route", rpc_code.INTERNAL, "a long reason " * 20)
    keys = [bytes((10, n >> 8, n & 255, 0, 24)) for n in range(UPDATES_PER_REQUEST)]
    routes = RouteUpdates(7, 4, [Op.INSERT] * len(keys), keys, [LOCAL] * len(keys))
    refused = await edge.plane.write(WriteBatch(routes=[routes]))
    assert [one.key for one in refused] == keys
    assert edge.plane.connected


async def test_want_of_room_is_told(edge: Edge) -> None:
    edge.device.refuse = refusing("nexthop", rpc_code.RESOURCE_EXHAUSTED, "table full")
    (refused,) = await edge.plane.write(WriteBatch(nexthops=[Update(Op.INSERT, NEXTHOP)]))
    assert (refused.table, refused.key, refused.full) == ("nexthop", 1, True)


async def test_an_interface_whose_way_out_is_refused_gets_no_way_in(edge: Edge) -> None:
    edge.device.refuse = refusing("router_interface_egress", rpc_code.INTERNAL, "no")
    (refused,) = await edge.plane.write(WriteBatch(router_interfaces=[Update(Op.INSERT, RED)]))
    assert (refused.table, refused.vrf_id, refused.key) == ("router_interface", 7, 1)
    assert not edge.device.rows("l3_admit")
    assert not edge.device.rows("interface_classifier")
    edge.device.refuse = lambda _: None
    assert await edge.plane.write(WriteBatch(router_interfaces=[Update(Op.INSERT, RED)])) == []
    assert (await edge.plane.read()).router_interfaces == {1: RED}


@pytest.mark.parametrize("table", ["router_interface", "fallback_link", "interface_classifier", "l3_admit"])
async def test_nothing_stays_of_a_new_interface_that_is_refused(edge: Edge, table: str) -> None:
    edge.device.refuse = refusing(table, rpc_code.RESOURCE_EXHAUSTED, "full")
    before = dict(edge.device.entries)
    (refused,) = await edge.plane.write(WriteBatch(router_interfaces=[Update(Op.INSERT, LINKED)]))
    assert (refused.table, refused.key, refused.full) == ("router_interface", 1, True)
    assert edge.device.entries == before
    edge.device.refuse = lambda _: None
    assert await edge.plane.write(WriteBatch(router_interfaces=[Update(Op.INSERT, LINKED)])) == []
    assert (await edge.plane.read()).router_interfaces == {1: LINKED}


async def test_nothing_stays_of_a_new_policer_that_is_refused(edge: Edge) -> None:
    full = refusing("policer", rpc_code.RESOURCE_EXHAUSTED, "full", first=2)
    edge.device.refuse = lambda update: full(update) if update.type == p4r.Update.INSERT else None
    before = dict(edge.device.entries)
    (refused,) = await edge.plane.write(WriteBatch(policers=[Update(Op.INSERT, Policer(7, same_rate(1)))]))
    assert (refused.table, refused.key) == ("policer", 7)
    assert edge.device.entries == before


async def test_what_is_there_stays_where_a_change_of_it_is_refused(edge: Edge) -> None:
    assert await edge.plane.write(WriteBatch(router_interfaces=[Update(Op.INSERT, RED)])) == []
    before = dict(edge.device.entries)
    edge.device.refuse = refusing("fallback_link", rpc_code.RESOURCE_EXHAUSTED, "full")
    (refused,) = await edge.plane.write(WriteBatch(router_interfaces=[Update(Op.MODIFY, LINKED)]))
    assert refused.op is Op.MODIFY
    assert edge.device.entries == before


@pytest.mark.parametrize(
    ("batch", "table", "reason"),
    [
        (WriteBatch(routes=columns({"10.0.0.0/8": via(9)})), "ipv4_route", "nexthop 9 does not exist"),
        (
            WriteBatch(routes=columns({"10.0.0.0/8": 0})),
            "ipv4_route",
            "this plane does not offer such a route action",
        ),
        (WriteBatch(groups=[Update(Op.INSERT, GROUP)]), "nexthop_group", "nexthop 1 does not exist"),
        (
            WriteBatch(router_interfaces=[Update(Op.INSERT, RouterInterface(1, 7, 512, 0, bytes(6), 1500))]),
            "router_interface",
            "512 does not fit 9 bits",
        ),
    ],
)
async def test_what_cannot_be_is_refused_here(edge: Edge, batch: WriteBatch, table: str, reason: str) -> None:
    edge.device.writes.clear()
    (refused,) = await edge.plane.write(batch)
    assert (refused.table, refused.reason) == (table, reason)
    assert edge.device.writes == []


async def test_a_route_to_a_nexthop_deleted_since_is_refused(edge: Edge) -> None:
    await edge.plane.write(everything(Op.INSERT))
    assert await edge.plane.write(WriteBatch(groups=[Update(Op.DELETE, GROUP)])) == []
    (refused,) = await edge.plane.write(WriteBatch(routes=columns({"10.1.0.0/16": via_group(3)})))
    assert refused.reason == "nexthop_group 3 does not exist"


async def test_routes_of_several_batches_are_under_way_together(edge: Edge) -> None:
    edge.device.writes.clear()
    edge.device.gate.clear()
    writes = [
        asyncio.create_task(edge.plane.write(WriteBatch(routes=columns({f"10.{n}.0.0/16": LOCAL})))) for n in range(2)
    ]
    await edge.device.until(lambda: len(edge.device.writes) == 2)
    edge.device.gate.set()
    assert await asyncio.gather(*writes) == [[], []]


async def test_a_key_waits_for_its_earlier_write(edge: Edge) -> None:
    edge.device.writes.clear()
    edge.device.gate.clear()
    first = asyncio.create_task(edge.plane.write(WriteBatch(routes=columns({"10.0.0.0/16": LOCAL}))))
    second = asyncio.create_task(edge.plane.write(WriteBatch(routes=columns({"10.0.0.0/16": BLACKHOLE}, Op.MODIFY))))
    other = asyncio.create_task(edge.plane.write(WriteBatch(routes=columns({"10.0.0.0/16": LOCAL}, vrf_id=8))))
    await edge.device.until(lambda: edge.device.writes)
    edge.device.gate.set()
    assert await asyncio.gather(first, second, other) == [[], [], []]
    assert (await edge.plane.read()).routes[7] == {prefix_key("10.0.0.0/16"): BLACKHOLE}
    assert edge.device.ops("ipv4_route")[:2] == [p4r.Update.INSERT, p4r.Update.MODIFY]


async def test_what_routes_use_goes_when_their_change_is_confirmed(edge: Edge) -> None:
    await edge.plane.write(everything(Op.INSERT))
    edge.device.writes.clear()
    edge.device.gate.clear()
    leave = asyncio.create_task(edge.plane.write(WriteBatch(routes=columns({"10.0.0.0/8": LOCAL}, Op.MODIFY))))
    await edge.device.until(lambda: edge.device.writes)
    drop = asyncio.create_task(edge.plane.write(WriteBatch(groups=[Update(Op.DELETE, GROUP)])))
    edge.device.punt(1, PuntReason.LOCAL, b"a round trip, in which it could go too early")
    await edge.heard.until(lambda: edge.heard.packets)
    assert tables(edge.device.writes) == [{"ipv4_route"}]
    edge.device.gate.set()
    assert await asyncio.gather(leave, drop) == [[], []]
    assert tables(edge.device.writes) == [{"ipv4_route"}, {"nexthop_group"}]


async def test_requests_are_bounded(edge: Edge) -> None:
    count = 2 * UPDATES_PER_REQUEST + 1
    keys = [bytes((10, n >> 8, n & 255, 0, 24)) for n in range(count)]
    routes = RouteUpdates(7, 4, [Op.INSERT] * count, keys, [LOCAL] * count)
    edge.device.writes.clear()
    assert await edge.plane.write(WriteBatch(routes=[routes])) == []
    assert sorted(len(request.updates) for request in edge.device.writes) == [1, 1000, 1000]
    assert len((await edge.plane.read()).routes[7]) == count


async def test_a_new_controller_takes_over_what_is_there_and_writes_nothing(one: Device) -> None:
    async with attached(one) as first:
        await first.plane.write(everything(Op.INSERT))
        held = await first.plane.read()
    one.writes.clear()
    async with attached(one) as second:
        assert await second.plane.read() == held
        assert one.writes == []
        batch = everything(Op.INSERT)
        batch.routes = []
        assert await second.plane.write(batch) == []
        assert one.writes == []
        assert await second.plane.write(everything(Op.DELETE)) == []
        assert (await second.plane.read()).routes == {}


async def test_damaged_entries_are_named_and_mended(edge: Edge) -> None:
    await edge.plane.write(everything(Op.INSERT))
    (row,) = edge.device.rows("l3_admit")
    del edge.device.entries[p4r.TableEntry(table_id=row.table_id, match=row.match).SerializeToString()]
    found = await edge.plane.read()
    assert found.damaged == {("router_interface", 1)}
    assert not found.router_interfaces
    assert await edge.plane.write(WriteBatch(router_interfaces=[Update(Op.MODIFY, RED)])) == []
    assert (await edge.plane.read()).router_interfaces == {1: RED}


async def test_the_planes_own_rows_are_put_back_at_each_reading(edge: Edge) -> None:
    own = len(edge.device.rows("reason"))
    assert own > 0
    edge.device.entries.clear()
    found = await edge.plane.read()
    assert len(edge.device.rows("reason")) == own
    assert not found.policers
    assert not found.damaged


async def test_the_time_of_encoding_is_noted_for_whose_entries_they_are(edge: Edge) -> None:
    batch = everything(Op.INSERT)
    batch.routes.append(RouteUpdates(8, 6, [Op.INSERT], [bytes(17)], [LOCAL]))
    await edge.plane.write(batch)
    assert set(batch.encoding.spent_s) == {SHARED, 7, 8}
    assert min(batch.encoding.spent_s.values()) > 0.0
