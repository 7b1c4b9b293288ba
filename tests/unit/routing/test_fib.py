"""What one router asks of its plane, in which order and of what cost, and what it makes of the answers."""

from collections.abc import Iterable, Mapping
from ipaddress import ip_address
from random import Random

import pytest

from controller.model import InterfaceConfig, Quota, RouterConfig
from controller.planes.base import (
    GLEAN,
    LOCAL,
    UNKNOWN_ACTION,
    Installed,
    Nexthop,
    NexthopState,
    Op,
    Policer,
    Refused,
    RouteKind,
    RouterInterface,
    WriteBatch,
    route_action,
)
from controller.routing import objects
from controller.routing.fib import Fib
from controller.routing.objects import PlaneObjects
from controller.routing.own_prefixes import NEIGHBOR_COST, OwnPrefixes
from controller.routing.prefixes import Ticket
from controller.routing.rib import Member, SetKind
from controller.routing.table_pass import SLICE_COST
from controller.routing.usage import SliceUsage
from wire.columns import prefix_key

VRF = 7
PORTS = {f"p{number}": (10 + number, True) for number in (1, 2, 3)}
V4 = [prefix_key(f"20.{number}.0.0/16") for number in range(8)]
V6 = prefix_key("2001:db8::/48")


def own(number: int) -> bytes:
    return bytes((10, 0, number, 1))


def gateway(number: int) -> bytes:
    return bytes((10, 0, number, 2))


def mac(number: int) -> bytes:
    return bytes((2, 0, 0, 0, 0, number))


def network(number: int) -> bytes:
    return prefix_key(f"10.0.{number}.0/24")


def host(address: bytes) -> bytes:
    return address + bytes((8 * len(address),))


def config(numbers: Iterable[int] = (1, 2), **quota: int) -> RouterConfig:
    interfaces = (
        InterfaceConfig(number, f"i{number}", f"p{number}", 0, bytes((2, 0, 0, 0, 1, number))) for number in numbers
    )
    return RouterConfig(VRF, "red", "r1", "s1", Quota(**quota), tuple(interfaces))


class Router:
    """A FIB with two interfaces that are up and have an address, on a plane that takes everything."""

    def __init__(self, **quota: int) -> None:
        self.objects = PlaneObjects("s1")
        self.fib = Fib(config(**quota), self.objects, SliceUsage(Quota(**quota)))
        self.fib.set_ports(PORTS, 0.0)
        list(self.fib.adopt(Installed(), {}))
        self.fib.set_interfaces({number: (True, frozenset((own(number),))) for number in (1, 2)}, 0.0)
        self.write()

    def take(self, limit: int = 1000, ahead: bool = False) -> tuple[WriteBatch, Ticket]:
        batch = WriteBatch()
        return batch, self.fib.take(batch, limit, ahead)

    def write(self, *refused: Refused) -> WriteBatch:
        """Write all that is to be written."""
        while self.fib.unfinished:
            self.fib.advance()
        batch, ticket = self.take()
        self.fib.confirm(ticket, refused)
        return batch

    def neighbors(self, *numbers: int, failed: Iterable[int] = (), now: float = 0.0) -> int:
        told = {(number, gateway(number)): (mac(number), False) for number in numbers}
        told |= {(number, gateway(number)): (b"", True) for number in failed}
        return self.fib.set_neighbors(told, now)

    def define(self, set_id: int, *numbers: int) -> None:
        self.fib.define_set(set_id, SetKind.FORWARD, tuple(Member(number, gateway(number)) for number in numbers))

    def learn_links(self, *numbers: int) -> None:
        """Learn that each interface's network is on its link."""
        for number in numbers:
            self.fib.define_set(100 + number, SetKind.CONNECTED, (Member(number, b""),))
            self.learn({network(number): 100 + number})

    def learn(self, routes: dict[bytes, int]) -> int:
        return self.fib.learn(4, list(routes), list(routes.values()))

    @property
    def installed(self) -> Mapping[bytes, int]:
        return self.fib.installed_routes


