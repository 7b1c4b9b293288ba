"""Shares on a P4Runtime device: externs that it names as a capability, written in place and read back."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from finsy.proto import p4d, p4r
from google.protobuf import any_pb2

from controller.errors import PlaneUnreachable
from controller.model import Share
from controller.planes.base import Capability
from controller.planes.p4runtime import features, shares
from controller.planes.p4runtime.channel import ChannelClosed
from controller.planes.p4runtime.lost_punts import EXTERN_TYPE
from controller.planes.shares import ShareEntries, ShareEntry, ShareUse
from tests.unit.p4runtime.edge import Edge, attached
from tests.unit.p4runtime.server import device

ENTRIES: ShareEntries = {
    ("router_share", 70_000): ShareEntry(Share(2, 100_000, 400_000), 9_000),
    ("router_share", 5): ShareEntry(Share(), 9_000),
    ("slice_share", 9_000): ShareEntry(Share(1_000, 0, 1_000_000)),
}
INSERT, MODIFY, DELETE = p4r.Update.INSERT, p4r.Update.MODIFY, p4r.Update.DELETE


def extern(extern_id: int, *members: bytes) -> p4r.ExternEntry:
    data = p4d.P4Data()
    data.struct.members.extend(p4d.P4Data(bitstring=one) for one in members)
    entry = p4r.ExternEntry(extern_type_id=shares.EXTERN_TYPE, extern_id=extern_id)
    entry.entry.Pack(data)
    return entry


@pytest.fixture
async def sharing(tmp_path: Path) -> AsyncIterator[Edge]:
    """A device that has shares."""
    told = p4r.ExternEntry(extern_type_id=EXTERN_TYPE, extern_id=features.EXTERN_ID)
    told.entry.Pack(p4d.P4Data(struct=p4d.P4StructLike(members=[p4d.P4Data(bitstring=b"shares")])))
    async with device(tmp_path) as one:
        one.features = [told]
        async with attached(one) as edge:
            edge.device.writes.clear()
            yield edge


def ops(edge: Edge) -> list[int]:
    return [update.type for request in edge.device.writes for update in request.updates]


async def test_a_device_that_names_none_has_none(edge: Edge) -> None:
    assert Capability.SHARES not in edge.plane.capabilities
    assert await edge.plane.read_shares() is None
    assert await edge.plane.share_use() == {}


async def test_they_are_read_as_written(sharing: Edge) -> None:
    assert Capability.SHARES in sharing.plane.capabilities
    assert await sharing.plane.read_shares() == {}
    assert await sharing.plane.write_shares(ENTRIES, ()) == {}
    assert ops(sharing) == [INSERT] * 3
    assert await sharing.plane.read_shares() == ENTRIES
    assert sharing.device.shares[shares.EXTERN_IDS["router_share"], b"\5"] == extern(
        0x82000002, b"\5", b"\x23\x28", b"\1", b"\0", b"\0"
    )


async def test_one_that_changes_is_modified_and_one_that_goes_is_deleted(sharing: Edge) -> None:
    await sharing.plane.write_shares(ENTRIES, ())
    sharing.device.writes.clear()
    changed: ShareEntries = {("router_share", 5): ShareEntry(Share(7), 9_000)}
    assert await sharing.plane.write_shares(changed, [("slice_share", 9_000)]) == {}
    assert ops(sharing) == [MODIFY, DELETE]
    left = {("router_share", 70_000): ENTRIES["router_share", 70_000]} | changed
    assert await sharing.plane.read_shares() == left


async def test_where_the_device_knows_better_an_update_is_sent_again_as_the_other_one(sharing: Edge) -> None:
    await sharing.plane.write_shares(ENTRIES, ())
    sharing.device.shares.clear()
    assert await sharing.plane.write_shares(ENTRIES, [("slice_share", 77)]) == {}
    assert await sharing.plane.read_shares() == ENTRIES
    sharing.plane._shares.clear()
    sharing.device.writes.clear()
    assert await sharing.plane.write_shares(ENTRIES, ()) == {}
    assert ops(sharing) == [INSERT] * 3 + [MODIFY] * 3


async def test_what_is_refused_is_told_by_whose_it_is(sharing: Edge) -> None:
    refused_id = shares.EXTERN_IDS["slice_share"]
    sharing.device.refuse = lambda update: (
        (8, "all are in use") if update.entity.extern_entry.extern_id == refused_id else None
    )
    assert await sharing.plane.write_shares(ENTRIES, ()) == {("slice_share", 9_000): "all are in use"}
    assert len(await sharing.plane.read_shares() or ()) == 2


async def test_more_than_a_request_takes_are_sent_in_several(sharing: Edge) -> None:
    many: ShareEntries = {("router_share", vrf_id): ShareEntry(Share(2), 1) for vrf_id in range(1, 2502)}
    assert await sharing.plane.write_shares(many, ()) == {}
    assert [len(request.updates) for request in sharing.device.writes] == [1000, 1000, 501]
    assert await sharing.plane.read_shares() == many


async def test_what_routers_have_had_is_told_by_vrf_id(sharing: Edge) -> None:
    sharing.device.share_use = [extern(shares.USE_ID, b"\x01\x11\x70", b"\x02" + bytes(4), b"\7", b"\0")]
    assert await sharing.plane.share_use() == {70_000: ShareUse(1 << 33, 7, 0)}
    assert (await sharing.plane.counters()).share_use == {70_000: ShareUse(1 << 33, 7, 0)}


@pytest.mark.parametrize(
    "strange",
    [
        extern(0x82000001, b"\1", b"\1", b"\0"),
        extern(0x82000002, b"\1", b"\1", b"\0", b"\0"),
        extern(0x82000001, b"\1", b"\1", b"\0", bytes(9)),
        extern(0x82000009, b"\1", b"\1", b"\0", b"\0"),
        p4r.ExternEntry(extern_type_id=0x82, extern_id=0x82000001),
        p4r.ExternEntry(
            extern_type_id=0x82, extern_id=0x82000001, entry=any_pb2.Any(type_url="/p4.v1.P4Data", value=b"\xff")
        ),
    ],
)
def test_shares_that_are_none_are_refused(strange: p4r.ExternEntry) -> None:
    with pytest.raises(ChannelClosed, match="a read of shares"):
        shares.share_of(p4r.Entity(extern_entry=strange))


async def test_a_device_that_tells_something_else_is_given_up(sharing: Edge) -> None:
    sharing.device.shares[shares.EXTERN_IDS["slice_share"], b"\1"] = extern(0x82000001, b"\1")
    with pytest.raises(PlaneUnreachable, match="something else"):
        await sharing.plane.read_shares()
