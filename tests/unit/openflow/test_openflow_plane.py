"""A plane's life over its connections, against a switch that only pretends."""

import asyncio
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

import pytest
from os_ken.ofproto import ofproto_v1_3 as of13
from switch_end import DATAPATH_ID, SwitchEnd, connected

from controller.errors import Conflict, PlaneUnreachable
from controller.planes.base import Capability, Counters, Plane, PortState, PuntReason, RouterInterface, WriteBatch
from controller.planes.openflow import codec, pipeline, program
from controller.planes.openflow.channel import Channel
from controller.planes.openflow.codec import Multipart, Type, message
from controller.planes.openflow.packet_outs import AHEAD, MARKED
from controller.planes.openflow.plane import OpenFlowPlane
from controller.planes.openflow.server import OpenFlowListener

NEAR = RouterInterface(3, 7, 1, 12, bytes(6), 1500)


@dataclass
class Told:
    """A PlaneListener that writes down what it is told."""

    events: list[object] = field(default_factory=list)
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def plane_connected(self, plane: Plane) -> None:
        self.add("connected")

    def plane_disconnected(self, plane: Plane, reason: str) -> None:
        self.add(reason)

    def port_changed(self, plane: Plane, port: PortState) -> None:
        self.add(port)

    def packet_in(self, plane: Plane, router_interface_id: int, reason: PuntReason, frame: bytes) -> None:
        self.add((router_interface_id, reason, frame))

    def add(self, event: object) -> None:
        self.events.append(event)
        self.changed.set()

    async def until(self, count: int) -> None:
        async with asyncio.timeout(30):
            while len(self.events) < count:
                self.changed.clear()
                await self.changed.wait()


def port_octets(number: int, state: int = 0) -> bytes:
    return struct.pack("!I4x6s2x16sII24x", number, bytes(6), b"p1", 0, state)


@asynccontextmanager
async def serving(plane: OpenFlowPlane) -> AsyncIterator[tuple[Channel, SwitchEnd, "asyncio.Task[None]"]]:
    """Give a plane a connection to a switch with one port."""
    async with connected() as (channel, switch):
        switch.lists[Multipart.PORT_DESC] = port_octets(1) + port_octets(of13.OFPP_LOCAL)
        ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        yield channel, switch, asyncio.create_task(plane.serve(channel, ended))  # type: ignore[arg-type]
        ended.cancel()


def edge() -> OpenFlowPlane:
    return OpenFlowPlane("edge", DATAPATH_ID, OpenFlowListener())


async def test_a_connection_brings_the_pipeline_and_the_ports() -> None:
    plane, told = edge(), Told()
    await plane.start(told)
    async with serving(plane) as (_, switch, _task):
        await told.until(2)
        assert told.events == ["connected", PortState(1, "p1", True)]
        assert len(switch.sent(Type.FLOW_MOD)) == len(pipeline.static_flows())
        assert (await plane.read()).routes == {}


def features_octets(table: int, most: int) -> bytes:
    """What OpenFlow 1.3.5 A.3.5.5 says, with one property, that nobody reads."""
    return struct.pack("!HB5x32sQQII8x", 72, table, b"", 0, 0, 0, most)


async def test_the_switch_says_how_large_its_route_tables_are() -> None:
    plane, told = edge(), Told()
    await plane.start(told)
    assert plane.table_sizes == {}
    async with serving(plane) as (_, switch, _task):
        sizes = {0: 9, program.Table.IPV4_ROUTE: 1000, program.Table.IPV6_ROUTE: 0}
        switch.lists[Multipart.TABLE_FEATURES] = b"".join(features_octets(*one) for one in sizes.items())
        await told.until(2)
        assert plane.table_sizes == {"ipv4_route": 1000}


