"""Which neighbors are reported, and which the kernel is asked to keep probed."""

from dataclasses import replace
from ipaddress import ip_address

import pytest

from vrc.interfaces import IFF_LOWER_UP, IFF_UP, Interfaces, Link
from vrc.neighbors import GONE, Ask, Neighbors, Report, groups
from vrc.netlink.link_messages import (
    NUD_INCOMPLETE,
    NUD_NOARP,
    NUD_REACHABLE,
    NUD_STALE,
    KernelNeighbor,
)
from vrc.netlink.requests import NUD_FAILED, NUD_PERMANENT

MAC, OTHER = bytes((2, 0, 0, 0, 0, 1)), bytes((2, 0, 0, 0, 0, 2))
HOST = bytes((10, 1, 0, 2))


def host(number: int) -> bytes:
    return bytes((10, 1, 0, number))


def neighbor(
    state: int, mac: bytes = b"", address: bytes = HOST, ifindex: int = 2, managed: bool = False
) -> KernelNeighbor:
    return KernelNeighbor(ifindex, address, mac, state, managed)


@pytest.fixture
def neighbors() -> Neighbors:
    links = {n: Link(n, f"eth{n}", IFF_UP | IFF_LOWER_UP, 1500, MAC) for n in (2, 9)}
    return Neighbors(Interfaces(links=links, declared={"eth2": 102}), limit=3)


def told(neighbors: Neighbors) -> dict[tuple[int, bytes], Report]:
    changed, neighbors.changed = neighbors.changed, {}
    return changed


def asked(neighbors: Neighbors) -> list[Ask]:
    asks = list(neighbors.asks)
    neighbors.asks.clear()
    return asks


def test_a_life(neighbors: Neighbors) -> None:
    neighbors.observe(neighbor(NUD_INCOMPLETE))
    assert told(neighbors) == {}
    neighbors.observe(neighbor(NUD_REACHABLE, MAC))
    assert told(neighbors) == {(102, HOST): Report(MAC)}
    assert asked(neighbors) == [Ask(2, HOST, True)]
    neighbors.observe(neighbor(NUD_STALE, MAC, managed=True))
    assert (told(neighbors), asked(neighbors)) == ({}, [])
    neighbors.observe(neighbor(NUD_REACHABLE, OTHER, managed=True))
    assert told(neighbors) == {(102, HOST): Report(OTHER)}
    neighbors.observe(neighbor(NUD_FAILED, managed=True))
    assert told(neighbors) == {(102, HOST): Report(failed=True)}
    assert asked(neighbors) == [Ask(2, HOST, False)]
    neighbors.observe(neighbor(NUD_INCOMPLETE))
    assert told(neighbors) == {}  # still failed until the outcome is known
    neighbors.lose((2, HOST))
    assert told(neighbors) == {(102, HOST): GONE}
    assert neighbors.reports() == {}


def test_silence_without_a_controller_means_nothing(neighbors: Neighbors) -> None:
    neighbors.observe(neighbor(NUD_REACHABLE, MAC))
    told(neighbors), asked(neighbors)
    neighbors.in_doubt = lambda: True
    neighbors.observe(neighbor(NUD_FAILED, managed=True))
    neighbors.observe(neighbor(NUD_INCOMPLETE, managed=True))
    assert (told(neighbors), asked(neighbors)) == ({}, [])  # probed on
    assert neighbors.reports() == {(102, HOST): Report(MAC)}
    neighbors.retry()
    assert asked(neighbors) == [Ask(2, HOST, True)]
    neighbors.in_doubt = lambda: False
    neighbors.observe(neighbor(NUD_REACHABLE, MAC, managed=True))
    assert (told(neighbors), asked(neighbors)) == ({}, [])
    neighbors.observe(neighbor(NUD_INCOMPLETE, managed=True))
    assert told(neighbors) == {(102, HOST): GONE}  # in doubt no more


