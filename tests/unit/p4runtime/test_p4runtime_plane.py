"""A plane's life: connecting, being primary or not, and devices that fail in every way."""

import asyncio
from dataclasses import replace
from pathlib import Path

import grpc
import pytest
from finsy.proto import p4r, rpc_code
from openflow_net import columns

from controller.errors import PlaneUnreachable
from controller.planes.base import (
    LOCAL,
    DropReason,
    Installed,
    InterfaceCounters,
    Nexthop,
    Op,
    Policer,
    PortState,
    PuntReason,
    RouterInterface,
    Update,
    WriteBatch,
    same_rate,
)
from controller.planes.p4runtime.channel import Timing
from controller.planes.p4runtime.p4info import golden_pipeline
from tests.unit.p4runtime.edge import QUICK, Edge, attached
from tests.unit.p4runtime.server import Device, device
from wire.columns import prefix_key

NEAR = RouterInterface(3, 7, 1, 12, bytes((2, 0, 0, 0, 0, 1)), 1500)
ROUTE = WriteBatch(routes=columns({"10.0.0.0/8": LOCAL}))
IMPATIENT = Timing(answer_s=0.05, read_s=0.05, retry_s=0.01, retry_max_s=0.04)
LATER = 1 << 62
MOST_OF_A_HALF = (1 << 64) - 1
"""Starting time of a controller that comes after ours."""


# -- connecting ------------------------------------------------------------------------------------------------------
async def test_a_connection_brings_the_pipeline_and_the_ports(edge: Edge) -> None:
    assert edge.device.pipeline is not None
    assert edge.device.pipeline.cookie.cookie == golden_pipeline().cookie
    assert edge.device.pushes == 1
    objects = {"nexthop": 65_536, "nexthop_group": 16_384, "interface_classifier": 16_384}
    assert edge.plane.table_sizes == {"ipv4_route": 1_048_576, "ipv6_route": 262_144} | objects
    assert edge.plane.ports == {1: PortState(1, "p1", True), 2: PortState(2, "p2", True)} == edge.heard.ports
    assert len(edge.device.rows("reason")) == len(DropReason)
    assert await edge.plane.read() == Installed()


async def test_a_pipeline_that_is_there_is_not_pushed_again(edge: Edge) -> None:
    await edge.plane.write(ROUTE)
    assert edge.plane.channel is not None
    edge.plane.channel.close("cut")
    await edge.connected_again()
    assert edge.device.pushes == 1
    assert (await edge.plane.read()).routes == {7: {prefix_key("10.0.0.0/8"): LOCAL}}
    assert edge.heard.disconnects == ["cut"]


async def test_a_device_that_restarts_empty_gets_the_pipeline_again(edge: Edge) -> None:
    await edge.plane.write(ROUTE)
    await edge.device.restart_empty()
    await edge.connected_again()
    assert edge.device.pushes == 2
    assert await edge.plane.read() == Installed()
    assert await edge.plane.write(ROUTE) == []


async def test_another_pipeline_is_replaced(one: Device) -> None:
    cookie = p4r.ForwardingPipelineConfig.Cookie(cookie=1)
    one.pipeline = p4r.ForwardingPipelineConfig(cookie=cookie)
    async with attached(one):
        assert one.pushes == 1
        assert one.pipeline.cookie.cookie == golden_pipeline().cookie


async def test_a_pipeline_replaced_meanwhile_is_found_out(one: Device) -> None:
    async with attached(one, Timing(alive_s=0.01, retry_s=0.01)) as edge:
        one.pipeline = p4r.ForwardingPipelineConfig(cookie=p4r.ForwardingPipelineConfig.Cookie(cookie=1))
        await edge.connected_again()
        assert edge.heard.disconnects == ["the device runs another pipeline now"]
        assert one.pushes == 2


async def test_a_device_that_is_not_there_is_named_once_and_tried_again(tmp_path: Path) -> None:
    one = Device(tmp_path / "p4rt.sock")
    async with attached(one, connect=False) as edge:
        await edge.heard.until(lambda: edge.heard.disconnects)
        with pytest.raises(PlaneUnreachable, match="plane edge is not reachable: not reachable at unix:"):
            await edge.plane.read()
        await one.start()
        await edge.connected_again(0)
        assert len(edge.heard.disconnects) == 1
        assert edge.heard.disconnects[0].startswith(f"not reachable at unix:{tmp_path}/p4rt.sock: ")
        await one.stop()