async def test_a_switch_that_does_not_know_table_features_is_used_all_the_same() -> None:
    plane, told = edge(), Told()
    await plane.start(told)
    async with serving(plane) as (_, switch, _task):
        asked = struct.pack("!H", Multipart.TABLE_FEATURES)
        switch.refuse = lambda kind, body: (1, 2) if kind == Type.MULTIPART_REQUEST and body[:2] == asked else None
        await told.until(2)
        assert told.events[0] == "connected"
        assert plane.table_sizes == {}


async def test_a_switch_that_does_not_count_what_meters_meet_stays_connected() -> None:
    plane, told = edge(), Told()
    await plane.start(told)
    async with serving(plane) as (_, switch, _task):
        await told.until(2)
        asked = struct.pack("!H", Multipart.METER)
        switch.refuse = lambda kind, body: (1, 2) if kind == Type.MULTIPART_REQUEST and body[:2] == asked else None
        assert await plane.counters() == Counters()
        assert plane.connected
        assert Capability.LOST_PUNTS not in plane.capabilities
        switch.refuse = lambda kind, body: None
        await plane.counters()
        assert Capability.LOST_PUNTS in plane.capabilities


async def test_port_changes_and_punts_are_told_and_strangers_are_not() -> None:
    plane, told = edge(), Told()
    await plane.start(told)
    async with serving(plane) as (_, switch, _task):
        await told.until(2)
        status = struct.pack("!B7x", of13.OFPPR_MODIFY)
        switch.send(message(Type.PORT_STATUS, 0, status + port_octets(1, of13.OFPPS_LINK_DOWN)))
        punt = program.cookie(program.Kind.POLICER, 7, PuntReason.LOCAL)
        for cookie in (0xF00, program.cookie(program.Kind.STATIC), punt):
            tlv = codec.oxm(codec.Oxm.METADATA, 7 << 32 | 3)
            match = (struct.pack("!HH", 1, 16) + tlv).ljust(16, b"\0")
            body = struct.pack("!IHBBQ", codec.NO_BUFFER, 5, 1, 8, cookie) + match + b"\0\0frame"
            switch.send(message(Type.PACKET_IN, 0, body))
        await told.until(4)
        assert told.events[2:] == [PortState(1, "p1", False), (3, PuntReason.LOCAL, b"frame")]
        assert plane.stray_packet_ins == 2
        assert not plane.ports[1].up


async def test_a_replaced_connection_is_told_as_lost_first() -> None:
    plane, told = edge(), Told()
    await plane.start(told)
    async with serving(plane) as (first, _, _task):
        await told.until(2)
        first.close("replaced by a new connection")
        async with serving(plane) as (second, _, _other):
            await told.until(5)
            assert told.events[2:4] == ["replaced by a new connection", "connected"]
            assert plane.channel is second
            assert await plane.write(WriteBatch()) == []


async def test_a_switch_that_refuses_the_pipeline_is_named(caplog: pytest.LogCaptureFixture) -> None:
    plane, told = edge(), Told()
    await plane.start(told)
    async with serving(plane) as (channel, switch, task):
        switch.refuse = lambda kind, body: (of13.OFPET_BAD_ACTION, 0) if kind == Type.FLOW_MOD else None
        await asyncio.wait([task])
        task.exception()
        assert channel.closed == "the switch refuses the pipeline: OFPET_BAD_ACTION(2): OFPBAC_BAD_TYPE(0)"
        assert told.events == []


async def test_a_switch_that_refuses_a_request_is_given_up_by_name() -> None:
    plane, told = edge(), Told()
    await plane.start(told)
    async with serving(plane) as (channel, switch, _task):
        await told.until(2)
        switch.refuse = lambda kind, body: (of13.OFPET_BAD_REQUEST, 0) if kind == Type.MULTIPART_REQUEST else None
        with pytest.raises(PlaneUnreachable, match="the switch refused a request: OFPET_BAD_REQUEST"):
            await plane.read()
        assert not plane.connected
        assert told.events[2:] == [channel.closed]


async def test_whoever_meets_a_closed_connection_finds_the_plane_disconnected() -> None:
    plane, told = edge(), Told()
    await plane.start(told)
    async with serving(plane) as (channel, _, _task):
        await told.until(2)
        channel.close("cut")
        with pytest.raises(PlaneUnreachable, match="cut"):
            await plane.read()
        assert not plane.connected
        assert told.events[2:] == ["cut"]