def test_one_that_the_kernel_collects_without_a_controller_is_asked_for_anew(neighbors: Neighbors) -> None:
    neighbors.observe(neighbor(NUD_REACHABLE, MAC))
    told(neighbors), asked(neighbors)
    neighbors.in_doubt = lambda: True
    neighbors.observe(neighbor(NUD_FAILED, managed=True))
    neighbors.lose((2, HOST))
    assert (told(neighbors), asked(neighbors)) == ({}, [Ask(2, HOST, True, create=True)])
    assert neighbors.reports() == {(102, HOST): Report(MAC)}
    neighbors.observe(neighbor(NUD_INCOMPLETE, managed=True))
    neighbors.resync([])  # nor has a dump to have it
    assert (told(neighbors), asked(neighbors)) == ({}, [Ask(2, HOST, True, create=True)])
    neighbors.in_doubt = lambda: False
    neighbors.observe(neighbor(NUD_FAILED, managed=True))
    assert told(neighbors) == {(102, HOST): Report(failed=True)}


def test_one_that_is_tried_again_without_a_controller_stays(neighbors: Neighbors) -> None:
    neighbors.observe(neighbor(NUD_REACHABLE, MAC))
    told(neighbors), asked(neighbors)
    neighbors.in_doubt = lambda: True
    neighbors.observe(neighbor(NUD_INCOMPLETE, managed=True))  # its end in between was not heard of
    neighbors.in_doubt = lambda: False
    neighbors.observe(neighbor(NUD_INCOMPLETE, managed=True))
    assert told(neighbors) == {}
    assert neighbors.reports() == {(102, HOST): Report(MAC)}


@pytest.mark.parametrize("down", [True, False])
def test_one_that_cannot_be_asked_for_without_a_controller_is_gone(neighbors: Neighbors, down: bool) -> None:
    neighbors.observe(neighbor(NUD_REACHABLE, MAC))
    told(neighbors), asked(neighbors)
    neighbors.in_doubt = lambda: True
    if down:
        neighbors.interfaces.links[2] = Link(2, "eth2", 0, 1500, MAC)
    neighbors.lose((2, HOST))
    for ask in asked(neighbors):
        neighbors.refused(ask)
    assert told(neighbors) == {(102, HOST): GONE}
    assert neighbors.reports() == {}


def test_who_is_silent_with_a_controller_is_gone(neighbors: Neighbors) -> None:
    neighbors.in_doubt = lambda: True
    neighbors.observe(neighbor(NUD_FAILED))  # as a new process finds it: the controller may know better
    assert (told(neighbors), asked(neighbors)) == ({}, [Ask(2, HOST, True)])
    neighbors.in_doubt = lambda: False
    neighbors.observe(neighbor(NUD_FAILED, managed=True))
    assert told(neighbors) == {(102, HOST): Report(failed=True)}
    assert asked(neighbors) == [Ask(2, HOST, False)]


def test_what_is_no_neighbor_of_ours(neighbors: Neighbors) -> None:
    neighbors.observe(neighbor(NUD_REACHABLE, MAC, ifindex=9))
    neighbors.observe(neighbor(NUD_NOARP, b"\x33\x33\0\0\0\1"))
    neighbors.observe(neighbor(NUD_PERMANENT, b"\x01\0\x5e\0\0\1"))
    assert (len(neighbors), told(neighbors), asked(neighbors)) == (0, {}, [])


def test_gateways_are_resolved_before_traffic(neighbors: Neighbors) -> None:
    gateway = (2, HOST)
    neighbors.want({gateway, (2, bytes((169, 254, 0, 1)))})
    assert asked(neighbors) == [Ask(*gateway, True, create=True)]
    neighbors.want({gateway})
    assert asked(neighbors) == []
    neighbors.observe(neighbor(NUD_FAILED, managed=True))
    assert asked(neighbors) == []  # a gateway is probed on
    neighbors.lose(gateway)
    assert asked(neighbors) == [Ask(*gateway, True, create=True)]
    neighbors.refused(Ask(*gateway, True, create=True))
    neighbors.want({gateway})
    assert asked(neighbors) == [Ask(*gateway, True, create=True)]


def test_a_gateway_that_the_kernel_refused_is_asked_for_again(neighbors: Neighbors) -> None:
    ask = Ask(2, HOST, True, create=True)
    neighbors.want({(2, HOST)})
    assert asked(neighbors) == [ask]
    neighbors.want_again()
    assert asked(neighbors) == []
    for _ in range(2):
        neighbors.refused(ask)
        neighbors.want_again()
        neighbors.want_again()
        assert asked(neighbors) == [ask]
    neighbors.want(set())
    neighbors.refused(ask)
    neighbors.want_again()
    assert asked(neighbors) == []