async def test_a_device_that_refuses_the_pipeline_is_named(one: Device) -> None:
    one.aborts["SetForwardingPipelineConfig"] = (grpc.StatusCode.INVALID_ARGUMENT, "what is this")
    async with attached(one, connect=False) as edge:
        await edge.heard.until(lambda: edge.heard.disconnects)
        assert edge.heard.disconnects == ["the device refuses the pipeline: what is this (INVALID_ARGUMENT)"]
        one.aborts.clear()
        await edge.connected_again(0)


async def test_a_device_that_refuses_the_planes_own_rows_is_named(one: Device) -> None:
    one.refuse = lambda update: (rpc_code.INTERNAL, "broken")
    async with attached(one, connect=False) as edge:
        await edge.heard.until(lambda: edge.heard.disconnects)
        assert edge.heard.disconnects == ["the device refuses the plane's own entries: broken"]


async def test_closing_leaves_everything_installed(one: Device) -> None:
    async with attached(one) as edge:
        await edge.plane.write(ROUTE)
    assert edge.heard.disconnects == ["closed by the controller"]
    assert edge.plane.ports == {}
    assert len(one.rows("ipv4_route")) == 1
    assert not edge.plane.packet_out(NEAR, b"late")


# -- who is primary --------------------------------------------------------------------------------------------------
async def test_a_later_controller_takes_over_and_is_named(edge: Edge) -> None:
    rival = edge.device.rival((LATER, 5))
    await edge.heard.until(lambda: edge.heard.disconnects)
    named = f"another controller is primary (election id {LATER}.5)"
    assert edge.heard.disconnects == [named]
    assert edge.plane.ports == {}
    with pytest.raises(PlaneUnreachable, match="another controller is primary"):
        await edge.plane.write(ROUTE)
    edge.device.leave(rival)
    await edge.connected_again()
    assert await edge.plane.write(ROUTE) == []
    assert edge.device.pushes == 1


async def test_what_another_controller_changed_is_seen_when_it_leaves(edge: Edge) -> None:
    await edge.plane.write(ROUTE)
    rival = edge.device.rival((LATER, 0))
    await edge.heard.until(lambda: edge.heard.disconnects)
    edge.device.entries.clear()
    edge.device.leave(rival)
    await edge.connected_again()
    assert len(edge.device.rows("reason")) == len(DropReason)
    assert await edge.plane.read() == Installed()


async def test_a_device_with_a_primary_is_waited_for(one: Device) -> None:
    rival = one.rival((LATER, 0))
    async with attached(one, connect=False) as edge:
        await edge.heard.until(lambda: edge.heard.disconnects)
        assert edge.heard.disconnects == [f"another controller is primary (election id {LATER}.0)"]
        assert one.pushes == 0
        one.leave(rival)
        await edge.connected_again(0)


async def come_and_go(edge: Edge) -> None:
    """Let another controller be primary for a moment, while a request of ours waits, and change what it can."""
    edge.device.gate.clear()
    edge.device.asked.clear()
    await edge.device.until(lambda: edge.device.asked)
    rival = edge.device.rival((LATER, 0))
    await edge.heard.until(lambda: edge.heard.disconnects)
    edge.device.entries.clear()
    edge.device.leave(rival)
    assert edge.plane.channel is not None
    await edge.plane.channel.until_primary()
    edge.device.gate.set()


async def test_a_rival_that_comes_and_goes_between_two_looks_is_noticed(one: Device) -> None:
    async with attached(one, replace(QUICK, alive_s=0.01)) as edge:
        await come_and_go(edge)
        await edge.connected_again()
        assert len(one.rows("reason")) == len(DropReason)


async def test_a_rival_that_comes_and_goes_during_the_set_up_is_noticed(one: Device) -> None:
    features = asyncio.Event()

    def note(wanted: p4r.Entity) -> None:
        if wanted.HasField("extern_entry") and one.entries:
            one.gate.clear()
            features.set()

    one.refuse_read = note
    async with attached(one, connect=False) as edge:
        await features.wait()
        one.refuse_read = lambda _wanted: None
        await come_and_go(edge)
        await edge.connected_again(0)
        assert len(one.rows("reason")) == len(DropReason)