async def test_without_a_switch_everything_says_so() -> None:
    plane = edge()
    for call in (plane.read, plane.counters, lambda: plane.write(WriteBatch())):
        with pytest.raises(PlaneUnreachable, match="plane edge is not reachable: the switch is not connected"):
            await call()
    assert not plane.packet_out(NEAR, b"frame")
    assert plane.packet_outs_dropped == 1


async def test_many_may_ask_for_counters_at_once() -> None:
    plane, told = edge(), Told()
    await plane.start(told)
    async with serving(plane) as (_, _switch, _task):
        await told.until(2)
        assert await asyncio.gather(*(plane.counters() for _ in range(8))) == [Counters()] * 8


async def test_a_datapath_id_belongs_to_one_plane() -> None:
    server = OpenFlowListener()
    first, second = (OpenFlowPlane(name, DATAPATH_ID, server) for name in ("one", "two"))
    await first.start(Told())
    with pytest.raises(Conflict, match="of plane two is plane one's"):
        await second.start(Told())


async def test_a_router_that_fills_the_channel_keeps_no_other_out() -> None:
    plane, told = edge(), Told()
    await plane.start(told)
    async with serving(plane) as (_, switch, _task):
        await told.until(2)
        sent = 0
        while plane.packet_out(NEAR, bytes(1000)):
            sent += 1
        assert plane.packet_outs_dropped == 1
        assert plane.packet_out(replace(NEAR, id=4, vrf_id=8), b"another's")
        await switch.until(Type.PACKET_OUT, sent + 1)
        order = [body.endswith(b"another's") for body in switch.sent(Type.PACKET_OUT)]
        assert order.index(True) < sent / 2


async def test_few_packet_outs_are_ahead_of_what_the_switch_has_taken() -> None:
    plane, told = edge(), Told()
    await plane.start(told)
    async with serving(plane) as (channel, switch, _task):
        await told.until(2)
        switch.deaf = {Type.ECHO_REQUEST}
        before = len(switch.sent(Type.ECHO_REQUEST))
        for number in range(AHEAD + 10):
            assert plane.packet_out(NEAR, b"%d" % number)
        await channel.barrier()
        assert len(switch.sent(Type.PACKET_OUT)) == AHEAD
        marks = [xid for kind, xid, _ in switch.received if kind == Type.ECHO_REQUEST][before:]
        assert len(marks) == AHEAD // MARKED
        assert plane.packet_out(replace(NEAR, id=4, vrf_id=8), b"another's")
        switch.send(message(Type.ECHO_REPLY, marks[0]))
        await switch.until(Type.PACKET_OUT, AHEAD + 11)
        assert switch.sent(Type.PACKET_OUT)[AHEAD + 1].endswith(b"another's")


async def test_a_switch_that_refuses_to_be_asked_takes_packet_outs_all_the_same() -> None:
    plane, told = edge(), Told()
    await plane.start(told)
    async with serving(plane) as (_, switch, _task):
        await told.until(2)
        switch.refuse = lambda kind, body: (of13.OFPET_BAD_REQUEST, 0) if kind == Type.ECHO_REQUEST else None
        for number in range(3 * AHEAD):
            assert plane.packet_out(NEAR, b"%d" % number)
        await switch.until(Type.PACKET_OUT, 3 * AHEAD)


async def test_a_packet_out_is_tagged_and_sent() -> None:
    plane, told = edge(), Told()
    await plane.start(told)
    async with serving(plane) as (_, switch, _task):
        await told.until(2)
        assert plane.packet_out(NEAR, b"frame")
        await switch.until(Type.PACKET_OUT)
        (body,) = switch.sent(Type.PACKET_OUT)
        assert body.endswith(b"frame")
        assert codec.PUSH_VLAN in body
        assert codec.output(1) in body