def routes(batch: WriteBatch) -> dict[bytes, tuple[Op, int]]:
    return {
        key: (op, action)
        for updates in batch.routes
        for op, key, action in zip(updates.ops, updates.keys, updates.actions, strict=True)
    }


def test_a_router_begins_with_its_policer_its_interfaces_and_its_addresses() -> None:
    fib = Fib(config(), PlaneObjects("s1"), SliceUsage(Quota()))
    fib.set_ports(PORTS, 0.0)
    list(fib.adopt(Installed(), {}))
    batch = WriteBatch()
    ticket = fib.take(batch, 1000)
    assert [(one.op, one.entry) for one in batch.policers] == [(Op.INSERT, Policer(VRF, Quota().punts_per_s))]
    assert [one.entry for one in batch.router_interfaces] == [
        RouterInterface(number, VRF, 10 + number, 0, bytes((2, 0, 0, 0, 1, number)), 1500, (), enabled=False)
        for number in (1, 2)
    ]
    assert (ticket.entries, ticket.cost, fib.in_flight) == (3, 3, 1)
    fib.confirm(ticket, ())
    assert fib.in_flight == 0
    fib.set_interfaces({1: (True, frozenset((own(1),)))}, 0.0)
    batch = WriteBatch()
    fib.take(batch, 1000)
    assert [(one.op, one.entry.id, one.entry.enabled) for one in batch.router_interfaces] == [(Op.MODIFY, 1, True)]
    assert routes(batch) == {host(own(1)): (Op.INSERT, LOCAL)}


def test_what_others_refer_to_goes_first_and_what_it_costs_is_counted() -> None:
    router = Router()
    router.define(1, 1)
    router.define(2, 1, 2)
    router.learn({V4[0]: 1, V4[1]: 2, V4[2]: 2})
    batch, ticket = router.take(limit=1)
    assert ([one.op for one in batch.nexthops], batch.groups, routes(batch)) == ([Op.INSERT], [], {})
    assert (ticket.cost, ticket.entries) == (1, 1)
    batch, ticket = router.take(limit=2)
    assert (len(batch.nexthops), len(batch.groups), routes(batch)) == (1, 1, {})
    assert (ticket.cost, ticket.entries) == (2, 2)  # a group that gleans has one member
    batch, ticket = router.take(limit=2)
    assert ([len(batch.nexthops), len(batch.groups)], len(routes(batch))) == ([0, 0], 2)
    assert (ticket.cost, ticket.entries) == (2, 0)
    batch, ticket = router.take(limit=9)
    assert (len(routes(batch)), ticket.cost) == (1, 1)
    assert router.fib.in_flight == 4


def test_ahead_of_its_plane_a_router_writes_routes_alone() -> None:
    fib = Fib(config(), PlaneObjects("s1"), SliceUsage(Quota()))
    fib.set_ports(PORTS, 0.0)
    list(fib.adopt(Installed(), {}))
    fib.set_interfaces({1: (True, frozenset((own(1),)))}, 0.0)
    batch = WriteBatch()
    fib.take(batch, 1000, ahead=True)
    assert (batch.policers, batch.router_interfaces, list(routes(batch))) == ([], [], [host(own(1))])


def test_an_id_is_free_once_the_plane_has_deleted_its_entry_and_not_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(objects, "MAX_OBJECT_ID", 3)
    router = Router()
    router.define(1, 1)
    router.learn({V4[0]: 1})
    router.write()
    assert [router.objects.issue(), router.objects.issue()] == [2, 3]
    for one in (2, 3):
        router.objects.free(one)
    router.learn({V4[0]: 0})
    router.fib.release([1])
    router.write()
    batch, ticket = router.take()
    assert [(one.op, one.entry.id) for one in batch.nexthops] == [(Op.DELETE, 1)]
    assert ticket.freed == [1]
    issued = [router.objects.issue(), router.objects.issue()]
    assert sorted(issued) == [2, 3]
    router.fib.confirm(ticket, ())
    assert router.objects.issue() == 1