async def test_what_is_left_of_our_own_connection_is_outbid(one: Device) -> None:
    async with attached(one) as edge:
        ghost = one.streams[0]
        ghost_id = ghost.election_id
        assert edge.plane.channel is not None
        edge.plane.channel.close("cut")
        one.streams.append(type(ghost)(ghost_id))
        await edge.connected_again()
        assert one.primary is not None
        assert one.primary.election_id == (ghost_id[0], ghost_id[1] + 1)


async def test_what_is_left_of_our_own_connection_is_outbid_after_a_raise_too(edge: Edge) -> None:
    (stream,) = edge.device.streams
    edge.device.tell_role(stream, rpc_code.NOT_FOUND, (LATER, 7))
    await edge.connected_again()
    assert edge.plane.channel is not None
    edge.plane.channel.close("cut")
    edge.device.streams.append(type(stream)(stream.election_id))
    async with asyncio.timeout(10):
        await edge.connected_again(2)
    assert edge.device.primary is not None
    assert edge.device.primary.election_id == (LATER, 9)
    assert edge.heard.disconnects[1:] == ["cut", "what is left of an earlier connection is primary"]


async def test_a_restarted_controller_is_primary_over_its_predecessor(
    one: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with attached(one) as first:
        monkeypatch.setattr("controller.planes.p4runtime.plane.time.time_ns", lambda: LATER * 1_000_000)
        async with attached(one) as second:
            await first.heard.until(lambda: first.heard.disconnects)
            assert second.plane.connected
            assert first.heard.disconnects[0].startswith("another controller is primary (election id ")


async def test_without_any_primary_ours_is_raised(edge: Edge) -> None:
    (stream,) = edge.device.streams
    edge.device.tell_role(stream, rpc_code.NOT_FOUND, (LATER, 7))
    await edge.connected_again()
    assert edge.heard.disconnects == ["no controller is primary"]
    assert stream.election_id == (LATER, 8)
    assert await edge.plane.write(ROUTE) == []


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ((LATER, MOST_OF_A_HALF), (LATER + 1, 0)),
        ((MOST_OF_A_HALF, MOST_OF_A_HALF - 1), (MOST_OF_A_HALF, MOST_OF_A_HALF)),
        ((MOST_OF_A_HALF, MOST_OF_A_HALF), (MOST_OF_A_HALF, MOST_OF_A_HALF)),
    ],
)
async def test_no_election_id_of_another_is_too_high(
    edge: Edge, theirs: tuple[int, int], ours: tuple[int, int]
) -> None:
    (stream,) = edge.device.streams
    edge.device.tell_role(stream, rpc_code.NOT_FOUND, theirs)
    await edge.connected_again()
    assert stream.election_id == ours
    assert await edge.plane.write(ROUTE) == []


async def test_a_write_that_comes_too_late_is_refused_by_name(edge: Edge) -> None:
    edge.device.aborts["Write"] = (grpc.StatusCode.PERMISSION_DENIED, "Not primary")
    with pytest.raises(PlaneUnreachable, match="the device refused Write: Not primary"):
        await edge.plane.write(ROUTE)
    edge.device.aborts.clear()
    await edge.connected_again()
    assert await edge.plane.write(ROUTE) == []


# -- devices that fail -----------------------------------------------------------------------------------------------
async def test_a_stream_closed_in_the_middle_is_named_and_opened_again(edge: Edge) -> None:
    edge.device.close_streams()
    await edge.connected_again()
    assert edge.heard.disconnects == ["the device closed the stream: the device has had enough (ABORTED)"]


async def test_whoever_meets_a_closed_connection_finds_the_plane_disconnected(edge: Edge) -> None:
    assert edge.plane.channel is not None
    edge.plane.channel.close("cut")
    with pytest.raises(PlaneUnreachable, match="cut"):
        await edge.plane.read()
    assert not edge.plane.connected
    await edge.connected_again()


@pytest.mark.parametrize("ask", ["write", "read"])
async def test_whoever_asks_more_when_the_connection_has_ended_is_told_why(edge: Edge, ask: str) -> None:
    """As a write of several requests does, when it has the answers to the first."""
    plane = edge.plane
    assert plane.channel is not None
    await plane.channel._grpc.close()
    plane.channel.close("cut")
    with pytest.raises(PlaneUnreachable, match="cut"):
        await (plane.write(ROUTE) if ask == "write" else plane.read())
    await edge.connected_again()


