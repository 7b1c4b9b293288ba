"""The decoder of routes and nexthops: all forms of a message give the same key and content."""

import ipaddress
import struct

import pytest
from netlink_bytes import address, attribute, by_gateway, by_nexthop, group, message, nexthop, route, u32

from vrc.errors import MalformedNetlink
from vrc.netlink.route_messages import (
    RTM_DELROUTE,
    RTM_NEWROUTE,
    Batch,
    Hop,
    NexthopObject,
    decode_nexthop,
    decode_shape,
    scan,
)
from wire.columns import prefix_key


def scanned(buffer: bytes) -> Batch:
    batch = Batch()
    scan(buffer, 0, len(buffer), batch)
    return batch


@pytest.mark.parametrize("prefix", ["10.0.0.0/8", "2001:db8::/32"])
def test_order_of_attributes_does_not_matter(prefix: str) -> None:
    destination = attribute(1, ipaddress.ip_network(prefix).network_address.packed)
    usual = route(prefix, by_nexthop(7))
    last = usual[:28] + by_nexthop(7) + destination
    changes = scanned(usual + message(RTM_NEWROUTE, last[16:]) + route(prefix, by_nexthop(7), kernel=True)).changes
    assert len(set(changes)) == 1


def test_kernel_default_route_has_no_destination() -> None:
    (change,) = scanned(route("0.0.0.0/0", attribute(30, u32(1)), kernel=True)).changes
    assert change[1] == bytes(5)
    bare = message(RTM_DELROUTE, struct.pack("=BBBBBBBBI", 10, 0, 0, 0, 254, 0, 0, 1, 0))
    assert scanned(bare).changes[0][:2] == (RTM_DELROUTE, bytes(17))


def test_host_bits_are_masked_and_long_prefixes_refused() -> None:
    wrong = bytearray(route("10.1.2.0/24", by_nexthop(1)))
    wrong[35] = 9
    too_long = bytearray(route("10.1.2.0/24", by_nexthop(1)))
    too_long[17] = 33
    batch = scanned(bytes(wrong + too_long))
    assert [key for _, key, _, _ in batch.changes] == [prefix_key("10.1.2.0/24")]
    assert batch.malformed == 1
    assert "33 bits" in batch.problem


def test_other_tables_are_foreign() -> None:
    vrf = route("10.0.0.0/8", attribute(15, u32(1000)), by_nexthop(1), table=252)
    batch = scanned(route("10.0.0.0/8", by_nexthop(1), table=255) + vrf)
    assert (batch.changes, batch.foreign) == ([], 2)


@pytest.mark.parametrize("at", [18, 19], ids=["source", "TOS"])
def test_a_route_for_some_packets_alone_is_foreign_as_the_kernel_has_another_one_beside_it(at: int) -> None:
    for some in (route("10.0.0.0/8", by_nexthop(1)), route("::/0", by_nexthop(1), kernel=True)):
        changed = bytearray(some)
        changed[at] = 16
        batch = scanned(some + changed)
        assert (len(batch.changes), batch.foreign) == (1, 1)


def test_what_the_kernel_learned_of_a_destination_alone_is_foreign() -> None:
    for some in (route("203.0.113.9/32", by_nexthop(1)), route("2001:db8::9/128", by_nexthop(1), kernel=True)):
        learned = bytearray(some)
        struct.pack_into("=I", learned, 24, 0x200)  # RTM_F_CLONED: a path MTU, or a redirect
        batch = scanned(some + learned)
        assert (len(batch.changes), batch.foreign) == (1, 1)


def test_hops_of_a_route() -> None:
    via = struct.pack("=H", 10) + address("fe80::1")
    multipath = b"".join(
        struct.pack("=HBBi", 8 + len(attributes), 0, weight - 1, ifindex) + attributes
        for weight, ifindex, attributes in (
            (1, 2, attribute(5, address("10.0.0.1"))),
            (256, 3, attribute(18, via)),
            (3, 4, b""),
        )
    )
    (change,) = scanned(route("10.9.0.0/16", attribute(6, u32(20)), attribute(9, multipath))).changes
    spec = decode_shape(change[2])
    assert spec.metric == 20
    assert spec.hops == (Hop(2, address("10.0.0.1"), 1), Hop(3, address("fe80::1"), 256), Hop(4, b"", 3))
    (change,) = scanned(route("10.9.0.0/16", by_gateway("10.0.0.1", 5))).changes
    assert decode_shape(change[2]).hops == (Hop(5, address("10.0.0.1")),)


def test_a_hop_with_an_encapsulation_is_told_from_others() -> None:
    (change,) = scanned(route("10.9.0.0/16", by_gateway("10.0.0.1", 5), attribute(22, b""))).changes
    assert decode_shape(change[2]).hops == (Hop(5, address("10.0.0.1"), encapsulated=True),)


def test_nexthops() -> None:
    assert decode_nexthop(nexthop(5, 2, "10.0.0.1")[16:]) == NexthopObject(5, Hop(2, address("10.0.0.1")))
    assert decode_nexthop(nexthop(6, blackhole=True)[16:]) == NexthopObject(6, blackhole=True)
    assert decode_nexthop(group(7, (5, 1), (6, 256))[16:]) == NexthopObject(7, members=((5, 1), (6, 256)))
    assert decode_nexthop(group(7, (5, 257), (6, 65536))[16:]).members == ((5, 257), (6, 65536))  # Linux 6.12
    with pytest.raises(MalformedNetlink, match="without an id"):
        decode_nexthop(bytes(8))
    with pytest.raises(MalformedNetlink, match="group of 7"):
        decode_nexthop(bytes(8) + attribute(1, u32(1)) + attribute(2, bytes(7)))


def test_a_short_message_does_not_borrow_from_the_next() -> None:
    # The length of what follows reads as the header of RTA_DST.
    short = message(RTM_NEWROUTE, struct.pack("=BBBBBBBBI", 2, 8, 0, 0, 254, 0, 0, 1, 0))
    batch = Batch()
    scan(short + u32(0x00010008) + bytes(4), 0, len(short), batch)
    assert [key for _, key, _, _ in batch.changes] == [prefix_key("0.0.0.0/8")]
    long = route("10.0.0.0/8", by_nexthop(1))
    with pytest.raises(MalformedNetlink):
        scanned(short + u32(0x00010008) + long[4:])


def test_a_malformed_message_does_not_hide_the_next() -> None:
    bad = bytearray(route("10.0.0.0/8", by_nexthop(1)))
    struct.pack_into("=H", bad, 28, 3)  # the length of its first attribute
    batch = scanned(bytes(bad) + route("11.0.0.0/8", by_nexthop(1)))
    assert batch.malformed == 1
    assert [key for _, key, _, _ in batch.changes] == [prefix_key("11.0.0.0/8")]


def test_a_wrong_message_length_is_the_end() -> None:
    with pytest.raises(MalformedNetlink, match="length 15"):
        scanned(u32(15) + route("10.0.0.0/8", by_nexthop(1))[4:])