def test_batches_are_confirmed_one_by_one() -> None:
    """Or who waits for those that were under way waits for too few of them."""
    router, tickets = Router(), []
    router.neighbors(1)
    router.define(1, 1)
    router.write()
    fib = router.fib
    for prefix in V4[:2]:
        router.learn({prefix: 1})
        tickets.append(router.take()[1])
    under_way = [fib.batches - fib.batches_confirmed]
    for ticket in tickets:
        fib.confirm(ticket, ())
        under_way.append(fib.batches - fib.batches_confirmed)
    assert under_way == [2, 1, 0]


def test_the_first_prefix_is_confirmed_with_its_batch_and_not_before() -> None:
    fib = Fib(config(()), PlaneObjects("s1"), SliceUsage(Quota()))
    fib.define_set(1, SetKind.BLACKHOLE, ())
    fib.learn(4, [V4[0]], [1])
    ticket = fib.take(WriteBatch(), 1000, ahead=True)
    assert not fib.reached(fib.mark())
    fib.confirm(ticket, ())
    assert fib.reached(fib.mark())


def test_a_router_interface_whose_port_is_gone_is_deleted_and_comes_back_with_it() -> None:
    router = Router()
    router.fib.set_ports({"p2": (12, True)}, 0.0)
    batch = router.write()
    assert [(one.op, one.entry.id) for one in batch.router_interfaces] == [(Op.DELETE, 1)]
    router.fib.set_ports({"p1": (21, True), "p2": (12, False)}, 0.0)
    batch = router.write()
    assert [(one.op, one.entry.id, one.entry.port) for one in batch.router_interfaces] == [(Op.INSERT, 1, 21)]


def test_a_declaration_that_lacks_an_interface_takes_its_address_and_neighbors() -> None:
    router = Router()
    router.learn_links(1, 2)
    router.neighbors(1, 2)
    router.define(1, 2)
    router.learn({V4[0]: 1})
    router.write()
    assert {host(own(2)), host(gateway(2)), V4[0]} <= router.installed.keys()
    router.fib.configure(config([1]))
    batch = router.write()
    assert {key for key, (op, _) in routes(batch).items() if op is Op.DELETE} >= {host(own(2)), host(gateway(2))}
    assert [(one.op, one.entry.id) for one in batch.router_interfaces] == [(Op.DELETE, 2)]
    assert [one.entry.state for one in batch.nexthops if one.op is Op.MODIFY] == [NexthopState.DROP]
    assert set(router.fib.interfaces) == {1}


def test_an_address_of_two_interfaces_stays_with_the_second() -> None:
    router = Router()
    shared = bytes((10, 0, 9, 1))
    router.fib.set_interfaces({number: (True, frozenset((own(number), shared))) for number in (1, 2)}, 0.0)
    assert routes(router.write()) == {host(shared): (Op.INSERT, LOCAL)}
    router.fib.set_interfaces({1: (True, frozenset((own(1),)))}, 0.0)
    assert routes(router.write()) == {}
    router.fib.set_interfaces({2: (True, frozenset((own(2),)))}, 0.0)
    assert routes(router.write()) == {host(shared): (Op.DELETE, 0)}


def test_a_neighbor_has_a_route_of_its_own_and_failed_ones_are_tried_again() -> None:
    router = Router()
    router.learn_links(1)
    assert router.neighbors(1) == 0
    batch = router.write()
    assert routes(batch)[host(gateway(1))][0] is Op.INSERT
    assert [one.entry for one in batch.nexthops] == [Nexthop(1, 1, mac(1), NexthopState.FORWARD)]
    router.neighbors(failed=[1], now=5.0)
    assert [one.entry.state for one in router.write().nexthops] == [NexthopState.DROP]
    router.fib.tick(7.9)
    assert router.write().nexthops == []
    router.fib.tick(8.0)
    assert [one.entry.state for one in router.write().nexthops] == [NexthopState.GLEAN]