async def test_a_write_cut_off_is_named_and_read_back(edge: Edge) -> None:
    edge.device.gate.clear()
    edge.device.writes.clear()
    writing = asyncio.create_task(edge.plane.write(ROUTE))
    await edge.device.until(lambda: edge.device.writes)
    edge.device.close_streams()
    with pytest.raises(PlaneUnreachable, match="the device has had enough"):
        await writing
    edge.device.gate.set()
    await edge.connected_again()
    found = (await edge.plane.read()).routes
    assert found in ({}, {7: {prefix_key("10.0.0.0/8"): LOCAL}})
    assert await edge.plane.write(ROUTE) == []


@pytest.mark.parametrize(
    ("method", "reason"),
    [
        ("StreamChannel", "the device sent a malformed StreamMessageResponse"),
        ("GetForwardingPipelineConfig", "the device sent a malformed GetForwardingPipelineConfigResponse"),
        ("Read", "the device sent a malformed ReadResponse"),
    ],
)
async def test_garbage_at_the_start_is_named_and_tried_again(one: Device, method: str, reason: str) -> None:
    one.garbage[method] = b"\x0a\xff\xff\xff\xff"
    async with attached(one, connect=False) as edge:
        await edge.heard.until(lambda: edge.heard.disconnects)
        assert edge.heard.disconnects == [reason]
        one.garbage.clear()
        await edge.connected_again(0)


@pytest.mark.parametrize(
    ("garbage", "reason"),
    [
        (b"\x0a\x02\x12\x00", "an entry of table 0x0"),
        (b"\x0a\x00", "an entry of table 0x0"),
        (b"\x0a\x02\x0a\x00", "an entry of table 0x0"),
        (b"\x0a\x03\x12\x01\xff", "a malformed Entity"),
        (b"\x12\x00", "a malformed ReadResponse"),
    ],
)
async def test_a_reading_that_makes_no_sense_is_named_and_mended(edge: Edge, garbage: bytes, reason: str) -> None:
    edge.device.garbage["Read"] = garbage
    for ask in (edge.plane.read, edge.plane.counters):
        with pytest.raises(PlaneUnreachable, match=reason):
            await ask()
        edge.device.garbage.clear()
        await edge.connected_again(edge.heard.connects)
        edge.device.garbage["Read"] = garbage
    edge.device.garbage.clear()


@pytest.mark.parametrize("trailer", [b"\xff", b"", b"\x08\x02", b"\x08\x02\x1a\x02\x12\x00\x1a\x00"])
async def test_errors_that_make_no_sense_are_named(edge: Edge, trailer: bytes) -> None:
    edge.device.garbage["Write"] = trailer
    edge.device.refuse = lambda update: (rpc_code.INTERNAL, "no")
    with pytest.raises(PlaneUnreachable, match=r"the device (refused a whole request|sent a malformed Status)"):
        await edge.plane.write(ROUTE)
    edge.device.garbage.clear()
    edge.device.refuse = lambda update: None
    await edge.connected_again()
    assert await edge.plane.write(ROUTE) == []


async def test_a_refusal_without_details_is_named(edge: Edge) -> None:
    edge.device.aborts["Write"] = (grpc.StatusCode.INTERNAL, "core\ndumped")
    with pytest.raises(PlaneUnreachable, match=r"refused a whole request: core dumped \(INTERNAL\)"):
        await edge.plane.write(ROUTE)


async def test_a_read_refused_at_its_end_is_named(edge: Edge) -> None:
    edge.device.aborts["Read"] = (grpc.StatusCode.INTERNAL, "out of memory")
    with pytest.raises(PlaneUnreachable, match=r"the device refused a request: out of memory \(INTERNAL\)"):
        await edge.plane.read()


@pytest.mark.parametrize("ask", ["read", "write", "counters"])
async def test_an_answer_that_does_not_come_is_named(one: Device, ask: str) -> None:
    async with attached(one, IMPATIENT) as edge:
        one.gate.clear()
        method = {"write": lambda: edge.plane.write(ROUTE)}.get(ask, getattr(edge.plane, ask))
        with pytest.raises(PlaneUnreachable, match=r"did not answer (Read|Write) within 0\.05 s"):
            await method()
        one.gate.set()
        await edge.connected_again()


