"""What a P4Runtime plane tells of traffic: packets by route and interface, and samples."""

from pathlib import Path

import grpc
from finsy.proto import p4r
from openflow_net import columns

from controller.planes.base import FALLBACK, LOCAL, SAMPLE_CODE, Capability, Op, RouterInterface, Update, WriteBatch
from controller.planes.p4runtime.samples import sample_session
from tests.unit.p4runtime.edge import Edge, attached
from tests.unit.p4runtime.server import Device, device
from wire.columns import prefix_key

ROUTES = {"10.0.0.0/8": LOCAL, "0.0.0.0/0": FALLBACK, "2001:db8::/32": LOCAL}


def count(one: Device, table: str, packets: int) -> None:
    """Have every entry of a table count so many packets, the first one more, and so on."""
    for number, entry in enumerate(one.rows(table)):
        entry.counter_data.packet_count = packets + number


async def test_packets_are_counted_by_route_and_covers_apart(edge: Edge) -> None:
    await edge.plane.write(WriteBatch(routes=columns(ROUTES)))
    count(edge.device, "ipv4_route", 5)
    count(edge.device, "ipv6_route", 8)
    counts = await edge.plane.route_counts()
    assert counts.routes == {7: {prefix_key("10.0.0.0/8"): 5, prefix_key("2001:db8::/32"): 8}}
    assert counts.covers == {7: {prefix_key("0.0.0.0/0"): 6}}
    assert Capability.ROUTE_COUNTERS in edge.plane.capabilities


async def test_what_is_sent_is_counted_by_router_interface(edge: Edge) -> None:
    interface = RouterInterface(3, 7, 1, 12, bytes((2, 0, 0, 0, 0, 1)), 1500)
    await edge.plane.write(WriteBatch(router_interfaces=[Update(Op.INSERT, interface)]))
    count(edge.device, "router_interface_egress", 7)
    assert await edge.plane.sent() == {3: 7}


async def test_a_device_that_does_not_count_by_route_is_known(edge: Edge) -> None:
    """Also where the one before it did, under the same address."""
    assert Capability.ROUTE_COUNTERS in edge.plane.capabilities
    edge.device.refuse_read = lambda entity: (
        (grpc.StatusCode.UNIMPLEMENTED, "routes are not counted one by one")
        if entity.table_entry.HasField("counter_data") and entity.table_entry.match
        else None
    )
    edge.device.close_streams()
    await edge.connected_again()
    assert Capability.ROUTE_COUNTERS not in edge.plane.capabilities
    assert (await edge.plane.route_counts()).routes == {}
    assert edge.plane.connected


# -- samples ---------------------------------------------------------------------------------------------------------
async def test_only_a_plane_that_is_asked_for_samples_has_the_device_take_some(edge: Edge) -> None:
    assert edge.device.samples is None
    assert Capability.SAMPLES not in edge.plane.capabilities
    edge.plane.sampler = lambda *_sample: None
    await edge.plane.read()
    assert edge.device.samples == sample_session()
    assert Capability.SAMPLES in edge.plane.capabilities


async def test_a_session_is_put_right_and_taken_away(edge: Edge) -> None:
    edge.plane.sampler = lambda *_sample: None
    edge.device.samples = p4r.CloneSessionEntry(session_id=1, packet_length_bytes=20)
    await edge.plane.read()
    assert edge.device.samples == sample_session()
    writes = len(edge.device.writes)
    await edge.plane.read()
    assert len(edge.device.writes) == writes
    edge.plane.sampler = None
    await edge.plane.read()
    assert edge.device.samples is None


async def test_a_device_without_sessions_is_used_all_the_same(tmp_path: Path) -> None:
    async with device(tmp_path) as one:
        one.refuse_read = lambda entity: (
            (grpc.StatusCode.UNIMPLEMENTED, "no packet replication")
            if entity.HasField("packet_replication_engine_entry")
            else None
        )
        async with attached(one, connect=False) as edge:
            edge.plane.sampler = lambda *_sample: None
            await edge.heard.until(lambda: edge.plane.connected)
            assert Capability.SAMPLES not in edge.plane.capabilities


async def test_a_sample_is_no_punt(edge: Edge) -> None:
    taken: list[tuple[int, bytes]] = []
    edge.plane.sampler = lambda interface, frame: taken.append((interface, frame))
    edge.device.punt(3, SAMPLE_CODE, b"head")
    edge.device.punt(3, 2, b"punt")
    await edge.heard.until(lambda: edge.heard.packets)
    assert taken == [(3, b"head")]
    assert len(edge.heard.packets) == 1
    edge.plane.sampler = None
    edge.device.punt(3, SAMPLE_CODE, b"head")
    edge.device.punt(3, 2, b"punt")
    await edge.heard.until(lambda: len(edge.heard.packets) == 2)
    assert edge.plane.stray_packet_ins == 1