def test_what_a_neighbor_calls_itself_takes_no_packets_of_a_route() -> None:
    """The kernel enters any address as a neighbor's, of whatever link, that asks for the router's MAC."""
    router, other, foreign = Router(), gateway(2), ip_address("8.8.8.8").packed
    router.learn_links(1, 2)
    router.define(1, 2)
    router.learn({prefix_key("0.0.0.0/0"): 1})
    router.write()
    claims = {(1, other): (mac(9), False), (1, foreign): (mac(9), False)}
    router.fib.set_neighbors(claims, 0.0)
    assert routes(router.write()) == {}
    router.neighbors(2)
    assert routes(router.write()).keys() == {host(other)}
    (nexthop,) = (one for one in router.fib.desired_nexthops.values() if one.mac == mac(2))
    assert router.installed[host(other)] == route_action(RouteKind.NEXTHOP, nexthop.id)


def test_a_host_on_a_link_by_a_route_of_its_own_is_forwarded_to_once_it_is_resolved() -> None:
    router, alone = Router(), ip_address("192.0.2.5").packed
    router.fib.define_set(1, SetKind.CONNECTED, (Member(1, b""),))
    router.learn({host(alone): 1})
    assert routes(router.write()) == {host(alone): (Op.INSERT, GLEAN)}
    router.fib.set_neighbors({(2, alone): (mac(2), False)}, 0.0)
    assert routes(router.write()) == {}
    router.fib.set_neighbors({(1, alone): (mac(1), False)}, 0.0)
    ((op, action),) = routes(router.write()).values()
    (nexthop,) = router.fib.desired_nexthops.values()
    assert (op, action, nexthop.mac) == (Op.MODIFY, route_action(RouteKind.NEXTHOP, nexthop.id), mac(1))
    router.fib.set_neighbors({(1, alone): (b"", False)}, 0.0)
    assert routes(router.write()) == {host(alone): (Op.MODIFY, GLEAN)}


def test_a_neighbor_told_before_the_routes_keeps_what_was_adopted_for_it() -> None:
    there = host(gateway(1))
    fib = Fib(config(), PlaneObjects("s1"), SliceUsage(Quota()))
    list(fib.adopt(Installed(routes={VRF: {there: route_action(RouteKind.NEXTHOP, 5)}}), {}))
    fib.set_ports(PORTS, 0.0)
    fib.set_neighbors({(1, gateway(1)): (mac(1), False)}, 0.0)
    batch = WriteBatch()
    fib.take(batch, 1000)
    assert routes(batch) == {}
    fib.sweep(0.0)
    batch = WriteBatch()
    fib.take(batch, 1000)
    assert routes(batch)[there][0] is Op.DELETE


def test_routes_of_both_families_that_a_sweep_takes_give_neighbors_back_theirs() -> None:
    router, six = Router(), ip_address("2001:db8::2").packed
    router.learn_links(1)
    router.fib.define_set(2, SetKind.CONNECTED, (Member(1, b""),))
    router.fib.learn(6, [prefix_key("2001:db8::/64")], [2])
    router.fib.set_neighbors({(1, six): (mac(1), False)}, 0.0)
    router.neighbors(1)
    router.define(3, 2)
    router.fib.learn(6, [prefix_key("2001:db8::/65")], [3])
    router.learn({prefix_key("10.0.1.0/25"): 3})
    router.write()
    assert not {host(six), host(gateway(1))} & router.installed.keys()
    router.fib.begin_resync()
    router.learn_links(1)
    router.fib.define_set(2, SetKind.CONNECTED, (Member(1, b""),))
    router.fib.learn(6, [prefix_key("2001:db8::/64")], [2])
    router.fib.set_neighbors({(1, six): (mac(1), False)}, 0.0)
    router.neighbors(1)
    router.fib.sweep(0.0)
    router.write()
    assert {host(six), host(gateway(1))} <= router.installed.keys()