def test_gateways_behind_a_link_without_carrier_wait(neighbors: Neighbors) -> None:
    neighbors.interfaces.links[2].flags = IFF_UP
    neighbors.want({(2, HOST)})
    assert asked(neighbors) == []


@pytest.mark.parametrize("state", [NUD_PERMANENT, NUD_NOARP])
def test_a_static_neighbor_is_reported_and_left_alone(neighbors: Neighbors, state: int) -> None:
    neighbors.observe(neighbor(NUD_REACHABLE, OTHER, managed=True))
    neighbors.observe(neighbor(state, MAC))
    neighbors.want({(2, HOST)})
    assert told(neighbors) == {(102, HOST): Report(MAC)}
    assert asked(neighbors) == []


def test_the_limit_keeps_gateways_and_deletes_others(neighbors: Neighbors) -> None:
    neighbors.want({(2, HOST)})
    for number in range(10, 14):
        neighbors.observe(neighbor(NUD_REACHABLE, MAC, host(number)))
    assert (len(neighbors), neighbors.over_limit) == (3, 1)
    assert asked(neighbors)[-1] == Ask(2, host(13), None)
    assert set(told(neighbors)) == {(102, host(number)) for number in (10, 11, 12)}
    neighbors.observe(neighbor(NUD_REACHABLE, MAC, managed=True))
    assert asked(neighbors) == [Ask(2, host(10), None)]
    assert told(neighbors) == {(102, host(10)): GONE, (102, HOST): Report(MAC)}


def test_a_gateway_is_asked_for_in_the_place_of_a_host(neighbors: Neighbors) -> None:
    for number in (10, 11, 12):
        neighbors.observe(neighbor(NUD_REACHABLE, MAC, host(number), managed=True))
        neighbors.observe(neighbor(NUD_STALE, MAC, host(number)))
    told(neighbors), asked(neighbors)
    gateways = {(2, host(number)) for number in (2, 3, 4)}
    neighbors.want(gateways)
    asks = asked(neighbors)
    assert {(ask.ifindex, ask.address) for ask in asks if ask.create} == gateways
    assert {ask.address for ask in asks if ask.managed is None} == {host(number) for number in (10, 11, 12)}
    assert told(neighbors) == {(102, host(number)): GONE for number in (10, 11, 12)}
    neighbors.want({*gateways, (2, host(5))})
    assert asked(neighbors) == []  # these are worth the same


def test_gateways_beyond_the_limit_are_not_each_compared_with_all_that_are_kept(neighbors: Neighbors) -> None:
    neighbors.limit = 100
    looked_up = 0

    class Gateways(set[tuple[int, bytes]]):
        def __contains__(self, place: object) -> bool:
            nonlocal looked_up
            looked_up += 1
            return super().__contains__(place)

    kept = {(2, host(number)) for number in range(100)}
    neighbors.want(kept)
    for _, address in kept:
        neighbors.observe(neighbor(NUD_REACHABLE, MAC, address, managed=True))
    wanted = Gateways(kept | {(2, host(number)) for number in range(100, 200)})
    neighbors.want(wanted)
    assert (len(neighbors), neighbors.over_limit) == (100, 100)
    assert looked_up < 4 * len(wanted)


def test_every_gateway_and_every_links_groups_are_asked_for(neighbors: Neighbors) -> None:
    up, links = IFF_UP | IFF_LOWER_UP, range(10, 610)
    neighbors.interfaces.links |= {n: Link(n, f"eth{n}", up, 1500, MAC) for n in links}
    neighbors.interfaces.declared |= {f"eth{n}": 100 + n for n in links}
    neighbors.links_changed()
    assert {ask.ifindex for ask in neighbors.asks} == {2, *links}
    assert len(asked(neighbors)) == 601 * len(list(groups()))
    neighbors.limit = 20_000
    gateways = {(2, (0x0A000000 + number).to_bytes(4, "big")) for number in range(12_000)}
    neighbors.want(gateways)
    assert {(ask.ifindex, ask.address) for ask in asked(neighbors)} == gateways


