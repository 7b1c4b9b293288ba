"""The kernel's own routes: zebra says that it chose them, the kernel what they are.

The messages are those that FRR 10.3 was seen to send, and not to send, when a link went down and up.
"""

import pytest
from netlink_bytes import attribute, by_gateway, by_nexthop, multipath, nexthop, route, u32
from route_tables import changes, delete, empty_table, taken

from vrc.netlink.requests import NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE
from vrc.netlink.route_messages import NLM_F_APPEND, NLM_F_MULTI, RTM_DELROUTE, RTM_NEWROUTE
from vrc.routes.nexthops import SetKind
from vrc.routes.table import RouteTable
from wire.columns import prefix_key

CONNECTED, OTHER = prefix_key("10.0.22.0/24"), prefix_key("10.40.0.0/16")


def chosen(prefix: str, nexthop_id: int = 32) -> bytes:
    """What FPM says where zebra left a prefix to the kernel."""
    return route(prefix, by_nexthop(nexthop_id), protocol=2)


def on_link(ifindex: int) -> bytes:
    return attribute(4, u32(ifindex))


def kernel(table: RouteTable, *messages: bytes) -> None:
    table.system.apply(changes(*messages))
    table.follow_system()


def kind_of(table: RouteTable, key: bytes) -> int:
    return table.sets.content(table.find(key))[0]


def test_a_connected_route_whose_nexthop_zebra_never_told_is_the_kernels() -> None:
    table = empty_table()
    kernel(table, route("10.0.22.0/24", on_link(3), protocol=2, kernel=True))
    table.apply(changes(chosen("10.0.22.0/24")), table.open_scope())
    assert kind_of(table, CONNECTED) == SetKind.CONNECTED
    assert taken(table) == {CONNECTED: table.find(CONNECTED)}


def test_zebra_may_say_it_before_the_kernel_was_heard() -> None:
    table = empty_table()
    table.apply(changes(chosen("10.0.22.0/24")), table.open_scope())
    assert table.find(CONNECTED) == 0
    kernel(table, route("10.0.22.0/24", on_link(3), protocol=2, kernel=True))
    assert kind_of(table, CONNECTED) == SetKind.CONNECTED


def test_what_the_kernel_removes_goes_without_a_word_of_zebra() -> None:
    table = empty_table()
    kept = route("10.40.0.0/16", by_gateway("10.2.0.9", 3), protocol=3, kernel=True)
    kernel(table, kept)
    table.apply(changes(chosen("10.40.0.0/16")), table.open_scope())
    assert table.find(OTHER)
    gone = route("10.40.0.0/16", by_gateway("10.2.0.9", 3), protocol=3, kernel=True, kind=RTM_DELROUTE)
    kernel(table, gone)
    assert table.find(OTHER) == 0
    kernel(table, kept)
    assert table.find(OTHER)


@pytest.mark.parametrize("zebra_first", [True, False])
def test_a_route_of_zebras_takes_its_place_whoever_is_heard_first(zebra_first: bool) -> None:
    table = empty_table()
    scope = table.open_scope()
    kernel(table, route("10.0.22.0/24", on_link(3), protocol=2, kernel=True))
    table.apply(changes(chosen("10.0.22.0/24")), scope)

    def zebra() -> None:
        table.apply(changes(nexthop(14, 2, "10.1.0.2"), route("10.0.22.0/24", by_nexthop(14))), scope)

    def link() -> None:
        kernel(table, route("10.0.22.0/24", on_link(3), protocol=2, kernel=True, kind=RTM_DELROUTE))

    for step in (zebra, link) if zebra_first else (link, zebra):
        step()
    assert kind_of(table, CONNECTED) == SetKind.FORWARD
    table.apply(changes(chosen("10.0.22.0/24", 33)), scope)
    kernel(table, route("10.0.22.0/24", on_link(3), protocol=2, kernel=True))
    assert kind_of(table, CONNECTED) == SetKind.CONNECTED


def test_what_zebra_did_not_choose_is_not_mirrored() -> None:
    table = empty_table()
    kernel(table, route("10.40.0.0/16", by_gateway("10.2.0.9", 3), protocol=3, kernel=True))
    assert not table.pending
    table.apply(changes(chosen("10.40.0.0/16"), delete("10.40.0.0/16", by_nexthop(32))), table.open_scope())
    assert table.find(OTHER) == 0


def test_zebras_own_routes_in_the_kernel_are_passed_over() -> None:
    table = empty_table()
    for protocol in (11, 186, 196):
        kernel(table, route("10.40.0.0/16", by_gateway("10.2.0.9", 3), protocol=protocol, kernel=True))
    assert len(table.system) == 0


