"""Links, addresses and neighbors on the wire, and what is known of interfaces."""

import struct

from netlink_bytes import address, attribute

from vrc.interfaces import ELSEWHERE, IFF_LOWER_UP, IFF_UP, Interfaces, InterfaceStatus, Link
from vrc.netlink.link_messages import Address, KernelNeighbor, decode_address, decode_link, decode_neighbor
from vrc.netlink.requests import (
    ADDRESS_OF_DECLARATION,
    address_request,
    link_request,
    macvlan_request,
    neighbor_request,
)

MAC = bytes((2, 0, 0, 0, 0, 1))
UP = IFF_UP | IFF_LOWER_UP


def test_links() -> None:
    assert decode_link(link_request(7, flags=IFF_UP, mtu=1400, mac=MAC, name="eth0")) == Link(7, "eth0", 1, 1400, MAC)
    macvlan = decode_link(macvlan_request(7, "eth0-v1", MAC))
    assert (macvlan.name, macvlan.parent, macvlan.kind, macvlan.mac) == ("eth0-v1", 7, "macvlan", MAC)
    in_bridge = link_request(7, name="eth0") + attribute(10, struct.pack("=I", 9))
    assert decode_link(in_bridge).master == 9


def test_addresses() -> None:
    for text, bits in (("10.1.0.1", 24), ("2001:db8::1", 64)):
        body = address_request(7, address(text), bits)
        assert decode_address(body) == Address(7, address(text), bits, 0, ADDRESS_OF_DECLARATION)
    remote = attribute(1, address("10.2.0.1")) + attribute(2, address("10.1.0.1"))
    point_to_point = decode_address(struct.pack("=BBBBi", 2, 32, 0, 0, 7) + remote)
    assert point_to_point == Address(7, address("10.1.0.1"), 32, 0, peer=address("10.2.0.1"))
    assert Address(7, address("fe80::1"), 64, 253).link_local
    assert not Address(7, address("254.128.0.1"), 24, 0).link_local
    assert decode_address(b"\x01" + bytes(7)) is None


def test_neighbors() -> None:
    assert decode_neighbor(neighbor_request(7, address("10.1.0.2"), managed=True)) == KernelNeighbor(
        7, address("10.1.0.2"), b"", 0, True
    )
    body = struct.pack("=BxxxiHBB", 10, 7, 2, 0, 1) + attribute(1, address("fe80::2")) + attribute(2, MAC)
    assert decode_neighbor(body) == KernelNeighbor(7, address("fe80::2"), MAC, 2)
    assert decode_neighbor(b"\x07" + bytes(11)) is None


def test_interfaces_and_their_macvlans() -> None:
    links = {
        1: Link(1, "lo", UP, 65536, b""),
        2: Link(2, "eth0", UP, 1500, MAC),
        3: Link(3, "eth0-v1", UP, 1500, MAC, parent=2, kind="macvlan"),
        4: Link(4, "eth0-v2", IFF_UP, 1500, MAC, parent=2, kind="macvlan"),
        5: Link(5, "eth1", IFF_UP, 1400, MAC),
        6: Link(6, "eth2", 0, 1500, MAC),
        7: Link(7, "tunnel", IFF_UP, 1476, b"", kind="gre"),
        8: Link(8, "other", 0, 1476, b"", kind="gre"),
    }
    addresses = {
        2: {(address("10.1.0.1"), 24, b""), (address("10.1.0.1"), 32, address("10.2.0.1"))},
        3: {(address("10.1.0.9"), 32, b"")},
        4: {(address("10.1.0.10"), 32, b"")},
    }
    interfaces = Interfaces(links, addresses, {"eth0": 101, "eth1": 102, "eth2": 103, "eth9": 109}, {110})
    assert [interfaces.id_of(ifindex) for ifindex in range(9)] == [0, 0, 101, 101, 101, 102, 103, 0, 0]
    usable = [interfaces.usable(ifindex) for ifindex in range(10)]
    assert usable == [0, ELSEWHERE, 101, 101, 101, 102, 0, ELSEWHERE, 0, 0]
    assert interfaces.statuses() == {
        101: InterfaceStatus(101, True, (address("10.1.0.1"), address("10.1.0.9"))),
        102: InterfaceStatus(102, False, ()),
        103: InterfaceStatus(103, False, ()),
        109: InterfaceStatus(109, False, ()),
        110: InterfaceStatus(110, False, ()),
    }
    found = interfaces.find("eth1")
    assert found is not None
    assert found.ifindex == 5


def test_carrier_alone_is_up_before_the_kernel_has_noted_it() -> None:
    assert Link(2, "eth0", UP, 1500, MAC).up  # without IFF_RUNNING
    assert not Link(2, "eth0", IFF_UP, 1500, MAC).up
