"""What a P4Runtime device says: its stream with packet-ins and samples, and the entries that are read back.

input: one octet that chooses StreamMessageResponse or ReadResponse, then the message.
"""

from contextlib import suppress

from finsy.proto import p4d, p4r

from controller.model import PlaneConfig, PlaneKind, Share
from controller.planes.base import Policer, PuntReason, RouteCounts, RouterInterface, same_rate
from controller.planes.p4runtime import features, lost_punts, shares
from controller.planes.p4runtime.channel import ChannelClosed, decoded
from controller.planes.p4runtime.messages import entities_of
from controller.planes.p4runtime.p4info import golden_pipeline
from controller.planes.p4runtime.plane import P4RuntimePlane
from controller.planes.p4runtime.program import Program
from controller.planes.p4runtime.readback import Inventory
from controller.planes.p4runtime.routes import RouteReader
from controller.planes.p4runtime.samples import SampleDigest
from controller.planes.shares import ShareEntry

INSTRUMENTED = ("controller.planes.p4runtime",)
_schema = golden_pipeline().schema
_program = Program(_schema)
_samples = SampleDigest(_schema)


class _Heard:
    """A plane's listener that only keeps packets."""

    def __init__(self) -> None:
        self.packets: list[tuple[int, PuntReason, bytes]] = []

    def packet_in(self, _plane: P4RuntimePlane, interface_id: int, reason: PuntReason, frame: bytes) -> None:
        self.packets.append((interface_id, reason, frame))


_heard = _Heard()
_plane = P4RuntimePlane(PlaneConfig("s", PlaneKind.P4RUNTIME, address="127.0.0.1:1"))
_plane._listener, _plane.connected = _heard, True  # type: ignore[assignment]
_tables = {
    _schema.table(name).id
    for name in (
        "interface_classifier",
        "router_interface",
        "router_interface_egress",
        "l3_admit",
        "nexthop",
        "nexthop_group",
        "policer",
        "reason",
        "fallback_link",
    )
}


def try_one(octets: bytes) -> None:
    """Decode and sort it; only `ChannelClosed` is raised, for what no device may say."""
    if not octets:
        return
    with suppress(ChannelClosed):
        if octets[0] & 1:
            _stream(octets[1:])
        else:
            _read(octets[1:])


def _stream(octets: bytes) -> None:
    message = decoded(p4r.StreamMessageResponse, octets)
    _samples.decode(message.digest)
    if message.HasField("packet"):
        strays, before = _plane.stray_packet_ins, len(_heard.packets)
        _plane._packet_in(message.packet)
        heard = _heard.packets[before:]
        assert len(heard) + _plane.stray_packet_ins - strays == 1, "a packet-in comes to one end"
        assert [frame for _, _, frame in heard] in ([], [message.packet.payload]), "a frame as it came"
        _heard.packets.clear()


def _read(octets: bytes) -> None:
    for family in (4, 6):
        reader = RouteReader(_schema, family, {})
        with suppress(ChannelClosed):
            reader.add(entities_of(octets))
        with suppress(ChannelClosed):
            reader.count(entities_of(octets), RouteCounts())
    with suppress(ChannelClosed):
        for entity in entities_of(octets):
            lost_punts.take({}, entity)
    with suppress(ChannelClosed):
        for entity in entities_of(octets):
            features.features_of(entity)
    for read in (shares.share_of, shares.use_of):
        with suppress(ChannelClosed):
            for entity in entities_of(octets):
                read(decoded(p4r.Entity, entity))
    inventory = Inventory()
    for entity in entities_of(octets):
        entry = decoded(p4r.Entity, entity).table_entry
        if entry.table_id not in _tables:  # as `_entries` refuses it
            raise ChannelClosed("another table")
        _program.receiver(entry)
        if (found := _program.find_row(entry)) is not None:
            inventory.put(*found)
    for owner in inventory.owners():
        _program.find_entry(owner, inventory.of(owner))


def seeds() -> list[bytes]:
    """A few entries of each small table, lost punts, a share, an arbitration, a digest, a packet-in."""
    interface = RouterInterface(id=1, vrf_id=2, port=3, vlan=100, mac=b"\2" * 6, mtu=1500)
    policer = Policer(2, same_rate(100))
    rows = [*_program.egress_rows(interface), *_program.classifier_rows(interface), *_program.policer_rows(policer)]
    rows += _program.admit_rows(interface)
    entities = [p4r.Entity(table_entry=p4r.TableEntry.FromString(row.content)) for row in rows]
    read = p4r.ReadResponse(entities=entities).SerializeToString()
    digest = p4r.DigestList(digest_id=_samples.id, data=[])
    one = digest.data.add()
    for value in (b"\1", b"\4", b"\x14\0\0\1", b"\1"):
        one.struct.members.add(bitstring=value)
    data = p4d.P4Data()
    for value in (b"\1", b"\2", b"\3", b"\1\0"):
        data.struct.members.add(bitstring=value)
    lost = p4r.Entity(extern_entry=p4r.ExternEntry(extern_type_id=lost_punts.EXTERN_TYPE))
    lost.extern_entry.entry.Pack(data)
    share = shares.entity_of(("router_share", 70_000), ShareEntry(Share(2, 100_000, 400_000), 9_000))
    stream = p4r.StreamMessageResponse(digest=digest).SerializeToString()
    packet = p4r.PacketIn(payload=bytes(range(60)))
    for metadata_id, value in ((1, b"\1"), (2, b"\3")):
        packet.metadata.add(metadata_id=metadata_id, value=value)
    return [
        b"\0" + read,
        b"\1" + stream,
        b"\1" + p4r.StreamMessageResponse(packet=packet).SerializeToString(),
        b"\0" + p4r.ReadResponse(entities=[lost]).SerializeToString(),
        b"\0" + p4r.ReadResponse(entities=[share]).SerializeToString(),
        *(b"\0" + p4r.ReadResponse(entities=[e]).SerializeToString() for e in entities[:8]),
    ]
