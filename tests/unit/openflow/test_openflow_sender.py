"""The order in which a batch is sent, and what becomes of refusals, with and without bundles."""

import asyncio
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from os_ken.ofproto import ofproto_v1_3 as of13
from switch_end import SwitchEnd, connected

from controller.planes import base
from controller.planes.base import (
    FallbackLink,
    GroupMember,
    Nexthop,
    NexthopGroup,
    Op,
    Policer,
    RouteKind,
    RouterInterface,
    RouteUpdates,
    Update,
    WriteBatch,
    same_rate,
)
from controller.planes.encoding_time import SHARED
from controller.planes.openflow import program
from controller.planes.openflow.channel import ChannelClosed
from controller.planes.openflow.codec import Command, Multipart, Type
from controller.planes.openflow.readback import Inventory
from controller.planes.openflow.sender import Sender

BAD = bytes((10, 66, 0, 0))
LINK = FallbackLink(2, 300)


@asynccontextmanager
async def sending(bundles: bool = True) -> AsyncIterator[tuple[Sender, SwitchEnd]]:
    async with connected() as (channel, switch):
        yield Sender(channel, Inventory(), bundles), switch


def routes(*seconds: int, op: Op = Op.INSERT) -> WriteBatch:
    keys = [bytes((10, second, 0, 0, 16)) for second in seconds]
    return WriteBatch(routes=[RouteUpdates(1, 4, [op] * len(keys), keys, [base.LOCAL] * len(keys))])


def everything(op: Op) -> WriteBatch:
    batch = routes(1, op=op)
    batch.policers.append(Update(op, Policer(1, same_rate(9))))
    batch.router_interfaces.append(Update(op, RouterInterface(1, 1, 1, 0, bytes(6), 1500, fallback=LINK)))
    batch.nexthops.append(Update(op, Nexthop(1, 1, bytes(6))))
    batch.groups.append(Update(op, NexthopGroup(1, (GroupMember(1, 1, 1),))))
    return batch


def steps(switch: SwitchEnd) -> list[str]:
    """What the switch was sent, in order, as one word a run: table numbers, group kinds, meters, barriers."""
    words: list[str] = []
    for kind, _, body in switch.received:
        word = {
            Type.FLOW_MOD: lambda body=body: f"table {body[16]}",
            Type.GROUP_MOD: lambda body=body: "group" if body[4] == 0x52 else "nexthop",
            Type.BARRIER_REQUEST: lambda: "|",
            29: lambda: "meter",
        }.get(kind, lambda: "")()
        if word and words[-1:] != [word]:
            words.append(word)
    return words


async def test_arrivals_keep_the_order_of_the_contract() -> None:
    async with sending() as (sender, switch):
        assert await sender.write(everything(Op.INSERT)) == []
        order = "meter,|,table 8,|,table 6,table 7,table 10,|,table 0,|,nexthop,|,group,|,table 3,|,table 1,table 0,|"
        assert steps(switch) == order.split(",")


async def test_departures_keep_the_order_of_the_contract() -> None:
    async with sending() as (sender, switch):
        await sender.write(everything(Op.INSERT))
        switch.received.clear()
        assert await sender.write(everything(Op.DELETE)) == []
        order = "table 0,table 1,|,table 3,|,group,|,nexthop,|,table 10,table 7,table 6,|,table 8,meter,|"
        assert steps(switch) == order.split(",")
        assert sender.inventory == Inventory()


async def test_a_fallback_link_goes_after_the_routes() -> None:
    async with sending() as (sender, switch):
        batch = routes(1)
        batch.router_interfaces.append(Update(Op.INSERT, RouterInterface(1, 1, 1, 0, bytes(6), 1500, fallback=LINK)))
        await sender.write(batch)
        switch.received.clear()
        without = routes(1, op=Op.MODIFY)
        without.router_interfaces.append(Update(Op.MODIFY, RouterInterface(1, 1, 1, 0, bytes(6), 1500)))
        assert await sender.write(without) == []
        stale = "table 6,table 7,table 10,table 1,table 0"
        assert steps(switch) == f"table 6,table 7,|,table 3,|,table 1,table 0,{stale},|".split(",")


async def test_a_second_insert_of_a_group_modifies_it() -> None:
    async with sending() as (sender, switch):
        for _ in range(2):
            await sender.write(WriteBatch(nexthops=[Update(Op.INSERT, Nexthop(1, 1, bytes(6)))]))
        assert [body[1] for body in switch.sent(Type.GROUP_MOD)] == [0, 1]


async def test_a_refused_group_is_named_and_added_again_later() -> None:
    async with sending() as (sender, switch):
        switch.refuse = lambda kind, body: (6, 3) if kind == Type.GROUP_MOD else None
        batch = WriteBatch(nexthops=[Update(Op.INSERT, Nexthop(5, 1, bytes(6)))])
        (refused,) = await sender.write(batch)
        assert (refused.table, refused.key, refused.op, refused.full) == ("nexthop", 5, Op.INSERT, True)
        assert "OUT_OF_GROUPS" in refused.reason
        switch.refuse = lambda kind, body: None
        assert await sender.write(batch) == []
        assert [body[1] for body in switch.sent(Type.GROUP_MOD)] == [0, 0]


