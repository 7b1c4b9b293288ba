"""Contract entries as flows, groups and meters, and back; what is not exactly ours is not taken for ours."""

import asyncio
import struct

import pytest
from os_ken.ofproto import ofproto_v1_3_parser as parser

from controller.planes.base import (
    DropReason,
    FallbackLink,
    Policer,
    PuntClass,
    PuntPlace,
    PuntReason,
    RouterInterface,
    burst,
    same_rate,
)
from controller.planes.openflow import codec, pipeline, program
from controller.planes.openflow.codec import Command, Flow, FlowStatistics
from controller.planes.openflow.messages import MeterCounts, decode_meter_counts
from controller.planes.openflow.policers import MeterLayout, policer_flows
from controller.planes.openflow.program import Kind, Table
from controller.planes.openflow.readback import Inventory, Readback, count
from controller.planes.punt_class import CLASSES_OF


def flows_of(interface: RouterInterface, generation: int) -> list[Flow]:
    makers = program.egress_flows, program.way_back_flows, program.ingress_flows
    return [flow for make in makers for flow in make(interface, generation)]


def stats_body(flow: Flow) -> bytes:
    """A flow statistics entry made of the flow-mod that writes the flow."""
    octets = codec.flow_mod(Command.ADD, flow, 1)[8 + 40 :]
    fixed = struct.pack("!BxIIHHHH4xQQQ", flow.table, 1, 2, flow.priority, 0, 0, 0, flow.cookie, 5, 500)
    return struct.pack("!H", 2 + len(fixed) + len(octets)) + fixed + octets


def test_the_pipeline_is_what_it_reads_back_as() -> None:
    flows = pipeline.static_flows()
    assert len({flow.key for flow in flows}) == len(flows)
    assert [codec.decode_flow(stats_body(flow)).flow for flow in flows] == flows
    assert {flow.table for flow in flows} == set(Table) - {Table.PACKET_IN, Table.ROUTER_INTERFACE}


def test_every_flow_is_openflow_to_os_ken() -> None:
    interface = RouterInterface(1, 2, 3, 4, bytes(6), 1500, (b"\2" * 6,), fallback=FallbackLink(5, 6))
    flows = [
        *pipeline.static_flows(),
        *flows_of(interface, 1),
        *policer_flows(Policer(2, tuple(range(1, 12))), 0, 0, MeterLayout()),
    ]
    for flow in flows:
        seen = parser.OFPFlowStats.parser(stats_body(flow), 0)
        assert (seen.table_id, seen.priority, seen.cookie) == (flow.table, flow.priority, flow.cookie)
        assert sum(instruction.len for instruction in seen.instructions) == len(flow.instructions)


async def test_the_pipelines_differences_are_found() -> None:
    readback = Readback(MeterLayout())
    flows = pipeline.static_flows()
    changed = Flow(flows[3].table, flows[3].priority, flows[3].cookie, flows[3].match, bytes(8))
    stray = codec.flow(2, 7, program.cookie(Kind.STATIC), (), b"")
    readback.flows = [FlowStatistics(flow, 0, 0) for flow in [changed, *flows[4:], stray]]
    missing, strange = await readback.pipeline_changes()
    assert (missing, strange) == (flows[:4], [stray])


@pytest.mark.parametrize("present", [{0}, {3}, {0, 1}, {3, 0}, {2, 3, 0}, {0, 2}])
async def test_the_next_generation_of_an_entry_has_no_flows_yet(present: set[int]) -> None:
    readback = Readback(MeterLayout())
    for generation in present:
        flows = flows_of(RouterInterface(3, 7, 1, 10 + generation, bytes(6), 1500), generation)
        readback.flows += [FlowStatistics(flow, 0, 0) for flow in flows]
    assert (await readback.inventory()).next_generation(Kind.ROUTER_INTERFACE, 3) not in present


