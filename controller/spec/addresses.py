"""Checks of interfaces' addresses: none twice on a router, and no networks of two interfaces that overlap.

Two networks overlap where one holds the other, so that both have the first bits of the wider one. Each address is
looked up among those behind it by its own bits, as many as their networks are long; comparing each with each takes a
minute for 4,000.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from ipaddress import IPv4Interface, IPv6Interface

from controller.model import InterfaceConfig
from controller.spec.document import subnet
from controller.spec.fallbacks import Problem
from controller.spec.state import State

Address = IPv4Interface | IPv6Interface
_Bits = tuple[int, int, int]  # IP version, how many first bits, those


def problems(state: State) -> Iterator[Problem]:
    """Walk over what is wrong with addresses."""
    for router in state.routers.values():
        found = [(subnet(text), interface) for interface in router.interfaces for text in interface.addresses]
        for at in clashing([(address, interface.id) for address, interface in found]):
            for other, second in found[at + 1 :]:
                one, first = found[at]
                if problem := _problem(router.full_name, (one, first), (other, second)):
                    yield ("interface", router.full_name, second.name), problem


def _problem(router: str, earlier: tuple[Address, InterfaceConfig], later: tuple[Address, InterfaceConfig]) -> str:
    (one, first), (other, second) = earlier, later
    if one.version != other.version or (one.is_link_local and first is not second):
        return ""
    if one.ip == other.ip:
        return f"address {one.ip} is declared twice on router {router}"
    if first is not second and one.network.overlaps(other.network):
        return f"router {router}: {other} of {second.name} overlaps with {one} of {first.name}"
    return ""


def clashing(found: Sequence[tuple[Address, int]]) -> list[int]:
    """Return which addresses, of interfaces by id, cannot be beside one that is behind them."""
    lengths: defaultdict[int, set[int]] = defaultdict(set)  # by IP version
    for address, _ in found:
        lengths[address.version].add(address.network.prefixlen)
    # interfaces of the addresses behind: by address, by network, and by what their networks are within
    same: defaultdict[_Bits, set[int]] = defaultdict(set)
    networks: defaultdict[_Bits, set[int]] = defaultdict(set)
    within: defaultdict[_Bits, set[int]] = defaultdict(set)
    clashes = []
    for at in reversed(range(len(found))):
        address, interface = found[at]
        whole, network = _bits(address, address.max_prefixlen), _bits(address, address.network.prefixlen)
        around = [_bits(address, length) for length in lengths[address.version] if length <= network[1]]
        if address.is_link_local:  # each link has its own
            clash = interface in same[whole]
        else:
            others = (within[network], *(networks[bits] for bits in around))
            clash = bool(same[whole]) or any(one and one != {interface} for one in others)
        if clash:
            clashes.append(at)
        same[whole].add(interface)
        networks[network].add(interface)
        for bits in around:
            within[bits].add(interface)
    return clashes[::-1]


def _bits(address: Address, length: int) -> _Bits:
    return address.version, length, int(address) >> (address.max_prefixlen - length)
