"""What a hostile router says on its session, attack by attack: messages of a VRC that the controller takes."""

import itertools
from collections.abc import Callable, Iterator
from typing import Any

from wire import MAX_ITEMS_PER_MESSAGE, MAX_ROUTES_PER_MESSAGE
from wire import splitplane_pb2 as pb
from wire.columns import pack_ids

_CONNECTED, _FORWARD, _BLACKHOLE = pb.NexthopSet.CONNECTED, pb.NexthopSet.FORWARD, pb.NexthopSet.BLACKHOLE
_GATEWAYS = 200

Bodies = Iterator[dict[str, Any]]
"""What a VRC says after Hello."""
PREPARED: dict[str, Any] = {}
"""Is no message: the attack itself begins here."""


def _gateway(number: int) -> bytes:
    return bytes((10, 9, 1 + (number >> 8), number & 255))


def _neighbors(interface: int) -> dict[str, Any]:
    macs = (bytes((2, 9, 0, 0, number >> 8, number & 255)) for number in range(_GATEWAYS))
    known = [pb.Neighbor(interface_id=interface, address=_gateway(n), mac=mac) for n, mac in enumerate(macs)]
    return {"neighbors": pb.Neighbors(neighbors=known)}


def _set(number: int, kind: pb.NexthopSet.Kind, interface: int, gateways: Iterator[int] | range) -> pb.NexthopSet:
    members = [pb.Member(interface_id=interface, gateway=_gateway(one), weight=1) for one in gateways]
    return pb.NexthopSet(id=number, kind=kind, members=members)


def _routes(first: int, count: int, ids: Callable[[int], int]) -> Bodies:
    """Announce host routes; an id of 0 withdraws."""
    for start in range(first, first + count, MAX_ROUTES_PER_MESSAGE):
        numbers = range(start, min(start + MAX_ROUTES_PER_MESSAGE, first + count))
        prefixes = b"".join((0x14000000 + number).to_bytes(4, "big") + b"\x20" for number in numbers)
        yield {"routes": pb.Routes(family=4, prefixes=prefixes, sets=pack_ids([ids(n) for n in numbers]))}


def _sets(sets: Iterator[Any], each: int = 2000) -> Bodies:
    while found := list(itertools.islice(sets, each)):
        yield {"nexthop_sets": pb.NexthopSets(sets=found)}


def redefinitions(interface: int) -> Bodies:
    """Sets of eight members until no more are taken, then a known one again and again."""
    yield from _sets(_set(n, _CONNECTED, interface, range(n % 100, n % 100 + 8)) for n in range(1, 65_505))
    yield PREPARED
    again = pb.NexthopSets(sets=[_set(1, _CONNECTED, interface, range(1, 9))] * 100)
    while True:
        yield {"nexthop_sets": again}


def released_groups(interface: int) -> Bodies:
    """10,000 routes over 64 groups, which are let go for 64 others."""
    yield _neighbors(interface)
    for base in itertools.count(1, 64):
        yield from _sets(_set(base + n, _FORWARD, interface, range(n, n + 2 + base % 60)) for n in range(64))
        yield from _routes(0, 10_000, lambda n: base + n % 64)  # noqa: B023 - used before the next one
        yield {"nexthop_sets": pb.NexthopSets(released=range(max(1, base - 64), base))}


def many_groups(interface: int) -> Bodies:
    """1,024 groups of 128 members, each used by a route; then nothing more."""
    yield _neighbors(interface)
    yield from _sets((_group(n, interface) for n in range(1, 1025)), 60)
    yield from _routes(0, 1024, lambda n: n + 1)


def _group(number: int, interface: int) -> Any:
    """A group of 128 members whose weights no other has."""
    made = _set(number, _FORWARD, interface, range(128))
    for place in range(10):
        made.members[place].weight = 1 + (number >> place & 1)
    return made


def claimed_groups(interface: int) -> Bodies:
    """New groups beside 1,024 that were read from the switch and that nobody claims: the resync never ends."""
    yield _neighbors(interface)
    for number in itertools.count(1):
        yield {"nexthop_sets": pb.NexthopSets(sets=[_set(number, _FORWARD, interface, range(number % 90, 95))])}
        yield from _routes(number % 512, 1, lambda _: number)  # noqa: B023
        if number > 512:
            yield {"nexthop_sets": pb.NexthopSets(released=[number - 512])}


def interface_states(interface: int) -> Bodies:
    """The state of one interface, as often as there may be in a message."""
    states = [pb.InterfaceState(id=interface, up=bool(n & 1)) for n in range(MAX_ITEMS_PER_MESSAGE)]
    message = pb.InterfaceStates(states=states)
    yield PREPARED
    while True:
        yield {"interfaces": message}


def full_table_flapping(interface: int) -> Bodies:
    """400,000 routes that come, change their nexthop, and go."""
    yield _neighbors(interface)
    yield {"nexthop_sets": pb.NexthopSets(sets=[_set(n, _FORWARD, interface, range(n, n + 1)) for n in (1, 2)])}
    for number in itertools.cycle((1, 2, 0)):
        yield from _routes(0, 400_000, lambda _: number)  # noqa: B023


def sets_65536(interface: int) -> Bodies:
    """As many sets as there may be, all let go, and again."""
    while True:
        yield from _sets(_set(n, _CONNECTED, interface, range(n % 100, n % 100 + 8)) for n in range(1, 65_535))
        for first in range(1, 65_535, MAX_ITEMS_PER_MESSAGE):
            yield {"nexthop_sets": pb.NexthopSets(released=range(first, min(first + MAX_ITEMS_PER_MESSAGE, 65_535)))}


def endless_resync(interface: int) -> Bodies:
    """A resync of which the end is never said: the same 10,000 routes again and again."""
    yield {"nexthop_sets": pb.NexthopSets(sets=[pb.NexthopSet(id=1, kind=_BLACKHOLE)])}
    while True:
        yield from _routes(0, 10_000, lambda _: 1)


OF_ROUTERS: dict[str, Callable[[int], Bodies]] = {
    "redefinitions": redefinitions,
    "released-groups": released_groups,
    "claimed-groups": claimed_groups,
    "interface-states": interface_states,
    "full-table-flapping": full_table_flapping,
    "sets-65536": sets_65536,
    "endless-resync": endless_resync,
}
BEFORE = {"many-groups": many_groups}
"""What comes before an attack."""
PREPARING = (redefinitions, interface_states)
"""Those that have to be prepared before they begin."""