async def test_counters_are_added_up_by_what_flows_belong_to() -> None:
    interface = RouterInterface(5, 7, 1, 0, bytes(6), 1500, fallback=FallbackLink(2, 300))
    flows = [
        *pipeline.static_flows(),
        *flows_of(interface, 2),
        *policer_flows(Policer(7, same_rate(1)), 1, 0, MeterLayout()),
        codec.flow(0, 9, 0xF00, (), b""),
    ]
    layout = MeterLayout()
    metered = {
        layout.meter(1, PuntClass.MTU): MeterCounts(7, 180),
        layout.meter(1, PuntClass.TTL): MeterCounts(9, 90, dropped=4),
    }
    counters = await count([FlowStatistics(flow, 2, 30) for flow in flows], Inventory(slots={7: 1}), metered)
    seen = counters.router_interfaces
    assert [(each.rx_packets, each.tx_bytes) for each in seen.values()] == [(2, 30)]
    flows_of_reason = {reason: len(CLASSES_OF[reason]) for reason in PuntReason}
    exact = {(7, reason): (2 * flows, 30 * flows) for reason, flows in flows_of_reason.items()}
    assert counters.punts == exact | {(7, PuntReason.MTU_EXCEEDED): (7, 180)}
    assert counters.drops[7, DropReason.BLACKHOLE] == (2, 30)
    assert counters.drops[0, DropReason.UNKNOWN_INTERFACE] == (2, 30)
    assert {vrf_id for vrf_id, _ in counters.drops} == {0, 7}
    assert counters.lost_of_routers == {(7, PuntClass.TTL, PuntPlace.POLICER): 4}


async def test_others_have_the_loop_while_what_a_switch_said_is_sorted_and_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of 8,000 routers that is 2.8 s."""
    layout, turns = MeterLayout(), 0

    async def another() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    interfaces = [RouterInterface(id_, id_, 1, id_, bytes(6), 1500) for id_ in (1, 2, 3)]
    flows = [flow for one in interfaces for flow in flows_of(one, 0)]
    flows += [flow for id_ in (1, 2, 3) for flow in policer_flows(Policer(id_, same_rate(1)), id_, 0, layout)]
    readback = Readback(layout)
    readback.flows = [FlowStatistics(flow, 2, 30) for flow in flows]
    readback.meters = {number: (1, burst(1)) for slot in (1, 2, 3, 4) for number in layout.meters(slot)}
    whole = await readback.inventory(), await readback.installed()
    assert (whole[0].slots, whole[1].damaged) == ({1: 1, 2: 2, 3: 3}, set())
    counted = await count(readback.flows, whole[0], {})
    monkeypatch.setattr("controller.planes.openflow.readback.FLOWS_AT_ONCE", 1)
    monkeypatch.setattr("controller.planes.openflow.readback.ENTRIES_AT_ONCE", 1)
    task = asyncio.create_task(another())
    await asyncio.sleep(0)
    taken = [turns]
    for work, expected in (
        (readback.inventory(), whole[0]),
        (readback.installed(), whole[1]),
        (count(readback.flows, whole[0], {}), counted),
        (readback.unused_meters(whole[0]), set(layout.meters(4))),
        (readback.pipeline_changes(), (pipeline.static_flows(), [])),
    ):
        assert await work == expected  # type: ignore[comparison-overlap]
        taken.append(turns - sum(taken))
    task.cancel()
    of_flows, entries, meters = len(flows), 6, len(readback.meters)
    assert taken[1:] == [of_flows + entries, of_flows + entries, of_flows + 3, of_flows + meters, of_flows]


async def test_a_shared_meter_tells_its_most_urgent_class_and_what_was_too_long() -> None:
    """What the flows of the others have counted is not MTU_EXCEEDED, and a late meter is no negative number."""
    layout = MeterLayout((frozenset({PuntClass.OPTIONS, PuntClass.MTU, PuntClass.GLEAN}),))
    flows = [FlowStatistics(flow, 2, 30) for flow in policer_flows(Policer(7, same_rate(1)), 3, 0, layout)]
    number = layout.meter(3, PuntClass.MTU)
    assert layout.meters(3)[number] == (PuntClass.GLEAN, PuntClass.MTU, PuntClass.OPTIONS)
    for met, too_long in ((MeterCounts(11, 100, dropped=4), (5, 10)), (MeterCounts(5, 80), (0, 0))):
        counters = await count(flows, Inventory(slots={7: 3}, layout=layout), {number: met})
        assert counters.punts[7, PuntReason.MTU_EXCEEDED] == too_long, "without glean, options and hop-by-hop"
        lost = {(7, PuntClass.GLEAN, PuntPlace.POLICER): 4}
        assert counters.lost_of_routers == (lost if met.dropped else {})


def test_a_meter_says_what_its_band_has_dropped() -> None:
    with_band = struct.pack("!IH6xIQQIIQQ", 4096, 56, 1, 100, 6400, 1, 0, 80, 5120)
    without = struct.pack("!IH6xIQQII", 4097, 40, 1, 3, 192, 1, 0)
    assert decode_meter_counts(with_band + without) == {
        4096: MeterCounts(100, 6400, dropped=80),
        4097: MeterCounts(3, 192),
    }
    assert decode_meter_counts(with_band[:45]) == {4096: MeterCounts(100, 6400)}, "cut off"