def test_of_neighbors_over_the_limit_as_many_are_deleted_as_can_wait(
    neighbors: Neighbors, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vrc.neighbors._MOST_ASKS", 5)
    for number in range(10, 20):
        neighbors.observe(neighbor(NUD_REACHABLE, MAC, host(number)))
    assert (neighbors.over_limit, neighbors.not_deleted) == (7, 5)
    assert [ask.managed for ask in asked(neighbors)] == [True] * 3 + [None] * 2


def test_a_dump_replaces_everything(neighbors: Neighbors) -> None:
    for number in (10, 11):
        neighbors.observe(neighbor(NUD_REACHABLE, MAC, host(number)))
    told(neighbors)
    neighbors.resync([neighbor(NUD_REACHABLE, MAC, host(11)), neighbor(NUD_REACHABLE, MAC, host(12))])
    assert told(neighbors) == {(102, host(10)): GONE, (102, host(12)): Report(MAC)}
    neighbors.interfaces.declared["eth2"] = 107
    neighbors.resync([neighbor(NUD_REACHABLE, MAC, host(11))])
    assert told(neighbors)[107, host(11)] == Report(MAC)
    assert neighbors.reports() == {(107, host(11)): Report(MAC)}


def test_groups_are_entered_on_links_that_come_up(neighbors: Neighbors) -> None:
    everything = [Ask(2, address, True, mac=mac) for address, mac in groups()]
    neighbors.links_changed()
    assert asked(neighbors) == everything
    neighbors.links_changed()
    assert asked(neighbors) == []
    link = neighbors.interfaces.links[2]
    neighbors.interfaces.links[2] = replace(link, flags=0)
    neighbors.links_changed()
    assert asked(neighbors) == []
    neighbors.interfaces.links[2] = link
    neighbors.links_changed()
    assert asked(neighbors) == everything


def test_groups_have_the_macs_that_kernels_send_them_to() -> None:
    found = {ip_address(address): mac.hex(":") for address, mac in groups()}
    assert found[ip_address("224.0.0.5")] == "01:00:5e:00:00:05"
    assert found[ip_address("ff02::1:6")] == "33:33:00:01:00:06"
    assert all(address.is_multicast for address in found)


VIRTUAL = 3
"""The ifindex of a macvlan on interface 102."""


@pytest.fixture
def on_macvlan(neighbors: Neighbors) -> Neighbors:
    macvlan = Link(VIRTUAL, "eth2-v1", IFF_UP | IFF_LOWER_UP, 1500, OTHER, parent=2, kind="macvlan")
    neighbors.interfaces.links[VIRTUAL] = macvlan
    neighbors.observe(neighbor(NUD_REACHABLE, MAC))
    assert told(neighbors) == {(102, HOST): Report(MAC)}
    return neighbors


def test_one_that_a_macvlan_has_too_stays_when_that_goes(on_macvlan: Neighbors) -> None:
    on_macvlan.observe(neighbor(NUD_STALE, MAC, ifindex=VIRTUAL))
    on_macvlan.lose((VIRTUAL, HOST))
    assert (told(on_macvlan), on_macvlan.reports()) == ({}, {(102, HOST): Report(MAC)})
    on_macvlan.lose((2, HOST))
    assert (told(on_macvlan), on_macvlan.reports()) == ({(102, HOST): GONE}, {})


def test_of_an_interface_and_its_macvlan_who_knows_a_mac_is_believed_and_itself_first(on_macvlan: Neighbors) -> None:
    on_macvlan.observe(neighbor(NUD_FAILED, ifindex=VIRTUAL))
    on_macvlan.observe(neighbor(NUD_REACHABLE, OTHER, ifindex=VIRTUAL))
    assert (told(on_macvlan), on_macvlan.reports()) == ({}, {(102, HOST): Report(MAC)})
    on_macvlan.observe(neighbor(NUD_FAILED))
    assert told(on_macvlan) == {(102, HOST): Report(OTHER)}
    on_macvlan.lose((VIRTUAL, HOST))
    assert (told(on_macvlan), on_macvlan.reports()) == ({(102, HOST): Report(failed=True)},) * 2


def test_one_of_a_macvlan_alone_is_the_interfaces(on_macvlan: Neighbors) -> None:
    on_macvlan.observe(neighbor(NUD_REACHABLE, OTHER, host(9), ifindex=VIRTUAL))
    assert told(on_macvlan) == {(102, host(9)): Report(OTHER)}
    on_macvlan.interfaces.declared["eth2"] = 107
    on_macvlan.observe(neighbor(NUD_REACHABLE, OTHER, host(9), ifindex=VIRTUAL))
    assert told(on_macvlan) == {(102, host(9)): GONE, (107, host(9)): Report(OTHER)}