def test_a_route_that_changes_has_no_neighbors_looked_at_but_those_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many there are; and where it changes for all of them, that is done in slices."""
    many = 2 * SLICE_COST // NEIGHBOR_COST
    router = Router(neighbors=many, nexthops=2 * many)
    router.fib.define_set(1, SetKind.CONNECTED, (Member(1, b""),))
    router.define(2, 2)
    router.learn({prefix_key("10.0.0.0/8"): 1})
    hosts = [(0x0A010000 + number).to_bytes(4, "big") for number in range(many)]
    router.fib.set_neighbors({(1, one): (mac(1), False) for one in hosts}, 0.0)
    router.write()
    looked_at: list[bytes] = []
    refresh = OwnPrefixes.refresh

    def noted(self: OwnPrefixes, address: bytes) -> tuple[bytes, ...]:
        looked_at.append(address)
        return refresh(self, address)

    monkeypatch.setattr(OwnPrefixes, "refresh", noted)
    router.learn({V4[0]: 2, prefix_key("10.1.0.8/30"): 2})
    assert sorted(looked_at) == hosts[8:12]
    looked_at.clear()
    router.learn({prefix_key("10.0.0.0/8"): 2})
    assert router.fib.unfinished
    assert len(looked_at) == SLICE_COST // NEIGHBOR_COST
    router.write()
    assert not {host(one) for one in hosts} & router.installed.keys()


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("family", [4, 6])
def test_neighbors_follow_the_longest_route_to_them_whatever_comes_first(family: int, seed: int) -> None:
    chosen, router = Random(seed), Router()
    size = {4: 32, 6: 128}[family]
    base = int.from_bytes(ip_address({4: "10.7.0.0", 6: "2001:db8::"}[family]).packed, "big")
    addresses = [(base + number).to_bytes(size // 8, "big") for number in range(16)]
    known: dict[bytes, int] = {}
    told: set[tuple[int, bytes]] = set()
    for number in (1, 2):
        router.fib.define_set(number, SetKind.CONNECTED, (Member(number, b""),))
    router.define(3, 1)
    for _ in range(60):
        if chosen.random() < 0.6:
            bits = chosen.choice((0, size - 4, size - 3, size - 1, size))
            prefix = (base + chosen.randrange(16)) >> (size - bits) << (size - bits)
            key = prefix.to_bytes(size // 8, "big") + bytes((bits,))
            known[key] = chosen.randrange(4)
            router.fib.learn(family, [key], [known[key]])
        else:
            place = chosen.choice((1, 2)), chosen.choice(addresses)
            told ^= {place}
            router.fib.set_neighbors({place: (mac(place[0]) if place in told else b"", False)}, 0.0)
        router.write()
        for address in addresses:
            covering = [int.from_bytes(address, "big") >> (size - bits) << (size - bits) for bits in range(size + 1)]
            keys = [one.to_bytes(size // 8, "big") + bytes((bits,)) for bits, one in enumerate(covering)]
            longest = next((known[key] for key in reversed(keys) if known.get(key)), 0)
            action, nexthop = router.installed.get(host(address), 0), None
            if action >> 28 == RouteKind.NEXTHOP:
                nexthop = router.fib.desired_nexthops[action & 0xFFFFFF]
            if longest in (1, 2) and (longest, address) in told:
                assert nexthop is not None
                assert nexthop.mac == mac(longest)
            elif known.get(host(address)) != 3:
                assert nexthop is None


@pytest.mark.parametrize(
    ("address", "routed"),
    [
        ("169.253.255.255", True),
        ("169.254.0.1", False),
        ("169.254.255.254", False),
        ("169.255.0.1", True),
        ("a9fe::1", True),
        ("fe7f::1", True),
        ("fe80::1", False),
        ("febf::1", False),
        ("fec0::1", True),
    ],
)
def test_a_link_local_neighbor_has_no_route(address: str, routed: bool) -> None:
    router, packed = Router(), ip_address(address).packed
    router.fib.define_set(1, SetKind.CONNECTED, (Member(1, b""),))
    for family, default in ((4, "0.0.0.0/0"), (6, "::/0")):
        router.fib.learn(family, [prefix_key(default)], [1])
    router.write()
    router.fib.set_neighbors({(1, packed): (mac(1), False)}, 0.0)
    assert routes(router.write()).keys() == ({host(packed)} if routed else set())


def test_what_the_plane_refused_is_said_and_tried_again_when_it_is_asked_for() -> None:
    router = Router()
    router.define(1, 1)
    router.learn({V4[0]: 1, V4[1]: 1})
    refused = [
        Refused("ipv4_route", VRF, V4[0], Op.INSERT, "told to", full=False),
        Refused("ipv4_route", VRF, V4[1], Op.INSERT, "", full=True),
    ]
    router.write(*refused)
    assert router.fib.refused_routes == {
        V4[0]: "plane s1 refused ipv4_route: told to",
        V4[1]: "plane s1: ipv4_route is full",
    }
    assert not {V4[0], V4[1]} & router.installed.keys()
    assert routes(router.write()) == {}
    router.fib.retry_refused()
    assert {key: op for key, (op, _) in routes(router.write()).items()} == {V4[0]: Op.INSERT, V4[1]: Op.INSERT}
    assert router.fib.refused_routes == {}


def test_what_a_refused_change_left_is_unknown_and_written_again_as_a_change() -> None:
    router = Router()
    router.define(1, 1)
    router.define(2, 2)
    router.learn({V4[0]: 1})
    router.write()
    router.learn({V4[0]: 2})
    router.write(Refused("ipv4_route", VRF, V4[0], Op.MODIFY, "told to", full=False))
    assert router.installed[V4[0]] == UNKNOWN_ACTION
    assert router.fib.unsure
    router.fib.retry_refused()
    assert routes(router.write())[V4[0]][0] is Op.MODIFY
    assert not router.fib.unsure


def test_a_refused_nexthop_is_its_routers_and_written_again() -> None:
    router = Router()
    router.define(1, 1)
    refusal = Refused("nexthop", 0, 1, Op.INSERT, "told to", full=False)
    assert router.fib.owns(refusal)
    assert not router.fib.owns(Refused("nexthop", 0, 2, Op.INSERT, "", full=False))
    assert not router.fib.owns(Refused("nexthop_group", 0, 1, Op.INSERT, "", full=False))
    router.write(refusal)
    router.fib.retry_refused()
    assert [(one.op, one.entry.id) for one in router.write().nexthops] == [(Op.INSERT, 1)]


def test_sets_that_a_quota_kept_out_are_tried_again_too() -> None:
    router = Router(nexthops=1)
    router.define(1, 1)
    router.define(2, 2)
    router.learn({V4[0]: 2})
    assert V4[0] not in routes(router.write())
    router.fib.usage.quota = Quota(nexthops=2)
    router.fib.retry_refused()
    assert V4[0] in routes(router.write())


def test_routes_far_beyond_the_quota_are_not_kept_and_counted() -> None:
    router = Router(ipv4_routes=4)
    router.define(1, 1)
    most = router.fib._most_routes(4)
    keys = [bytes((20, number >> 8, number & 255, 0, 24)) for number in range(most + 3)]
    assert router.fib.learn(4, keys[:-1], [1] * (most + 2)) == 2
    assert router.fib.learn(4, keys[-1:], [1]) == 1
    assert router.fib.learn(4, keys[:1], [0]) == 0
    assert router.fib.learn(4, keys[-1:], [1]) == 0


def test_what_a_resync_does_not_repeat_goes_with_its_sweep() -> None:
    router = Router()
    router.learn_links(1, 2)
    router.neighbors(1, 2)
    router.define(1, 1)
    router.learn({V4[0]: 1, V4[1]: 1})
    router.write()
    router.fib.begin_resync()
    router.learn_links(1, 2)
    router.define(1, 1)
    router.learn({V4[1]: 1})
    router.neighbors(1)
    assert routes(router.write()) == {}
    router.fib.set_interfaces({1: (True, frozenset((own(1),)))}, 0.0)
    router.fib.sweep(0.0)
    gone = {key for key, (op, _) in routes(router.write()).items() if op is Op.DELETE}
    assert gone == {V4[0], host(gateway(2))}
    assert (router.fib.swept, router.fib.settled) == (1, True)
    assert router.fib._rib._repeated is None  # it would take memory and time for good


def test_an_interface_that_no_session_has_told_of_is_down_at_the_end_of_a_resync() -> None:
    fib = Fib(config(), PlaneObjects("s1"), SliceUsage(Quota()))
    fib.set_ports(PORTS, 0.0)
    fib.define_set(1, SetKind.CONNECTED, (Member(1, b""),))
    fib.learn(4, [V4[0]], [1])
    assert fib.desired(V4[0]) == GLEAN
    fib.sweep(0.0)
    assert fib.desired(V4[0]) is None
    fib.set_interfaces({1: (True, frozenset())}, 0.0)
    assert fib.desired(V4[0]) == GLEAN


def test_what_was_adopted_and_never_learned_goes_with_the_sweep() -> None:
    router = Router()
    mine = Installed(routes={VRF: {V4[0]: LOCAL, V4[1]: GLEAN, V6: LOCAL}})
    fib = Fib(config(), router.objects, SliceUsage(Quota()))
    list(fib.adopt(mine, {}))
    fib.define_set(1, SetKind.CONNECTED, (Member(1, b""),))
    fib.set_ports(PORTS, 0.0)
    fib.learn(4, [V4[1]], [1])
    batch = WriteBatch()
    fib.confirm(fib.take(batch, 1000), ())
    assert routes(batch) == {}
    fib.set_interfaces({1: (True, frozenset())}, 0.0)
    fib.sweep(0.0)
    batch = WriteBatch()
    fib.confirm(fib.take(batch, 1000), ())
    assert routes(batch) == {V4[0]: (Op.DELETE, 0), V6: (Op.DELETE, 0)}


def test_a_nexthop_goes_with_the_last_route_on_it_though_that_was_never_learned() -> None:
    router = Router()
    router.define(1, 1)
    router.learn({V4[0]: 1})
    entry = router.write().nexthops[0].entry
    action = router.installed[V4[0]]
    list(router.fib.adopt(Installed(routes={VRF: {V4[0]: action, V4[1]: action}}, nexthops={entry.id: entry}), {}))
    router.learn({V4[0]: 0})
    router.fib.release([1])
    router.write()
    router.fib.tick(0.0)
    assert not router.write().nexthops, "a route may still be on it"
    router.fib.sweep(0.0)
    assert routes(router.write())[V4[1]] == (Op.DELETE, 0)
    router.fib.tick(0.0)
    assert [(one.op, one.entry.id) for one in router.write().nexthops] == [(Op.DELETE, entry.id)]


def test_a_router_that_is_removed_wants_nothing_any_more() -> None:
    router = Router()
    router.learn_links(1)
    router.neighbors(1)
    router.define(1, 1)
    router.learn({V4[0]: 1})
    router.write()
    router.fib.remove()
    batch = router.write()
    assert all(op is Op.DELETE for op, _ in routes(batch).values())
    assert routes(batch).keys() == {V4[0], network(1), host(own(1)), host(own(2)), host(gateway(1))}
    assert {one.op for one in (*batch.router_interfaces, *batch.policers)} == {Op.DELETE}
    assert (len(batch.router_interfaces), len(batch.policers)) == (2, 1)
    router.write()
    assert router.installed == {}
    assert router.fib.repair(Installed(routes={VRF: {V4[3]: LOCAL}}), set()) == 0


def test_a_router_that_is_removed_in_the_middle_of_a_sweep_leaves_no_route(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("controller.routing.fib.SLICE_COST", 1)
    router = Router()
    router.define(1, 1)
    router.learn(dict.fromkeys(V4, 1))
    router.fib.sweep(0.0)
    for _ in range(len(V4) // 2):
        router.fib.advance()
    assert router.fib.unfinished
    router.fib.remove()
    while router.fib.unfinished:
        router.fib.advance()
    assert not router.fib.learned


def test_an_audit_repairs_routes_and_entries_and_counts_them() -> None:
    router = Router()
    router.define(1, 1)
    router.learn({V4[0]: 1, V4[1]: 1, V4[2]: 1})
    router.write()
    written = router.fib.begin_audit()
    found = dict(router.installed)
    del found[V4[0]]
    found[V4[1]] = GLEAN
    found[V4[5]] = LOCAL
    read = Installed(
        router_interfaces={1: router.fib.installed_interface(1)}, policers={}, nexthops={}, routes={VRF: found}
    )
    assert router.fib.repair(read, written) == 3 + 3  # an interface, the policer and the nexthop are gone
    router.fib.end_audit()
    batch = router.write()
    repaired = {key: op for key, (op, _) in routes(batch).items()}
    assert repaired == {V4[0]: Op.INSERT, V4[1]: Op.MODIFY, V4[5]: Op.DELETE}
    assert ([one.op for one in batch.nexthops], [one.op for one in batch.policers]) == ([Op.INSERT], [Op.INSERT])
    assert [(one.op, one.entry.id) for one in batch.router_interfaces] == [(Op.INSERT, 2)]


def test_what_was_written_while_an_audit_read_is_not_repaired() -> None:
    router = Router()
    router.define(1, 1)
    router.learn({V4[0]: 1})
    router.write()
    written, before = router.fib.begin_audit(), dict(router.installed)
    router.learn({V4[1]: 1})
    router.neighbors(1)
    router.write()
    assert router.fib.repair(Installed(routes={VRF: before}), written) == 0
    router.fib.end_audit()
    sent = set(written)
    router.learn({V4[2]: 1})
    router.write()
    assert written == sent, "nobody asks any more"


def test_prefixes_whose_set_comes_to_the_same_content_stay_where_they_are() -> None:
    router = Router()
    router.neighbors(1, 2)
    router.define(1, 1, 2)
    router.define(2, 1)
    router.learn({V4[0]: 1, V4[1]: 1})
    router.write()
    on_group = router.installed[V4[0]]
    router.fib.set_ports({"p1": (11, True), "p2": (12, False)}, 0.0)
    router.write()
    router.learn({V4[0]: 2, V4[1]: 2})  # as zebra does
    assert routes(router.write()) == {}
    router.fib.set_ports(PORTS, 1.0)
    moved = routes(router.write())
    assert {key: op for key, (op, _) in moved.items()} == {V4[0]: Op.MODIFY, V4[1]: Op.MODIFY}
    assert router.installed[V4[0]] != on_group


def test_one_pass_finds_prefixes_left_on_a_group_and_those_that_nothing_desires(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    router = Router()
    router.define(1, 1, 2)
    router.define(2, 1)
    router.learn({V4[0]: 1})
    router.neighbors(1, 2)
    router.write()
    held = {VRF: {**router.installed, V4[1]: LOCAL}}
    read = Installed(routes=held, nexthops=dict(router.fib.desired_nexthops), groups=dict(router.fib.desired_groups))
    list(router.fib.adopt(read, {}))
    router.fib.set_ports({"p1": (11, True), "p2": (12, False)}, 0.0)
    router.learn({V4[0]: 2})
    assert routes(router.write()) == {}
    monkeypatch.setattr("controller.routing.fib.SLICE_COST", 1)  # the pass for the one has not begun before the other
    router.fib.set_ports(PORTS, 1.0)
    router.fib.sweep(1.0)
    assert {key: op for key, (op, _) in routes(router.write()).items()} == {V4[0]: Op.MODIFY, V4[1]: Op.DELETE}


def test_routes_over_a_dead_link_go_once_it_has_settled() -> None:
    router = Router()
    router.define(1, 1)
    router.learn({V4[0]: 1})
    router.write()
    router.fib.set_ports({"p1": (11, False), "p2": (12, True)}, 3.0)
    assert routes(router.write()) == {}
    router.fib.tick(4.9)
    assert routes(router.write()) == {}
    router.fib.tick(5.0)
    assert routes(router.write()) == {V4[0]: (Op.DELETE, 0)}
    router.fib.set_ports(PORTS, 6.0)
    assert routes(router.write())[V4[0]][0] is Op.INSERT


def test_after_a_broken_channel_nothing_is_confirmed_until_it_is_read() -> None:
    router = Router()
    router.define(1, 1)
    router.learn({V4[0]: 1})
    mark = router.fib.mark()
    _, ticket = router.take()
    router.fib.abandon()
    assert (router.fib.in_flight, router.fib.reached(mark)) == (0, False)
    list(router.fib.adopt(Installed(), {}))
    assert not router.fib.reached(mark)
    router.write()
    assert router.fib.reached(mark)
    assert ticket.cost == 2