def test_the_lowest_metric_is_in_force_and_of_equal_ones_the_oldest() -> None:
    table = empty_table()
    table.apply(changes(chosen("10.40.0.0/16")), table.open_scope())
    for gateway, metric, flags in (("10.2.0.9", 100, 0), ("10.2.0.8", 50, 0), ("10.2.0.7", 50, NLM_F_APPEND)):
        kernel(table, route("10.40.0.0/16", by_gateway(gateway, 3, metric), protocol=3, kernel=True, flags=flags))
    ways = []
    for gateway, metric in (("10.2.0.8", 50), ("10.2.0.7", 50), ("10.2.0.9", 100)):
        ways.append(table.sets.content(table.find(OTHER))[1][0][1][-1])
        gone = by_gateway(gateway, 3, metric)
        kernel(table, route("10.40.0.0/16", gone, protocol=3, kernel=True, kind=RTM_DELROUTE))
    assert ways == [8, 7, 9]
    assert table.find(OTHER) == 0


FIRST, APPENDED, PREPENDED = NLM_F_CREATE | NLM_F_EXCL, NLM_F_CREATE | NLM_F_APPEND, NLM_F_CREATE
"""What the kernel says with a route that is the first of its metric, and with one behind or before others."""


@pytest.mark.parametrize("prefix", ["10.0.22.0/24", "2001:db8:22::/64"])
@pytest.mark.parametrize("by_dump", [True, False])
def test_a_connected_network_on_two_interfaces_is_the_others_when_it_leaves_one(prefix: str, by_dump: bool) -> None:
    table, key = empty_table(), prefix_key(prefix)
    second = APPENDED if "." in prefix else NLM_F_CREATE  # as Linux says it of either family
    flags = [(2, NLM_F_MULTI), (3, NLM_F_MULTI)] if by_dump else [(2, FIRST), (3, second)]
    told = [route(prefix, on_link(link), protocol=2, kernel=True, flags=flag) for link, flag in flags]
    if by_dump:
        table.system.replace(changes(*told))
    else:
        kernel(table, *told)
    table.apply(changes(chosen(prefix)), table.open_scope())
    assert table.sets.content(table.find(key)) == (SetKind.CONNECTED, ((102, b"", 1),))
    kernel(table, route(prefix, on_link(2), protocol=2, kernel=True, kind=RTM_DELROUTE))
    assert table.sets.content(table.find(key)) == (SetKind.CONNECTED, ((103, b"", 1),))
    assert not table.system.ambiguous
    kernel(table, route(prefix, on_link(3), protocol=2, kernel=True, kind=RTM_DELROUTE))
    assert table.find(key) == 0


def way(table: RouteTable) -> int:
    """The last octet of the gateway that is in force."""
    return table.sets.content(table.find(OTHER))[1][0][1][-1]


def by(number: int, flags: int = 0, kind: int = RTM_NEWROUTE) -> bytes:
    return route("10.40.0.0/16", by_gateway(f"10.2.0.{number}", 3), protocol=3, kernel=True, flags=flags, kind=kind)


def test_a_route_that_was_prepended_is_in_force_and_the_one_behind_it_when_it_goes() -> None:
    table = empty_table()
    table.apply(changes(chosen("10.40.0.0/16")), table.open_scope())
    kernel(table, by(9, FIRST), by(8, PREPENDED))
    assert way(table) == 8
    kernel(table, by(8, kind=RTM_DELROUTE))
    assert way(table) == 9
    kernel(table, by(7, NLM_F_REPLACE))
    assert (way(table), len(table.system), table.system.ambiguous) == (7, 1, False)
    kernel(table, by(6, FIRST))  # so the one before went without a message
    assert (way(table), len(table.system), table.system.ambiguous) == (6, 1, False)


def test_what_is_told_again_after_a_dump_changes_nothing() -> None:
    table = empty_table()
    table.apply(changes(chosen("10.40.0.0/16")), table.open_scope())
    table.system.replace(changes(by(9, NLM_F_MULTI), by(8, NLM_F_MULTI)))
    table.follow_system()
    kernel(table, by(9, FIRST), by(8, APPENDED))
    kernel(table, by(8, APPENDED))
    assert (way(table), len(table.system), table.system.ambiguous) == (9, 2, False)