@pytest.mark.parametrize(
    ("written", "code", "again"),
    [
        (False, of13.OFPMMFC_OUT_OF_METERS, of13.OFPMC_ADD),
        (False, of13.OFPMMFC_METER_EXISTS, of13.OFPMC_MODIFY),
        (True, of13.OFPMMFC_UNKNOWN_METER, of13.OFPMC_ADD),
        (True, of13.OFPMMFC_OUT_OF_BANDS, of13.OFPMC_MODIFY),
    ],
)
async def test_after_a_refusal_meters_are_added_where_they_are_not_there(
    written: bool, code: int, again: int
) -> None:
    async with sending() as (sender, switch):
        batch = WriteBatch(policers=[Update(Op.INSERT, Policer(1, same_rate(9)))])
        if written:
            assert await sender.write(batch) == []
        switch.refuse = lambda kind, _: (of13.OFPET_METER_MOD_FAILED, code) if kind == of13.OFPT_METER_MOD else None
        (refused,) = await sender.write(batch)
        assert (refused.table, refused.key) == ("policer", 1)
        switch.refuse = lambda kind, body: None
        switch.received.clear()
        assert await sender.write(batch) == []
        assert {struct.unpack_from("!H", body)[0] for body in switch.sent(of13.OFPT_METER_MOD)} == {again}


@pytest.mark.parametrize("bundles", [True, False])
async def test_a_bad_route_is_named_and_the_others_are_sent(bundles: bool) -> None:
    async with sending(bundles) as (sender, switch):
        switch.refuse = lambda kind, body: (2, 9) if BAD in body else None
        (refused,) = await sender.write(routes(1, 66, 2))
        assert (refused.table, refused.vrf_id, refused.key) == ("ipv4_route", 1, BAD + b"\x10")
        assert len(switch.sent(Type.FLOW_MOD)) == 3
        assert len(switch.sent(Type.EXPERIMENTER)) == (5 if bundles else 0)


async def test_routes_sent_again_leave_out_what_was_changed_since() -> None:
    async with sending() as (sender, switch):
        switch.refuse = lambda kind, body: (2, 9) if BAD in body else None
        first, second = await asyncio.gather(
            sender.write(routes(1, 66, 2, 3)), sender.write(routes(2, 3, op=Op.DELETE))
        )
        assert ([each.key for each in first], second) == ([BAD + b"\x10"], [])
        again = switch.sent(Type.FLOW_MOD)
        assert len(again) == 2
        assert any(bytes((10, 1, 0, 0)) in body for body in again)


async def test_a_route_sent_again_is_inserted_as_it_was_modified_since() -> None:
    async with sending() as (sender, switch):
        switch.refuse = lambda kind, body: (2, 9) if BAD in body else None
        modified = routes(2, op=Op.MODIFY)
        modified.routes[0].actions = [base.route_action(RouteKind.NEXTHOP, 5)]
        first, second = await asyncio.gather(sender.write(routes(1, 66, 2)), sender.write(modified))
        assert ([each.key for each in first], second) == ([BAD + b"\x10"], [])
        sent = [(body[17], body[40:]) for body in switch.sent(Type.FLOW_MOD) if bytes((10, 2, 0, 0)) in body]
        (modify, became), again = sent[0], sent[1:]
        assert (modify, again) == (Command.MODIFY_STRICT, [(Command.ADD, became)])


async def test_one_entry_is_refused_once_however_many_of_its_flows_are() -> None:
    async with sending() as (sender, switch):
        switch.refuse = lambda kind, body: (5, 0) if kind == Type.FLOW_MOD else None
        interface = RouterInterface(9, 3, 1, 0, bytes(6), 1500)
        refused = await sender.write(WriteBatch(router_interfaces=[Update(Op.INSERT, interface)]))
        assert [(each.table, each.vrf_id, each.key) for each in refused] == [("router_interface", 3, 9)]


async def test_a_group_in_use_is_not_deleted() -> None:
    async with sending() as (sender, switch):
        group_id = program.NEXTHOP_GROUPS | 1
        switch.lists[Multipart.GROUP] = struct.pack("!H2xII4xQQII", 40, group_id, 12, 0, 0, 0, 0)
        (refused,) = await sender.write(WriteBatch(nexthops=[Update(Op.DELETE, Nexthop(1, 1, bytes(6)))]))
        assert refused.reason == "12 flows still use it"
        assert switch.sent(Type.GROUP_MOD) == []


async def test_a_write_under_way_ends_with_the_connection() -> None:
    async with connected() as (channel, switch):
        switch.silent = True
        sender = Sender(channel, Inventory(), True)
        writes = [asyncio.create_task(sender.write(routes(number))) for number in range(8)]
        await switch.until(Type.BARRIER_REQUEST, 3)
        channel.close("cut")
        results = await asyncio.gather(*writes, return_exceptions=True)
        assert all(isinstance(result, ChannelClosed) for result in results)


async def test_only_so_much_is_under_way() -> None:
    async with connected() as (channel, switch):
        switch.silent = True
        sender = Sender(channel, Inventory(), True)
        writes = [asyncio.create_task(sender.write(routes(number))) for number in range(8)]
        await switch.until(Type.BARRIER_REQUEST, 3)
        for _ in range(50):
            await asyncio.sleep(0)
        assert len(switch.sent(Type.BARRIER_REQUEST)) == 3
        switch.silent = False
        for kind, xid, body in list(switch.received):
            switch.answer(kind, xid, body)
        assert await asyncio.gather(*writes) == [[]] * 8


async def test_the_time_of_encoding_is_noted_for_whose_entries_they_are() -> None:
    async with sending() as (sender, _):
        batch = everything(Op.INSERT)
        batch.routes.append(RouteUpdates(2, 6, [Op.INSERT], [bytes(17)], [base.LOCAL]))
        await sender.write(batch)
        assert set(batch.encoding.spent_s) == {SHARED, 1, 2}
        assert min(batch.encoding.spent_s.values()) > 0.0
