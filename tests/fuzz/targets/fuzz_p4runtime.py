"""What a P4Runtime device says: its stream, and the entries that are read back.

input: one octet that chooses StreamMessageResponse or ReadResponse, then the message.
"""

from contextlib import suppress

from finsy.proto import p4r

from controller.planes.base import Policer, RouteCounts, RouterInterface, same_rate
from controller.planes.p4runtime.channel import ChannelClosed, decoded
from controller.planes.p4runtime.messages import entities_of
from controller.planes.p4runtime.p4info import golden_pipeline
from controller.planes.p4runtime.program import Program
from controller.planes.p4runtime.readback import Inventory
from controller.planes.p4runtime.routes import RouteReader
from controller.planes.p4runtime.samples import SampleDigest

INSTRUMENTED = ("controller.planes.p4runtime",)
_schema = golden_pipeline().schema
_program = Program(_schema)
_samples = SampleDigest(_schema)
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


def _read(octets: bytes) -> None:
    for family in (4, 6):
        reader = RouteReader(_schema, family, {})
        with suppress(ChannelClosed):
            reader.add(entities_of(octets))
        with suppress(ChannelClosed):
            reader.count(entities_of(octets), RouteCounts())
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
    """A few entries of each small table, an arbitration, a digest."""
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
    stream = p4r.StreamMessageResponse(digest=digest).SerializeToString()
    return [
        b"\0" + read,
        b"\1" + stream,
        *(b"\0" + p4r.ReadResponse(entities=[e]).SerializeToString() for e in entities[:8]),
    ]
