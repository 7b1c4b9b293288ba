"""What a P4Runtime plane tells of traffic: packets by route and interface, and samples."""

from collections.abc import Sequence
from pathlib import Path

import grpc
import pytest
from finsy.proto import p4d, p4i, p4r
from google.protobuf import any_pb2
from openflow_net import columns

from controller.errors import PlaneUnreachable
from controller.planes.base import (
    FALLBACK,
    LOCAL,
    Capability,
    Op,
    PuntClass,
    PuntPlace,
    RouterInterface,
    Sample,
    Update,
    WriteBatch,
)
from controller.planes.p4runtime import features, lost_frames
from controller.planes.p4runtime.channel import ChannelClosed
from controller.planes.p4runtime.lost_punts import EXTERN_ID, EXTERN_TYPE
from controller.planes.p4runtime.p4info import Schema, golden_pipeline
from controller.planes.p4runtime.samples import SampleDigest
from tests.unit.p4runtime.edge import Edge, attached
from tests.unit.p4runtime.server import Device, device
from wire.columns import prefix_key

DIGEST = SampleDigest(golden_pipeline().schema)
TO_IPV4 = (b"\3", b"\4", bytes((10, 0, 0, 7)), b"\1")  # as they travel, with a time
TO_IPV6 = (b"\1\0", b"\6", bytes((0x20, 1, 0x0D, 0xB8)) + bytes(11) + b"\7", b"\2")
TO_LOW = (b"\3", b"\6", b"\1", b"\3")  # ::1
SAMPLES = [
    (3, prefix_key("10.0.0.7/32")),
    (256, prefix_key("2001:db8::7/128")),
    (3, prefix_key("::1/128")),
]
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


