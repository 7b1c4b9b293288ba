"""Which addresses are reported with which declared interface."""

import pytest

from vrc.interfaces import IFF_LOWER_UP, IFF_UP, Interfaces, Link, OwnAddress
from wire import MAX_ADDRESSES

UP = IFF_UP | IFF_LOWER_UP
MAC = bytes(6)


def own(*addresses: bytes) -> set[OwnAddress]:
    return {(address, 32, b"") for address in addresses}


def interfaces(*links: Link) -> Interfaces:
    return Interfaces({link.ifindex: link for link in links}, declared={"eth0": 7, "eth1": 9})


LO = Link(1, "lo", UP, 65536, MAC)
ETH0, ETH1 = Link(2, "eth0", UP, 1500, MAC), Link(3, "eth1", IFF_UP, 1500, MAC)


def test_addresses_of_the_loopback_are_own_addresses_of_the_router():
    known = interfaces(LO, ETH0, ETH1)
    known.addresses = {
        1: own(b"\x7f\0\0\1", bytes(15) + b"\1", b"\x0a\xff\0\1"),
        2: own(b"\x0a\0\0\1"),
        3: own(b"\x0a\0\1\1"),
    }
    found = known.statuses()
    assert found[7].addresses == (b"\x0a\0\0\1", b"\x0a\xff\0\1")
    assert found[9].addresses == (b"\x0a\0\1\1",)
    assert (found[7].up, found[9].up) == (True, False)


@pytest.mark.parametrize("kind", ["dummy", "bridge", "vlan"])
def test_addresses_of_what_is_no_interface_count_while_it_is_up(kind: str):
    service = Link(4, "service", UP, 1500, MAC, parent=2, kind=kind)
    known = interfaces(ETH0, service)
    known.addresses = {4: own(b"\x0a\xff\0\2")}
    assert known.statuses()[7].addresses == (b"\x0a\xff\0\2",)
    service.flags = 0
    assert known.statuses()[7].addresses == ()


def test_addresses_of_a_vrf_are_no_own_addresses_of_the_router():
    vrf, bridge = Link(4, "red", UP, 65536, MAC, kind="vrf"), Link(5, "br0", UP, 1500, MAC, kind="bridge", master=4)
    port = Link(6, "tap0", UP, 1500, MAC, kind="tun", master=5)
    known = interfaces(ETH0, vrf, bridge, port)
    known.addresses = {number: own(bytes((10, 255, 0, number))) for number in (4, 5, 6)}
    assert known.statuses()[7].addresses == (b"\x0a\xff\0\6",)
    bridge.master = 0
    assert known.statuses()[7].addresses == (b"\x0a\xff\0\5", b"\x0a\xff\0\6")


def test_more_addresses_than_the_controller_takes_are_cut():
    known = interfaces(LO, ETH0)
    known.addresses = {1: own(*(bytes((10, 9, i >> 8, i & 255)) for i in range(MAX_ADDRESSES + 10)))}
    assert len(known.statuses()[7].addresses) == MAX_ADDRESSES