async def test_a_device_that_says_nothing_of_roles_is_named(one: Device) -> None:
    one.silent = True
    async with attached(one, IMPATIENT, connect=False) as edge:
        await edge.heard.until(lambda: edge.heard.disconnects)
        assert edge.heard.disconnects == ["the device did not say who is primary within 0.05 s"]
        one.silent = False
        await edge.connected_again(0)


# -- packets and counters --------------------------------------------------------------------------------------------
async def test_punts_are_told_and_strangers_are_counted(edge: Edge) -> None:
    header = golden_pipeline().schema.header("packet_in")
    edge.device.send_packet_in({}, b"without a header")
    edge.device.send_packet_in({header["router_interface_id"].id: b"\3"}, b"without a reason")
    edge.device.punt(3, 0x80, b"a drop is no punt")
    edge.device.punt(3, PuntReason.GLEAN, b"frame")
    await edge.heard.until(lambda: edge.heard.packets)
    assert edge.heard.packets == [(3, PuntReason.GLEAN, b"frame")]
    assert edge.plane.stray_packet_ins == 3


async def test_frames_leave_by_their_router_interface(edge: Edge) -> None:
    assert edge.plane.packet_out(NEAR, b"frame")
    await edge.device.until(lambda: edge.device.packets_out)
    (packet,) = edge.device.packets_out
    header = golden_pipeline().schema.header("packet_out")
    assert packet.payload == b"frame"
    assert {part.metadata_id: part.value for part in packet.metadata} == {header["router_interface_id"].id: b"\3"}


async def test_a_congested_stream_takes_no_more_frames(edge: Edge) -> None:
    sent = 0
    while edge.plane.packet_out(NEAR, bytes(100)):
        sent += 1
        assert sent < 10_000
    assert edge.plane.packet_outs_dropped == 1
    await edge.device.until(lambda: len(edge.device.packets_out) == sent)
    assert edge.plane.packet_out(NEAR, b"again")


async def test_a_router_that_fills_the_stream_keeps_no_other_out(edge: Edge) -> None:
    while edge.plane.packet_out(NEAR, bytes(100)):
        pass
    assert edge.plane.packet_out(replace(NEAR, id=4, vrf_id=8), b"another's")
    await edge.device.until(lambda: any(one.payload == b"another's" for one in edge.device.packets_out))
    assert [one.payload for one in edge.device.packets_out].index(b"another's") < 3


async def test_a_stream_error_is_counted(edge: Edge) -> None:
    (stream,) = edge.device.streams
    stream.say(error=p4r.StreamError(canonical_code=rpc_code.INVALID_ARGUMENT))
    edge.device.punt(3, PuntReason.LOCAL, b"after it")
    await edge.heard.until(lambda: edge.heard.packets)
    assert edge.plane.channel is not None
    assert edge.plane.channel.stream_errors == 1


async def test_counters_are_those_of_ways_in_and_out_and_of_reasons(edge: Edge) -> None:
    policer, nexthop = Policer(7, same_rate(1)), Nexthop(1, 3, bytes(6))
    await edge.plane.write(
        WriteBatch([Update(Op.INSERT, policer)], [Update(Op.INSERT, NEAR)], [Update(Op.INSERT, nexthop)])
    )
    for number, (table, count) in enumerate((("interface_classifier", 10), ("router_interface_egress", 20)), 1):
        (row,) = edge.device.rows(table)
        row.counter_data.packet_count, row.counter_data.byte_count = count, count * number
    for row in edge.device.rows("reason"):
        row.counter_data.packet_count = row.match[1].exact.value[0]
    found = await edge.plane.counters()
    assert found.router_interfaces == {3: InterfaceCounters(10, 10, 20, 40)}
    assert found.punts == {(7, reason): (int(reason), 0) for reason in PuntReason}
    assert found.drops[0, DropReason.UNKNOWN_INTERFACE] == (0x80, 0)
    assert found.drops.keys() == {(vrf_id, reason) for vrf_id in (0, 7) for reason in DropReason}


async def test_two_devices_are_two_planes(tmp_path: Path, edge: Edge) -> None:
    (tmp_path / "other").mkdir()
    async with device(tmp_path / "other") as other, attached(other) as second:
        await second.plane.write(ROUTE)
        assert (await edge.plane.read()).routes == {}