async def test_packets_and_octets_of_one_router_s_routes(edge: Edge) -> None:
    await edge.plane.write(WriteBatch(routes=columns(ROUTES)))
    for table, octets in (("ipv4_route", 640), ("ipv6_route", 800)):
        count(edge.device, table, octets // 100)
        for entry in edge.device.rows(table):
            entry.counter_data.byte_count = octets
    ten, v6 = prefix_key("10.0.0.0/8"), prefix_key("2001:db8::/32")
    assert await edge.plane.route_traffic(7) == {ten: (6, 640), v6: (8, 800)}, "a cover is no route"
    assert await edge.plane.route_traffic(8) == {}


async def test_what_is_sampled_is_not_taken_for_counted(edge: Edge) -> None:
    edge.device.features = [named(b"sampled_route_counters")]
    edge.device.close_streams()
    await edge.connected_again()
    assert Capability.SAMPLED_ROUTE_COUNTERS in edge.plane.capabilities
    assert Capability.ROUTE_COUNTERS not in edge.plane.capabilities, "the hardware of a pair is judged by exact ones"
    await edge.plane.write(WriteBatch(routes=columns(ROUTES)))
    count(edge.device, "ipv4_route", 5)
    assert (await edge.plane.route_traffic(7))[prefix_key("10.0.0.0/8")] == (5, 0)
    assert (await edge.plane.route_counts()).routes == {}


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


# -- lost punts ------------------------------------------------------------------------------------------------------
def lost(*numbers: int) -> p4r.ExternEntry:
    """What a device says: router interface, place, class, packets."""
    data = p4d.P4Data()
    for number in numbers:
        data.struct.members.add().bitstring = number.to_bytes(16 if number >> 64 else 4, "big")
    entry = p4r.ExternEntry(extern_type_id=EXTERN_TYPE, extern_id=EXTERN_ID)
    entry.entry.Pack(data)
    return entry


async def test_lost_punts_are_those_that_the_device_tells(edge: Edge) -> None:
    assert not {Capability.LOST_PUNTS, Capability.PUNT_SHARES} & edge.plane.capabilities
    assert (await edge.plane.counters()).lost_punts == {}
    edge.device.lost_punts = [
        lost(3, 0, PuntClass.ARP, 70_000),
        lost(3, 2, 0, 1),
        lost(3, 9, 0, 1),
        lost(3, 0, 99, 1),
    ]
    edge.device.close_streams()
    await edge.connected_again()
    assert {Capability.LOST_PUNTS, Capability.PUNT_SHARES} <= edge.plane.capabilities
    assert (await edge.plane.counters()).lost_punts == {
        (3, PuntClass.ARP, PuntPlace.POLICER): 70_000,
        (3, PuntClass.BFD, PuntPlace.OUTBOX): 1,
    }


# -- lost frames ---------------------------------------------------------------------------------------------------
def lost_by_port(*members: bytes) -> p4r.ExternEntry:
    """What a device says: port, place, loss, frames."""
    data = p4d.P4Data()
    for member in members:
        data.struct.members.add(bitstring=member)
    entry = p4r.ExternEntry(extern_type_id=EXTERN_TYPE, extern_id=lost_frames.EXTERN_ID)
    entry.entry.Pack(data)
    return entry


async def test_lost_frames_are_those_that_the_device_tells(edge: Edge) -> None:
    """One that tells of punts alone, as vr-forwarder did before, tells none; names that could be a terminal's are
    none."""
    edge.device.lost_punts = []
    edge.device.close_streams()
    await edge.connected_again()
    assert (await edge.plane.counters()).lost_frames == {}
    edge.device.lost_frames = [
        lost_by_port(b"\1\2", b"egress", b"down", b"\1\0"),
        lost_by_port(b"\1", b"device", b"rx0_out_of_buffer", b"\7"),
        lost_by_port(b"\1", b"elsewhere", b"down", b"\1"),
        lost_by_port(b"\1", b"device", b"rx\x1b[2J", b"\1"),
        lost_by_port(b"\1", b"device", b"", b"\1"),
        lost_by_port(b"\1", b"device", b"x" * 33, b"\1"),
    ]
    assert (await edge.plane.counters()).lost_frames == {
        (258, "egress", "down"): 256,
        (1, "device", "rx0_out_of_buffer"): 7,
    }


@pytest.mark.parametrize(
    "answer",
    [
        lost_by_port(b"\1", b"egress", b"down"),
        lost_by_port(b"\1" * 9, b"egress", b"down", b"\1"),
        p4r.ExternEntry(entry=any_pb2.Any(value=b"?")),
    ],
)
async def test_lost_frames_that_are_none_end_the_connection(edge: Edge, answer: p4r.ExternEntry) -> None:
    edge.device.lost_punts = []
    edge.device.close_streams()
    await edge.connected_again()
    edge.device.lost_frames = [answer]
    with pytest.raises(PlaneUnreachable, match="a read of lost frames"):
        await edge.plane.counters()


async def test_more_lost_frames_than_ports_can_have_end_the_connection(
    edge: Edge, monkeypatch: pytest.MonkeyPatch
) -> None:
    edge.device.lost_punts = []
    edge.device.close_streams()
    await edge.connected_again()
    monkeypatch.setattr(lost_frames, "MAX_LOSSES", 3)
    edge.device.lost_frames = [lost_by_port(bytes((one,)), b"egress", b"down", b"\1") for one in range(4)]
    with pytest.raises(PlaneUnreachable, match="more than 3 losses of its ports"):
        await edge.plane.counters()


# -- features --------------------------------------------------------------------------------------------------------
def named(*names: bytes) -> p4r.ExternEntry:
    """What a device says that it does."""
    data = p4d.P4Data()
    for name in names:
        data.struct.members.add(bitstring=name)
    entry = p4r.ExternEntry(extern_type_id=EXTERN_TYPE, extern_id=features.EXTERN_ID)
    entry.entry.Pack(data)
    return entry


async def test_features_are_those_that_the_device_tells(edge: Edge) -> None:
    """Also where the one before it had others, under the same address."""
    told = {Capability.RESILIENT_HASH, Capability.HASH_BY_ROUTER}
    assert not told & edge.plane.capabilities
    edge.device.features = [named(b"resilient_hash", b"\xff", b"mtu"), named(b"hash_by_router")]
    edge.device.close_streams()
    await edge.connected_again()
    assert told <= edge.plane.capabilities
    edge.device.features = [named(b"resilient_hash")]
    edge.device.close_streams()
    await edge.connected_again(2)
    assert told & edge.plane.capabilities == {Capability.RESILIENT_HASH}


@pytest.mark.parametrize("entry", [p4r.ExternEntry(), p4r.ExternEntry(entry=any_pb2.Any(value=b"?"))])
def test_features_that_are_none_are_refused(entry: p4r.ExternEntry) -> None:
    with pytest.raises(ChannelClosed, match="a read of its features"):
        features.features_of(p4r.Entity(extern_entry=entry).SerializeToString())


@pytest.mark.parametrize(
    "answer",
    [lost(1, 2, 3), lost(1, 2, 3, 1 << 80), p4r.ExternEntry(), p4r.ExternEntry(entry=any_pb2.Any(value=b"?"))],
)
async def test_an_answer_that_is_none_ends_the_connection(edge: Edge, answer: p4r.ExternEntry) -> None:
    edge.device.lost_punts = []
    edge.device.close_streams()
    await edge.connected_again()
    edge.device.lost_punts = [answer]
    with pytest.raises(PlaneUnreachable, match="a read of lost punts"):
        await edge.plane.counters()


# -- samples ---------------------------------------------------------------------------------------------------------
async def test_only_a_plane_that_is_asked_for_samples_has_the_device_take_some(edge: Edge) -> None:
    assert edge.device.samples is None
    assert Capability.SAMPLES not in edge.plane.capabilities
    edge.plane.sample_to(lambda _samples: None)
    await edge.plane.read()
    assert edge.device.samples == DIGEST.entry
    assert Capability.SAMPLES in edge.plane.capabilities


async def test_no_sample_waits_for_an_acknowledgement(edge: Edge) -> None:
    edge.plane.sample_to(lambda _samples: None)
    await edge.plane.read()
    assert edge.device.samples is not None
    config = edge.device.samples.config
    assert (config.max_timeout_ns, config.max_list_size, config.ack_timeout_ns) == (100_000_000, 256, 0)


async def test_a_digest_is_put_right_and_taken_away(edge: Edge) -> None:
    edge.plane.sample_to(lambda _samples: None)
    edge.device.samples = p4r.DigestEntry(digest_id=DIGEST.id, config=p4r.DigestEntry.Config(max_list_size=1))
    await edge.plane.read()
    assert edge.device.samples == DIGEST.entry
    writes = len(edge.device.writes)
    await edge.plane.read()
    assert len(edge.device.writes) == writes
    edge.plane.sample_to(None)
    await edge.plane.read()
    assert edge.device.samples is None


async def test_a_device_may_say_that_it_finds_no_digest(edge: Edge) -> None:
    """As BMv2 does, where others answer nothing."""
    edge.device.refuse_read = lambda entity: (
        (grpc.StatusCode.NOT_FOUND, "not configured")
        if entity.HasField("digest_entry") and edge.device.samples is None
        else None
    )
    await edge.plane.read()
    edge.plane.sample_to(lambda _samples: None)
    await edge.plane.read()
    assert edge.device.samples == DIGEST.entry
    assert Capability.SAMPLES in edge.plane.capabilities


async def test_a_device_that_answers_with_another_digest_is_given_up(edge: Edge) -> None:
    edge.device.samples = p4r.DigestEntry(digest_id=DIGEST.id + 1)
    with pytest.raises(PlaneUnreachable, match="something else"):
        await edge.plane.read()


async def test_a_device_without_digests_is_used_all_the_same(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with device(tmp_path) as one:
        one.refuse_read = lambda entity: (
            (grpc.StatusCode.UNIMPLEMENTED, "what are digests?") if entity.HasField("digest_entry") else None
        )
        async with attached(one, connect=False) as edge:
            edge.plane.sample_to(lambda _samples: None)
            await edge.heard.until(lambda: edge.plane.connected)
            await edge.plane.read()
            assert Capability.SAMPLES not in edge.plane.capabilities
    told = [line for line in caplog.messages if "takes no samples" in line]
    assert told == ["plane edge: the device takes no samples: what are digests? (UNIMPLEMENTED)"]


async def test_a_device_may_refuse_the_digest(edge: Edge) -> None:
    edge.plane.sample_to(lambda _samples: None)
    edge.device.refuse = lambda update: (12, "not now") if update.entity.HasField("digest_entry") else None
    await edge.plane.read()
    assert Capability.SAMPLES not in edge.plane.capabilities
    edge.device.refuse = lambda _update: None
    await edge.plane.read()
    assert Capability.SAMPLES in edge.plane.capabilities


async def test_samples_come_by_the_list(edge: Edge) -> None:
    taken: list[Sequence[Sample]] = []
    edge.plane.sample_to(taken.append)
    edge.device.send_digests(TO_IPV4, TO_IPV6, TO_LOW)
    edge.device.send_digests(TO_LOW)
    edge.device.punt(3, 2, b"punt")
    await edge.heard.until(lambda: edge.heard.packets)
    assert taken == [SAMPLES, SAMPLES[2:]]
    assert edge.plane.stray_samples == 0


async def test_samples_that_nobody_wants_are_counted(edge: Edge) -> None:
    edge.device.send_digests(TO_IPV4, TO_IPV6)
    edge.device.punt(3, 2, b"punt")
    await edge.heard.until(lambda: edge.heard.packets)
    assert edge.plane.stray_samples == 2


async def test_a_packet_in_is_no_sample(edge: Edge) -> None:
    taken: list[Sequence[Sample]] = []
    edge.plane.sample_to(taken.append)
    edge.device.punt(3, 9, b"as it was once")
    edge.device.punt(3, 2, b"punt")
    await edge.heard.until(lambda: edge.heard.packets)
    assert len(edge.heard.packets) == 1
    assert not taken
    assert edge.plane.stray_packet_ins == 1


@pytest.mark.parametrize(
    "strange",
    [
        (),
        TO_IPV4[:3],
        (*TO_IPV4, b"\1"),
        (b"", *TO_IPV4[1:]),
        (bytes(5), *TO_IPV4[1:]),
        (b"\3", b"", *TO_IPV4[2:]),
        (b"\3", b"\5", *TO_IPV4[2:]),
        (b"\3", b"\0\4", *TO_IPV4[2:]),
        (b"\3", b"\4", b"", b"\1"),
        (b"\3", b"\4", b"\1" + bytes(4), b"\1"),
        (b"\3", b"\6", b"\1" + bytes(16), b"\1"),
    ],
)
async def test_what_is_no_sample_is_counted_and_the_others_are_taken(edge: Edge, strange: tuple[bytes, ...]) -> None:
    taken: list[Sequence[Sample]] = []
    edge.plane.sample_to(taken.append)
    edge.device.send_digests(strange)
    edge.device.send_digests(TO_IPV4, strange, TO_LOW)
    edge.device.punt(3, 2, b"punt")
    await edge.heard.until(lambda: edge.heard.packets)
    assert taken == [[SAMPLES[0], SAMPLES[2]]]
    assert edge.plane.stray_samples == 2


async def test_another_digest_is_no_sample(edge: Edge) -> None:
    taken: list[Sequence[Sample]] = []
    edge.plane.sample_to(taken.append)
    edge.device.send_digests(TO_IPV4, TO_LOW, digest_id=DIGEST.id + 1)
    edge.device.punt(3, 2, b"punt")
    await edge.heard.until(lambda: edge.heard.packets)
    assert not taken
    assert edge.plane.stray_samples == 2


def test_a_list_of_anything_but_structs_has_no_sample() -> None:
    strange = [
        p4d.P4Data(),
        p4d.P4Data(bitstring=b"\1"),
        p4d.P4Data(struct=p4d.P4StructLike(members=[p4d.P4Data(bool=True)] * 4)),
        p4d.P4Data(tuple=p4d.P4StructLike(members=[p4d.P4Data(bitstring=one) for one in TO_IPV4])),
    ]
    assert DIGEST.decode(p4r.DigestList(digest_id=DIGEST.id, data=strange)) == []


def test_a_pipeline_has_to_have_the_digest() -> None:
    p4info = p4i.P4Info()
    with pytest.raises(ValueError, match="the pipeline has no digest sample"):
        SampleDigest(Schema(p4info))
    p4info.digests.add().preamble.name = "sample"
    with pytest.raises(ValueError, match="other members"):
        SampleDigest(Schema(p4info))
    p4info.digests[0].type_spec.struct.name = "sample_t"
    p4info.type_info.structs["sample_t"].members.add().name = "dst"
    with pytest.raises(ValueError, match="other members"):
        SampleDigest(Schema(p4info))