def test_only_a_dump_tells_what_one_of_several_took_the_place_of_or_which_way_went() -> None:
    table = empty_table()
    table.apply(changes(chosen("10.40.0.0/16")), table.open_scope())
    kernel(table, by(9, FIRST), by(8, APPENDED), by(7, NLM_F_REPLACE))
    assert table.system.ambiguous
    table.system.replace(changes(by(7, NLM_F_MULTI)))
    assert not table.system.ambiguous
    kernel(table, by(9, kind=RTM_DELROUTE))  # said before the dump, heard after it
    assert table.system.ambiguous
    assert way(table) == 7


def test_an_ipv6_route_that_is_told_again_with_its_ways_in_another_order_is_for_a_dump_to_tell() -> None:
    one, other, newest = ("2001:db8:1::2", 2), ("2001:db8:2::2", 3), ("2001:db8:1::3", 2)
    table, prefix = empty_table(), "2001:db8:9::/64"

    def of(*ways: tuple[str, int], flags: int = 0, kind: int = RTM_NEWROUTE) -> bytes:
        return route(prefix, multipath(*ways), protocol=3, kernel=True, flags=flags, kind=kind)

    listed = of(one, other, newest, flags=NLM_F_MULTI)
    table.system.replace(changes(listed))
    kernel(table, of(newest, one, other, flags=APPENDED))  # said before the dump: Linux puts the new way first
    assert table.system.ambiguous
    table.system.replace(changes(listed))
    kernel(table, of(one, other, newest, kind=RTM_DELROUTE))
    assert (len(table.system), table.system.ambiguous) == (0, False)


def test_a_way_that_the_kernel_has_set_aside_is_not_gone_and_only_a_dump_tells_when_it_is_back() -> None:
    one, other = ("10.1.0.2", 2), ("10.2.0.2", 3)
    table = empty_table()
    table.apply(changes(chosen("10.40.0.0/16")), table.open_scope())
    for dead, left in ((other, 1), (None, 2)):
        said = route("10.40.0.0/16", multipath(one, other, dead=dead), protocol=3, kernel=True, flags=NLM_F_MULTI)
        table.system.replace(changes(said))
        table.follow_system()
        assert len(table.sets.content(table.find(OTHER))[1]) == left
        table.system.follow_links()
        assert table.system.ambiguous is (dead is not None)


def test_a_dump_of_ipv6_routes_with_the_same_way_asks_for_no_other_dump() -> None:
    table = empty_table()
    way = by_gateway("2001:db8:1::2", 2)  # as of two nexthop objects, or two source prefixes
    told = [attribute(30, u32(number)) for number in (7, 8)]
    said = [route("2001:db8:9::/64", way + one, protocol=3, kernel=True, flags=NLM_F_MULTI) for one in told]
    table.system.replace(changes(*said))
    assert (len(table.system), table.system.ambiguous) == (2, False)


def test_more_of_one_prefix_than_are_kept_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vrc.routes.system_routes.MAX_SYSTEM_ROUTES", 2)
    table = empty_table()
    kernel(table, by(9, FIRST), by(8, APPENDED), by(7, APPENDED))
    assert (len(table.system), table.system.refused) == (2, 1)


def test_a_dump_replaces_all_and_what_is_the_same_is_not_sent_again() -> None:
    table = empty_table()
    connected = route("10.0.22.0/24", on_link(3), protocol=2, kernel=True)
    other = route("10.40.0.0/16", by_gateway("10.2.0.9", 3), protocol=3, kernel=True)
    kernel(table, connected, other)
    table.apply(changes(chosen("10.0.22.0/24"), chosen("10.40.0.0/16")), table.open_scope())
    taken(table)
    table.system.replace(changes(connected))
    table.follow_system()
    assert taken(table) == {OTHER: 0}


def test_ipv4_routes_of_a_link_that_goes_down_go_without_a_message() -> None:
    table = empty_table()
    kernel(table, route("10.0.22.0/24", on_link(3), protocol=2, kernel=True))
    kernel(table, route("2001:db8:22::/64", on_link(3), protocol=2, kernel=True))
    table.apply(changes(chosen("10.0.22.0/24"), chosen("2001:db8:22::/64")), table.open_scope())
    table.system.drop_over(lambda ifindex: ifindex == 4)
    assert not table.system.ambiguous
    table.system.drop_over(lambda ifindex: ifindex == 3)
    table.follow_system()
    assert table.find(CONNECTED) == 0
    assert table.find(prefix_key("2001:db8:22::/64"))


def test_a_route_heard_before_its_link_was_said_to_be_down_comes_back() -> None:
    table = empty_table()
    made = route("10.0.22.0/24", on_link(3), protocol=2, kernel=True)
    kernel(table, made)
    table.apply(changes(chosen("10.0.22.0/24")), table.open_scope())
    table.system.drop_over(lambda ifindex: ifindex == 3)
    table.follow_system()
    assert table.find(CONNECTED) == 0
    assert table.system.ambiguous, "the kernel says it once"
    table.system.replace(changes(made))
    table.follow_system()
    assert kind_of(table, CONNECTED) == SetKind.CONNECTED
    assert not table.system.ambiguous


@pytest.mark.parametrize("prefix", ["10.0.22.0/24", "2001:db8:22::/64"])
def test_routes_of_a_link_without_carrier_are_not_in_force_and_come_back_with_it(prefix: str) -> None:
    dark: set[int] = set()
    key = prefix_key(prefix)
    table = empty_table(dark.__contains__)
    kernel(table, route(prefix, on_link(3), protocol=2, kernel=True))
    kernel(table, route("10.40.0.0/16", by_gateway("10.2.0.9", 2), protocol=3, kernel=True))
    scope = table.open_scope()
    table.apply(changes(chosen(prefix), chosen("10.40.0.0/16")), scope)
    before = taken(table)
    assert before.keys() == {key, OTHER}
    for links, gone in (({3}, {key: 0}), ({3}, {}), (set(), {key: before[key]})):
        dark.clear()
        dark.update(links)
        table.system.follow_links()
        table.follow_system()
        told = taken(table)
        assert told.keys() == gone.keys()
        assert {one: bool(found) for one, found in told.items()} == {one: bool(found) for one, found in gone.items()}


def test_of_several_routes_of_a_prefix_the_one_whose_link_has_carrier_is_in_force() -> None:
    dark: set[int] = set()
    table = empty_table(dark.__contains__)
    table.apply(changes(chosen("10.40.0.0/16")), table.open_scope())
    for gateway, link, metric in (("10.2.0.9", 2, 50), ("10.3.0.8", 3, 100)):
        kernel(table, route("10.40.0.0/16", by_gateway(gateway, link, metric), protocol=3, kernel=True))
    ways = []
    for links in (set(), {2}, set()):
        dark.clear()
        dark.update(links)
        table.system.follow_links()
        table.follow_system()
        ways.append(table.sets.content(table.find(OTHER))[1][0][1][-1])
    assert ways == [9, 8, 9]


def test_a_route_that_comes_behind_one_without_carrier_is_in_force_at_once() -> None:
    table = empty_table(lambda ifindex: ifindex == 2)
    table.apply(changes(chosen("10.40.0.0/16")), table.open_scope())
    kernel(table, route("10.40.0.0/16", by_gateway("10.2.0.9", 2, 50), protocol=3, kernel=True))
    assert table.find(OTHER) == 0
    second = route("10.40.0.0/16", by_gateway("10.3.0.8", 3, 100), protocol=3, kernel=True)
    kernel(table, second)
    assert table.sets.content(table.find(OTHER))[1][0][1][-1] == 8
    gone = route("10.40.0.0/16", by_gateway("10.3.0.8", 3, 100), protocol=3, kernel=True, kind=RTM_DELROUTE)
    kernel(table, gone)
    assert table.find(OTHER) == 0


def test_a_dump_does_not_bring_back_what_has_no_carrier() -> None:
    table = empty_table(lambda ifindex: ifindex == 3)
    connected = route("10.0.22.0/24", on_link(3), protocol=2, kernel=True)
    table.adopt(changes(connected), table.open_scope(), None)
    assert table.find(CONNECTED) == 0
    own = route("10.40.0.0/16", by_gateway("10.2.0.9", 3), protocol=11, kernel=True)
    table.adopt(changes(own), table.open_scope(), None)
    assert table.find(OTHER)  # zebra's own: it says what becomes of it


def test_a_route_without_ways_stays_whatever_links_do() -> None:
    table = empty_table(lambda _: True)
    kernel(table, route("10.40.0.0/16", protocol=3, kernel=True, route_type=6))
    table.apply(changes(chosen("10.40.0.0/16")), table.open_scope())
    assert kind_of(table, OTHER) == SetKind.BLACKHOLE
    table.system.drop_over(lambda _: True)
    table.system.follow_links()
    table.follow_system()
    assert kind_of(table, OTHER) == SetKind.BLACKHOLE


def test_they_outlive_zebra() -> None:
    table = empty_table()
    kernel(table, route("10.0.22.0/24", on_link(3), protocol=2, kernel=True))
    table.apply(changes(chosen("10.0.22.0/24")), table.open_scope())
    again = table.open_scope()
    assert table.keep_only(again) == 0
    assert table.find(CONNECTED)
